"""The keys of a file that are ours, beside its rows: budget, `groups`, `http`, `telemetry`, `registry` and `audit`.

    {"max_result_tokens": 10000}                       above how many tokens a tool's result is cut for clients
    {"groups": {"review": {"servers": ["fs"]}}}        named parts of what is offered, see `config.groups`
    {"http": true}                                     where the daemon listens: at the usual address
    {"http": "127.0.0.1:9000"}                         at this one
    {"http": {"address": "10.0.0.5:8808", "allow_remote": true, "allow_hosts": ["deck.example"]}}
    {"telemetry": {"metrics": "127.0.0.1:9464", "otlp": "http://127.0.0.1:4318", "content": false}}
    {"registry": "https://registry.example/mcp"}       where servers are looked for: an MCP registry
    {"registry": "~/registry.json"}                    a file with what a registry would answer
    {"registry": {"address": "https://…", "proxy": "http://proxy.example:3128"}}
    {"audit": {"keep_days": 90, "keep_bytes": "2 GiB"}}                 how long calls are kept in the ledger
    {"audit": {"to": [{"file": "/var/log/deck.jsonl"}, {"syslog": "tcp://logs.example:514", "format": "cef"}]}}

Pure.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import ByteSize, Field, StrictBool

from quarterdeck.common.http_wish import HttpWish
from quarterdeck.config.groups import Group, is_group_name
from quarterdeck.config.web_policy import Proxy
from quarterdeck_protocol.policy import FrozenModel

from .document import AUDIT_KEY, BUDGET_KEY, GROUPS_KEY, HTTP_KEY, REGISTRY_KEY, TELEMETRY_KEY, JsonObject
from .problems import Problem, Problems, RowError, at, describe, judge, require

MAX_TOKENS: Final = 1_000_000_000
"""More than the largest permitted result has."""


def read_budget(document: JsonObject) -> int | None:
    """Return the file's budget; None without one.  Raises `RowError` if it is no whole number in its range."""
    value = document.get(BUDGET_KEY)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowError(BUDGET_KEY, f"expected a whole number, got {describe(value)}")
    if not 1 <= value <= MAX_TOKENS:
        raise RowError(BUDGET_KEY, f"must be from 1 to {MAX_TOKENS:,}")
    return value


_GROUP_NAMES: Final = "up to 64 letters, digits, '_' and '-', the first a letter or digit"


def examine_groups(document: JsonObject) -> tuple[dict[str, Group], tuple[Problem, ...]]:
    """Return the usable groups of a file, and what is wrong with the others."""
    problems = Problems()
    groups: dict[str, Group] = {}
    value = document.get(GROUPS_KEY)
    if value is None:
        return groups, ()
    if not isinstance(value, JsonObject):
        return groups, (Problem(GROUPS_KEY, f"expected an object, got {describe(value)}"),)
    for name, written in value.items():
        with problems.kept():
            group, found = _group(name, written, value)
            problems += found
            if group is not None:
                groups[name] = group
    return groups, tuple(problems)


def _group(name: str, written: object, among: JsonObject) -> tuple[Group | None, tuple[Problem, ...]]:
    place = at(GROUPS_KEY, name)
    if not is_group_name(name):
        raise RowError(place, f"cannot be a group's name: {_GROUP_NAMES}")
    if any(name == key for key, _ in among.repeated):
        raise RowError(place, "appears more than once")
    if not isinstance(written, JsonObject):
        raise RowError(place, f"expected an object, got {describe(written)}")
    if written.repeated:
        raise RowError(place, f"the key {written.repeated[0][0]!r} appears more than once")
    return judge(Group, {key: value for key, value in written.items() if value is not None}, place)


class HttpKey(FrozenModel):
    """The key `http` as an object.

    Attributes:
        address: as in `HOST:PORT`; what is left out is the default.
        allow_remote: whether other machines may reach it.
        allow_hosts: further names by which it may be called.
    """

    address: str = ""
    allow_remote: StrictBool = False
    allow_hosts: tuple[str, ...] = ()


def read_http(document: JsonObject) -> HttpWish | None:
    """Return where a file wants the daemon to listen; None for nowhere.  Raises `RowError` if it cannot be read."""
    value = document.get(HTTP_KEY)
    match value:
        case None | False:
            return None
        case True:
            return HttpWish()
        case str():
            return HttpWish(_address(value, HTTP_KEY))
        case JsonObject():
            key = require(HttpKey, value, HTTP_KEY)
            return HttpWish(_address(key.address, at(HTTP_KEY, "address")), key.allow_remote, key.allow_hosts)
    raise RowError(HTTP_KEY, f"expected true, an address, or an object, got {describe(value)}")


def _address(text: str, place: str) -> str:
    if text.rpartition(":")[2] == "0":
        raise RowError(place, "the port 0 is another one at each start: name one that clients can be told")
    return text


class TelemetryKey(FrozenModel):
    """The key `telemetry`.

    Attributes:
        metrics: HOST:PORT on loopback where metrics are served without a token; empty for nowhere.
        otlp: URL of a receiver of traces and metrics; empty for that of the environment, if that asks for them.
        content: whether traces hold arguments and results, without secrets.
    """

    metrics: str = ""
    otlp: str = ""
    content: StrictBool = False


NO_TELEMETRY: Final = TelemetryKey()


def read_telemetry(document: JsonObject) -> TelemetryKey:
    """Return what a file wants to be told to others.  Raises `RowError` if it cannot be read."""
    value = document.get(TELEMETRY_KEY)
    if value is None:
        return NO_TELEMETRY
    if not isinstance(value, JsonObject):
        raise RowError(TELEMETRY_KEY, f"expected an object, got {describe(value)}")
    key = require(TelemetryKey, value, TELEMETRY_KEY)
    if key.metrics:
        _address(key.metrics, at(TELEMETRY_KEY, "metrics"))
    parts = urlsplit(key.otlp)
    if key.otlp and not (parts.scheme in {"http", "https"} and parts.hostname):
        raise RowError(at(TELEMETRY_KEY, "otlp"), "is not a URL of http or https")
    return key


OFFICIAL: Final = "https://registry.modelcontextprotocol.io"


class RegistryKey(FrozenModel):
    """The key `registry` as an object.

    Attributes:
        address: a URL, or the path of a file that stands in for a registry.
        proxy: `http://host:port` or `https://host:port`, for every request; None connects directly.
    """

    address: str = OFFICIAL
    proxy: Proxy | None = None


class RegistryWish(msgspec.Struct, frozen=True):
    """Where servers are looked for: the `address` is a URL, or the absolute path of a file that stands in for a
    registry.
    """

    address: str = OFFICIAL
    proxy: str | None = None

    @property
    def is_url(self) -> bool:
        """Whether it is asked over the network."""
        return self.address.startswith(("http://", "https://"))


def read_registry(document: JsonObject, locate: Callable[[str], Path]) -> RegistryWish | None:
    """Return a file's registry; None without one.  Raises `RowError` if it cannot be read.

    `locate` returns the path that a text of the file means.
    """
    value = document.get(REGISTRY_KEY)
    match value:
        case None:
            return None
        case str():
            return registry_at(value, locate)
        case JsonObject():
            key = require(RegistryKey, value, REGISTRY_KEY)
            registry = registry_at(key.address, locate, at(REGISTRY_KEY, "address"))
            return msgspec.structs.replace(registry, proxy=key.proxy)
    raise RowError(REGISTRY_KEY, f"expected an address, a file or an object, got {describe(value)}")


def registry_at(text: str, locate: Callable[[str], Path], place: str = REGISTRY_KEY) -> RegistryWish:
    """Return the registry that a text names: a URL, or a path.  Raises `RowError` if it names none."""
    if "://" not in text:
        if not text:
            raise RowError(place, "is empty: give the URL of a registry, or a file")
        return RegistryWish(str(locate(text)))
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise RowError(place, "is not a URL of http or https")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise RowError(place, "has more than a host, a port and a path: a registry is asked without a login")
    return RegistryWish(text)


_MIB: Final = 1024**2
_MAX_BYTES: Final = 1024**5

_Bytes = Annotated[ByteSize, Field(ge=_MIB, le=_MAX_BYTES)]

SYSLOG_PORT: Final = 514


class AuditTargetKey(FrozenModel):
    """Where records go, one of the key `audit.to`: a file, or a syslog.

    Attributes:
        file: an absolute path, or one below `~`.
        syslog: `udp://HOST:PORT`, `tcp://HOST:PORT`, or the path of a socket, such as `/dev/log`.
        format: of each record.
        max_bytes: a file is rotated before it grows larger.
        files: how many are kept, the present one included.
    """

    file: str = ""
    syslog: str = ""
    format: Literal["json", "cef"] = "json"
    max_bytes: _Bytes = ByteSize(16 * _MIB)
    files: Annotated[int, Field(ge=1, le=1000)] = 8


class AuditKey(FrozenModel):
    """The key `audit`.

    Attributes:
        keep_days: calls that are older are deleted.
        keep_bytes: the oldest calls are deleted that are beyond these.
        to: where each call and each event is written as well.
    """

    keep_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    keep_bytes: _Bytes | None = None
    to: Annotated[tuple[AuditTargetKey, ...], Field(max_length=8)] = ()


class AuditTarget(msgspec.Struct, frozen=True):
    """Where records go: to a file, or by `udp`, `tcp` or the socket at a path (`unix`) to a syslog."""

    kind: Literal["file", "udp", "tcp", "unix"]
    address: str
    port: int = 0
    format: str = "json"
    max_bytes: int = 0
    files: int = 1

    def __str__(self) -> str:
        return f"{self.address}:{self.port}" if self.port else self.address


class AuditWish(msgspec.Struct, frozen=True):
    """How long calls are kept, None for what is kept without a wish; and where records go."""

    keep_days: int | None = None
    keep_bytes: int | None = None
    to: tuple[AuditTarget, ...] = ()


def read_audit(document: JsonObject, home: Path) -> AuditWish | None:
    """Return a file's wish; None without one.  Raises `RowError` if it cannot be read."""
    value = document.get(AUDIT_KEY)
    if value is None:
        return None
    if not isinstance(value, JsonObject):
        raise RowError(AUDIT_KEY, f"expected an object, got {describe(value)}")
    key = require(AuditKey, value, AUDIT_KEY)
    targets = (_target(each, at(AUDIT_KEY, "to", index), home) for index, each in enumerate(key.to))
    return AuditWish(key.keep_days, key.keep_bytes, tuple(targets))


def _target(key: AuditTargetKey, place: str, home: Path) -> AuditTarget:
    if bool(key.file) is bool(key.syslog):
        raise RowError(place, "needs either 'file' or 'syslog'")
    if key.file:
        path = home / key.file[2:] if key.file.startswith("~/") else Path(key.file)
        if not path.is_absolute() or "\0" in key.file:
            raise RowError(at(place, "file"), "must be an absolute path, or begin with ~/")
        return AuditTarget("file", str(path), format=key.format, max_bytes=key.max_bytes, files=key.files)
    if key.syslog.startswith("/") and "\0" not in key.syslog:
        return AuditTarget("unix", key.syslog, format=key.format)
    try:
        parts = urlsplit(key.syslog)
        host, port = parts.hostname, parts.port or SYSLOG_PORT
    except ValueError:
        host = None
    if (
        host
        and parts.scheme in ("udp", "tcp")
        and not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    ):
        return AuditTarget("udp" if parts.scheme == "udp" else "tcp", host, port, key.format)
    raise RowError(at(place, "syslog"), "must be udp://HOST:PORT, tcp://HOST:PORT, or the path of a socket")
