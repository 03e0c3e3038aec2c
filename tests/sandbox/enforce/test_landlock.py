"""Tiers two and three as what the gate does to itself."""

from dataclasses import replace

import pytest

from quarterdeck_protocol.policy import Limits, NetworkMode, Tier
from quarterdeck_sandbox.enforce.landlock import rules
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, View
from quarterdeck_sandbox.program.launch import LaunchPlan

CONFINEMENT = Confinement(
    plan=LaunchPlan("/bin/tool", ("tool",), {}, "/"),
    tier=Tier.LANDLOCK,
    network=NetworkMode.NONE,
    promised={},
    required=(),
    gaps=(),
    view=View(
        (
            Mount(MountKind.READ, "/inside/data", "/outside/data"),
            Mount(MountKind.WRITE, "/inside/home", "/outside/home"),
            Mount(MountKind.SCRATCH, "/tmp"),
            Mount(MountKind.DATA, "/etc/hosts", "text"),
            Mount(MountKind.LINK, "/bin", "usr/bin"),
        )
    ),
    limits=Limits(),
    rlimits=(),
    seccomp=b"filter",
    identity=None,
    routes=(),
    secrets=(),
    machine=Machine("linux"),
)


def test_landlock_opens_what_the_view_shows_and_the_gate_needs() -> None:
    """A server could not read its own program; or write where it may only read."""
    found = rules(CONFINEMENT, ("/gate",), ("/etc",))
    assert found is not None
    landlock = found["landlock"]
    assert isinstance(landlock, dict)
    assert landlock["read"] == ["/proc", "/etc", "/gate", "/outside/data"]
    assert landlock["write"] == ["/dev/pts", "/outside/home"]
    assert "/dev/null" in landlock["devices"]
    assert found["seccomp"] == b"filter"


@pytest.mark.parametrize(("network", "denied"), [(NetworkMode.NONE, True), (NetworkMode.FULL, False)])
def test_landlock_closes_tcp_where_there_is_no_network(network: NetworkMode, denied: bool) -> None:
    """A server without a network could dial where no filter is loaded."""
    found = rules(replace(CONFINEMENT, network=network), (), ())
    assert found is not None
    assert isinstance(found["landlock"], dict)
    assert found["landlock"]["deny_tcp"] is denied


def test_limits_alone_are_a_filter_or_nothing() -> None:
    """The weakest tier would ask the kernel for Landlock, and fail on a Mac."""
    assert rules(replace(CONFINEMENT, tier=Tier.LIMITS), (), ()) == {"landlock": None, "seccomp": b"filter"}
    assert rules(replace(CONFINEMENT, tier=Tier.LIMITS, seccomp=b""), (), ()) is None
