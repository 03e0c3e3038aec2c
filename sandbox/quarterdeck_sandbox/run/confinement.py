"""A launch plan with all that will confine it: what the tiers carry out.  Values only; `confine` makes one."""

from collections.abc import Mapping
from dataclasses import dataclass

from quarterdeck_protocol.policy import Limits, Network, NetworkMode, Property, Tier
from quarterdeck_sandbox.policy.host_names import Route
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import View
from quarterdeck_sandbox.policy.promises import PropertyFinding
from quarterdeck_sandbox.program.launch import LaunchPlan

from .unix_user import UnixUser


@dataclass(frozen=True, slots=True)
class Confinement:
    """A process that is to be started, with all that confines it.

    Attributes:
        plan: what is executed; its environment holds what grants add.
        promised: what the tier should guarantee on this machine.
        required: what must be observed before it may start.
        gaps: how this is weaker than the policy's preset intends.
        rlimits: (the kernel's number, value) of the limits that the kernel keeps for each process.
        seccomp: the compiled filter, empty for none.
        identity: whom it becomes; None stays who we are.
        routes: the hosts that it may reach by a relay.
        secrets: paths outside that must not be open to it: the probes try them.
        user_home: the home of the user who runs us, for hints.
    """

    plan: LaunchPlan
    tier: Tier
    network: Network
    promised: Mapping[Property, PropertyFinding]
    required: tuple[Property, ...]
    gaps: tuple[str, ...]
    view: View
    limits: Limits
    rlimits: tuple[tuple[int, int], ...]
    seccomp: bytes
    identity: UnixUser | None
    routes: tuple[Route, ...]
    secrets: tuple[str, ...]
    machine: Machine
    user_home: str = ""

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
        return (
            self.tier is Tier.BUBBLEWRAP
            and self.machine.bubblewrap.makes_network
            and self.network is not NetworkMode.FULL
        )
