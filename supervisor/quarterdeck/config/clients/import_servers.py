"""Import servers from other clients' files: find them, and put their rows into the text of our file.

Nothing is written here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

from quarterdeck.config.load.document import SERVER_KEYS, DocumentError, JsonObject
from quarterdeck.config.load.jsonc import parse, set_member
from quarterdeck.config.secrets.masking import literal_secrets
from quarterdeck_protocol.names import MAX_SERVER_ID_CHARS, to_server_id
from quarterdeck_protocol.plain_words import plain_words

from .client_locations import ClientLocation
from .documents import editor_of
from .known_clients import PROJECTS, Client
from .row_conversion import UnsupportedRowError, convert_row
from .user_file import UserFileError, read_user_file

_ANY_FILE: Final = Client("file", "the file", (), has_comments=True)

_ANY_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",), ("mcp_servers",))
"""Where rows are in the files of unknown clients, tried in this order."""

_IDENTITY: Final = ("command", "args", "url")
"""The keys that decide whether two rows start the same server."""


class ImportFileError(Exception):
    """A file cannot be used; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that can be imported: its `name` in its file, its `id` in ours, and notes for the user.

    `inputs` are the names of secrets to store before it starts.
    """

    name: str
    id: str
    path: Path
    row: Mapping[str, object]
    notes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    location: ClientLocation | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The places of values that look like secrets: `env.API_KEY`."""
        return tuple(literal_secrets(self.row))


@dataclass(frozen=True, slots=True)
class SkippedServer:
    """A server that is not imported, and why."""

    name: str
    path: Path
    reason: str


@dataclass(slots=True)
class FoundServers:
    """The servers of some files, those that exist in `read`; `elsewhere` counts servers of other projects in them."""

    found: list[FoundServer] = field(default_factory=list)
    left_out: list[SkippedServer] = field(default_factory=list)
    read: list[Path] = field(default_factory=list)
    elsewhere: int = 0


def locations_in_file(path: Path) -> list[ClientLocation]:
    """Return where rows may be in a file of any client."""
    return [ClientLocation(_ANY_FILE, path, keys) for keys in _ANY_KEYS]


def find_servers(locations: Sequence[ClientLocation], *, only: Collection[str] = ()) -> FoundServers:
    """Return the servers in `locations`, which are in their precedence; of each name the first one, as the client
    starts no other.

    `only` has names or ids; empty for all.  Raises `ImportFileError` if a file cannot be read or parsed.
    """
    taken = FoundServers()
    documents: dict[Path, JsonObject] = {}
    names: set[str] = set()
    for location in locations:
        if location.path not in documents:
            documents[location.path] = _read(location, taken)
        for name, row in _rows(documents[location.path], location):
            if not only or name in only or _id_of(name) in only:
                _take_row(location, name, row, names, taken)
    here = {location.keys[1] for location in locations if location.keys[0] == PROJECTS}
    if here:
        taken.elsewhere = sum(_count_elsewhere(document, here) for document in documents.values())
    return taken


def name_apart(text: str, found: Iterable[FoundServer]) -> list[FoundServer]:
    """Give a second id (`fs-2` for `fs`) to each server whose id another server of our file has.

    A server that our file starts already keeps its id there.  Raises `DocumentError` if the text is not a JSON object.
    """
    rows = _rows_by_id(parse(text, has_comments=True))
    named: list[FoundServer] = []
    for server in found:
        chosen = next(each for each in _ids_for(server.id) if each not in rows or _is_same(rows[each], server.row))
        notes = server.notes
        if chosen != server.id:
            differing = _differences(rows[server.id], server.row, _IDENTITY)
            why = f"our file has another server {server.id!r}, differing in {differing}"
            notes = (f"it is called {chosen!r} here: {why}", *notes)
        rows.setdefault(chosen, server.row)
        named.append(replace(server, id=chosen, notes=notes))
    return named


def add_servers(text: str, found: Iterable[FoundServer]) -> tuple[str, list[FoundServer], list[SkippedServer]]:
    """Return our file's text with the servers whose ids are free, these servers, and those left out.  Raises
    `DocumentError` if the text is not a JSON object, `EditError` if it cannot be changed.
    """
    document = parse(text, has_comments=True)
    first, second = SERVER_KEYS
    section = first if first in document or not isinstance(document.get(second), dict) else second
    rows = _rows_by_id(document)
    added, left_out = [], []
    for server in found:
        if server.id in rows:
            differing = _differences(rows[server.id], server.row, server.row)
            reason = f"our file has a server {server.id!r} already{differing and f', differing in {differing}'}"
            left_out.append(SkippedServer(server.name, server.path, reason))
            continue
        text = set_member(text, (section, server.id), server.row, has_comments=True)
        rows[server.id] = server.row
        added.append(server)
    return text, added, left_out


def is_in(document: JsonObject, server: FoundServer) -> bool:
    """Return whether our file starts this client's server, under its own id or a second one."""
    rows = _rows_by_id(document)
    for each in _ids_for(server.id):
        if each not in rows:
            return False
        if _is_same(rows[each], server.row):
            return True
    return False


def _ids_for(server_id: str) -> Iterator[str]:
    """Yield the id, then second ids without end, all of them legal."""
    yield server_id
    for number in count(2):
        suffix = f"-{number}"
        yield server_id[: MAX_SERVER_ID_CHARS - len(suffix)] + suffix


def _is_same(ours: object, theirs: Mapping[str, object]) -> bool:
    return isinstance(ours, Mapping) and not _differences(ours, theirs, _IDENTITY)


def _differences(ours: object, theirs: Mapping[str, object], keys: Iterable[str]) -> str:
    if not isinstance(ours, Mapping):
        return "row"
    return ", ".join(key for key in keys if ours.get(key) != theirs.get(key))


def _read(location: ClientLocation, taken: FoundServers) -> JsonObject:
    try:
        file = read_user_file(location.path)
        document = editor_of(location.path, has_comments=location.client.has_comments).parse(file.text)
    except UserFileError as error:
        raise ImportFileError(str(error)) from error
    except DocumentError as error:
        raise ImportFileError(f"{location.path} cannot be read: {plain_words(error)}") from error
    if file.status is not None:
        taken.read.append(location.path)
    return document


def _rows(document: JsonObject, location: ClientLocation) -> Iterator[tuple[str, object]]:
    value: object = document
    for key in location.keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, JsonObject):
        yield from value.items()
        yield from value.repeated
    elif isinstance(value, list):
        for place, row in enumerate(value):
            named = row.get("id", row.get("name")) if isinstance(row, Mapping) else None
            yield (named if isinstance(named, str) else f"{'.'.join(location.keys)}[{place}]"), row


def _take_row(location: ClientLocation, name: str, row: object, names: set[str], taken: FoundServers) -> None:
    client = location.client
    try:
        server_id = to_server_id(name)
        converted = convert_row(
            row, folder=location.folder, expands=client.expands, is_across=location.is_across, shape=client.shape
        )
    except (UnsupportedRowError, ValueError) as error:
        taken.left_out.append(SkippedServer(name, location.path, str(error)))
        return
    if name in names:
        taken.left_out.append(SkippedServer(name, location.path, f"another server {name!r} goes before it"))
        return
    names.add(name)
    notes = converted.notes if server_id == name else (f"it is called {server_id!r} here", *converted.notes)
    taken.found.append(FoundServer(name, server_id, location.path, converted.row, notes, converted.inputs, location))


def _id_of(name: str) -> str | None:
    try:
        return to_server_id(name)
    except ValueError:
        return None


def _rows_by_id(document: JsonObject) -> dict[str, object]:
    found: dict[str, object] = {}
    for section in SERVER_KEYS:
        rows = document.get(section)
        if isinstance(rows, Mapping):
            named = [(name, row) for name, row in rows.items()]
        elif isinstance(rows, list):
            named = [(row.get("id", row.get("name")), row) for row in rows if isinstance(row, Mapping)]
        else:
            named = []
        for name, row in named:
            if isinstance(name, str) and (server_id := _id_of(name)):
                found.setdefault(server_id, row)
    return found


def _count_elsewhere(document: JsonObject, here: Collection[str]) -> int:
    projects = document.get(PROJECTS)
    rows = (
        project.get("mcpServers")
        for folder, project in (projects.items() if isinstance(projects, Mapping) else ())
        if folder not in here and isinstance(project, Mapping)
    )
    return sum(len(row) for row in rows if isinstance(row, Mapping))
