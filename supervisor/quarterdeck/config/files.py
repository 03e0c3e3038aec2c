"""Load one configuration file that a user named.

    {"mcpServers": {"fs": {"command": "npx", …}}}      desktop clients, Cursor
    {"servers": {"fs": {"type": "stdio", …}}}          VS Code
    {"servers": [{"id": "fs", "command": "npx", …}]}   ours: every field of the protocol's models
    {"native": {"sandbox": {…}, "webfetch": {…}}}      ours: see `native`; alone or beside servers

A row that cannot be used is kept with its reason beside the others; only a file of which nothing can be used is an
error.  Where files are found, and who trusts them, is not decided here.
"""

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarterdeck.config.document import DocumentError, JsonObject, parse_document
from quarterdeck.config.native import NATIVE_KEY, NativeSettings, build_native
from quarterdeck.config.reasons import RowError, at
from quarterdeck.config.rows import build_row, is_disabled
from quarterdeck.config.textfile import TextFileError, read_text
from quarterdeck.config.variables import Variables
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import REMEDIES
from quarterdeck_protocol.refs import to_server_id

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
"""Some clients keep their whole state in the file that names servers; those reach a megabyte."""

SERVER_KEYS: Final = ("mcpServers", "servers")
"""Where the rows are; a file may have both."""

OUR_KEYS: Final = (*SERVER_KEYS, NATIVE_KEY)
"""Each may be there once."""


class ConfigFileError(Exception):
    """Nothing of a file can be used.

    Attributes:
        path: the file, as it was named.
        message: what is wrong with it, one line.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A server that cannot be started as it is configured.

    Attributes:
        id: the server's id; where the row has none of its own, its place in the file (which is no legal id).
        message: file, place and reason, one line.
        code: `config_invalid` or `unset_variable`.
    """

    id: str
    message: str
    code: str

    @property
    def remedy(self) -> str:
        """What a person can do about it."""
        return REMEDIES[self.code]


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """What a file says: servers and broken rows, each in its order, and one line for each thing that was set aside.

    Attributes:
        native: what it says of native tools; None when it says nothing, or nothing that can be used.
        native_problem: why that cannot be used, place and reason in one line; empty when it can.
    """

    servers: tuple[ServerConfig, ...] = ()
    broken: tuple[BrokenRow, ...] = ()
    warnings: tuple[str, ...] = ()
    native: NativeSettings | None = None
    native_problem: str = ""


def load_config_file(path: Path, environ: Mapping[str, str], *, workspace: Path | None = None) -> LoadedConfig:
    """The servers of the file at `path`.

    Args:
        path: as the user named it; messages repeat it.
        environ: what its variables are looked up in.
        workspace: `${workspaceFolder}`; by default the file's directory, or the one above when that is a hidden one
            (`.vscode`, `.cursor`).

    Raises:
        ConfigFileError: the file cannot be read or parsed, or names neither servers nor native tools.
    """
    try:
        base = path.absolute().parent
        document = parse_document(read_text(path, MAX_CONFIG_BYTES))
    except (OSError, TextFileError, DocumentError) as error:
        raise ConfigFileError(path, str(error)) from error
    if not isinstance(document, JsonObject):
        raise ConfigFileError(path, 'expected an object, as in {"mcpServers": {…}}')
    variables = Variables(
        environ=environ,
        base=base,
        workspace=workspace or (base.parent if base.name.startswith(".") else base),
        home=Path(environ.get("HOME") or os.path.expanduser("~")),
    )
    return _Loading(path, document, variables).load()


@dataclass(frozen=True, slots=True)
class _Row:
    location: str
    name: str | None
    """The key of a row in an object; a row in an array names itself."""
    value: object
    is_repeated: bool = False


class _Loading:
    """One pass over a document, row by row."""

    def __init__(self, path: Path, document: JsonObject, variables: Variables) -> None:
        self._path = path
        self._document = document
        self._variables = variables
        self._places: dict[str, str] = {}
        self._servers: list[ServerConfig] = []
        self._broken: list[BrokenRow] = []
        self._warnings: list[str] = []

    def load(self) -> LoadedConfig:
        self._survey_keys()
        for row in self._rows():
            self._load_row(row)
        native, problem = self._load_native()
        return LoadedConfig(tuple(self._servers), tuple(self._broken), tuple(self._warnings), native, problem)

    def _load_native(self) -> tuple[NativeSettings | None, str]:
        value = self._document.get(NATIVE_KEY)
        if value is None:
            return None, ""
        try:
            return build_native(value, self._variables), ""
        except RowError as error:
            return None, str(error)

    def _survey_keys(self) -> None:
        for key, _ in self._document.repeated:
            if key in OUR_KEYS:
                raise ConfigFileError(self._path, f"the key {key!r} appears more than once")
        strangers = [key for key in self._document if key not in OUR_KEYS and key != "$schema"]
        if not any(key in self._document for key in OUR_KEYS):
            near = [key for key in strangers[:100] if difflib.get_close_matches(key[:64], SERVER_KEYS, n=1)]
            hint = f": is {near[0][:64]!r} meant?" if near else ""
            raise ConfigFileError(self._path, f"has neither 'mcpServers' nor 'servers'{hint}")
        if strangers:
            self._warn(f"ignored: {', '.join(repr(key[:64]) for key in strangers[:8])}")

    def _rows(self) -> Iterator[_Row]:
        for section in SERVER_KEYS:
            rows = self._document.get(section, JsonObject())
            if isinstance(rows, JsonObject):
                yield from (_Row(at(section, name), name, value) for name, value in rows.items())
                for count, (name, value) in enumerate(rows.repeated, start=2):
                    yield _Row(f"{at(section, name)}#{count}", name, value, is_repeated=True)
            elif isinstance(rows, list):
                yield from (_Row(at(section, index), None, value) for index, value in enumerate(rows))
            else:
                raise ConfigFileError(self._path, f"{section}: expected an object or an array of servers")

    def _load_row(self, row: _Row) -> None:
        label = row.location
        try:
            if not isinstance(row.value, JsonObject):
                raise RowError(row.location, "expected an object")
            if is_disabled(row.value, row.location):
                return
            name = _name_of(row, row.value)
            label = self._claim_id(name, row)
            built = build_row(row.value, label, row.location, self._variables)
        except RowError as error:
            self._broken.append(BrokenRow(label, f"{self._path}: {error}", error.code))
            return
        ignored = [key for key in built.ignored if key != "name" or row.name is not None or "id" in row.value]
        if ignored:
            self._warn(f"{row.location}: ignored: {', '.join(map(repr, ignored))}")
        self._servers.append(built.config)

    def _claim_id(self, name: str, row: _Row) -> str:
        if row.is_repeated:
            raise RowError(row.location, f"the key {name[:64]!r} appears more than once")
        try:
            server_id = to_server_id(name)
        except ValueError as error:
            raise RowError(row.location, str(error)) from error
        if server_id in self._places:
            raise RowError(
                row.location, f"its id would be {server_id!r}, as that of {self._places[server_id]}: rename one"
            )
        self._places[server_id] = row.location
        if server_id != name:
            self._warn(f"{row.location}: {name[:64]!r} is no server id: the server is called {server_id!r}")
        return server_id

    def _warn(self, message: str) -> None:
        self._warnings.append(f"{self._path}: {message}")


def _name_of(row: _Row, value: JsonObject) -> str:
    own = value.get("id")
    if row.name is not None:
        if own is not None and own != row.name:
            raise RowError(at(row.location, "id"), "the key names the server already: remove it")
        return row.name
    name = own if own is not None else value.get("name")
    if not isinstance(name, str):
        raise RowError(row.location, "needs an 'id', which is a string")
    return name
