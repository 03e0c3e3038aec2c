"""What one machine can enforce, as found by trying it: plain facts, which `doctor.probe` finds."""

from collections.abc import Mapping
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.policy_values import Property, Tier

CONTROLLERS: Final[Mapping[str, Property]] = {
    "memory": Property.MEMORY,
    "pids": Property.PROCESS_COUNT,
    "cpu": Property.CPU_SHARE,
}
"""The controllers that keep limits, and the property that each keeps."""

CONTROLLER_OF: Final[Mapping[Property, str]] = {kept: name for name, kept in CONTROLLERS.items()}

APART_ABI: Final = 2
"""The version of Landlock that can set processes apart without closing files to them (Linux 5.19)."""

YAMA: Final = "kernel.yama.ptrace_scope"

YAMA_OF_ANCESTORS: Final = "1"
"""The strictest Yama setting at which a process may still read its descendants' memory."""

INSTALL_GATE: Final = "install quarterdeck again, with a C compiler (apt install gcc) or with PyPI's ziglang in reach"
NOT_USED: Final = "not used: a weaker tier was asked for"
"""Why a machine that is `capped` has no bubblewrap."""


class Bubblewrap(msgspec.Struct, frozen=True):
    """The findings of a trial of `bwrap`: the system's, or the wheel's if the system has none."""

    path: str = ""  # empty if there is none
    version: str = ""
    works: bool = False  # it made all its namespaces, a new /proc and /dev, with the options that we use
    makes_network: bool = False  # it can make a network namespace (Ubuntu's AppArmor stops exactly that)
    hides_users: bool = False  # `--disable-userns` is understood and works
    nests_safely: bool = False  # a mount point below a writable bind is safe (CVE-2026-87766)
    why: str = ""  # its message when it failed, or failed to make a network, or why it was not tried; else empty
    wheel: str = ""  # the name and version of the wheel that installed it; empty for the system's

    @property
    def name(self) -> str:
        """Its version and origin, for people."""
        return f"bubblewrap {self.version}{f' from the wheel {self.wheel}' if self.wheel else ''}"


class Cgroups(msgspec.Struct, frozen=True):
    """Control groups that we may write to."""

    unified: str = ""  # our own directory on a writable cgroup2 mount; empty if there is none
    # The usable `CONTROLLERS`, each with the directory for our groups; `legacy` are those of version 1
    controllers: dict[str, str] = msgspec.field(default_factory=dict)
    legacy: frozenset[str] = frozenset()

    @property
    def limits_unified(self) -> bool:
        """Whether a limit is kept by version 2."""
        return not self.legacy.issuperset(self.controllers)


class Machine(msgspec.Struct, frozen=True):
    """Facts of one machine, seen from one user."""

    system: str  # `linux`, `darwin`, …; `architecture` is `x86_64`, `aarch64`, …, `kernel` the kernel's release
    architecture: str = ""
    kernel: str = ""
    euid: int = 1000  # who we are; 0 confines under other users where it can
    # Whether root may become other users here, give them files and end them; a container may forbid it
    other_users: bool = True
    bubblewrap: Bubblewrap = Bubblewrap()
    landlock_abi: int = 0  # 0 when the kernel has none or it is switched off
    seccomp: bool = False  # filters can be loaded, and there is one for this architecture
    # A filter can ask a broker before a call, and a broker can read memory. False if a container forbids it, or if an
    # outer program is already asked, as in some container engines.
    asks: bool = False
    # Path of the gate that was seen to work; where it is empty nothing can be started, and `gate_why` says why
    gate: str = ""
    gate_why: str = ""
    closes: bool = False  # a part of what a process may write can be made read-only for it (`native/readonly.c`)
    cgroups: Cgroups = Cgroups()
    pasta: str = ""  # its path if it was seen to work, else empty; likewise `slirp4netns`
    slirp4netns: str = ""
    uplink_why: str = ""  # why neither pasta nor slirp4netns can be used, though one is there
    # Values of the kernel settings that matter, absent ones left out
    sysctls: dict[str, str] = msgspec.field(default_factory=dict)
    container: str = ""  # its kind, empty for none

    @property
    def tier(self) -> Tier:
        """The strongest tier that works here."""
        if self.bubblewrap.works:
            return Tier.BUBBLEWRAP
        if self.landlock_abi and self.seccomp:
            return Tier.LANDLOCK
        return Tier.LIMITS

    @property
    def lacks_gate(self) -> tuple[str, str] | None:
        """Why nothing can be started here, and the remedy; None if there is a gate."""
        if self.gate:
            return None
        if self.system != "linux" or self.architecture not in ("x86_64", "aarch64"):
            where = f"{self.system} on {self.architecture}" if self.architecture else self.system
            return f"sandboxes need Linux on x86-64 or aarch64, and this is {where}", "use such a machine"
        return f"the gate, which starts every sandbox, is missing: {self.gate_why}", INSTALL_GATE

    @property
    def why_no_broker(self) -> str:
        """The reason why no broker can judge changes of metadata here; empty if one can."""
        if not self.asks:
            return "no system call filter can ask here"
        if self.landlock_abi < APART_ABI:
            return "Landlock is older than Linux 5.19"
        if self.sysctls.get(YAMA, "0") > YAMA_OF_ANCESTORS:
            return f"{YAMA} is {self.sysctls[YAMA]}"
        return ""

    @property
    def gives_internet(self) -> bool:
        """Whether the network mode `internet` can be had."""
        return not self.lacks_for_internet

    @property
    def lacks_for_internet(self) -> str:
        """The missing part of the network mode `internet`; empty if the mode is available."""
        if not (self.bubblewrap.works and self.bubblewrap.makes_network):
            return "needs bubblewrap with a network namespace"
        if not (self.pasta or self.slirp4netns):
            return self.uplink_why or "neither pasta nor slirp4netns is installed"
        return ""

    def capped(self, tier: Tier) -> Self:
        """Return the machine as if nothing stronger than `tier` worked, to try a weaker one."""
        machine = self
        if tier is not Tier.BUBBLEWRAP:
            machine = replace(machine, bubblewrap=Bubblewrap(why=NOT_USED))
        return machine if tier is not Tier.LIMITS else replace(machine, landlock_abi=0)
