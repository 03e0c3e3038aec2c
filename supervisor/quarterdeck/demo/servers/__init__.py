"""The small servers of the demonstration."""
