"""An MCP registry's descriptions of servers, read and bounded; texts stay untrusted.  Pure.

Unused members are skipped; an unreadable entry is left out, and does not cost the others.

Source: the MCP registry's API, version 0.1 (`GET /v0.1/servers`, `/v0.1/servers/NAME/versions/latest`), and the schema
of `server.json`, 2025-12-11.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

MAX_ENTRIES: Final = 20_000
"""Of one answer or file; the official registry gives 100 at a time."""

MAX_INPUTS: Final = 100
"""Packages, variables or arguments of one entry."""

MAX_NAME_CHARS: Final = 200
"""The schema's limit."""

_NAME: Final = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
_OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
STDIO: Final = "stdio"


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object of the registry's."""


class Input(_Told, frozen=True, kw_only=True):
    """A value that an entry fixes (`value`), or asks for; `value` may contain variables, as in `Bearer {token}`."""

    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    value: str | None = None
    default: str | None = None
    placeholder: str = ""
    choices: list[str] | None = None
    variables: dict[str, "Input"] = {}


class NamedInput(Input, frozen=True, kw_only=True):
    """A variable of the environment, or a header."""

    name: str


class ArgumentInput(Input, frozen=True, kw_only=True):
    """A word of a command line, or a flag with its value."""

    type: str
    name: str = ""
    value_hint: str = ""


class Transport(_Told, frozen=True, kw_only=True):
    """How a package talks, or where a remote server is."""

    type: str = STDIO
    url: str = ""
    headers: list[NamedInput] = []
    variables: dict[str, Input] = {}


class Package(_Told, frozen=True, kw_only=True):
    """One way to run the server here."""

    registry_type: str
    identifier: str
    version: str = ""
    runtime_hint: str = ""
    transport: Transport = Transport()
    runtime_arguments: list[ArgumentInput] = []
    package_arguments: list[ArgumentInput] = []
    environment_variables: list[NamedInput] = []


class Server(_Told, frozen=True, kw_only=True):
    """One server in one version."""

    name: str
    version: str = ""
    description: str = ""
    title: str = ""
    packages: list[Package] = []
    remotes: list[Transport] = []
    status: str = ""


class _Standing(_Told, frozen=True, kw_only=True):
    status: str = ""
    is_latest: bool = True


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    server: Server
    meta: dict[str, msgspec.Raw] = msgspec.field(name="_meta", default={})


class _Metadata(_Told, frozen=True, kw_only=True):
    next_cursor: str | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    servers: list[msgspec.Raw] | None
    metadata: _Metadata = _Metadata()


class Entry(msgspec.Struct, frozen=True):
    """A server as the registry lists it: `active`, `deprecated` or `deleted`, and whether it is marked as the newest
    version.
    """

    server: Server
    status: str = "active"
    is_latest: bool = True


class Page(msgspec.Struct, frozen=True):
    """A part of a list: `unread` counts unreadable entries, `cursor` is where the next part begins, empty
    at the end.
    """

    entries: tuple[Entry, ...]
    unread: int = 0
    cursor: str = ""


class RegistryFormatError(ValueError):
    """An answer or a file is not a registry's; the text says why, and repeats nothing of it."""


def read_page(data: bytes) -> Page:
    """Return the servers of a list.  Raises `RegistryFormatError` if it is none."""
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryFormatError(f"it is not a list of servers: {_reason(error)}") from None
    raw = answer.servers or []
    if len(raw) > MAX_ENTRIES:
        raise RegistryFormatError(f"it lists more than {MAX_ENTRIES:,} servers")
    entries: list[Entry] = []
    for each in raw:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RegistryFormatError):
            entries.append(_decode(bytes(each)))
    return Page(tuple(entries), len(raw) - len(entries), answer.metadata.next_cursor or "")


def read_entry(data: bytes) -> Entry:
    """Return one server, from an answer that holds it or a `server.json`.  Raises `RegistryFormatError` if
    it is none.
    """
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RegistryFormatError) as error:
        raise RegistryFormatError(f"it does not describe a server: {_reason(error)}") from None


def read_file(data: bytes) -> Page:
    """Return the servers of a file in place of a registry: a list as in an answer, or one `server.json`.  Raises
    `RegistryFormatError` if it is neither.
    """
    try:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        is_json = isinstance(error, msgspec.ValidationError)
        raise RegistryFormatError("it is not a JSON object" if is_json else "it is not JSON") from None
    return read_page(data) if "servers" in members else Page((read_entry(data),))


def latest_of(entries: Iterable[Entry]) -> list[Entry]:
    """Return one entry of each name, in the order of their first: the one marked as the latest, else the first."""
    chosen: dict[str, Entry] = {}
    for entry in entries:
        before = chosen.get(entry.server.name)
        if before is None or (entry.is_latest and not before.is_latest):
            chosen[entry.server.name] = entry
    return list(chosen.values())


def matches(server: Server, word: str) -> bool:
    """Return whether a word is part of a server's names or description."""
    wanted = word.casefold()
    return any(wanted in text.casefold() for text in (server.name, server.title, server.description))


def _decode(data: bytes) -> Entry:
    members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if "server" not in members:
        server = msgspec.json.decode(data, type=Server)
        return Entry(_checked(server), server.status or "active")
    entry = msgspec.json.decode(data, type=_Entry)
    said = entry.meta.get(_OFFICIAL)
    standing = msgspec.json.decode(said, type=_Standing) if said is not None else _Standing()
    return Entry(_checked(entry.server), standing.status or entry.server.status or "active", standing.is_latest)


def _checked(server: Server) -> Server:
    if len(server.name) > MAX_NAME_CHARS or not _NAME.fullmatch(server.name):
        raise RegistryFormatError("its name is not of the form namespace/name")
    for package in server.packages:
        words = len(package.runtime_arguments) + len(package.package_arguments)
        if words + len(package.environment_variables) > MAX_INPUTS:
            raise RegistryFormatError(f"a package has more than {MAX_INPUTS} arguments and variables")
    if len(server.packages) + len(server.remotes) + sum(len(each.headers) for each in server.remotes) > MAX_INPUTS:
        raise RegistryFormatError(f"it has more than {MAX_INPUTS} packages, addresses and headers")
    return server


def _reason(error: Exception) -> str:
    """Say what is wrong; neither the decoder nor we repeat what a stranger wrote."""
    is_told = isinstance(error, RegistryFormatError | msgspec.ValidationError)
    return str(error)[:200] if is_told else "it is not JSON"
