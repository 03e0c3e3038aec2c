"""Read, follow, replace and remove files that another user or program may change meanwhile."""
