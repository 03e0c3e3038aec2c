"""Tiers two and three as what the gate does to itself, under a resident reaper.  Pure.

Landlock alone is no sandbox: sockets other than TCP, knobs on other processes and changes of a file's metadata pass it
by.  The filter closes what it can; what stays open is in the receipt.
"""

from collections.abc import Mapping
from typing import Final

from quarterdeck_protocol.policy import NetworkMode, Tier
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.mounts import MountKind

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")

PROCESSES: Final = "/proc"
"""Always to be read, because that of a process to come cannot be named yet: what matters there is guarded by ptrace's
rules, which Landlock tightens."""

SETTINGS: Final = "/etc"
"""To be read, because a path that is refused, where a missing one was expected, stops OpenSSL and node."""

TERMINALS: Final = "/dev/pts"


def rules(confinement: Confinement, own: tuple[str, ...], settings: tuple[str, ...]) -> Mapping[str, object] | None:
    """What the gate confines itself with; None for nothing.

    Args:
        confinement: what to confine it by.
        own: directories that the gate itself reads: its modules and its interpreter.
        settings: what it may read of the system's settings beyond its view.
    """
    landlock = None
    if confinement.tier is Tier.LANDLOCK:
        sources: dict[MountKind, list[str]] = {kind: [] for kind in MountKind}
        for mount in confinement.view.mounts:
            sources[mount.kind].append(mount.source)
        landlock = {
            "read": [PROCESSES, *settings, *own, *sources[MountKind.READ]],
            "write": [TERMINALS, *sources[MountKind.WRITE]],
            "devices": list(DEVICES),
            "deny_tcp": confinement.network is NetworkMode.NONE,
        }
    if landlock is None and not confinement.seccomp:
        return None
    return {"landlock": landlock, "seccomp": confinement.seccomp}
