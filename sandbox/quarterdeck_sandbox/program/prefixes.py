"""Which folder a program's file belongs to: the least that must be shown for it to work.

Only folders that look like an installation are shown whole; of anything else, the one file.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from quarterdeck_sandbox.hostile_files import read_text
from quarterdeck_sandbox.policy.mounts import ancestors, is_within, is_within_any
from quarterdeck_sandbox.view.secret_paths import credentials_touching

SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Shown to everyone."""

_BIN: Final = frozenset({"bin", "sbin", "libexec"})

_SHARED: Final = (".local/share", ".local/state", ".config", ".cache")
"""Folders of a home where every program leaves something, so none belongs to one."""

_MAX_PTH_BYTES: Final = 64 * 1024
_MAX_PTH_FILES: Final = 100
"""Of a site-packages folder, these many `*.pth` files are looked at; real ones hold a line or two."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A path that a program needs to see.

    Attributes:
        path: a file or folder, symbolic links followed.
        reason: for the receipt.
        said_by: the files that name it, where nothing about the path itself proves that it is an installation;
            whoever can write one of them could have anything shown.
    """

    path: str
    reason: str
    said_by: tuple[str, ...] = ()


def prefix_of(path: str, user_home: str, said_by: tuple[str, ...]) -> Prefix | None:
    """What must be shown for the file `path`, whose folder has no symbolic links; None when everyone sees it."""
    if is_within_any(path, SYSTEM_FOLDERS) or is_within(path, "/nix/store"):
        return None
    for folder, reason in _installations(path):
        if is_installation(folder, user_home):
            return Prefix(folder, reason)
    package = "/".join(path.split("/")[:3])
    if package.startswith("/opt/") and package != path and is_installation(package, user_home):
        return Prefix(package, "a package in /opt", said_by)
    above = os.path.dirname(os.path.dirname(path))
    if (
        os.path.basename(os.path.dirname(path)) in _BIN
        and not is_within(path, user_home)
        and is_installation(above, user_home)
    ):
        return Prefix(above, "the program's prefix", said_by)
    return Prefix(path, "the program", said_by)


def is_installation(folder: str, user_home: str) -> bool:
    """Whether showing all of `folder` shows no more than an installation."""
    if folder.count("/") < 2 or any(is_within(f"{user_home}/{name}", folder) for name in _SHARED):
        return False
    return next(credentials_touching(folder, user_home), None) is None


def environment_of(prefix: str, user_home: str) -> Iterator[Prefix]:
    """What a virtual environment needs beyond itself: the Python that it was made from, and folders it refers to."""
    if home := _home_of(prefix):
        said_by = (os.path.join(prefix, "pyvenv.cfg"),)
        base = prefix_of(os.path.join(os.path.realpath(home), "python"), user_home, said_by)
        if base and not base.said_by:
            yield Prefix(base.path, f"the Python of {prefix}")
    yield from (refers for refers in _referred(prefix) if is_installation(refers.path, user_home))


def is_environment(folder: str) -> bool:
    """Whether it is a Python virtual environment."""
    return os.path.isfile(os.path.join(folder, "pyvenv.cfg"))


def _installations(path: str) -> Iterator[tuple[str, str]]:
    folder = os.path.dirname(path)
    parts = path.split("/")
    for above in ancestors(folder):
        if os.path.basename(above) == ".linuxbrew":
            yield above, "Homebrew"
    if os.path.basename(folder) in _BIN:
        root = os.path.dirname(folder)
        if kind := _kind(root):
            yield root, kind
    if "node_modules" in parts:
        yield "/".join(parts[: parts.index("node_modules") + 1]), "node packages"


def _kind(root: str) -> str:
    """What is installed there, judged by what lies in it; empty when it looks like nothing known."""
    if is_environment(root):
        return "a virtual environment"
    if os.path.isdir(os.path.join(root, "conda-meta")):
        return "a conda environment"
    library = os.path.join(root, "lib")
    if any(os.path.isfile(os.path.join(library, name, "os.py")) for name in _names(library) if "py" in name):
        return "a Python"
    if os.path.isdir(os.path.join(root, "include", "node")) or os.path.isdir(os.path.join(library, "node_modules")):
        return "a node"
    if os.path.isfile(os.path.join(root, "release")) and os.path.isdir(library):
        return "a Java"
    if os.path.isdir(os.path.join(library, "ruby")):
        return "a Ruby"
    return ""


def _home_of(prefix: str) -> str:
    try:
        settings = read_text(os.path.join(prefix, "pyvenv.cfg"), _MAX_PTH_BYTES)
    except OSError:
        return ""
    for line in settings.splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() == "home":
            return value.strip() if value.strip().startswith("/") else ""
    return ""


def _referred(prefix: str) -> Iterator[Prefix]:
    """Folders outside it that the environment's `*.pth` files add: editable installs, pipx's shared libraries."""
    library = os.path.join(prefix, "lib")
    for version in _names(library):
        packages = os.path.join(library, version, "site-packages")
        for name in [name for name in _names(packages) if name.endswith(".pth")][:_MAX_PTH_FILES]:
            said_by = os.path.join(packages, name)
            for line in _lines(said_by):
                folder = os.path.realpath(os.path.join(packages, line))
                if os.path.isdir(folder) and not is_within_any(folder, (os.path.realpath(prefix), *SYSTEM_FOLDERS)):
                    yield Prefix(folder, f"named by {name} of {prefix}", (said_by,))


def _lines(path: str) -> Sequence[str]:
    """The folders that a `*.pth` file names; its other lines are code."""
    try:
        lines = [line.strip() for line in read_text(path, _MAX_PTH_BYTES).splitlines()]
    except OSError:
        return ()
    return [line for line in lines if line and "\0" not in line and not line.startswith(("#", "import ", "import\t"))]


def _names(folder: str) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return ()
