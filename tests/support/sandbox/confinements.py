"""Confinements made by hand, one for each tier that this machine has, with a private home that every tier can reach."""

import os
import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import psutil
import pytest
from msgspec.structs import replace

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Property, Tier
from quarterdeck_sandbox.doctor.kernel import landlock_abi, try_kernel
from quarterdeck_sandbox.policy.choice import choose
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, View
from quarterdeck_sandbox.policy.promises import PropertyFinding, Receipt, Strength
from quarterdeck_sandbox.policy.seccomp import ARCHITECTURES, Filter, Metadata, compile_filter
from quarterdeck_sandbox.program.launch import LaunchPlan
from quarterdeck_sandbox.run.start import start
from quarterdeck_sandbox.run.unix_user import choose_user, hand_over
from support.config.places import short_folder
from support.sandbox.gates import GATE
from support.sandbox.machine_facts import NO_LANDLOCK, bubblewrap_missing, bwrap

POLICIES: Final = {
    Tier.BUBBLEWRAP: SandboxPolicy.model_validate({"network": "none"}).values,
    Tier.LANDLOCK: SandboxPolicy.model_validate({"network": "none"}).values,
    Tier.LIMITS: SandboxPolicy.model_validate({"preset": "trusted"}).values,
}
"""What each tier's confinements are chosen by: without a network where it can."""

PATH: Final = "/usr/bin:/bin"

PATIENCE_S: Final = 30.0
GRACE_S: Final = 5.0


@cache
def this_machine() -> Machine:
    """What is needed of it; without control groups and uplinks."""
    works = not bubblewrap_missing()
    return Machine(
        system=sys.platform,
        architecture=platform.machine(),
        kernel=platform.release(),
        euid=os.geteuid(),
        bubblewrap=Bubblewrap(bwrap(), works=works, makes_network=works, hides_users=works),
        landlock_abi=landlock_abi(),
        seccomp=sys.platform == "linux" and platform.machine() in ARCHITECTURES,
        asks=sys.platform == "linux" and try_kernel(platform.machine())[2],
        gate=GATE,
    )


def missing(tier: Tier) -> str:
    machine = this_machine()
    if tier is Tier.BUBBLEWRAP and not machine.bubblewrap.works:
        return bubblewrap_missing()
    if tier is Tier.LANDLOCK and not (machine.landlock_abi and machine.seccomp):
        return NO_LANDLOCK
    return ""


TIERS: Final = [
    pytest.param(tier, id=tier, marks=pytest.mark.skipif(bool(missing(tier)), reason=missing(tier) or "-"))
    for tier in Tier
]
"""For `parametrize`; what is missing here is skipped, with the reason."""

BUBBLEWRAP_ONLY: Final = pytest.mark.parametrize("tier_home", TIERS[:1], indirect=True)


@dataclass(frozen=True)
class TierHome:
    """A tier, and a private home that belongs to whom a confined process becomes."""

    tier: Tier
    home: Path

    def confine(self, plan: LaunchPlan, **changes: Any) -> Confinement:
        """Confine `plan`; `changes` are fields of the confinement."""
        machine, policy = this_machine().capped(self.tier), POLICIES[self.tier]
        choice = choose(policy, machine)
        made = Confinement(
            plan=plan,
            tier=self.tier,
            network=choice.network,
            promised=choice.findings,
            required=(),
            gaps=choice.gaps,
            view=View(tuple(_mounts(self.home)) if policy.confines_files else (), shown=("a line",)),
            limits=policy.limits,
            rlimits=((resource.RLIMIT_CORE, 0),),
            seccomp=self.filter(),
            identity=choose_user(self.home, ()) if self._is_handed_over else None,
            routes=(),
            secrets=(),
            machine=machine,
        )
        return replace(made, **changes)

    def shell(self, script: str, **changes: Any) -> Confinement:
        return self.confine(LaunchPlan("/bin/sh", ("sh", "-c", script), {"PATH": PATH}, "/"), **changes)

    def filter(self, *, inet: bool = False) -> bytes:
        if self.tier is Tier.LIMITS or not this_machine().seccomp:
            return b""
        alone = self.tier is Tier.BUBBLEWRAP
        return compile_filter(
            Filter(inet=inet, unix=alone, shared_memory=False, reaches_out=alone, metadata=self.metadata),
            platform.machine(),
        )

    @property
    def metadata(self) -> Metadata:
        if self.tier is not Tier.LANDLOCK:
            return Metadata.ALLOWED
        return Metadata.CLOSED if this_machine().why_no_broker else Metadata.ASKED

    def own(self, *paths: Path) -> None:
        if self._is_handed_over:
            uid = self.home.stat().st_uid
            for path in paths:
                os.chown(path, uid, uid, follow_symlinks=False)

    @property
    def _is_handed_over(self) -> bool:
        return os.geteuid() == 0 and self.tier is not Tier.LIMITS


@contextmanager
def tier_home_of(tier: Tier, parent: str = "/tmp") -> Iterator[TierHome]:
    """A tier_home; its home, below `parent`, is gone at the end."""
    with short_folder(0o711, parent) as base:
        # Not in `base` itself, which is held: whoever chooses a user for a home waits two seconds for its parent.
        homes = base / "homes"
        homes.mkdir(mode=0o711)
        tier_home = TierHome(tier, homes / "home")
        tier_home.home.mkdir(mode=0o700)
        if tier_home._is_handed_over:
            hand_over(choose_user(tier_home.home, ()), (tier_home.home,))
        yield tier_home


@contextmanager
def leaves_nothing() -> Iterator[None]:
    """As many descriptors and children after as before."""
    ourselves = psutil.Process()
    before = ourselves.num_fds(), {child.pid for child in ourselves.children(recursive=True)}
    yield
    assert (ourselves.num_fds(), {child.pid for child in ourselves.children(recursive=True)}) == before


async def run(confinement: Confinement, stdin: bytes = b"") -> tuple[int, str, Receipt]:
    with anyio.fail_after(PATIENCE_S):
        process = await start(confinement)
        try:
            if stdin:
                os.write(process.stdin_fd, stdin)
            process.close_stdin()
            data = b""
            for fd in (process.stdout_fd, process.stderr_fd):
                while True:
                    await anyio.wait_readable(fd)
                    piece = os.read(fd, 65536)
                    if not piece:
                        break
                    data += piece
            return await process.wait(), data.decode(), process.receipt
        finally:
            await process.stop(GRACE_S)
            process.close_fds()


def required(tier_home: TierHome, name: Property, script: str, **changes: Any) -> Confinement:
    """`script`, with one property promised and required."""
    made = tier_home.shell(script, required=(name,), **changes)
    return replace(made, promised={**made.promised, name: PropertyFinding("a mechanism", Strength.FULL)})


def _mounts(home: Path) -> Iterator[Mount]:
    for path in ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/sbin"):
        if os.path.islink(path):
            yield Mount(MountKind.LINK, path, os.readlink(path))
        elif os.path.isdir(path):
            yield Mount(MountKind.READ, path, path)
    yield Mount(MountKind.SCRATCH, "/tmp")
    yield Mount(MountKind.READ, "/usr", "/usr")
    if not sys.base_prefix.startswith("/usr"):
        yield Mount(MountKind.READ, sys.base_prefix, sys.base_prefix)
    yield Mount(MountKind.WRITE, str(home), str(home))
