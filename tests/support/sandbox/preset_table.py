"""What each preset does on four kinds of machine: the README's table, as `choose` decides it.  Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Preset
from quarterdeck_sandbox.policy.choice import choose
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine
from quarterdeck_sandbox.program.launch import LaunchError


class Outcome(StrEnum):
    """What a start comes to."""

    STARTS = "starts"
    WEAKER = "starts weaker, and reports it"
    UNSANDBOXED = "refused; with `--allow-unsandboxed` starts weaker"
    REFUSED = "refused"


_BEST: Final = Machine(
    system="linux",
    architecture="x86_64",
    kernel="6.12.0",
    bubblewrap=Bubblewrap(
        path="/usr/bin/bwrap", version="0.12.0", works=True, makes_network=True, hides_users=True, nests_safely=True
    ),
    landlock_abi=6,
    seccomp=True,
    pasta="/usr/bin/pasta",
    gate="/q/quarterdeck-gate",
)

MACHINES: Final[Mapping[str, Machine]] = {
    "bubblewrap, pasta or slirp4netns": _BEST,
    "bubblewrap alone": replace(_BEST, pasta=""),
    "Landlock": replace(_BEST, bubblewrap=Bubblewrap()),
    "limits only": replace(_BEST, bubblewrap=Bubblewrap(), landlock_abi=0),
}
"""The columns: an ordinary user without control groups."""


def outcome(preset: Preset, machine: Machine) -> Outcome:
    """What starting an untouched `preset` on `machine` comes to."""
    policy = SandboxPolicy(preset=preset).values
    try:
        return Outcome.WEAKER if choose(policy, machine).gaps else Outcome.STARTS
    except LaunchError:
        pass
    try:
        choose(policy, machine, allow_unsandboxed=True)
    except LaunchError:
        return Outcome.REFUSED
    return Outcome.UNSANDBOXED


def to_markdown() -> str:
    lines = [["preset", *MACHINES]]
    lines += [[f"`{preset}`", *(outcome(preset, machine) for machine in MACHINES.values())] for preset in Preset]
    head, *rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rows])
