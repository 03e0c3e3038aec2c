"""How absolute, normalised paths lie to each other.  Pure: nothing here looks at a disk."""

from collections.abc import Iterable


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_within_any(path: str, folders: Iterable[str]) -> bool:
    """Whether `path` is one of `folders` or lies below one."""
    return any(is_within(path, folder) for folder in folders)


def overlap(one: str, other: str) -> bool:
    """Whether either contains the other."""
    return is_within(one, other) or is_within(other, one)


def ancestors(path: str) -> Iterable[str]:
    """`path` itself, its folder, … up to the root."""
    while True:
        yield path
        if path in {"/", ""}:
            return
        path = path[: path.rindex("/")] or "/"
