"""Servers out of other clients' files, and our file with them in it: worked out whole before anything is written."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quarterdeck.config.clients.adopting import NotOursToTakeError, adopt
from quarterdeck.config.clients.jsonc import parse, set_member
from quarterdeck.config.clients.secrecy import literal_secrets
from quarterdeck.config.clients.spots import PROJECTS, Spot
from quarterdeck.config.clients.table import Client
from quarterdeck.config.clients.userfile import UserFileError, read_user_file
from quarterdeck.config.document import DocumentError, JsonObject
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.refs import to_server_id

SECTIONS: Final = ("mcpServers", "servers")
"""Where our file has its rows; the first is made where there is none."""

_ANY_FILE: Final = Client("file", "the file", "mcpServers", (), has_comments=True)

_ANY_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",))
"""Where rows are in the files of clients that we do not know, tried in this order."""


class ImportFileError(Exception):
    """A file cannot be used; it names the file and says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """A server that can be taken.

    Attributes:
        name: as its file calls it.
        id: as ours would.
        notes: what a person should know.
        secrets: where values stand that look like secrets: `env.API_KEY`.
        inputs: names of secrets that have to be stored before it starts.
    """

    name: str
    id: str
    path: Path
    row: Mapping[str, object]
    notes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A server that is not taken, and why."""

    name: str
    path: Path
    reason: str


@dataclass(slots=True)
class Taken:
    """What files have to offer.

    Attributes:
        read: the files that are there.
        elsewhere: how many servers those files keep for other projects.
    """

    found: list[Found] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    read: list[Path] = field(default_factory=list)
    elsewhere: int = 0


def spots_of_file(path: Path) -> list[Spot]:
    """Where rows may be in a file of any client."""
    return [Spot(_ANY_FILE, path, keys) for keys in _ANY_KEYS]


def take(spots: Sequence[Spot], *, only: Collection[str] = ()) -> Taken:
    """The servers that `spots` hold, the first of each id.

    Args:
        spots: in their precedence.
        only: names or ids of those that are wanted; all of them when it is empty.

    Raises:
        ImportFileError: a file cannot be read or parsed.
    """
    taken = Taken()
    documents: dict[Path, JsonObject] = {}
    ids: set[str] = set()
    for spot in spots:
        if spot.path not in documents:
            documents[spot.path] = _read(spot, taken)
        for name, row in _rows(documents[spot.path], spot):
            if not only or name in only or _id_of(name) in only:
                _take_row(spot, name, row, ids, taken)
    here = {spot.keys[1] for spot in spots if spot.keys[0] == PROJECTS}
    if here:
        taken.elsewhere = sum(_count_elsewhere(document, here) for document in documents.values())
    return taken


def put(text: str, found: Iterable[Found]) -> tuple[str, list[Found], list[LeftOut]]:
    """The text of our file with those servers in it whose ids are free; also which they are, and which are not.

    Raises:
        DocumentError: the text is no JSON object.
        EditError: it cannot be changed.
    """
    document = parse(text, has_comments=True)
    section = SECTIONS[0] if SECTIONS[0] in document or not isinstance(document.get(SECTIONS[1]), dict) else SECTIONS[1]
    used = set(_ids(document))
    added, left_out = [], []
    for server in found:
        if server.id in used:
            left_out.append(LeftOut(server.name, server.path, f"our file has a server {server.id!r} already"))
            continue
        text = set_member(text, (section, server.id), server.row, has_comments=True)
        used.add(server.id)
        added.append(server)
    return text, added, left_out


def _read(spot: Spot, taken: Taken) -> JsonObject:
    try:
        file = read_user_file(spot.path)
        document = parse(file.text, has_comments=spot.client.has_comments)
    except UserFileError as error:
        raise ImportFileError(str(error)) from error
    except DocumentError as error:
        raise ImportFileError(f"{spot.path} cannot be read: {plain_words(error)}") from error
    if file.status is not None:
        taken.read.append(spot.path)
    return document


def _rows(document: JsonObject, spot: Spot) -> Iterator[tuple[str, object]]:
    value: object = document
    for key in spot.keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, JsonObject):
        yield from value.items()
        yield from value.repeated
    elif isinstance(value, list):
        for place, row in enumerate(value):
            named = row.get("id", row.get("name")) if isinstance(row, Mapping) else None
            yield (named if isinstance(named, str) else f"{'.'.join(spot.keys)}[{place}]"), row


def _take_row(spot: Spot, name: str, row: object, ids: set[str], taken: Taken) -> None:
    client = spot.client
    try:
        server_id = to_server_id(name)
        adopted = adopt(row, folder=spot.folder, expands=client.expands, is_across=spot.is_across)
    except (NotOursToTakeError, ValueError) as error:
        taken.left_out.append(LeftOut(name, spot.path, str(error)))
        return
    if server_id in ids:
        taken.left_out.append(LeftOut(name, spot.path, f"another server {server_id!r} goes before it"))
        return
    ids.add(server_id)
    notes = adopted.notes if server_id == name else (f"it is called {server_id!r} here", *adopted.notes)
    taken.found.append(
        Found(name, server_id, spot.path, adopted.row, notes, tuple(literal_secrets(adopted.row)), adopted.inputs)
    )


def _id_of(name: str) -> str | None:
    try:
        return to_server_id(name)
    except ValueError:
        return None


def _ids(document: JsonObject) -> Iterator[str]:
    """The ids that our file gives away, whether their rows are good or not."""
    for section in SECTIONS:
        rows = document.get(section)
        if isinstance(rows, Mapping):
            names: list[object] = list(rows)
        elif isinstance(rows, list):
            names = [row.get("id", row.get("name")) for row in rows if isinstance(row, Mapping)]
        else:
            names = []
        yield from (found for name in names if isinstance(name, str) and (found := _id_of(name)))


def _count_elsewhere(document: JsonObject, here: Collection[str]) -> int:
    """How many servers belong to projects that are not `here`."""
    projects = document.get(PROJECTS)
    rows = (
        project.get("mcpServers")
        for folder, project in (projects.items() if isinstance(projects, Mapping) else ())
        if folder not in here and isinstance(project, Mapping)
    )
    return sum(len(row) for row in rows if isinstance(row, Mapping))
