"""Decide what becomes of the servers of a fleet, and whose call each is given next.  Pure."""
