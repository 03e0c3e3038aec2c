"""What a client's file would be with our entry, or without it: worked out whole before anything is written."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from quarterdeck.config.clients.adopting import is_own
from quarterdeck.config.clients.jsonc import EditError, parse, remove_member, set_member
from quarterdeck.config.clients.showing import show_change
from quarterdeck.config.clients.spots import Spot
from quarterdeck.config.clients.userfile import UserFile, UserFileError, backups, read_user_file
from quarterdeck.config.document import DocumentError

_MAX_BACKUPS: Final = 8
"""How many copies are looked at, newest first, for what a file was before we were put in."""


class LinkError(Exception):
    """A client's file cannot be used; it names the file, says why, and is not about what is in it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change of one file.

    Attributes:
        text: what the file would hold; the same as it holds when there is nothing to do.
        others: further names under which the file starts us.
    """

    spot: Spot
    file: UserFile
    text: str
    others: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return self.text != self.file.text

    def diff(self) -> list[str]:
        """The change, for people."""
        has_comments = self.spot.client.has_comments
        return show_change(str(self.spot.path), self.file.text, self.text, has_comments=has_comments)


def plan_link(spot: Spot, name: str, entry: Mapping[str, object]) -> Plan:
    """The file with `entry` under `name`.

    Raises:
        LinkError: it cannot be read or parsed, or has a server of that name that is not ours.
    """
    file, rows = _read(spot)
    others = tuple(key for key, row in rows.items() if key != name and isinstance(row, Mapping) and is_own(row))
    if rows.get(name) == entry:
        return Plan(spot, file, file.text, others)
    if name in rows and not _is_ours(rows[name]):
        raise LinkError(f"{spot.path} has another server called {name!r}: choose a name of your own with --name")
    try:
        text = set_member(file.text, (*spot.keys, name), entry, has_comments=spot.client.has_comments)
    except (DocumentError, EditError) as error:
        raise LinkError(f"{spot.path} is not changed: {error}") from error
    return Plan(spot, file, text, others)


def plan_unlink(spot: Spot, name: str) -> Plan:
    """The file without our entry; what it was before `link`, to the byte, when nothing else has changed in it since.

    Raises:
        LinkError: it cannot be read or parsed, or what has that name is not ours.
    """
    file, rows = _read(spot)
    if name not in rows:
        return Plan(spot, file, file.text)
    if not _is_ours(rows[name]):
        raise LinkError(f"{spot.path}: the server called {name!r} is not quarterdeck: it is left there")
    try:
        text = remove_member(file.text, (*spot.keys, name), has_comments=spot.client.has_comments)
    except (DocumentError, EditError) as error:
        raise LinkError(f"{spot.path} is not changed: {error}") from error
    before = _text_before_link(spot, file, name, rows[name])
    return Plan(spot, file, text if before is None else before)


def _read(spot: Spot) -> tuple[UserFile, Mapping[str, object]]:
    """The file, and its rows by name."""
    try:
        file = read_user_file(spot.path)
        value: object = parse(file.text, has_comments=spot.client.has_comments)
    except UserFileError as error:
        raise LinkError(str(error)) from error
    except DocumentError as error:
        raise LinkError(f"{spot.path} is left as it is, since it cannot be read: {error}") from error
    for key in spot.keys:
        value = value.get(key, {}) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping):
        raise LinkError(f"{spot.path} is left as it is: its {'.'.join(spot.keys)!r} is not an object")
    return file, value


def _is_ours(row: object) -> bool:
    return isinstance(row, Mapping) and is_own(row)


def _text_before_link(spot: Spot, file: UserFile, name: str, entry: object) -> str | None:
    """The text of a copy from which linking makes just the present one."""
    for path in backups(spot.path)[:_MAX_BACKUPS]:
        with suppress(UserFileError, DocumentError, EditError):
            copy = read_user_file(path)
            linked = set_member(copy.text, (*spot.keys, name), entry, has_comments=spot.client.has_comments)
            if (copy.mark, linked) == (file.mark, file.text) and copy.text != file.text:
                rows: object = parse(copy.text, has_comments=spot.client.has_comments)
                for key in (*spot.keys, name):
                    rows = rows.get(key) if isinstance(rows, Mapping) else None
                if rows is None:
                    return copy.text
    return None
