"""The text of a configuration file as values that keep repeated keys, and its top: our keys, and where the rows are.

    {"mcpServers": {"fs": {"command": "npx", …}}}      desktop clients, Cursor
    {"servers": {"fs": {"type": "stdio", …}}}          VS Code
    {"servers": [{"id": "fs", "command": "npx", …}]}   ours: every field of the protocol's models
    {"native": {"sandbox": {…}, "webfetch": {…}}}      ours: see `native_tools`; alone or beside servers
    {"trust": "strict", "start": "on_call"}            ours: the defaults of rows without their own
    {"allow_project_env": ["NAME"]}                    ours: variables that projects' files may use
    {"http": …, "registry": …, "max_result_tokens": …, "groups": …, "audit": …}      ours: see `own_keys`

Keys of other clients may stand beside them.  Pure.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from quarterdeck.config.load.problems import RowError, at, describe
from quarterdeck.config.load.project import ALLOW_KEY
from quarterdeck_protocol.configs import StartMode, TrustMode
from quarterdeck_protocol.names import nearest, nearest_key, to_server_id

MAX_DEPTH: Final = 64
"""Levels of nesting; a configuration has six, and our own walks recurse."""

_MAX_DIGITS: Final = 300
"""An integer of more digits does not fit a float, nor anything that we configure."""

SERVER_KEYS: Final = ("mcpServers", "servers")
"""Where the rows are; a file may have both."""

TRUST_KEY: Final = "trust"
START_KEY: Final = "start"
NATIVE_KEY: Final = "native"
HTTP_KEY: Final = "http"
TELEMETRY_KEY: Final = "telemetry"
REGISTRY_KEY: Final = "registry"
GROUPS_KEY: Final = "groups"
BUDGET_KEY: Final = "max_result_tokens"
AUDIT_KEY: Final = "audit"

OUR_KEYS: Final = (
    *SERVER_KEYS,
    NATIVE_KEY,
    TRUST_KEY,
    START_KEY,
    ALLOW_KEY,
    HTTP_KEY,
    TELEMETRY_KEY,
    REGISTRY_KEY,
    GROUPS_KEY,
    BUDGET_KEY,
    AUDIT_KEY,
)
"""Each may appear once."""

_MAX_TOLD: Final = 8
"""Unknown keys in one line; other clients keep their whole state in such a file."""


class DocumentError(ValueError):
    """The text is not usable JSON; the message says where, and what to do."""


class JsonObject(dict[str, object]):
    """A JSON object: the first value of each key, and in `repeated` the later ones."""

    repeated: tuple[tuple[str, object], ...] = ()


class WrittenRow(msgspec.Struct, frozen=True):
    """One server as it is written; `name` is its key in an object, None in an array, where a row names itself.

    `location` is its place as messages call it; `is_repeated`: an earlier row has the same key.
    """

    location: str
    pointer: str
    name: str | None
    value: object
    is_repeated: bool = False


def parse_document(text: str) -> object:
    """Return the value of `text`; every object in it is a `JsonObject`.  Raises `DocumentError` if it is not JSON, or
    deeper than `MAX_DEPTH`.
    """
    if not text.strip():
        raise DocumentError("the file is empty")
    try:
        value: object = json.loads(text, object_pairs_hook=_to_object, parse_int=_to_number)
    except json.JSONDecodeError as error:
        raise DocumentError(f"line {error.lineno}, column {error.colno}: {_explain(error)}") from error
    except RecursionError:
        raise DocumentError(f"nested deeper than {MAX_DEPTH} levels") from None
    _check_depth(value)
    return value


def _to_object(pairs: Iterable[tuple[str, object]]) -> JsonObject:
    value, repeated = JsonObject(), []
    for key, member in pairs:
        if key in value:
            repeated.append((key, member))
        else:
            value[key] = member
    value.repeated = tuple(repeated)
    return value


def _to_number(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float("-inf" if digits.startswith("-") else "inf")


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [member for item in level for member in _members(item)]
    if any(isinstance(item, JsonObject | list) for item in level):
        raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")


def _members(item: object) -> Iterable[object]:
    if isinstance(item, JsonObject):
        return (*item.values(), *(member for _, member in item.repeated))
    return item if isinstance(item, list) else ()


def _explain(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].lstrip()
    if not rest:
        return "the text ends before the JSON does"
    if rest.startswith("#"):
        return "a comment does not begin with #"
    if rest.startswith("/*") and "*/" not in rest:
        return "the comment is not closed"
    if rest.startswith(("//", "/*")):
        return "comments are not JSON: remove them"
    if rest.startswith("'"):
        return "JSON strings take double quotes"
    if rest[0] in "}]" and error.doc[: error.pos].rstrip().endswith(","):
        return "a comma before a closing bracket is not JSON: remove it"
    return f"{error.msg[0].lower()}{error.msg[1:]}"


def describe_unknown_keys(document: JsonObject) -> str:
    """Describe the top-level keys that mean nothing here; empty without any.  Raises `DocumentError` if a key of ours
    is repeated, or none is there.
    """
    for key, _ in document.repeated:
        if key in OUR_KEYS:
            raise DocumentError(f"the key {key!r} appears more than once")
    others = [key for key in document if key not in OUR_KEYS and key != "$schema"]
    if not any(key in document for key in OUR_KEYS):
        near = [key for key in others[:100] if nearest_key(key, SERVER_KEYS)]
        hint = f": did you mean {near[0][:64]!r}?" if near else ""
        raise DocumentError(f"has neither 'mcpServers' nor 'servers'{hint}")
    likely = {key: nearest(key, OUR_KEYS) for key in others[:_MAX_TOLD]}
    told = [f"{key[:64]!r}" + (f" (did you mean {near!r}?)" if near else "") for key, near in likely.items()]
    return f"ignored: {', '.join(told)}" if told else ""


def rows_of(document: JsonObject) -> Iterator[WrittenRow]:
    """Yield every row, in the order of the file.  Raises `DocumentError` if a section is no object or array."""
    for section in SERVER_KEYS:
        rows = document.get(section, JsonObject())
        if isinstance(rows, JsonObject):
            for name, value in rows.items():
                yield WrittenRow(at(section, name), pointer(section, name), name, value)
            for count, (name, value) in enumerate(rows.repeated, start=2):
                yield WrittenRow(f"{at(section, name)}#{count}", pointer(section, name), name, value, is_repeated=True)
        elif isinstance(rows, list):
            for index, value in enumerate(rows):
                yield WrittenRow(at(section, index), pointer(section, index), None, value)
        else:
            raise DocumentError(f"{section}: expected an object or an array of servers")


def name_of(row: WrittenRow) -> str:
    """Return the server's name in the row.  Raises `RowError` if it has none, or two."""
    own = row.value.get("id") if isinstance(row.value, JsonObject) else None
    if row.name is not None:
        if own is not None and own != row.name:
            raise RowError(at(row.location, "id"), "the key names the server already: remove it")
        return row.name
    name = own if own is not None or not isinstance(row.value, JsonObject) else row.value.get("name")
    if not isinstance(name, str):
        raise RowError(row.location, "needs an 'id', which is a string")
    return name


def claimed_id(row: WrittenRow) -> str | None:
    """Return the id that the row would take if nothing were wrong with it; None if it names none."""
    try:
        return to_server_id(name_of(row))
    except RowError:
        return None


def read_trust(document: JsonObject) -> TrustMode | None:
    """Return the file's default for its rows; None without one.  Raises `RowError` if it is no trust mode."""
    value = _one_of(TrustMode, TRUST_KEY, document)
    return TrustMode(value) if value is not None else None


def read_start(document: JsonObject) -> StartMode | None:
    """Return when the file's rows start by default; None without one.  Raises `RowError` if it is no such word."""
    value = _one_of(StartMode, START_KEY, document)
    return StartMode(value) if value is not None else None


def _one_of(words: Iterable[str], key: str, document: JsonObject) -> str | None:
    value = document.get(key)
    if value is not None and value not in tuple(words):
        raise RowError(key, f"must be {', '.join(map(repr, map(str, words)))}")
    return str(value) if value is not None else None


def read_allowed_env(document: JsonObject) -> frozenset[str]:
    """Return the variables that projects' files may use.  Raises `RowError` if it is not a list of names."""
    value = document.get(ALLOW_KEY)
    if value is None:
        return frozenset()
    if not isinstance(value, list):
        raise RowError(ALLOW_KEY, f"expected an array, got {describe(value)}")
    for index, name in enumerate(value):
        if not isinstance(name, str) or not name or "=" in name:
            raise RowError(at(ALLOW_KEY, index), "expected the name of a variable")
    return frozenset(value)


def pointer(*steps: str | int) -> str:
    """Return a JSON pointer (RFC 6901) from the top of the file."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
