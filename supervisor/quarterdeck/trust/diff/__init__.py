"""What changed in a definition, and whether it can hurt.  Pure."""
