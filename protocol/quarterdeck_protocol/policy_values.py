"""A policy as plain values: the words for each of its choices, and what the sandbox enforces.  Pure.

A worker is told these: whether they are well-formed was judged by `policy`, whose pydantic it does not load.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

MAX_SEAL_BYTES: Final = 2 * 1024**3
"""Of a package and all that it depends on; hardly any server has a tenth of it, and one with PyTorch three times."""


class Preset(StrEnum):
    """Where a policy starts from."""

    STRICT = "strict"
    STANDARD = "standard"
    TRUSTED = "trusted"

    @property
    def confines_files(self) -> bool:
        """Whether it sees and runs less than we do at all; a trusted one runs as us, under limits."""
        return self is not Preset.TRUSTED


class Tier(StrEnum):
    """How confinement is enforced, strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    LIMITS = "limits"


class Property(StrEnum):
    """What confinement can guarantee; a policy may require each."""

    FILESYSTEM = "filesystem"
    """Nothing but what the policy shows can be read, nothing but what it grants can be written."""
    NETWORK = "network"
    """Nothing but what the policy names can be reached, host loopback and abstract sockets included."""
    PROCESSES = "processes"
    """Other processes cannot be seen, signalled or traced."""
    SYSCALLS = "syscalls"
    """Kernel interfaces that no server needs are closed; no new privileges, no namespaces, no tracing."""
    TREE_DEATH = "tree_death"
    """Nothing that it started outlives it, daemons included."""
    MEMORY = "memory"
    """The memory of the whole tree stays under its limit."""
    PROCESS_COUNT = "process_count"
    """So does the number of its processes and threads."""
    CPU_SHARE = "cpu_share"
    """So does its share of the processors."""
    SCRATCH = "scratch"
    """So do the bytes and inodes of its temporary files."""


class Grant(StrEnum):
    """A named piece of the user's own environment that a process may be given."""

    GIT_CONFIG = "git-config"
    SSH_AGENT = "ssh-agent"
    AWS = "aws"
    GCLOUD = "gcloud"
    KUBE = "kube"
    GH = "gh"
    BROWSER = "browser"
    DISPLAY = "display"


class NetworkMode(StrEnum):
    """What can be reached, when it is not a list of `host:port`."""

    NONE = "none"
    LOOPBACK = "loopback"
    INTERNET = "internet"
    FULL = "full"


Network = NetworkMode | tuple[str, ...]
"""A mode, or each `host:port` that can be reached, normalised."""


class LimitValues(msgspec.Struct, frozen=True, kw_only=True):
    """See `policy.Limits`; the defaults are those of `standard`."""

    memory_bytes: int | None = 2 << 30
    processes: int | None = 512
    open_files: int | None = 4096
    file_size_bytes: int | None = 4 << 30
    cpu_s: float | None = None
    cpu_share: float | None = None
    wall_s: float | None = None
    scratch_bytes: int | None = 1 << 30
    scratch_inodes: int | None = 100_000
    output_bytes: int | None = None
    line_bytes: int | None = None
    partial_line_s: float | None = 300.0


LIMITED: Final[Mapping[Property, tuple[str, ...]]] = {
    Property.MEMORY: ("memory_bytes",),
    Property.PROCESS_COUNT: ("processes",),
    Property.CPU_SHARE: ("cpu_share",),
    Property.SCRATCH: ("scratch_bytes", "scratch_inodes"),
}


def is_limited(name: Property, limits: object) -> bool:
    """Whether `name` has a limit to keep in these, of either kind; true for properties that are about none."""
    fields = LIMITED.get(name)
    return fields is None or any(getattr(limits, field) is not None for field in fields)


class PolicyValues(msgspec.Struct, frozen=True, kw_only=True):
    """See `policy.SandboxPolicy`, which makes them; the defaults are those of `standard`."""

    preset: Preset = Preset.STANDARD
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: Network | None = None
    environment: tuple[str, ...] = ()
    limits: LimitValues = LimitValues()
    require: tuple[Property, ...] = ()
    grants: tuple[Grant, ...] = ()
    minimum: Tier = Tier.LANDLOCK

    @property
    def confines_files(self) -> bool:
        """See `Preset`."""
        return self.preset.confines_files

    def limits_set(self, name: Property) -> bool:
        """See `is_limited`."""
        return is_limited(name, self.limits)
