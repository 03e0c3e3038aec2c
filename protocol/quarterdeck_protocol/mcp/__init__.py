"""The Model Context Protocol's messages, as far as routing needs them.  Pure."""
