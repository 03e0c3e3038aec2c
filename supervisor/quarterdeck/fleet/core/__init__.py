"""Decide what becomes of the servers of a fleet.  Pure."""
