"""What lies in a project and is run, or believed, by programs outside of any sandbox: git's hooks, editors' tasks.

Whoever may change a project's folder may not change these, unless they are named themselves.  `is_hook` judges a name,
for tools that change one file at a time; `find_hooks` looks at what is there, for sandboxes, of which a part can be
closed only if it exists; `missing_hooks` says what a command could make, for a look at what it has made.  The table is
short on purpose: what is made to be changed (sources, Makefiles, hooks that a project keeps among its files) is run by
people too, after they have read it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

GIT: Final = ".git"

AT_THE_TOP: Final = (".vscode", ".idea", ".envrc", ".mcp.json", ".cursor/mcp.json", "deck.lock", "lock.ignore")
"""Tasks and settings that name programs, environments that are entered with a folder, other MCP clients' servers, and
our own locks: who plants a `lock.ignore` decides what a lock does not look at."""

_OF_GIT: Final = ("hooks", "config", "config.worktree", "commondir")
"""`config` names programs too: hooks elsewhere, a file system monitor, pagers, filters.  `commondir` says where git
looks for hooks and settings; worktrees have one, and a repository's own would count too."""

_MAKEABLE: Final = (f"{GIT}/commondir", f"{GIT}/hooks")

_MAX_MODULES: Final = 64
_MAX_MODULE_DEPTH: Final = 4
"""A submodule's directory is called like its path."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One of them.

    Attributes:
        path: where it is.
        is_there: whether it exists, and is no link; else it can only be told of.
    """

    path: str
    is_there: bool = True


def is_hook(parts: Sequence[str]) -> bool:
    """Whether a path, in its parts from a folder that may be changed, is one of them or lies in one.

    Of a `.git` nothing is for file tools: what is in it is git's.
    """
    for start in range(len(parts)):
        if parts[start] == GIT:
            return True
        if any(list(parts[start:])[: len(name)] == name for name in _SPLIT):
            return True
    return False


_SPLIT: Final = tuple(name.split("/") for name in AT_THE_TOP)


def find_hooks(folder: str) -> Iterator[Hook]:
    """Those of `folder`, absolute and without links: at its top, not in projects below it."""
    for name in AT_THE_TOP:
        if os.path.lexists(path := f"{folder}/{name}"):
            yield Hook(path, not os.path.islink(path))
    git = f"{folder}/{GIT}"
    if os.path.islink(git):
        yield Hook(git, is_there=False)
    elif os.path.isfile(git):
        yield Hook(git)  # it says where a submodule or a worktree has its own
    elif os.path.isdir(git):
        yield from _of_git(git)
        for module in _modules(f"{git}/modules"):
            yield from _of_git(module)
        for worktree in _folders(f"{git}/worktrees")[:_MAX_MODULES]:
            for name in _OF_GIT[2:]:
                if os.path.isfile(path := f"{worktree}/{name}"):
                    yield Hook(path, not os.path.islink(path))


def missing_hooks(folder: str) -> Iterator[str]:
    """Those that could appear in `folder`, and in its repository if it has one."""
    makeable = _MAKEABLE if os.path.isdir(f"{folder}/{GIT}") else ()
    for name in (*AT_THE_TOP, *makeable):
        if not os.path.lexists(path := f"{folder}/{name}"):
            yield path


def _of_git(git: str) -> Iterator[Hook]:
    for name in _OF_GIT:
        path = f"{git}/{name}"
        is_there = os.path.exists(path) and not os.path.islink(path)
        if is_there or name == "hooks" or os.path.islink(path):
            yield Hook(path, is_there)


def _modules(folder: str) -> list[str]:
    found: list[str] = []
    pending = [(folder, 0)]
    while pending and len(found) < _MAX_MODULES:
        here, depth = pending.pop()
        for inner in _folders(here):
            if os.path.isfile(f"{inner}/HEAD"):
                found.append(inner)
                pending.append((f"{inner}/modules", depth))
            elif depth < _MAX_MODULE_DEPTH:
                pending.append((inner, depth + 1))
    return found[:_MAX_MODULES]


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
