"""Start a confined process, hold it, and end its whole tree."""
