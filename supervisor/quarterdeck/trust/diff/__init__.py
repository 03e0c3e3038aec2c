"""What changed in a definition, and whether it can break a client.  Pure."""
