"""The values of a configuration with their sources, and all that is wrong with its files.

A value comes from a file and a place in it, from a preset, or is a default.  Values are shown as they are written,
variables unexpanded; possible secrets are masked.  Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarterdeck.config.load.document import BUDGET_KEY, GROUPS_KEY, NATIVE_KEY, START_KEY, TRUST_KEY, pointer
from quarterdeck.config.load.file import LoadedConfig
from quarterdeck.config.load.merge import FileFound, MergedConfig, merge_files
from quarterdeck.config.load.origin import FROM_CODE, Origin
from quarterdeck.config.load.problems import Problem, model_in
from quarterdeck.config.load.project import ALLOW_KEY
from quarterdeck.config.load.row import ROW_KEYS
from quarterdeck.config.native_tools import NativeSettings, merge_native
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck.config.secrets.masking import MASK, mask_row
from quarterdeck_protocol.configs import LoginConfig, RestartPolicy, ServerConfig, ToolFilter, TrustMode
from quarterdeck_protocol.policy import PRESET_LIMITS, PRESETS, FrozenModel, Limits, SandboxPolicy
from quarterdeck_protocol.policy_values import Preset

SET_ASIDE: Final = "set_aside"
"""The code of something that has no effect, and is no error."""

DEFAULT: Final = "default"
"""The source of a value that no file gives."""

_TRANSPORT_KEYS: Final = ("type", "transport", "kind", "command", "url")

_PRESETS: Final = {
    preset: {**PRESETS[preset], **{f"limits.{key}": value for key, value in PRESET_LIMITS[preset].items()}}
    for preset in Preset
}
"""The values of each preset that differ from the default."""

_ROW_MODELS: Final[Mapping[str, type[FrozenModel]]] = {
    "auth": LoginConfig,
    "restart": RestartPolicy,
    "tools": ToolFilter,
    "sandbox": SandboxPolicy,
}


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing to know about a file.

    `server` and `location` are empty for the file as a whole; `reason` never shows a value that could be a secret;
    `nearest` is the known key that an unknown one resembles.  What is no error is only ignored or set aside, with the
    code `set_aside`.
    """

    file: Path
    server: str
    location: str
    reason: str
    nearest: str | None = None
    is_error: bool = True
    code: str = "config_invalid"

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        return f"{self.file}: {place}{self.reason}"


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a configuration under its dotted `key`: `sandbox.limits.processes`.

    It is as written, or the default; `source` is the file, or a description, and `pointer` the place in the file.
    """

    key: str
    value: object
    source: str = DEFAULT
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class ServerValues:
    """One server, and where it is written; `problem` tells why it cannot be started.

    Its `values` are in the order of the documentation, or, if it cannot be started, as they are written.
    """

    id: str
    standing: str
    file: str
    pointer: str
    problem: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ConfigValues:
    """A whole configuration: the settings for all of it, and its servers."""

    settings: tuple[Value, ...]
    servers: tuple[ServerValues, ...]


def check_files(files: Iterable[FileFound]) -> tuple[ConfigProblem, ...]:
    """Return everything there is to know about these files, file by file, errors before what is ignored."""
    files = tuple(files)
    own = {line for found in files if found.loaded is not None for line in found.loaded.warnings}
    set_aside = [line for line in merge_files(files).warnings if line not in own]
    wished = {found.candidate.path: found.loaded.native for found in files if found.loaded and found.loaded.native}
    set_aside += merge_native(wished)[1]
    return tuple(finding for found in files for finding in _check(found, set_aside))


def _check(found: FileFound, set_aside: Iterable[str]) -> Iterator[ConfigProblem]:
    path, loaded = found.candidate.path, found.loaded
    if found.error is not None:
        yield ConfigProblem(path, "", "", found.error.message)
    if loaded is None:
        return
    for problem in (*loaded.top_problems, *loaded.native_problems):
        yield _error(path, "", problem)
    for row in loaded.broken:
        for problem in row.problems:
            yield _error(path, row.id, problem)
    said = {f"{path}: ignored: {problem}" for problem in loaded.top_problems}
    for line in (*loaded.warnings, *set_aside):
        if line.startswith(f"{path}: ") and line not in said:
            yield ConfigProblem(path, "", "", line.removeprefix(f"{path}: "), is_error=False, code=SET_ASIDE)


def _error(path: Path, server: str, problem: Problem) -> ConfigProblem:
    return ConfigProblem(path, server, problem.location, problem.reason, problem.nearest, code=problem.code)


def value_origins(files: Iterable[FileFound], gathered: MergedConfig) -> ConfigValues:
    """Return everything that these files say together, and what they leave to the defaults."""
    files = tuple(files)
    tops = {found.candidate.path: found.loaded for found in files if found.loaded is not None}
    servers = []
    for config in gathered.servers:
        origin = gathered.origins.get(config.id, FROM_CODE)
        values = _ServerFields(config, origin, tops.get(origin.path) if origin.path else None)
        servers.append(_server(config.id, origin, "", values.all()))
    for row in gathered.broken:
        origin = gathered.origins.get(row.id, FROM_CODE)
        written = (
            Value(key, value, str(origin.path), origin.pointer + pointer(key)) for key, value in _shown(origin).items()
        )
        servers.append(_server(row.id, origin, row.message, written))
    return ConfigValues(tuple(_settings(files)), tuple(servers))


def _server(server: str, origin: Origin, problem: str, values: Iterable[Value]) -> ServerValues:
    return ServerValues(server, str(origin.standing), str(origin.path or ""), origin.pointer, problem, tuple(values))


class _ServerFields:
    def __init__(self, config: ServerConfig, origin: Origin, file: LoadedConfig | None) -> None:
        self._config = config
        self._origin = origin
        self._row = _shown(origin)
        self._file_trust, self._file_start = (file.trust, file.start) if file is not None else (None, None)

    def all(self) -> Iterator[Value]:
        """Yield every field of the model, then the other keys of the row."""
        plain = self._config.model_dump(mode="json")
        for key in type(self._config).model_fields:
            member = getattr(self._config, key)
            if key == "id":
                continue
            if key == "kind":
                yield self._at(key, plain[key], next(name for name in _TRANSPORT_KEYS if name in self._row))
            elif key == TRUST_KEY:
                yield self._trust()
            elif key in {"env", "headers"}:
                yield from self._named(key, plain[key])
            elif isinstance(member, FrozenModel):
                yield from _model(member, self._row.get(key), key, str(self._origin.path), self._origin.pointer)
            elif key in self._row:
                yield self._at(key, self._row[key], key)
            elif key == START_KEY and self._file_start is not None:
                yield Value(key, plain[key], str(self._origin.path), pointer(key))
            elif key == "legacy_only" and member:
                yield self._at(key, member, "type" if "type" in self._row else "transport")
            else:
                yield Value(key, plain[key])
        yield from (self._at(key, self._row[key], key) for key in ServerOverrides.model_fields if key in self._row)
        if "envFile" in self._row:
            yield self._at("envFile", self._row["envFile"], "envFile")

    def _at(self, key: str, value: object, *steps: str) -> Value:
        return Value(key, value, str(self._origin.path), self._origin.pointer + pointer(*steps))

    def _trust(self) -> Value:
        trust = self._config.trust
        if self._row.get(TRUST_KEY) == trust:
            return self._at(TRUST_KEY, trust, TRUST_KEY)
        if self._file_trust == trust:
            return Value(TRUST_KEY, trust, str(self._origin.path), pointer(TRUST_KEY))
        # Of a project the user's files decide, unless it wants to be stricter.
        return Value(TRUST_KEY, trust, DEFAULT if trust is TrustMode.BASELINE else f"'{TRUST_KEY}' of a file of yours")

    def _named(self, key: str, names: Mapping[str, object]) -> Iterator[Value]:
        written = self._row.get(key)
        written = written if isinstance(written, Mapping) else {}
        if not names:
            yield Value(key, {})
        for name in names:
            if name in written:
                yield self._at(f"{key}.{name}", written[name], key, name)
            else:
                yield self._at(f"{key}.{name}", MASK, "envFile")


def _model(model: FrozenModel, written: object, key: str, source: str, place: str) -> Iterator[Value]:
    written = written if isinstance(written, Mapping) else {}
    filled = _PRESETS[model.preset] if isinstance(model, SandboxPolicy) else {}
    plain = model.model_dump(mode="json")
    for name in type(model).model_fields:
        member = getattr(model, name)
        here = f"{place}{pointer(key.rpartition('.')[2], name)}"
        if isinstance(member, FrozenModel):
            inner = _model(member, written.get(name), f"{key}.{name}", source, place + pointer(key.rpartition(".")[2]))
            yield from (_by_preset(value, f"{key}.", filled, model) for value in inner)
        elif name in written and (written[name] is not None or isinstance(model, Limits)):
            yield Value(f"{key}.{name}", written[name], source, here)
        else:
            yield _by_preset(Value(f"{key}.{name}", plain[name]), f"{key}.", filled, model)


def _by_preset(value: Value, prefix: str, filled: Mapping[str, object], model: FrozenModel) -> Value:
    if value.source != DEFAULT or value.key.removeprefix(prefix) not in filled:
        return value
    return Value(value.key, value.value, f"preset {getattr(model, 'preset', '')!s}")


def _shown(origin: Origin) -> dict[str, object]:
    """Return the row as it may be shown, without nulls; a value at a wrong place might be a secret."""
    row = {key: value for key, value in mask_row(origin.row).items() if value is not None}
    if isinstance(names := row.get("inherit_env"), list):
        row["inherit_env"] = [MASK if isinstance(name, str) and "=" in name else name for name in names]
    return {key: _known(_ROW_MODELS.get(key), value) if key in ROW_KEYS else MASK for key, value in row.items()}


def _known(model: type[FrozenModel] | None, value: object) -> object:
    """Return a part of a row, masked where its model does not know it."""
    if model is None or not isinstance(value, Mapping):
        return value
    fields = model.model_fields
    return {
        key: _known(model_in(fields[key].annotation), member) if key in fields else MASK
        for key, member in value.items()
    }


def _settings(files: Iterable[FileFound]) -> Iterator[Value]:
    said: set[str] = set()
    for found in files:
        for value in _top(found):
            member = ".".join(value.key.split(".")[:2])
            if member == value.key or member not in said:
                yield value
        said |= {".".join(value.key.split(".")[:2]) for value in _top(found)}
    defaults: dict[str, object] = {TRUST_KEY: str(TrustMode.BASELINE), START_KEY: None, ALLOW_KEY: [], BUDGET_KEY: None}
    defaults |= {f"{NATIVE_KEY}.{member}": None for member in NativeSettings.model_fields}
    yield from (Value(key, value) for key, value in defaults.items() if key not in said)


def _top(found: FileFound) -> Iterator[Value]:
    loaded, source = found.loaded, str(found.candidate.path)
    if loaded is None:
        return
    if loaded.trust is not None:
        yield Value(TRUST_KEY, str(loaded.trust), source, pointer(TRUST_KEY))
    if loaded.start is not None:
        yield Value(START_KEY, str(loaded.start), source, pointer(START_KEY))
    if loaded.allowed_env:
        yield Value(ALLOW_KEY, sorted(loaded.allowed_env), source, pointer(ALLOW_KEY))
    if loaded.max_result_tokens is not None:
        yield Value(BUDGET_KEY, loaded.max_result_tokens, source, pointer(BUDGET_KEY))
    for name, group in loaded.groups.items():
        said = {key: value for key, value in group.model_dump(mode="json").items() if value}
        yield Value(f"{GROUPS_KEY}.{name}", said, source, pointer(GROUPS_KEY, name))
    for member in NativeSettings.model_fields:
        part = getattr(loaded.native, member, None)
        if isinstance(part, FrozenModel):
            key = f"{NATIVE_KEY}.{member}"
            yield from _model(part, loaded.native_row.get(member), key, source, pointer(NATIVE_KEY))
