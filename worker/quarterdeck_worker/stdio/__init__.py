"""A server that is a child process: a relay over its pipes.  Nothing here knows of `remote`."""
