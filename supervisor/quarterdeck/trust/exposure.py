"""Record which places a confined program could ever write: a file there is not the user's word alone.

    exposed        beside the ledger: one JSON string a line, each an absolute path without links; never taken back
    workspaces/    of the state directory: named after the workspaces of native tools, also of those before that record

A place is recorded before anything starts that may write it.  A file counts as exposed by where it lies, and by where
the links that lead to it lie, even if it is read-only inside now: a folder above it can be moved.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from quarterdeck.common.text_file import other_writer
from quarterdeck.config.places.paths import make_private_dir
from quarterdeck.ledger.open import ledger_dir
from quarterdeck_sandbox import ancestors, follow, is_within_any, open_regular

FILE_NAME: Final = "exposed"

MAX_BYTES: Final = 1024 * 1024
"""Some ten thousand places.  A longer record is not read: then every place counts as exposed."""

_LENT: Final = ("servers", "workspaces")
"""What of the state directory is lent to programs: their private homes and temporary files."""

_DIGEST_CHARS: Final = 12
"""See `workspace_paths`."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """What could be written.

    Attributes:
        places: absolute, without links.
        workspaces: their digests.
        is_recorded: whether there was a record: an earlier version kept none.
    """

    places: frozenset[str] = frozenset()
    workspaces: frozenset[str] = frozenset()
    is_recorded: bool = True

    def along_with(self, places: Iterable[str | os.PathLike[str]]) -> Self:
        """These places, and others by whatever path."""
        return replace(self, places=self.places | {os.path.realpath(place) for place in places})

    def covers(self, path: str | os.PathLike[str]) -> bool:
        """Whether another than the user could have changed what `path` names: a confined program, or another user."""
        followed = follow(os.path.join(os.getcwd(), os.fspath(path)))
        places = (followed.real, *(link for link, _ in followed.links))
        return followed.endless or any(map(self._holds, places)) or other_writer(path) is not None

    def _holds(self, place: str) -> bool:
        if is_within_any(place, self.places):
            return True
        return bool(self.workspaces) and any(_digest(step) in self.workspaces for step in ancestors(place))


NOTHING: Final = Exposure()
"""Nothing could be written."""


def read_exposure(state: Path) -> Exposure:
    """What is recorded in the state directory.  Blocking."""
    root = os.path.realpath(state)
    lent = frozenset(os.path.join(root, name) for name in _LENT)
    try:
        workspaces = frozenset(os.listdir(os.path.join(root, "workspaces")))
    except OSError:
        workspaces = frozenset()
    try:
        with open_regular(ledger_dir(state) / FILE_NAME, follow_link=False) as file:
            places = _decode(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return Exposure(lent, workspaces, is_recorded=False)
    except OSError:
        places = frozenset("/")
    return Exposure(lent | places, workspaces)


def record_exposure(state: Path, places: Iterable[str | os.PathLike[str]]) -> None:
    """Record these places, on the disk when this returns; also that there is a record, without any.  Blocking.

    Raises:
        OSError: they cannot be recorded: nothing that may write them may start.
        UnsafePathError: the directory of the ledger is not ours alone.
    """
    path = make_private_dir(ledger_dir(state)) / FILE_NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read(MAX_BYTES + 1) or b""
        known = _decode(text)
        new = [
            place for place in sorted({os.path.realpath(place) for place in places}) if not is_within_any(place, known)
        ]
        if not new:
            return
        if len(text) > MAX_BYTES:
            raise OSError(f"{path} is longer than {MAX_BYTES} bytes")
        # An interrupted write has left a line without an end; what it names never started.
        start = b"" if not text or text.endswith(b"\n") else b"\n"
        file.write(start + b"".join(json.dumps(place).encode() + b"\n" for place in new))
        os.fsync(descriptor)


def _decode(text: bytes) -> frozenset[str]:
    if len(text) > MAX_BYTES:
        return frozenset("/")
    places = set()
    for line in text.splitlines():
        try:
            place = json.loads(line)
        except ValueError:
            continue
        if isinstance(place, str) and place.startswith("/"):
            places.add(place)
    return frozenset(places)


def _digest(place: str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:_DIGEST_CHARS]
