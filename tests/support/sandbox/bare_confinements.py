"""Confinements of values alone, for tests that start nothing."""

from typing import Any

from msgspec.structs import replace

from quarterdeck_protocol.policy_values import LimitValues, NetworkMode, Tier
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import View
from quarterdeck_sandbox.program.launch import LaunchPlan

BARE = Confinement(
    plan=LaunchPlan("/bin/tool", ("tool",), {}, "/"),
    tier=Tier.BUBBLEWRAP,
    network=NetworkMode.NONE,
    promised={},
    required=(),
    gaps=(),
    view=View(),
    limits=LimitValues(),
    rlimits=(),
    seccomp=b"",
    identity=None,
    routes=(),
    secrets=(),
    machine=Machine("linux"),
)
"""A tool in bubblewrap, without a network, to which nothing is shown or promised."""


def bare_confinement(**changes: Any) -> Confinement:
    return replace(BARE, **changes)
