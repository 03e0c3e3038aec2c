"""The deck: which tools a session has, native and grafted, and the box that calls them."""
