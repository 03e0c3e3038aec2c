"""Commands that run servers and call their tools."""
