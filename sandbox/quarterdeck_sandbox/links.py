"""Follow symbolic links one by one, so that each is known."""

import os
from dataclasses import dataclass
from typing import Final

MAX_LINKS: Final = 40
"""Of one path; as many as the kernel follows."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Where a path leads.

    Attributes:
        real: without any link; an existing path or not.
        links: (where, to what) in the order met; each `where` has no link in its own folder.
        endless: there are too many links to arrive.
    """

    real: str
    links: tuple[tuple[str, str], ...] = ()
    endless: bool = False


def follow(path: str) -> Followed:
    """Follow the absolute `path`."""
    pending, done = path.split("/")[::-1], ""
    links: list[tuple[str, str]] = []
    while pending:
        part = pending.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        try:
            target = os.readlink(here)
        except OSError:
            done = here
            continue
        if len(links) == MAX_LINKS:
            return Followed(here, tuple(links), endless=True)
        links.append((here, target))
        if target.startswith("/"):
            done = ""
        pending += target.split("/")[::-1]
    return Followed(done or "/", tuple(links))
