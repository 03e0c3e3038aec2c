"""Find the files outside a repository's own `.git` that git obeys even in a mere `git status`.

    submodules      git asks each one in the index for its status, and obeys its configuration
    named files     a repository's configuration can include others, and name a folder of hooks

This module does not start git, follow links out of the folder, or change files.
"""

import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.policy.mounts import AbsentHook, Repository, ancestors, is_within

GIT: Final = ".git"

MAX_INDEX_BYTES: Final = 64 << 20
"""The size of an index of about 600,000 files; submodules in a larger index are not found."""

MAX_PATH_BYTES: Final = 4096  # the most bytes of a `.git` that is a file
MAX_CONFIG_BYTES: Final = 1 << 20
MAX_REPOSITORIES: Final = 64  # the most repositories of one folder, with submodules at every depth
AT_A_LOOK: Final = "post-index-change"  # the only hook that `git status` runs: git rewrites the index
_GITLINK: Final = b"\x00\x00\xe0\x00"  # the mode of a submodule in an index
_HEADER: Final = struct.Struct(">4sII")
_MODE_AT: Final = 24
_HASH_AT: Final = 40
_HASHES: Final = (20, 32)  # the sizes of an object's name, SHA-1 and SHA-256.  An index does not state its hash.

_LINK: Final = re.compile(rb"link.{4}", re.DOTALL)
"""The extension of a split index, with its length; the name of the shared part follows."""

_EXTENDED: Final = 0x4000
_NAME_BYTES: Final = 0xFFF  # the mask of a name's length in its flags; longer names have all bits set

_VALUE: Final = re.compile(
    r'^\s*(?:\[[^\]\n]*\]\s*)?(hookspath|path|fsmonitor)\s*=\s*"?([^"\n#;]+)"?', re.IGNORECASE | re.MULTILINE
)
"""Matches a line of configuration.  Servers cannot write configuration, so this need not find hidden values."""


def new_submodules(repository: Repository) -> Iterator[AbsentHook]:
    """Yield the `.git` of each submodule that is in the index now and is not known."""
    for path in submodules(repository.git_dir) if repository.git_dir else ():
        if path not in repository.known:
            yield AbsentHook(repository.folder, "/".join(filter(None, (repository.name, path, GIT))))


def repositories(folder: str) -> Iterator[Repository]:
    """Yield the repository at the top of `folder`, or around it, and its submodules in the folder at every depth."""
    top = work_tree_of(folder)
    pending = [] if top is None else [(top, git_dir_of(f"{top}/{GIT}"))]
    count = 0
    while pending and count < MAX_REPOSITORIES:
        work_tree, git_dir = pending.pop(0)
        if not git_dir:
            continue
        count += 1
        here = [path for path in submodules(git_dir) if is_within(f"{work_tree}/{path}", folder)]
        known = [path for path in here if observed.lexists(f"{work_tree}/{path}/{GIT}")]
        if is_within(work_tree, folder):
            yield Repository(folder, work_tree[len(folder) :].strip("/"), git_dir, tuple(known))
        else:
            # Its index is out of reach, but the work trees of its submodules are within reach.
            for path in here:
                inside = f"{work_tree}/{path}"
                yield Repository(folder, inside[len(folder) :].strip("/"), "", ())
        pending += [(f"{work_tree}/{path}", git_dir_of(f"{work_tree}/{path}/{GIT}")) for path in known]


def work_tree_of(folder: str) -> str | None:
    """Return the folder, or the nearest one above it, that has a `.git`; None if there is none."""
    return next((above for above in ancestors(folder) if observed.lexists(f"{above}/{GIT}")), None)


def git_dir_of(path: str) -> str:
    """Return the folder that a `.git` is or refers to; empty if there is none."""
    if observed.islink(path):
        return ""
    if observed.isdir(path):
        return path
    with suppress(OSError):
        word, _, target = observed.read_text(path, MAX_PATH_BYTES).strip().partition(": ")
        found = os.path.normpath(os.path.join(os.path.dirname(path), target))
        return found if word == "gitdir" and observed.isdir(found) else ""
    return ""


def named_files(work_tree: str) -> Iterator[str]:
    """Yield the normalised paths that a repository's configuration has git read or run at a look; some do not exist."""
    git_dir = git_dir_of(f"{work_tree}/{GIT}")
    if not git_dir:
        return
    with suppress(OSError):
        for key, text in _VALUE.findall(observed.read_text(f"{git_dir}/config", MAX_CONFIG_BYTES)):
            value = text.strip()
            if value.startswith("~") or "%(" in value:
                continue
            match key.lower():
                case "hookspath":
                    yield os.path.normpath(os.path.join(work_tree, value, AT_A_LOOK))
                case "path":
                    yield os.path.normpath(os.path.join(git_dir, value))
                case _ if "/" in value:  # the others are `true`, `false`, or a program's name
                    yield os.path.normpath(os.path.join(work_tree, value.split()[0]))


def submodules(git_dir: str) -> list[str]:
    """Return the paths of all submodules in a repository's index, unchanged; a split index is read in both parts."""
    index = _read(f"{git_dir}/index")
    found = dict.fromkeys(gitlinks(index))
    for at in (match.end() for match in _LINK.finditer(index)):
        for size in _HASHES:
            if shared := _read(f"{git_dir}/sharedindex.{index[at : at + size].hex()}"):
                found.update(dict.fromkeys(gitlinks(shared)))
    return list(found)


def _read(path: str) -> bytes:
    with suppress(OSError):
        return observed.read(path, MAX_INDEX_BYTES)  # git follows a link there, too
    return b""


def gitlinks(index: bytes) -> list[str]:
    """Return the paths of the submodules in an index's content; empty if it is broken, as for git.  Pure."""
    if _GITLINK not in index:
        return []  # the usual case, found in a millisecond
    for size in _HASHES:
        with suppress(ValueError, struct.error, IndexError):
            return list(_entries(index, size))
    return []


def _entries(index: bytes, hash_bytes: int) -> Iterator[str]:
    """Yield submodules' paths.  Raise ValueError, struct.error or IndexError for hashes of another size."""
    magic, version, count = _HEADER.unpack_from(index)
    if magic != b"DIRC" or version not in {2, 3, 4}:
        raise ValueError(version)
    at, name = _HEADER.size, b""
    for _ in range(count):
        start = at
        mode = index[start + _MODE_AT : start + _MODE_AT + 4]
        at = start + _HASH_AT + hash_bytes
        (flags,) = struct.unpack_from(">H", index, at)
        at += 4 if version >= 3 and flags & _EXTENDED else 2
        if version == 4:
            dropped, at = _variable(index, at)
            end = index.index(b"\0", at)
            name, at = name[: len(name) - dropped] + index[at:end], end + 1
        else:
            end = index.index(b"\0", at)
            name, at = index[at:end], start + (end - start + 8) // 8 * 8
        if not name or min(len(name), _NAME_BYTES) != flags & _NAME_BYTES:
            raise ValueError(name)
        if mode == _GITLINK:
            path = os.fsdecode(name)
            if not {"", ".", ".."} & {*path.split("/")}:
                yield path


def _variable(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, in the format of git's index and packs, and the position behind it."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
