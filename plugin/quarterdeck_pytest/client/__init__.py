"""What a test holds: servers and clients of theirs, over a connection to the run's supervisor."""
