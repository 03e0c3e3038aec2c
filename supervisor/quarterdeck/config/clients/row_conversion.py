"""Convert rows of other clients' files to rows of ours.

Keys and known references are renamed, our own entry is refused.  Our loader judges whether a row can be started.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from quarterdeck.config.load.row import COMMON_KEYS, KEYS_INSTEAD, KEYS_OF_KIND
from quarterdeck_protocol.configs import SseServerConfig, StdioServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.policy import SandboxPolicy

from .link_entry import is_own
from .row_shapes import COMMON, RowShape, common_row

_LOCAL: Final = (KEYS_OF_KIND[StdioServerConfig] | COMMON_KEYS) - {"id"}
_REMOTE: Final = (KEYS_OF_KIND[SseServerConfig] | KEYS_OF_KIND[StreamableHttpServerConfig] | COMMON_KEYS) - {"id"}
_RENAMED: Final = {theirs: ours for theirs, ours in KEYS_INSTEAD.items() if ours in _LOCAL | _REMOTE}

_TOOL_LISTS: Final = {
    theirs: ours.removeprefix("tools.") for theirs, ours in KEYS_INSTEAD.items() if ours.startswith("tools.")
}

_WORDLESS: Final = frozenset({"description", "httpUrl", "id", "name"})
"""Keys that are dropped without a note: they are used otherwise, or change nothing."""

_INPUT: Final = re.compile(r"(?<!\$)\$\{input:([A-Za-z0-9_][A-Za-z0-9_-]{0,63})\}")
_REFERENCE: Final = re.compile(r"(?<!\$)\$\{([^}]*)\}")
_RESOLVED: Final = re.compile(r"(?:env|file|keyring):.+|workspaceFolder|userHome|[A-Za-z_]\w*(?::-.*)?", re.DOTALL)


class UnsupportedRowError(ValueError):
    """The row is not imported; the message says why, and shows no value of it."""


@dataclass(frozen=True, slots=True)
class ConvertedRow:
    """A row for our file, remarks for the user, and names of secrets for which the client would ask a person."""

    row: Mapping[str, object]
    notes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def convert_row(
    row: object,
    *,
    folder: PurePath | None = None,
    expands: bool = True,
    is_across: bool = False,
    shape: RowShape = COMMON,
) -> ConvertedRow:
    """Convert a parsed row of a client that writes rows in this `shape` to one of ours.

    `folder` is the row's project, None for the user's own; `expands`: the client resolves `${…}`; `is_across`: the
    client is a Windows program, and we are not.  Raises `UnsupportedRowError` if the row describes no server, or
    ourselves.
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
    lists = {ours: row[theirs] for theirs, ours in _TOOL_LISTS.items() if isinstance(row.get(theirs), list)}
    if lists := {ours: names for ours, names in lists.items() if names or ours == "deny"}:
        kept.setdefault("tools", lists)
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


def _escaped(value: object) -> Any:
    """Escape a client's row that means `${` literally, as our file has to say it."""
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
    """Return whether a row's `sandbox` is one of ours; other programs give the key other meanings."""
    if not isinstance(value, Mapping) or not set(value) <= set(SandboxPolicy.model_fields):
        return False
    if "${" in json.dumps(value, default=str):
        return True  # what a variable stands for is judged when it is read
    try:
        SandboxPolicy.model_validate(dict(value))
    except ValueError:
        return False
    return True


class _Conversion:
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
