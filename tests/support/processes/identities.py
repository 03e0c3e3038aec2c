"""Under whom a test's processes run: root, or an ordinary user; and interpreters that such a user can reach."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from support.sandbox.machine_facts import NO_ROOT, bubblewrap_missing

SOURCES: Final = Path(__file__).resolve().parents[3]
PACKAGES: Final = ("protocol", "sandbox", "worker", "supervisor")

USER_UID: Final = 12345
"""An ordinary user whom no machine has, so that nothing else runs under that number."""


class Identity(StrEnum):
    """Who owns the supervisor."""

    ROOT = "root"
    USER = "user"

    @property
    def missing(self) -> str:
        """Why tests cannot run as this one here; empty when they can."""
        if os.geteuid() != 0:
            return NO_ROOT if self is Identity.ROOT else ""
        return "" if self is Identity.ROOT else quarterdeck_for_others().missing

    @property
    def uid(self) -> int:
        return USER_UID if os.geteuid() == 0 and self is Identity.USER else os.geteuid()

    @property
    def popen(self) -> Mapping[str, Any]:
        return {"user": self.uid, "group": self.uid, "extra_groups": []} if self.uid != os.geteuid() else {}

    @property
    def quarterdeck(self) -> "Command":
        if self.uid != os.geteuid():
            return quarterdeck_for_others()
        return Command((sys.executable, "-m", "quarterdeck.cli"))

    def own(self, *paths: Path) -> None:
        if self.uid != os.geteuid():
            for path in paths:
                os.chown(path, self.uid, self.uid)


ROOT_BY_NIGHT: Final = [
    pytest.param(False, id="user"),
    pytest.param(True, id="root", marks=pytest.mark.nightly),
]
"""Whether it is root, for `user_or_root`: of what costs much, and differs little between the two."""


def user_or_root(is_root: bool) -> Identity:
    """The ordinary user, unless it is root's turn, or nobody else can run our packages here."""
    return Identity.ROOT if is_root or Identity.USER.missing else Identity.USER


@dataclass(frozen=True, slots=True)
class Command:
    """The beginning of a command line and what its environment needs; or why there is none."""

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""


def is_open(path: str | Path) -> bool:
    """Whether every user can reach and read it."""
    whole = Path(os.path.realpath(path))
    if whole.is_dir():
        return whole.stat().st_mode & 0o5 == 0o5 and all(parent.stat().st_mode & 0o1 for parent in whole.parents)
    return os.path.exists(whole) and whole.stat().st_mode & 0o4 != 0 and is_open_way(whole)


def is_open_way(path: Path) -> bool:
    """Whether every user can walk to it."""
    return all(parent.stat().st_mode & 0o1 for parent in path.parents)


def _interpreters() -> Iterator[str]:
    yield os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    for folder in ("/usr/bin", "/usr/local/bin", "/bin"):
        yield f"{folder}/python{sys.version_info.major}.{sys.version_info.minor}"
        yield f"{folder}/python3"


@cache
def plain_python() -> str:
    """An interpreter with its standard library that every user can run; empty when there is none."""
    for candidate in _interpreters():
        if os.access(candidate, os.X_OK) and is_open(candidate) and "/.pyenv/shims/" not in candidate:
            return candidate
    return ""


@cache
def quarterdeck_for_others() -> Command:
    """The tool for a user who may not read our interpreter: another one of the same version, with our packages."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = plain_python()
    if not python:
        return Command(missing="no interpreter can be reached by an ordinary user")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    paths = [*packages, *(str(SOURCES / name) for name in PACKAGES)]
    if closed := [path for path in paths if not is_open(path)]:
        return Command(missing=f"an ordinary user cannot read {closed[0]}")
    version = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    if subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip() != wanted:
        return Command(missing=f"{python} is not Python {wanted}, which our packages are for")
    return Command((python, "-m", "quarterdeck.cli"), {"PYTHONPATH": os.pathsep.join(paths)})


def give_to_commands(*paths: Path) -> None:
    """As root, make an ordinary user the owner of what native commands work in, so that they run as that user.

    Their private places are root's and closed: only mounts can show them to somebody else.  Without bubblewrap it
    stays root's, and commands run as root without capabilities.
    """
    if os.geteuid() == 0 and not bubblewrap_missing():
        for path in paths:
            os.chown(path, USER_UID, USER_UID)
