"""The page: what runs, what waits and what was called, for a person's browser on this machine."""
