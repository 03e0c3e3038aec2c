"""Import servers from other clients' files: their rows as rows of ours, and the text of our file with them.

Keys are renamed, references that we know otherwise too, our own entry is left out.  Whether a row can be started is
judged by whoever loads our file; nothing is written here.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final
from urllib.parse import urlsplit

from quarterdeck.config.load.document import SERVER_KEYS, DocumentError, JsonObject
from quarterdeck.config.load.jsonc import parse, set_member
from quarterdeck.config.load.row import COMMON_KEYS, KEYS_INSTEAD, KEYS_OF_KIND
from quarterdeck.config.secrets.masking import literal_secrets
from quarterdeck_protocol.configs import SseServerConfig, StdioServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.names import to_server_id
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.policy import SandboxPolicy

from .documents import format_of, parse_as
from .known_clients import PROJECTS, Client, ClientLocation
from .row_shapes import COMMON, RowShape, common_row
from .user_file import UserFileError, read_user_file

PROGRAM: Final = "quarterdeck"

MODULE: Final = "quarterdeck.cli"

HTTP_PORT: Final = 8808
"""Where we listen unless told otherwise; as `host.http.options`, which is not loaded for it."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

_LOCAL: Final = (KEYS_OF_KIND[StdioServerConfig] | COMMON_KEYS) - {"id"}
"""Keys that mean something here for a server that is started."""

_REMOTE: Final = (KEYS_OF_KIND[SseServerConfig] | KEYS_OF_KIND[StreamableHttpServerConfig] | COMMON_KEYS) - {"id"}
"""The same for one that is dialled."""

_RENAMED: Final = {theirs: ours for theirs, ours in KEYS_INSTEAD.items() if ours in _LOCAL | _REMOTE}

_TOOL_LISTS: Final = {
    theirs: ours.removeprefix("tools.") for theirs, ours in KEYS_INSTEAD.items() if ours.startswith("tools.")
}

_WORDLESS: Final = frozenset({"description", "httpUrl", "id", "name"})
"""Keys that go without a word: they are taken otherwise, or change nothing."""

_INPUT: Final = re.compile(r"(?<!\$)\$\{input:([A-Za-z0-9_][A-Za-z0-9_-]{0,63})\}")

_REFERENCE: Final = re.compile(r"(?<!\$)\$\{([^}]*)\}")

_RESOLVED: Final = re.compile(r"(?:env|file|keyring):.+|workspaceFolder|userHome|[A-Za-z_]\w*(?::-.*)?", re.DOTALL)

_ANY_FILE: Final = Client("file", "the file", (), (), has_comments=True)

_ANY_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",), ("mcp_servers",))
"""Where rows are in the files of clients that we do not know, tried in this order."""


class UnsupportedRowError(ValueError):
    """The row is not imported; the message says why, and shows no value of it."""


@dataclass(frozen=True, slots=True)
class ConvertedRow:
    """A row for our file, and what a person should know about it.

    Attributes:
        inputs: names that the client asks a person for; here they are stored secrets.
    """

    row: Mapping[str, object]
    notes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


class ImportFileError(Exception):
    """A file cannot be used; it names the file and says why."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that can be taken.

    Attributes:
        name: as its file calls it.
        id: as ours would.
        notes: what a person should know.
        inputs: names of secrets that have to be stored before it starts.
        location: where its row is.
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
        """Where values stand that look like secrets: `env.API_KEY`."""
        return tuple(literal_secrets(self.row))


@dataclass(frozen=True, slots=True)
class SkippedServer:
    """A server that is not taken, and why."""

    name: str
    path: Path
    reason: str


@dataclass(slots=True)
class FoundServers:
    """What files have to offer.

    Attributes:
        read: the files that are there.
        elsewhere: how many servers those files keep for other projects.
    """

    found: list[FoundServer] = field(default_factory=list)
    left_out: list[SkippedServer] = field(default_factory=list)
    read: list[Path] = field(default_factory=list)
    elsewhere: int = 0


def convert_row(
    row: object,
    *,
    folder: PurePath | None = None,
    expands: bool = True,
    is_across: bool = False,
    shape: RowShape = COMMON,
) -> ConvertedRow:
    """The row as it would be written for us.

    Args:
        row: as it was parsed.
        folder: of the project that it belongs to; None for the user's own.
        expands: its client resolves `${…}`.
        is_across: its client is a Windows program, and we are not.
        shape: how its client writes rows.

    Raises:
        UnsupportedRowError: it describes no server, or ourselves.
    """
    if not isinstance(row, Mapping):
        raise UnsupportedRowError("it is not an object")
    row = common_row(shape, row if expands else _escaped(row))
    if is_own(row):
        raise UnsupportedRowError("it is quarterdeck itself")
    if "httpUrl" in row and "url" not in row:
        row = {**row, "url": row["httpUrl"], "type": "http"}
    renamed = {_RENAMED.get(key, key): value for key, value in row.items()}
    if not ({"command", "url"} & set(renamed)):
        raise UnsupportedRowError("it has neither a command nor a URL")
    known = _LOCAL if "command" in renamed else _REMOTE
    kept = {key: value for key, value in renamed.items() if key in known and value is not None}
    _take_tool_lists(row, kept)
    is_theirs = "sandbox" in kept and not _is_policy(kept["sandbox"])
    if is_theirs:
        del kept["sandbox"]
    left = [str(key) for key, value in renamed.items() if key not in {*known, *_TOOL_LISTS, *_WORDLESS} and value]
    conversion = _Conversion(folder)
    converted = {key: conversion.convert(value) for key, value in kept.items()}
    if folder is not None:
        _locate(converted, folder)
    notes = [f"left out, as it is not supported here: {', '.join(left)}"] if left else []
    if is_theirs:
        notes.append("its sandbox is left out, since another program wrote it: set 'sandbox' here")
    notes += [f"{reference} is not known here: replace it" for reference in conversion.unknown]
    if conversion.names_workspace:
        notes.append("${workspaceFolder} is the folder of our file here: replace it")
    if is_across:
        notes.append("it was started on Windows: check that its command can be started here")
    return ConvertedRow(converted, tuple(notes), tuple(conversion.inputs))


def is_own(row: Mapping[str, object]) -> bool:
    """Whether the row starts `quarterdeck serve`, directly, as a module, or through WSL; or names our usual address."""
    if "command" not in row and is_at_our_address(row):
        return True
    command, args = row.get("command"), row.get("args")
    words = [command, *(args if isinstance(args, list) else [])]
    texts = [word for word in words if isinstance(word, str)]
    before = texts[: texts.index("serve")] if "serve" in texts else []
    return any(text == MODULE or PROGRAM in {PurePosixPath(text).name, PureWindowsPath(text).stem} for text in before)


def is_at_our_address(row: Mapping[str, object], *, any_port: bool = False) -> bool:
    """Whether the row's address is where `serve --http` and the daemon listen on this machine."""
    try:
        url = urlsplit(str(row.get("url", "")))
        port = url.port
    except ValueError:
        return False
    return url.hostname in _LOOPBACK and url.path.rstrip("/").endswith("/mcp") and (any_port or port == HTTP_PORT)


def _escaped(value: object) -> Any:
    """A client's row that means `${` as it is written, with what says so here."""
    match value:
        case str():
            return value.replace("${", "$${")
        case Mapping():
            return {key: _escaped(member) for key, member in value.items()}
        case list():
            return [_escaped(member) for member in value]
        case _:
            return value


def _is_policy(value: object) -> bool:
    """Whether a row's `sandbox` is one of ours; other programs give the key other meanings."""
    if not isinstance(value, Mapping) or not set(value) <= set(SandboxPolicy.model_fields):
        return False
    if "${" in json.dumps(value, default=str):
        return True  # what a variable stands for is judged when it is read
    try:
        SandboxPolicy.model_validate(dict(value))
    except ValueError:
        return False
    return True


def _take_tool_lists(row: Mapping[str, object], kept: dict[str, object]) -> None:
    lists = {ours: row[theirs] for theirs, ours in _TOOL_LISTS.items() if isinstance(row.get(theirs), list)}
    lists = {ours: names for ours, names in lists.items() if names or ours == "deny"}
    if lists and "tools" not in kept:
        kept["tools"] = lists


class _Conversion:
    """Texts of one row, on their way to our file."""

    def __init__(self, folder: PurePath | None) -> None:
        self._folder = folder
        self.inputs: list[str] = []
        self.unknown: list[str] = []
        self.names_workspace = False

    def convert(self, value: object) -> object:
        match value:
            case str():
                return self._convert_text(value)
            case Mapping():
                return {key: self.convert(member) for key, member in value.items()}
            case list():
                return [self.convert(member) for member in value]
            case _:
                return value

    def _convert_text(self, text: str) -> str:
        self.inputs += [name for name in _INPUT.findall(text) if name not in self.inputs]
        text = _INPUT.sub(r"${keyring:\1}", text)
        if self._folder is not None:
            text = text.replace("${workspaceFolder}", str(self._folder))
        self.names_workspace |= "${workspaceFolder}" in text
        found = (reference[0] for reference in _REFERENCE.finditer(text) if not _RESOLVED.fullmatch(reference[1]))
        self.unknown += [reference for reference in found if reference not in self.unknown]
        return text


def _locate(row: dict[str, object], folder: PurePath) -> None:
    """Let relative paths start at the project, as they did for its client."""
    for key in ("cwd", "envFile"):
        value = row.get(key)
        if isinstance(value, str) and not value.startswith(("/", "~", "${")):
            row[key] = str(folder / value)


def locations_in_file(path: Path) -> list[ClientLocation]:
    """Where rows may be in a file of any client."""
    return [ClientLocation(_ANY_FILE, path, keys) for keys in _ANY_KEYS]


def find_servers(locations: Sequence[ClientLocation], *, only: Collection[str] = ()) -> FoundServers:
    """The servers that `locations` hold, the first of each id.

    Args:
        locations: in their precedence.
        only: names or ids of those that are wanted; all of them when it is empty.

    Raises:
        ImportFileError: a file cannot be read or parsed.
    """
    taken = FoundServers()
    documents: dict[Path, JsonObject] = {}
    ids: set[str] = set()
    for location in locations:
        if location.path not in documents:
            documents[location.path] = _read(location, taken)
        for name, row in _rows(documents[location.path], location):
            if not only or name in only or _id_of(name) in only:
                _take_row(location, name, row, ids, taken)
    here = {location.keys[1] for location in locations if location.keys[0] == PROJECTS}
    if here:
        taken.elsewhere = sum(_count_elsewhere(document, here) for document in documents.values())
    return taken


def add_servers(text: str, found: Iterable[FoundServer]) -> tuple[str, list[FoundServer], list[SkippedServer]]:
    """The text of our file with those servers in it whose ids are free; also which they are, and which are not.

    Raises:
        DocumentError: the text is no JSON object.
        EditError: it cannot be changed.
    """
    document = parse(text, has_comments=True)
    first, second = SERVER_KEYS
    section = first if first in document or not isinstance(document.get(second), dict) else second
    used = set(_ids(document))
    added, left_out = [], []
    for server in found:
        if server.id in used:
            left_out.append(SkippedServer(server.name, server.path, f"our file has a server {server.id!r} already"))
            continue
        text = set_member(text, (section, server.id), server.row, has_comments=True)
        used.add(server.id)
        added.append(server)
    return text, added, left_out


def is_in(document: JsonObject, server: FoundServer) -> bool:
    """Whether our file starts what a client's row starts, under the id that it would have there."""
    rows = (document.get(section) for section in SERVER_KEYS)
    ours = next((found for row in rows if isinstance(row, Mapping) and (found := row.get(server.id)) is not None), None)
    return isinstance(ours, Mapping) and all(ours.get(key) == server.row.get(key) for key in ("command", "args", "url"))


def _read(location: ClientLocation, taken: FoundServers) -> JsonObject:
    try:
        file = read_user_file(location.path)
        document = parse_as(format_of(location.path), file.text, has_comments=location.client.has_comments)
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


def _take_row(location: ClientLocation, name: str, row: object, ids: set[str], taken: FoundServers) -> None:
    client = location.client
    try:
        server_id = to_server_id(name)
        converted = convert_row(
            row, folder=location.folder, expands=client.expands, is_across=location.is_across, shape=client.shape
        )
    except (UnsupportedRowError, ValueError) as error:
        taken.left_out.append(SkippedServer(name, location.path, str(error)))
        return
    if server_id in ids:
        taken.left_out.append(SkippedServer(name, location.path, f"another server {server_id!r} goes before it"))
        return
    ids.add(server_id)
    notes = converted.notes if server_id == name else (f"it is called {server_id!r} here", *converted.notes)
    taken.found.append(FoundServer(name, server_id, location.path, converted.row, notes, converted.inputs, location))


def _id_of(name: str) -> str | None:
    try:
        return to_server_id(name)
    except ValueError:
        return None


def _ids(document: JsonObject) -> Iterator[str]:
    """The ids that our file gives away, whether their rows are good or not."""
    for section in SERVER_KEYS:
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
