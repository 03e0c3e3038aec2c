"""What a user allows a confined process: a frozen, closed pydantic model, with three presets that fill what is absent.

A policy is what is *wanted*; what is *enforced* is a receipt, in the sandbox's package.  Pure: whether a path
exists or a machine can give it is found out where the process is started, of the policy's `values`.
"""

import posixpath
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from .addresses import MAX_DESTINATIONS, is_whole_name, parse_destination
from .names import did_you_mean, nearest_key
from .policy_values import LIMITED, Grant, Network, NetworkMode, PolicyValues, Preset, Property, Tier, is_limited


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which a process cannot be given")
    return text


def _variable_name(text: str) -> str:
    if not text or "=" in text:
        raise ValueError("a variable's name must not be empty or contain '='")
    return text


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("is not an absolute path: it must start with '/'")
    # POSIX leaves two leading slashes to the system; here they are one.
    return "/" + posixpath.normpath(path).lstrip("/")


Text = Annotated[str, AfterValidator(_without_nul)]
VariableName = Annotated[Text, AfterValidator(_variable_name)]
AbsolutePath = Annotated[Text, AfterValidator(_absolute)]
"""Normalised as text: links are not followed."""


class FrozenModel(BaseModel):
    """Immutable, closed; an unknown key is an error that names the nearest known one, and no error shows a value."""

    # Deferred: a start builds only the models that its rows use.
    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    hint = did_you_mean(str(key), cls.model_fields, "known keys", nearest_key)
                    raise ValueError(f"unknown key {key!r}{hint}")
        return data


_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_MAX_BYTES: Final = 1 << 62
"""More does not fit a resource limit."""


def _network(value: object) -> object:
    """Judge a list entry by entry: for a union, pydantic would report every member's complaint."""
    match value:
        case None | NetworkMode():
            return value
        case str() if value in tuple(NetworkMode):
            return NetworkMode(value)
        case list() | tuple() if not value:
            raise ValueError("an empty list reaches nothing: write 'none'")
        case list() | tuple():
            entries = [each for index, entry in enumerate(value) for each in _destinations(index, entry)]
            if len(entries) > MAX_DESTINATIONS:
                raise ValueError(f"has more than {MAX_DESTINATIONS} entries; a name without a port is two")
            return tuple(dict.fromkeys(entries))
    raise ValueError(f"must be {', '.join(map(repr, map(str, NetworkMode)))} or a list of host:port")


def _destinations(index: int, entry: object) -> list[str]:
    """Return what an entry opens: `host:port`, and of a whole name without a port its web ports."""
    text = entry if isinstance(entry, str) else ""
    texts = [f"{text}:443", f"{text}:80"] if is_whole_name(text) else [text]
    try:
        return [str(parse_destination(each)) for each in texts]
    except ValueError as error:
        raise ValueError(f"entry [{index}] {error}") from None


_Bytes = Annotated[ByteSize, Field(ge=_MIB, le=_MAX_BYTES)]
"""A number or a text such as "512 MiB" or "2G".  Less than a mebibyte is a forgotten unit more often than a wish."""

_Seconds = Annotated[float, Field(gt=0)]


class Limits(FrozenModel):
    """How much a confined process may use; None is no limit.  The defaults are those of `standard`.

    Attributes:
        memory_bytes: of the whole tree, its temporary filesystems included.
        processes: of the whole tree, threads included.
        open_files: of each process.
        file_size_bytes: the longest file that it can write.
        cpu_s: processor seconds of the whole tree.
        cpu_share: processors that the tree may keep busy, a fraction or a few.
        wall_s: from its start to its end.
        scratch_bytes: temporary files, together.
        scratch_inodes: their number.
        output_bytes: all that it writes on its standard output.
        line_bytes: one line of that; a server's `max_result_bytes` holds beside it.
        partial_line_s: for how long a line may stay without its end.
    """

    memory_bytes: _Bytes | None = ByteSize(2 * _GIB)
    processes: int | None = Field(default=512, ge=1, le=1 << 22)
    open_files: int | None = Field(default=4096, ge=16, le=1 << 20)
    file_size_bytes: _Bytes | None = ByteSize(4 * _GIB)
    cpu_s: _Seconds | None = None
    cpu_share: float | None = Field(default=None, ge=0.01, le=4096)
    wall_s: _Seconds | None = None
    scratch_bytes: _Bytes | None = ByteSize(_GIB)
    scratch_inodes: int | None = Field(default=100_000, ge=16, le=1 << 31)
    output_bytes: _Bytes | None = None
    line_bytes: Annotated[ByteSize, Field(ge=1024, le=_MAX_BYTES)] | None = None
    partial_line_s: _Seconds | None = 300.0


PRESETS: Final[Mapping[Preset, Mapping[str, object]]] = {
    Preset.STRICT: {
        "network": NetworkMode.NONE,
        "require": (Property.FILESYSTEM, Property.NETWORK, Property.PROCESSES, Property.SYSCALLS, Property.TREE_DEATH),
        "minimum": Tier.BUBBLEWRAP,
    },
    Preset.STANDARD: {},
    Preset.TRUSTED: {"network": NetworkMode.FULL, "minimum": Tier.LIMITS},
}
"""What each preset says otherwise than the defaults of the models, which are those of `standard`."""

PRESET_LIMITS: Final[Mapping[Preset, Mapping[str, object]]] = {
    Preset.STRICT: {
        "memory_bytes": 512 * _MIB,
        "processes": 64,
        "open_files": 1024,
        "file_size_bytes": 256 * _MIB,
        "cpu_s": 3600.0,
        "scratch_bytes": 256 * _MIB,
        "scratch_inodes": 10_000,
        "output_bytes": _GIB,
        "line_bytes": 16 * _MIB,
        "partial_line_s": 30.0,
    },
    Preset.STANDARD: {},
    Preset.TRUSTED: dict.fromkeys(Limits.model_fields),
}
"""The same of `limits`.  The strict ones leave room for one interpreter: node has eleven threads when it starts."""

_CONFINING: Final = frozenset({Property.FILESYSTEM, Property.NETWORK, Property.PROCESSES, Property.SYSCALLS})


class SandboxPolicy(FrozenModel):
    """What one process may reach and use.

    A key that is absent or None is filled from the preset, within `limits` only one that is absent.

    Attributes:
        preset: what fills the rest.
        read: host paths that it sees, unchangeable, beyond the system's and its own program's.
        write: host paths that it may change.
        hidden: paths within those that it does not see.
        network: what it can reach; None is the internet where the machine can give exactly that, else everything.
        environment: names of our own variables that it may see.
        limits: how much it may use.
        require: properties without which it does not start.
        grants: named pieces of the user's environment.
        minimum: the weakest tier in which it starts.
    """

    preset: Preset = Preset.STANDARD
    read: tuple[AbsolutePath, ...] = ()
    write: tuple[AbsolutePath, ...] = ()
    hidden: tuple[AbsolutePath, ...] = ()
    network: Annotated[Network | None, BeforeValidator(_network)] = None
    environment: tuple[VariableName, ...] = ()
    limits: Limits = Limits()
    require: tuple[Property, ...] = ()
    grants: tuple[Grant, ...] = ()
    minimum: Tier = Tier.LANDLOCK

    @property
    def values(self) -> PolicyValues:
        """The same for whom it is enforced by; made anew each time, for `model_copy` would keep another policy's."""
        return msgspec.convert(self.model_dump(mode="json"), PolicyValues)

    @property
    def confines_files(self) -> bool:
        """See `Preset`."""
        return self.preset.confines_files

    def limits_set(self, name: Property) -> bool:
        """See `PolicyValues`."""
        return is_limited(name, self.limits)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_the_preset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        preset, limits = given.get("preset", Preset.STANDARD), given.get("limits", {})
        if preset not in tuple(Preset):
            return given
        if isinstance(limits, Limits):
            limits = limits.model_dump(exclude_unset=True)
        if isinstance(limits, Mapping):
            limits = {**PRESET_LIMITS[preset], **limits}
        return {**PRESETS[preset], **given, "limits": limits}

    @field_validator("read", "write", "hidden", "environment", "require", "grants")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _contradicts_nothing(self) -> Self:
        said: dict[str, str] = {}
        for field in ("read", "write", "hidden"):
            for index, path in enumerate(getattr(self, field)):
                if path in said:
                    raise ValueError(f"{said[path]} and {field}[{index}] are the same path: keep one")
                said[path] = f"{field}[{index}]"
        for name in self.require:
            if not self.limits_set(name):
                raise ValueError(f"requires {name.value!r} without a limit: set limits.{LIMITED[name][0]}")
        if self.network is NetworkMode.FULL and Property.NETWORK in self.require:
            raise ValueError("requires 'network' and leaves it open with network 'full': drop one")
        if not self.confines_files:
            self._confines_nothing()
        return self

    def _confines_nothing(self) -> None:
        instead = "the preset 'trusted' confines nothing: use 'standard'"
        if self.hidden:
            raise ValueError(f"hidden: {instead}")
        if self.network is not NetworkMode.FULL:
            raise ValueError(f"network: {instead}, or drop it")
        if self.minimum is not Tier.LIMITS:
            raise ValueError(f"minimum: {instead}, or drop it")
        if strict := [name.value for name in self.require if name in _CONFINING]:
            raise ValueError(f"requires {strict[0]!r}: {instead}, or drop it")
