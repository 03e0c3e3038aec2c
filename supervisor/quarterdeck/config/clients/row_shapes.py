"""How each client writes a server's row: the members that it calls otherwise than we do, in both directions.  Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_KINDS: Final = {"local": "stdio", "remote": "http", "streamable_http": "http"}
"""Words for a transport that our loader does not take."""


class RowShape(msgspec.Struct, frozen=True):
    """The names of a client's members of a row.

    Attributes:
        args: the key of the arguments; None where `command` is a list of program and arguments.
        marks: further members of a row that starts a program.
        url: the key of an address; None where the client takes none from its file.
        headers: the keys that lead to the headers of requests.
        url_marks: further members of a row with an address.
        is_named: the row has its own name in `name`.
        references: patterns of the client's references, and our replacement for each.
    """

    command: str = "command"
    args: str | None = "args"
    env: str = "env"
    marks: Mapping[str, object] = msgspec.field(default_factory=dict)
    url: str | None = "url"
    headers: tuple[str, ...] = ("headers",)
    url_marks: Mapping[str, object] = msgspec.field(default_factory=dict)
    is_named: bool = False
    references: tuple[tuple[str, str], ...] = ()


COMMON: Final = RowShape()
"""The shape that most clients took over from Claude Desktop."""


def started_row(shape: RowShape, name: str, command: Sequence[str], env: Mapping[str, str]) -> dict[str, object]:
    """Return a row for a client that starts us."""
    row: dict[str, object] = ({"name": name} if shape.is_named else {}) | dict(shape.marks)
    if shape.args is None:
        row[shape.command] = list(command)
    else:
        row |= {shape.command: command[0], shape.args: list(command[1:])}
    return row | ({shape.env: dict(env)} if env else {})


def dialled_row(shape: RowShape, name: str, url: str, token: str) -> dict[str, object]:
    """Return a row for a client that reaches us over HTTP.  Raises `ValueError` if its file takes no address."""
    if shape.url is None:
        raise ValueError("it takes no address in its file")
    row: dict[str, object] = ({"name": name} if shape.is_named else {}) | dict(shape.url_marks) | {shape.url: url}
    value: object = {"Authorization": f"Bearer {token}"}
    for key in reversed(shape.headers):
        value = {key: value}
    assert isinstance(value, dict)
    return row | value


def common_row(shape: RowShape, row: Mapping[str, object]) -> dict[str, object]:
    """Return a client's row under the member names that most clients use."""
    found = dict(row)
    if shape.args is None and isinstance(words := found.get(shape.command), list) and words:
        found |= {"command": words[0], "args": words[1:]}
    else:
        _rename(found, shape.command, "command")
    _rename(found, shape.env, "env")
    if shape.url is not None:
        _rename(found, shape.url, "url")
    holder: object = found
    for key in shape.headers[:-1]:
        holder = holder.get(key) if isinstance(holder, Mapping) else None
    if shape.headers != ("headers",) and isinstance(holder, Mapping) and shape.headers[-1] in holder:
        found["headers"] = holder[shape.headers[-1]]
        del found[shape.headers[0]]
    if isinstance(kind := found.get("type"), str):
        found["type"] = _KINDS.get(kind, kind)
    _take_variables(found)
    for theirs, ours in (("enabled_tools", "includeTools"), ("disabled_tools", "excludeTools")):
        _rename(found, theirs, ours)
    return {key: _replaced(shape, value) for key, value in found.items()}


def _take_variables(row: dict[str, object]) -> None:
    """Turn names of variables and stored secrets, which other clients list apart, into references."""
    headers, env = row.get("headers"), row.get("env")
    if isinstance(name := row.pop("bearer_token_env_var", None), str):
        headers = {**(headers if isinstance(headers, Mapping) else {}), "Authorization": f"Bearer ${{{name}}}"}
    if isinstance(names := row.pop("env_http_headers", None), Mapping):
        headers = {**(headers if isinstance(headers, Mapping) else {}), **{key: f"${{{names[key]}}}" for key in names}}
    if isinstance(listed := row.pop("env_vars", None), list):
        # Not as references in `env`: Codex passes variables that are set, and a reference requires its variable.
        row["inherit_env"] = [name for name in listed if isinstance(name, str)]
    if isinstance(listed := row.pop("env_keys", None), list):
        stored = {name: f"${{input:{name}}}" for name in listed if isinstance(name, str)}
        env = {**stored, **(env if isinstance(env, Mapping) else {})}
    row |= {key: value for key, value in (("headers", headers), ("env", env)) if value is not None}


def _rename(row: dict[str, object], theirs: str, ours: str) -> None:
    if theirs != ours and theirs in row and ours not in row:
        row[ours] = row.pop(theirs)


def _replaced(shape: RowShape, value: object) -> object:
    match value:
        case str():
            for pattern, ours in shape.references:
                value = re.sub(pattern, ours, value)
            return value
        case Mapping():
            return {key: _replaced(shape, member) for key, member in value.items()}
        case list():
            return [_replaced(shape, member) for member in value]
        case _:
            return value
