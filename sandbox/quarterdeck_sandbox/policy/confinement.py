"""All that will confine a process, as a value; and its receipt, from the promises and what its probes observed.

A property whose observation disagrees with its promise is worth nothing.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from quarterdeck_protocol.policy_values import LimitValues, Network, NetworkMode, PolicyValues, Property, Tier
from quarterdeck_sandbox.program.launch import LaunchError, LaunchPlan, refusal

from .host_names import Route
from .machine import Machine
from .mounts import View
from .promises import REACHABLE, SCOPES_ABI, PropertyFinding, Receipt, Strength, has_own_network

_Problem = str | None


FIRST_UID: Final = 61184  # of the dynamic range, 61184 to 65519
LAST_UID: Final = 65519


class UnixUser(msgspec.Struct, frozen=True):
    """A user and its group; `dedicated` if nothing else runs as it."""

    uid: int
    gid: int
    dedicated: bool

    @property
    def name(self) -> str:
        """The user, for people."""
        return "every other user" if self.dedicated else f"uid {self.uid}"

    @property
    def is_root(self) -> bool:
        """Whether it stays root, without capabilities."""
        return self.uid == 0


ROOT: Final = UnixUser(0, 0, dedicated=False)


class Confinement(msgspec.Struct, frozen=True):
    """A process to start, with all that confines it."""

    plan: LaunchPlan  # the command; its environment holds what grants add
    tier: Tier
    network: Network
    promised: Mapping[Property, PropertyFinding]  # what the tier should guarantee on this machine
    required: tuple[Property, ...]  # what must be observed before it may start
    gaps: tuple[str, ...]  # how this is weaker than the policy's preset intends
    view: View
    limits: LimitValues
    # (the kernel's number, value) of the limits that the kernel keeps for each process
    rlimits: tuple[tuple[int, int], ...]
    seccomp: bytes  # the compiled filter, empty for none
    identity: UnixUser | None  # the user that it becomes; None stays who we are
    routes: tuple[Route, ...]  # the hosts that it may reach by a relay
    secrets: tuple[str, ...]  # paths outside that the probes try, and must not open
    machine: Machine
    # For hints, the next four: the user's home, the policy, our directories and our configuration's folders
    user_home: str = ""
    policy: PolicyValues | None = None
    private: tuple[str, ...] = ()
    configuration: tuple[str, ...] = ()
    counts_alone: bool = True  # whether its processes are counted apart from all others
    outdated: str = ""  # a path that changed since the preparation, so that it was compiled again; else empty

    @property
    def stays_root(self) -> bool:
        """Whether it runs as root without capabilities."""
        return self.identity is not None and self.identity.is_root

    @property
    def writes_by_mounts(self) -> bool:
        """Whether all but what it may write is mounted read-only: root owns what Landlock cannot keep, as modes."""
        return self.stays_root and self.tier is Tier.LANDLOCK and self.machine.closes

    @property
    def has_own_network(self) -> bool:
        """Whether it gets a network namespace of its own."""
        return has_own_network(self.tier, self.machine, self.network)


class Report(msgspec.Struct, frozen=True):
    """The gate's findings: `facts` by key, repeated keys in order; `pid` as this process sees it."""

    facts: dict[str, tuple[str, ...]]
    pid: int

    def one(self, key: str) -> str:
        """Return the first value of `key`, empty if there is none."""
        return self.facts.get(key, ("",))[0]


def observe_receipt(
    confinement: Confinement, report: Report, ours: Mapping[str, str], unmet: Mapping[Property, str]
) -> Receipt:
    """Judge the gate's `report` of a process whose program has not begun, and return its receipt.

    `ours` are our own namespaces, `net` to its identity and so on; `unmet` says what could not be set from outside.

    Raises:
        LaunchError: `sandbox_refused`: a required property does not hold, or a closed path is open; `spawn_failed`: the
            gate failed.
    """
    if failure := report.one("failed"):
        number, _, text = failure.partition(" ")
        program = confinement.plan.program
        raise LaunchError("spawn_failed", f"{program}: the sandbox could not be prepared: {text or number}")
    if open_ones := [path for path in report.facts.get("writable", ()) if path in confinement.view.closed]:
        raise refusal(f"{open_ones[0]} can be written from inside, although it was closed")
    findings: dict[Property, PropertyFinding] = {}
    gaps = list(confinement.gaps)
    for name, promise in confinement.promised.items():
        problem = None
        if promise.strength is not Strength.NONE:
            problem = unmet.get(name) or (_CHECKS[name](confinement, report, ours) if name in _CHECKS else None)
        if problem is None:
            findings[name] = promise
        else:
            findings[name] = PropertyFinding(f"{promise.mechanism}: not working, {problem}", Strength.NONE)
            gaps.append(f"{name}: {problem}")
    refuse_unmet(confinement.required, findings)
    return Receipt(
        tier=confinement.tier,
        findings=findings,
        uid=confinement.identity.uid if confinement.identity else None,
        network=describe_network(confinement),
        shown=confinement.view.shown,
        gaps=tuple(gaps),
        bubblewrap=confinement.machine.bubblewrap.name if confinement.tier is Tier.BUBBLEWRAP else "",
    )


def refuse_unmet(required: tuple[Property, ...], findings: Mapping[Property, PropertyFinding]) -> None:
    """Raise LaunchError `sandbox_refused` unless all of `required` is found in full."""
    for name in required:
        finding = findings.get(name)
        if finding is None or finding.strength is not Strength.FULL:
            found = finding.mechanism if finding else "nothing"
            raise refusal(
                f"the policy requires {name}, but this machine has {found}; see `quarterdeck doctor`, or require less",
            )


def describe_network(confinement: Confinement) -> str:
    """Return the network in force, for people."""
    network = confinement.network
    if network is NetworkMode.FULL:
        return f"{network} ({REACHABLE})"
    return str(network) if isinstance(network, NetworkMode) else ", ".join(network)


def _separate(namespace: str, report: Report, ours: Mapping[str, str]) -> bool:
    inside = report.one(f"ns.{namespace}")
    return bool(inside) and inside != ours.get(namespace)


def _filesystem(confinement: Confinement, report: Report, ours: Mapping[str, str]) -> _Problem:
    if opened := report.facts.get("opened"):
        return f"{opened[0]} can be opened from inside"
    if writable := report.facts.get("writable"):
        return f"{writable[0]} can be written from inside"
    if confinement.tier is Tier.BUBBLEWRAP and not _separate("mnt", report, ours):
        return "it sees our mounts"
    if confinement.tier is Tier.LANDLOCK and confinement.seccomp and report.one("changes_metadata") != "0":
        return "metadata of files outside can be changed"
    return None


def _network(confinement: Confinement, report: Report, ours: Mapping[str, str]) -> _Problem:
    if confinement.has_own_network and not _separate("net", report, ours):
        return "it shares our network"
    filtered = bool(confinement.seccomp) or not confinement.has_own_network
    if confinement.network is NetworkMode.NONE and filtered and report.one("socket.inet") != "0":
        return "it can make internet sockets"
    return None


def _processes(confinement: Confinement, report: Report, ours: Mapping[str, str]) -> _Problem:
    if confinement.tier is Tier.BUBBLEWRAP:
        return None if _separate("pid", report, ours) else "it sees our processes"
    if (confinement.identity is None or confinement.stays_root) and confinement.machine.landlock_abi < SCOPES_ABI:
        return None  # the promise says that it may
    return "it may signal our processes" if report.one("signals_owner") != "0" else None


def _syscalls(confinement: Confinement, report: Report, _: Mapping[str, str]) -> _Problem:
    if confinement.seccomp and report.one("status.Seccomp") != "2":
        return "no filter is loaded"
    if report.one("status.NoNewPrivs") != "1":
        return "new privileges may be gained"
    if any(set(report.one(f"status.{name}")) != {"0"} for name in ("CapPrm", "CapEff")):
        return "capabilities are left"
    return None


def _tree_death(confinement: Confinement, report: Report, ours: Mapping[str, str]) -> _Problem:
    if confinement.tier is Tier.BUBBLEWRAP and not _separate("pid", report, ours):
        return "it has no process namespace of its own"
    if confinement.promised[Property.TREE_DEATH].strength is Strength.FULL and report.one("holds_first") != "0":
        return "it could take over the process that ends it"
    return None


def _process_count(confinement: Confinement, report: Report, _: Mapping[str, str]) -> _Problem:
    for number, value in confinement.rlimits:
        found = report.one(f"rlimit.{number}")
        if not found.isdecimal() or int(found) > value:
            return f"limit {number} is {found or 'unknown'}, not {value}"
    return None


_CHECKS: Final[Mapping[Property, Callable[[Confinement, Report, Mapping[str, str]], _Problem]]] = {
    Property.FILESYSTEM: _filesystem,
    Property.NETWORK: _network,
    Property.PROCESSES: _processes,
    Property.SYSCALLS: _syscalls,
    Property.TREE_DEATH: _tree_death,
    Property.PROCESS_COUNT: _process_count,
}
