"""A test's servers and clients, over a connection to the run's supervisor."""
