"""The knowledge of a checkpoint store: which node kept which file, as lines of an append-only file. Pure.

    start    the format's version, and the number that the next node gets
    kept     the file's content before the node's call: its digest, its mode and owner
    absent   there was no such file
    gap      the content could not be kept, and why
    forget   the node changed nothing

A node is one call, named `<number>-<tool>`; the first record of a path within a node counts.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

VERSION: Final = 1
SLACK: Final = 0.9  # the share of an exceeded bound to shrink to, so that the next record need not drop again


class _Line(msgspec.Struct, frozen=True, tag_field="op"):
    pass


class Start(_Line, tag="start", frozen=True):
    """The first line."""

    version: int
    next: int


class _Record(_Line, frozen=True):
    node: str
    path: str
    at: str


class Kept(_Record, tag="kept", frozen=True):
    """The content is kept.  `digest` is its sha256, hex; mode and owner are None where they could not be read."""

    digest: str
    size: int
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


class Absent(_Record, tag="absent", frozen=True):
    """There was no file."""


class Gap(_Record, tag="gap", frozen=True):
    """The content is not kept."""

    reason: str


class Forget(_Line, tag="forget", frozen=True):
    """The node is void."""

    node: str


Record = Kept | Absent | Gap
Line = Start | Kept | Absent | Gap | Forget


@dataclass(frozen=True, slots=True)
class CheckpointNode:
    """One call that can be undone: its time, ISO 8601 in UTC, and the files that it was about to change."""

    name: str
    at: str
    paths: tuple[str, ...]


class NewerIndexError(OSError):
    """An index that a later version wrote."""


class UnknownNodeError(LookupError):
    """A node that is not in the index: it never was, or was dropped for room."""

    def __init__(self, node: str) -> None:
        super().__init__(f"there is no checkpoint {node!r}")
        self.node = node


class CheckpointIndex:
    """The fold of the lines."""

    def __init__(self) -> None:
        self.next_number = 1
        self.dead_lines = 0  # lines that no longer mean anything
        self.kept_bytes = 0  # of all contents, each counted once
        self._nodes: dict[str, dict[str, Record]] = {}
        self._uses: Counter[str] = Counter()

    def apply(self, line: Line) -> None:
        """Apply one more line. Raise `NewerIndexError` for the start of an unknown format."""
        match line:
            case Start():
                if line.version > VERSION:
                    raise NewerIndexError(f"a newer version wrote these checkpoints (format {line.version})")
                self.next_number = max(self.next_number, line.next)
            case Forget():
                self.dead_lines += 1 + len(self._nodes.get(line.node, ()))
                self.drop(line.node)
            case _:
                self._add(line)

    def drop(self, node: str) -> None:
        """Forget a node."""
        records = self._nodes.pop(node, {})
        for record in records.values():
            if isinstance(record, Kept):
                self._uses[record.digest] -= 1
                if not self._uses[record.digest]:
                    del self._uses[record.digest]
                    self.kept_bytes -= record.size

    def has(self, node: str, path: str) -> bool:
        """Return whether the node has a record of `path`."""
        return path in self._nodes.get(node, ())

    def uses(self, digest: str) -> bool:
        """Return whether a content is needed."""
        return digest in self._uses

    def digests(self, node: str) -> list[str]:
        """Return the contents that a node names."""
        return [record.digest for record in self._nodes.get(node, {}).values() if isinstance(record, Kept)]

    def nodes(self) -> list[CheckpointNode]:
        """Return all nodes, oldest first."""
        return [
            CheckpointNode(name, next(iter(records.values())).at, tuple(records))
            for name, records in self._nodes.items()
        ]

    def plan(self, node: str) -> list[Record]:
        """Return, for each path that `node` or a later one was about to change, its state before them all.

        Restoring newest first ends at the oldest state, so only that one is named. Raise `UnknownNodeError`.
        """
        if node not in self._nodes:
            raise UnknownNodeError(node)
        names = list(self._nodes)
        first: dict[str, Record] = {}
        for name in names[names.index(node) :]:
            for path, record in self._nodes[name].items():
                first.setdefault(path, record)
        return list(first.values())

    def make_room(self, max_bytes: int, max_nodes: int) -> bool:
        """Drop the oldest nodes when a bound is exceeded, never the newest. Return whether any was dropped."""
        if self.kept_bytes <= max_bytes and len(self._nodes) <= max_nodes:
            return False
        while len(self._nodes) > 1 and (
            self.kept_bytes > max_bytes * SLACK or len(self._nodes) > max(1, max_nodes * SLACK)
        ):
            self.drop(next(iter(self._nodes)))
        return True

    def lines(self) -> Iterator[Line]:
        """Yield the shortest equivalent file."""
        yield Start(VERSION, self.next_number)
        for records in self._nodes.values():
            yield from records.values()

    def _add(self, record: Record) -> None:
        if self.has(record.node, record.path):
            self.dead_lines += 1
            return
        self._nodes.setdefault(record.node, {})[record.path] = record
        number = record.node.partition("-")[0]
        if number.isascii() and number.isdigit():
            self.next_number = max(self.next_number, int(number) + 1)
        if isinstance(record, Kept):
            if not self.uses(record.digest):
                self.kept_bytes += record.size
            self._uses[record.digest] += 1


def node_name(number: int, tool: str) -> str:
    """Return the name of the node with this number."""
    return f"{number:04}-{tool}"


def encode(line: Line) -> bytes:
    """Encode one line of the file. Paths that are not Unicode survive as JSON's escapes."""
    return json.dumps(msgspec.to_builtins(line), separators=(",", ":")).encode("ascii") + b"\n"


def parse(data: bytes) -> tuple[CheckpointIndex, int, int]:
    """Return the index in `data`, the length of its whole lines, and how many of them could not be read.

    A last line without its end was torn by a crash and does not count. Raise `NewerIndexError` for a later version's.
    """
    index, damaged = CheckpointIndex(), 0
    length = data.rfind(b"\n") + 1
    for text in data[:length].splitlines():
        try:
            line = msgspec.convert(json.loads(text), Line)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            damaged += 1
            continue
        index.apply(line)
    return index, length, damaged
