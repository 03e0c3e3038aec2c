"""Commands in sandboxes: the shell seam, what a session's commands run under, and those in the background."""
