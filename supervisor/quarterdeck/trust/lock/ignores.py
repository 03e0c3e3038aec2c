"""`lock.ignore`: what of a definition may differ between machines, and is left out of `deck.lock`'s hashes.  Pure.

A line names a tool and a place in its definition, the same of a prompt, resource or template, or one kind of what a
server has as a whole:

    # the description ends in the local time zone
    time/get_current_time /description
    time/*                /inputSchema/properties/timezone/description
    time prompts/today    /description
    weather instructions
    notes resources

`*`, `?` and `[…]` in a server's or a tool's name match as in a shell; a `*` as a step of a place is any member or
element.  A place that is not there is no error.  Whatever a line names, a server may change without being noticed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Self

import msgspec

from quarterdeck.ledger.events.events import Subject, hash_of
from quarterdeck.trust.judge.documents import Document, value_of

IGNORE_NAME: Final = "lock.ignore"

MAX_IGNORE_BYTES: Final = 1024 * 1024
MAX_LINES: Final = 1000
"""Each is tried on every tool."""

IGNORED: Final = "ignored"
"""Stands for the hash of what is ignored whole."""

UNORDERED: Final = "unordered:"
ANY: Final = "*"
KINDS: Final = {
    "capabilities": Subject.CAPABILITIES,
    "instructions": Subject.INSTRUCTIONS,
    "prompts": Subject.PROMPT,
    "resources": Subject.RESOURCE,
    "templates": Subject.TEMPLATE,
}
"""What a line can leave out as a whole, by its word; tools are what a lock is for."""

MAX_INDEX_DIGITS: Final = 9
"""No list of ours is longer."""


class IgnoreError(ValueError):
    """The text is no `lock.ignore`; the message names the line, and says what to write."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """One line: globs, None for whatever name, and the steps of the pointer, none for all of it."""

    server: str
    subject: Subject
    name: str | None = None
    place: tuple[str, ...] = ()

    def covers(self, server: str, document: Document) -> bool:
        """Whether the line is about this document of this server."""
        subject, name = document.key
        if subject is not self.subject or not fnmatchcase(server, self.server):
            return False
        return self.name is None or fnmatchcase(name, self.name)


@dataclass(frozen=True, slots=True)
class Ignores:
    """A `lock.ignore`; without lines, none."""

    lines: tuple[Ignore, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the lines of `text`; raises `IgnoreError` for a line that is not understood, or for too many."""
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            if (line := line.strip()) and not line.startswith("#"):
                lines.append(_line(number, line))
                if len(lines) > MAX_LINES:
                    raise IgnoreError(f"line {number}: more than {MAX_LINES} lines: use * for the names of tools")
        return cls(tuple(lines))

    def of(self, server: str) -> Self:
        """The lines about this server alone."""
        return type(self)(tuple(line for line in self.lines if fnmatchcase(server, line.server)))

    def form_of(self, server: str, document: Document, *, unordered: bool = False) -> str:
        """Return a document's hash in a lock, without the ignored parts; with `unordered`, of its canonical form."""
        covering = [line for line in self.lines if line.covers(server, document)]
        if any(not line.place for line in covering):
            return IGNORED
        left = document
        value = value_of(document.body) if covering else None
        if isinstance(value, dict | list):
            for line in covering:
                _remove(value, line.place)
            body = msgspec.json.encode(value)
            left = msgspec.structs.replace(document, body=body, hash=hash_of(body))
        return UNORDERED + left.unordered if unordered else left.hash


def _line(number: int, line: str) -> Ignore:
    what, *rest = line.split(None, 1)
    place = rest[0] if rest else ""
    server, parted, name = what.partition("/")
    subject: Subject | None = Subject.TOOL
    if not parted:
        kind, parted, place = place.partition("/")
        subject = KINDS.get(kind)
        if subject is not None and server and not parted:
            return Ignore(server, subject)
        name, *rest = place.split(None, 1) or [""]
        place = rest[0] if rest else ""
    if subject is None or not server or not name or not place.startswith("/"):
        raise IgnoreError(
            f"line {number}: write SERVER/TOOL and a JSON pointer, such as time/now /description, "
            f"SERVER prompts/NAME and a pointer, or SERVER and one of {', '.join(KINDS)}"
        )
    steps = place.split("/")[1:]
    if any(step.replace("~0", "").replace("~1", "").count("~") for step in steps):
        raise IgnoreError(f"line {number}: in a JSON pointer ~ is written ~0, and / within a name ~1")
    return Ignore(server, subject, name, tuple(step.replace("~1", "/").replace("~0", "~") for step in steps))


def _remove(value: object, place: Sequence[str]) -> None:
    parents = [value]
    for step in place[:-1]:
        parents = [child for parent in parents for child in _children(parent, step)]
    for parent in parents:
        if place[-1] == ANY and isinstance(parent, dict | list):
            parent.clear()
        elif isinstance(parent, dict):
            parent.pop(place[-1], None)
        elif isinstance(parent, list) and (index := _index(place[-1], parent)) is not None:
            del parent[index]


def _children(parent: object, step: str) -> Sequence[object]:
    if isinstance(parent, dict):
        return list(parent.values()) if step == ANY else [parent[step]] if step in parent else []
    if isinstance(parent, list):
        if step == ANY:
            return parent
        index = _index(step, parent)
        return [] if index is None else [parent[index]]
    return []


def _index(step: str, of: Sequence[object]) -> int | None:
    if not step.isascii() or not step.isdigit() or (step[0] == "0" and step != "0") or len(step) > MAX_INDEX_DIGITS:
        return None
    return int(step) if int(step) < len(of) else None
