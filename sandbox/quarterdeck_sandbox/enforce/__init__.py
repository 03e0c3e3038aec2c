"""One file for each mechanism that confines."""
