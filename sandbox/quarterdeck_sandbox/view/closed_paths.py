"""Find what a process must not change within what it may write: what is trusted, or run later outside of any sandbox.

    protected   the user's configuration and its kin, and our own code: closed, or nothing starts
    hooks       files that the user's other programs run in a project: closed if possible, else reported; hooks that do
                not exist yet are moved into quarantine when they appear (`run/quarantine`)

A read-only mount (`native/readonly.c`) closes a part that exists.  For configuration that does not exist yet, the
nearest folder is closed; if that is the writable folder itself, this is impossible, and the receipt reports it.
This module reads the filesystem and changes nothing.

Hooks are git's, editors' tasks and their kin.  `is_hook` judges a name, for tools that change one file at a time;
`find_hooks` finds existing hooks, for sandboxes; `missing_hooks` returns those that a command could make.  The table
has files that run when a user only looks: enters the folder, asks git for the status, opens an editor or another client
there.  Files that run when a user builds, tests or commits (package scripts, Makefiles, hooks among a project's files)
are made to be changed, and users read them first.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.policy.mounts import (
    AbsentHook,
    Mount,
    MountKind,
    Repository,
    View,
    ancestors,
    is_within,
)
from quarterdeck_sandbox.program.launch import refusal

from .git_repository import AT_A_LOOK, GIT, named_files, repositories, work_tree_of
from .own_code import own_code

WORD = "code or configuration that quarterdeck trusts"
"""Configuration, what it refers to, and our code, in a message."""

AT_THE_TOP: Final = (
    *(".vscode", ".idea", ".zed", ".helix", ".exrc", ".nvimrc", ".nvim.lua"),
    *(".devcontainer", ".devcontainer.json", ".envrc"),
    *(".mcp.json", ".cursor/mcp.json", ".cursor/hooks.json", ".claude/settings.json", ".claude/settings.local.json"),
    *(".codex/config.toml", ".gemini/settings.json", ".kiro/settings/mcp.json", ".roo/mcp.json", ".amazonq/mcp.json"),
    *("opencode.json", ".opencode"),
    *("deck.lock", "lock.ignore"),
)
"""Editors' tasks and settings that name programs, environments that start with a folder, other MCP clients' servers and
hooks, and our own locks: an attacker who plants a `lock.ignore` chooses the files that a lock ignores."""

_OF_GIT: Final = ("hooks", "config", "config.worktree", "commondir")
"""`config` names programs too: hooks elsewhere, a file system monitor, pagers, filters.  `commondir` says where git
looks for hooks and settings; worktrees have one, and a repository's own would count too."""

_MAX_NEIGHBOURS: Final = 256  # the most folders of a writable folder to search for repositories, to word the receipt
_MAX_MODULES: Final = 64
_MAX_MODULE_DEPTH: Final = 4  # a submodule's directory is called like its path

MAX_NAMED: Final = 3
"""Of files that it could make, in one line; where a home may be written there are many."""

_SPLIT: Final = tuple(name.split("/") for name in AT_THE_TOP)


class Closing(msgspec.Struct, frozen=True):
    """What is closed: existing real paths, parents first, none within another; and what could not be."""

    paths: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    absent: tuple[AbsentHook, ...] = ()
    repositories: tuple[Repository, ...] = ()


class Hook(msgspec.Struct, frozen=True):
    """A hook. If it `is_there`, it exists and is not a link; a link can only be reported."""

    path: str
    is_there: bool = True


def close_within(
    view: View, named: Sequence[str], protected: Iterable[str], *, can_close: bool, remedy: str
) -> Closing:
    """Return what to close in what `view` lets a process write.

    `named` is what its policy lets it write, as written there; `protected` what it may never write, and our own code;
    `can_close` says whether this machine can close a part of a folder, `remedy` what makes it possible.  Raise
    LaunchError `sandbox_refused` if something protected would stay open.
    """
    finder = _Finder(view, sorted({observed.realpath(path) for path in named}), can_close, remedy)
    for path in dict.fromkeys((*own_code(), *map(os.path.normpath, protected))):
        finder.protect(path)
    for folder in finder.named:
        finder.guard(folder)
    return finder.result()


class _Finder:
    def __init__(self, view: View, named: Sequence[str], can_close: bool, remedy: str) -> None:
        self.named = dict.fromkeys(named)
        self._view = view
        self._can_close = can_close
        self._remedy = remedy
        self._writable = [mount for mount in view.mounts if mount.kind is MountKind.WRITE]
        self._closed: dict[str, str] = {}
        self._gaps: list[str] = []
        self._missing: list[str] = []
        self._absent: list[AbsentHook] = []
        self._repositories: list[Repository] = []

    def protect(self, path: str) -> None:
        if not self._writable:
            return
        followed = observed.follow(path)
        for link, _ in followed.links:
            if (above := self._open_at(link)) is None:
                continue
            folder = os.path.dirname(link)
            if folder == above.target:
                raise refusal(
                    f"{link} is a symbolic link that leads to {WORD} ({followed.real}), and it lies in {folder}, which "
                    f"it may write: name {followed.real} itself, or narrower folders"
                )
            self._close(folder, above, path)
        real = followed.real
        if inside := next((mount for mount in self._writable if is_within(mount.target, real)), None):
            raise refusal(
                f'"write" names {inside.target}, which is in {real}, {WORD}: a program that changes it would not be '
                "confined at the next start; name other folders"
            )
        if (above := self._open_at(real)) is None:
            return
        nearest = next(folder for folder in ancestors(real) if observed.lexists(folder))
        if nearest == above.target:
            if path in own_code():
                raise refusal(
                    f"it may write {nearest}, and could create {real} there, {WORD}: make that folder yourself"
                )
            self._missing.append(real)
            return
        self._require_one_name(nearest, above)
        self._close(nearest, above, path)

    def guard(self, folder: str) -> None:
        for hook in find_hooks(folder):
            above = self._open_at(hook.path)
            # Named itself, or with the `.git` that it is in: then it is to be changed.
            if above is None or self._deepest_named(hook.path) != folder:
                continue
            if hook.is_there and self._can_close:
                self._closed.setdefault(hook.path, "other programs run it")
            elif hook.is_there:
                self._gaps.append(f"filesystem: it may change {hook.path}, which other programs run; {self._remedy}")
            else:
                self._gaps.append(
                    f"filesystem: {hook.path} is a symbolic link, so that it cannot be closed, and other programs run "
                    "what is there: make it a folder"
                )
        absent = [
            AbsentHook(folder, path.removeprefix(folder).lstrip("/"))
            for path in missing_hooks(folder)
            if self._open_at(path) is not None and self._deepest_named(path) == folder
        ]
        self._absent += absent
        self._repositories += [each for each in repositories(folder) if each.git_dir]
        if absent and _meets_repository(folder):
            # Git's come first: they decide what runs at the next `git status`.
            names = sorted((hook.name for hook in absent), key=lambda name: not name.startswith(f"{GIT}/"))
            self._gaps.append(
                f"filesystem: in {folder} it could create {_first_of(names)}, which other programs run: each is moved "
                "into quarantine before an answer goes out (quarterdeck quarantine list)"
            )

    def result(self) -> Closing:
        paths = outermost(self._closed)
        shown = tuple(f"read-only: {path} ({self._closed[path]})" for path in paths)
        gaps = self._gaps
        if self._missing:
            named = _first_of(self._missing)
            gaps = [*gaps, f"filesystem: it could create {named}: what does not exist cannot be made read-only"]
        return Closing(paths, shown, tuple(gaps), tuple(self._absent), tuple(self._repositories))

    def _close(self, path: str, above: Mount, for_path: str) -> None:
        if not self._can_close:
            raise refusal(
                f"it may write {above.target}, and with it {for_path}, {WORD}; this machine cannot close a part of a "
                f"folder: move it elsewhere, or name narrower folders, or {self._remedy}"
            )
        self._closed[path] = WORD

    def _require_one_name(self, path: str, above: Mount) -> None:
        status = observed.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise refusal(
                f"{path} is {WORD}, lies in {above.target}, which it may write, and has {status.st_nlink} names (hard "
                f"links), by any of which it can be changed: give it one of its own (cp {path} {path}.new && mv "
                f"{path}.new {path})"
            )

    def _open_at(self, path: str) -> Mount | None:
        covering = self._view.covering(path)
        return covering if covering is not None and covering.kind is MountKind.WRITE else None

    def _deepest_named(self, path: str) -> str:
        return next((folder for folder in ancestors(path) if folder in self.named), "")


def _first_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def steps(view: View) -> tuple[tuple[str, bool], ...]:
    """Return the mounts that close the view, parents first: each path upon itself, and as it was the folders above.
    Pure.
    """
    found: dict[str, bool] = {}
    for path in view.closed:
        above = view.covering(path)
        top = above.target if above is not None else path
        for folder in ancestors(path):
            if folder == top:
                break
            found[folder] = found.get(folder, False) or folder == path
    return tuple(sorted(found.items(), key=lambda step: step[0].split("/")))


def outermost(found: Iterable[str]) -> tuple[str, ...]:
    """Sort paths, parents first, and drop what lies within another.  Pure."""
    kept: list[str] = []
    for path in sorted(set(found), key=lambda path: path.split("/")):
        if not kept or not is_within(path, kept[-1]):
            kept.append(path)
    return tuple(kept)


def is_hook(parts: Sequence[str]) -> bool:
    """Return whether a path, in its parts from a writable folder, is a hook or lies in one, or in a `.git`."""
    if parts[-1] == AT_A_LOOK:
        return True
    for start in range(len(parts)):
        if parts[start] == GIT or any(list(parts[start:])[: len(name)] == name for name in _SPLIT):
            return True
    return False


def find_hooks(folder: str) -> Iterator[Hook]:
    """Yield the hooks of `folder`, absolute and without links: at its top, not in projects below it."""
    for name in AT_THE_TOP:
        if observed.lexists(path := f"{folder}/{name}"):
            yield Hook(path, not observed.islink(path))
    git = f"{folder}/{GIT}"
    if observed.islink(git):
        yield Hook(git, is_there=False)
    elif observed.isfile(git):
        yield Hook(git)  # it says where a submodule or a worktree has its own
    elif observed.isdir(git):
        yield from _of_git(git)
        for module in _modules(f"{git}/modules"):
            yield from _of_git(module)
        for worktree in _folders(f"{git}/worktrees")[:_MAX_MODULES]:
            for name in _OF_GIT[2:]:
                if observed.isfile(path := f"{worktree}/{name}"):
                    yield Hook(path, not observed.islink(path))
    for inner in _inner_repositories(folder):
        if observed.islink(inner) or observed.isfile(inner):
            yield Hook(inner, not observed.islink(inner))
        elif observed.isdir(inner):
            yield from _of_git(inner)
    for path in _named_files(folder):
        if observed.lexists(path):
            yield Hook(path, not observed.islink(path))


def missing_hooks(folder: str) -> Iterator[str]:
    """Yield the hooks that could appear in `folder`, and in its repository if it has one."""
    git = f"{folder}/{GIT}"
    git_dirs = [git, *_modules(f"{git}/modules")] if observed.isdir(git) and not observed.islink(git) else []
    names = [*(f"{folder}/{name}" for name in AT_THE_TOP)]
    names += [f"{each}/{name}" for each in git_dirs for name in _OF_GIT]
    names += [f"{each}/config.worktree" for each in _folders(f"{git}/worktrees")[:_MAX_MODULES]] if git_dirs else []
    if work_tree_of(os.path.dirname(folder)) is not None:
        # With these files, git would treat the folder as its own repository, not as a part of the one around it.
        names.append(git)
    for inner in _inner_repositories(folder):
        names += [f"{inner}/{name}" for name in _OF_GIT] if observed.isdir(inner) else [inner]
    names += _named_files(folder)
    yield from (path for path in dict.fromkeys(names) if not observed.lexists(path))


def _inner_repositories(folder: str) -> list[str]:
    found = [f"{folder}/{each.name}/{GIT}" for each in repositories(folder) if each.name]
    return list(dict.fromkeys(found))


def _named_files(folder: str) -> list[str]:
    """Return the files in `folder` that the configuration of its repositories, or of the one around it, names."""
    trees = [work_tree_of(folder), *(f"{folder}/{each.name}" for each in repositories(folder) if each.name)]
    found = [path for tree in trees if tree is not None for path in named_files(tree)]
    return [path for path in dict.fromkeys(found) if path != folder and is_within(path, folder)]


def _meets_repository(folder: str) -> bool:
    if work_tree_of(folder) is not None:
        return True
    return any(observed.lexists(f"{inner}/{GIT}") for inner in _folders(folder)[:_MAX_NEIGHBOURS])


def _of_git(git: str) -> Iterator[Hook]:
    for name in _OF_GIT:
        path = f"{git}/{name}"
        is_there = observed.exists(path) and not observed.islink(path)
        if is_there or observed.islink(path):
            yield Hook(path, is_there)


def _modules(folder: str) -> list[str]:
    found: list[str] = []
    pending = [(folder, 0)]
    while pending and len(found) < _MAX_MODULES:
        here, depth = pending.pop()
        for inner in _folders(here):
            if observed.isfile(f"{inner}/HEAD"):
                found.append(inner)
                pending.append((f"{inner}/modules", depth))
            elif depth < _MAX_MODULE_DEPTH:
                pending.append((inner, depth + 1))
    return found[:_MAX_MODULES]


def _folders(folder: str) -> list[str]:
    try:
        paths = sorted(f"{folder}/{name}" for name in observed.listdir(folder))
    except OSError:
        return []
    return [path for path in paths if observed.isdir(path) and not observed.islink(path)]
