"""`deck.lock`: the approved form of every tool, for version control.  Pure."""
