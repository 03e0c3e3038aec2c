"""How many files this process may have open, and what its children get of that.

A program that uses `select` breaks above 1,024, so the soft limit is what most are started with, and the hard one is
for those who know better: we do, what we start may not.
"""

import resource
from typing import Final

_PORTABLE: Final = 10_240
"""The most that macOS takes where the hard limit is none (OPEN_MAX)."""

_before: int | None = None


def raise_limit() -> int:
    """Raise the soft limit to the hard one; what it is now.  Children are started with `childs_limit`."""
    global _before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _PORTABLE):
        if soft != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > soft):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            except (OSError, ValueError):
                continue  # more than this system takes
            _before = soft if _before is None else _before
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def childs_limit() -> int:
    """The soft limit that a child of ours is to have: the one that we were started with; 0 for its own as it is."""
    return _before or 0
