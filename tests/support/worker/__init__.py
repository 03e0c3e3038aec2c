"""A worker's session over a server that a test plays."""
