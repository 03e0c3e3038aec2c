"""The deck: which tools a session has, and the box that calls them."""
