"""Turn one row of a configuration file, in any client's spelling, into a server configuration.

Above: `file` finds the rows, gives them ids and keeps the broken ones.  Below: the protocol's models judge the values.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from quarterdeck.config.overrides import NO_OVERRIDES, OVERRIDE_KEYS, ServerOverrides
from quarterdeck_protocol.configs import (
    ServerConfig,
    SseServerConfig,
    StdioServerConfig,
    StreamableHttpServerConfig,
    TransportKind,
)
from quarterdeck_protocol.names import nearest
from quarterdeck_protocol.policy import SandboxPolicy

from .document import JsonObject
from .problems import Problem, Problems, RowError, at, describe, judge, unknown_key
from .variables import VariableError, Variables

_Model = type[StdioServerConfig] | type[SseServerConfig] | type[StreamableHttpServerConfig]

_MODELS: Final[Mapping[str, _Model]] = {
    TransportKind.STDIO: StdioServerConfig,
    TransportKind.SSE: SseServerConfig,
    TransportKind.STREAMABLE_HTTP: StreamableHttpServerConfig,
}

SPELLINGS: Final[Mapping[str, _Model]] = {
    "stdio": StdioServerConfig,
    "sse": SseServerConfig,
    "http": StreamableHttpServerConfig,
    "streamablehttp": StreamableHttpServerConfig,
}
"""Values of `type` and `transport`, in lower case, without `-` and `_`."""

KEYS_OF_KIND: Final[Mapping[_Model, frozenset[str]]] = {
    StdioServerConfig: OVERRIDE_KEYS | {*StdioServerConfig.model_fields, "envFile"},
    SseServerConfig: OVERRIDE_KEYS | {*SseServerConfig.model_fields},
    StreamableHttpServerConfig: OVERRIDE_KEYS | {*StreamableHttpServerConfig.model_fields},
}

_ALL_KEYS: Final = frozenset[str]().union(*KEYS_OF_KIND.values())

COMMON_KEYS: Final = frozenset({"kind", "type", "transport", "disabled", "enabled", "registry"})
"""Keys of every row that no model knows; `registry` is the server's name in the MCP registry."""

FOREIGN_KEYS: Final = frozenset(
    {"alwaysAllow", "autoApprove", "description", "dev", "gallery", "icon", "inputs", "name", "note", "notes", "tags"}
    | {"timeout", "title", "version"}
)
"""Other clients' keys that change nothing about what a server may do, however near they are to one of ours."""

ROW_KEYS: Final = _ALL_KEYS | COMMON_KEYS | {"name"}

KEYS_INSTEAD: Final[Mapping[str, str]] = {
    "disabledTools": "tools.deny",
    "enabledTools": "tools.allow",
    "environment": "env",
    "excludeTools": "tools.deny",
    "httpUrl": 'url and "type": "http"',
    "includeTools": "tools.allow",
    "serverUrl": "url",
    "transportType": "type",
}
"""Other clients' keys that must not be ignored, and our equivalent."""

_OF_SANDBOX: Final = frozenset(SandboxPolicy.model_fields) - {"environment"}
"""Keys of `sandbox`: beside it they would be ignored, and the server get more than its row means to give."""

_SANDBOX_PATHS: Final = frozenset({"read", "write", "hidden"})
_CERTIFICATES: Final = ("ca_file", "client_cert", "client_key")


class BuiltRow(msgspec.Struct, frozen=True):
    """A usable row; `ignored` names its keys that mean nothing here."""

    config: ServerConfig
    ignored: tuple[str, ...]
    overrides: ServerOverrides = NO_OVERRIDES


def examine_row(
    row: JsonObject, server_id: str, location: str, variables: Variables, defaults: Mapping[str, object] | None = None
) -> tuple[BuiltRow | None, tuple[Problem, ...]]:
    """Return the configuration that `row` describes, its variables resolved, or all that is wrong with it.

    Null stands for an absent key, in `env` for an absent variable, in the sandbox's `limits` for no limit.  A relative
    `cwd`, certificate and path of the sandbox start at the file's directory.  `defaults` are fields that the row may
    omit.
    """
    problems = Problems()
    if row.repeated:
        problems.append(Problem(location, f"the key {row.repeated[0][0]!r} appears more than once"))
    given = {key: value for key, value in row.items() if value is not None}
    model = None
    with problems.kept():
        model = _choose_model(given, location)
    problems += _unknown_keys(given, model, location)
    if model is None:
        # Its kind is wrong or mistyped: the rest is judged by what it looks like, and the row is not used.
        if given.keys().isdisjoint({"command", "url", "type", "transport", "kind"}) and not problems:
            problems.append(Problem(location, "has neither 'command' nor 'url'"))
        given, model = _likely(given)
        if model is None:
            return None, tuple(problems)
    known = KEYS_OF_KIND[model]
    unresolved = len(problems)
    fields = dict(defaults or {}) | {
        key: resolve(value, at(location, key), variables.common if key in OVERRIDE_KEYS else variables, problems)
        for key, value in given.items()
        if key in known and key not in {"id", "kind"}
    }
    if model is StdioServerConfig:
        _complete_stdio(fields, given.get("envFile"), location, variables, problems)
    else:
        fields |= {
            key: str(variables.locate(path))
            for key in _CERTIFICATES
            if isinstance(path := fields.get(key), str) and path  # an empty one is the model's to refuse
        }
    if _spelling(given, location) == "sse":
        fields.setdefault("legacy_only", True)
    said = {key: fields.pop(key) for key in OVERRIDE_KEYS & fields.keys()}
    config, found = judge(model, fields | {"id": server_id}, location)
    overrides, found_too = judge(ServerOverrides, said, location)
    # What could not be resolved is judged as it is written, which says nothing.
    hollow = tuple(problem.location for problem in problems[unresolved:])
    problems += [problem for problem in (*found, *found_too) if not _lies_in(problem.location, hollow)]
    if config is None or overrides is None or problems:
        return None, tuple(problems)
    ignored = tuple(key for key in given if key not in known and key not in COMMON_KEYS)
    return BuiltRow(config, ignored, overrides), ()


def refused_keys(model: type) -> frozenset[str]:
    """Return the keys that mean something elsewhere, and that a row of this kind may not have."""
    of_sandbox = _OF_SANDBOX if model is StdioServerConfig else frozenset[str]()
    return frozenset(KEYS_INSTEAD) | (_ALL_KEYS - KEYS_OF_KIND[model]) | of_sandbox


def is_disabled(row: JsonObject, location: str) -> bool:
    """Return whether `disabled: true` or `enabled: false` switches the row off.  Raises `RowError` for
    another value.
    """
    for key in ("disabled", "enabled"):
        if not isinstance(row.get(key, False), bool | None):
            raise RowError(at(location, key), f"expected true or false, got {describe(row[key])}")
    return row.get("disabled") is True or row.get("enabled") is False


def _spelling(given: Mapping[str, object], location: str) -> str | None:
    """Return the one transport that `type` and `transport` name, in the letters of `SPELLINGS`."""
    found = None
    for key in ("type", "transport"):
        if key not in given:
            continue
        value = given[key]
        spelling = re.sub("[-_]", "", value.lower()) if isinstance(value, str) else ""
        if spelling not in SPELLINGS:
            got = repr(value[:32]) if isinstance(value, str) else describe(value)
            raise RowError(at(location, key), f"expected 'stdio', 'http', 'streamable-http' or 'sse', got {got}")
        if found is not None and SPELLINGS[found] is not SPELLINGS[spelling]:
            raise RowError(location, "'type' and 'transport' disagree: keep one")
        found = spelling
    return found


def _choose_model(given: Mapping[str, object], location: str) -> _Model | None:
    spelling = _spelling(given, location)
    named = SPELLINGS[spelling] if spelling else None
    if "kind" in given:
        kind = given["kind"]
        if not isinstance(kind, str) or kind not in _MODELS:
            raise RowError(at(location, "kind"), f"expected one of {', '.join(map(repr, map(str, _MODELS)))}")
        if named not in (None, _MODELS[kind]):
            raise RowError(location, "'kind' and 'type' disagree: keep one")
        named = _MODELS[kind]
    if named is not None:
        return named
    if "command" in given and "url" in given:
        raise RowError(location, "has both 'command' and 'url': keep one")
    if "command" in given:
        return StdioServerConfig
    return SseServerConfig if "url" in given else None


def _likely(given: Mapping[str, object]) -> tuple[dict[str, object], _Model | None]:
    """Return a row of no known kind with its mistyped `command` or `url` put right, and the kind that it resembles."""
    right = {nearest(key, sorted(ROW_KEYS)) if key not in ROW_KEYS else key: key for key in given}
    for key, model in (("command", StdioServerConfig), ("url", SseServerConfig)):
        if key in right:
            rest = {
                name: value for name, value in given.items() if name not in {right[key], "kind", "type", "transport"}
            }
            return {key: given[right[key]], **rest}, model
    return dict(given), None


def _unknown_keys(given: Mapping[str, object], model: _Model | None, location: str) -> Iterator[Problem]:
    """Yield the keys that a row of this kind, or of any, may not have; a key that resembles none of ours is ignored."""
    known = KEYS_OF_KIND[model] if model else _ALL_KEYS
    for key in given:
        if key in known or key in COMMON_KEYS or key in FOREIGN_KEYS:
            continue
        if ours := KEYS_INSTEAD.get(key):
            yield Problem(at(location, key), f"is another client's key: use {ours}", nearest=ours)
        elif model and key == "sandbox":
            yield Problem(at(location, key), "a remote server has no process to confine: remove it")
        elif model and key in _ALL_KEYS:
            yield Problem(at(location, key), f"does not apply to a {model.transport} server: remove it")
        elif key in _OF_SANDBOX and model in {None, StdioServerConfig}:
            yield Problem(at(location, key), "belongs in 'sandbox'", nearest=f"sandbox.{key}")
        elif near := nearest(key, sorted(known | COMMON_KEYS)):
            yield unknown_key(location, key[:64], [near])  # a mistyped key must not start a server without it


def _lies_in(location: str, places: tuple[str, ...]) -> bool:
    return any(location == place or location.startswith((f"{place}.", f"{place}[")) for place in places)


def resolve(value: object, location: str, variables: Variables, problems: Problems) -> object:
    """Return `value` with variables resolved.

    An unresolvable variable, a repeated key or an odd text is added to `problems`, and its value stays as it is
    written.
    """
    match value:
        case str():
            with problems.kept():
                return _expand(value, location, variables)
            return value
        case JsonObject():
            with problems.kept():
                if value.repeated:
                    raise RowError(location, f"the key {value.repeated[0][0]!r} appears more than once")
                for key in value:
                    _refuse_odd_text(key, location)
            return {key: resolve(member, at(location, key), variables, problems) for key, member in value.items()}
        case list():
            return [resolve(member, at(location, index), variables, problems) for index, member in enumerate(value)]
        case float() if not math.isfinite(value):
            problems.append(Problem(location, "the number is out of range"))
            return value
        case _:
            return value


def _expand(text: str, location: str, variables: Variables) -> str:
    try:
        text = variables.expand(text)
    except VariableError as error:
        raise RowError(location, str(error), error.code) from error
    _refuse_odd_text(text, location)
    return text


def _refuse_odd_text(text: str, location: str) -> None:
    if "\0" in text:
        raise RowError(location, "holds a NUL character")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise RowError(location, "holds half of a surrogate pair: it is not Unicode text")


def _complete_stdio(
    fields: dict[str, object], env_file: object, location: str, variables: Variables, problems: Problems
) -> None:
    """Make strings of `env`, put `envFile` under it, and let paths start at the file's directory."""
    env = fields.get("env", {})
    if isinstance(env, dict):
        values = {
            name: json.dumps(value) if isinstance(value, bool | int | float) else value
            for name, value in env.items()
            if value is not None
        }
        if "envFile" in fields and not any(problem.location == at(location, "envFile") for problem in problems):
            with problems.kept():
                values = _read_env_file(fields, str(env_file), location, variables) | values
        problems += [
            Problem(at(location, "env"), f"{name[:64]!r} cannot be a variable's name")
            for name in values
            if not name or "=" in name
        ]
        fields["env"] = values
    fields.pop("envFile", None)
    if isinstance(cwd := fields.get("cwd"), str):
        fields["cwd"] = str(variables.locate(cwd))
    if isinstance(sandbox := fields.get("sandbox"), dict):
        fields["sandbox"] = locate_sandbox(sandbox, variables)


def locate_sandbox(sandbox: Mapping[str, object], variables: Variables) -> dict[str, object]:
    """Return a policy with paths that start at the file's directory."""
    # An empty path, perhaps an unset variable's, would be the file's directory: left to the model, which refuses it.
    return {
        key: [str(variables.locate(path)) if isinstance(path, str) and path else path for path in value]
        if key in _SANDBOX_PATHS and isinstance(value, list)
        else value
        for key, value in sandbox.items()
    }


def _read_env_file(fields: Mapping[str, object], shown: str, location: str, variables: Variables) -> dict[str, object]:
    path, here = fields["envFile"], at(location, "envFile")
    if not isinstance(path, str):
        raise RowError(here, f"expected a string, got {describe(path)}")
    try:
        values = variables.read_env_file(path, shown)
    except VariableError as error:
        raise RowError(here, str(error), error.code) from error
    for name, value in values.items():
        _refuse_odd_text(name + value, at(here, name))
    return dict(values)
