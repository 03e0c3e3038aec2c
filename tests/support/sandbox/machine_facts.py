"""What a machine may lack, and why a test is skipped there: each lack in the same words wherever it matters.

Marks for whole tests; functions, whose words are empty where nothing is missing, for those that find out on their way.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.doctor.kernel import landlock_abi
from quarterdeck_sandbox.doctor.probe import probe_machine, try_closing
from quarterdeck_sandbox.run.packaged_bwrap import find_packaged
from support.processes.running import output, run
from support.sandbox.gates import GATE

NO_BWRAP: Final = "there is no bwrap, neither the system's nor the wheel's"
NO_ROOT: Final = "the tests do not run as root"
NO_LANDLOCK: Final = "this kernel has no Landlock, or we have no filter for this machine"
NO_INTERNET_ALONE: Final = "this machine cannot give a sandbox the internet without its own network"
NO_MOUNT_NAMESPACE: Final = "no mount namespace can be made here"

LINUX_ONLY: Final = pytest.mark.skipif(sys.platform != "linux", reason="this is not Linux")
ROOT_ONLY: Final = pytest.mark.skipif(os.geteuid() != 0, reason=NO_ROOT)
USER_ONLY: Final = pytest.mark.skipif(os.geteuid() == 0, reason="the tests run as root")
LANDLOCK_ONLY: Final = pytest.mark.skipif(landlock_abi() == 0, reason=NO_LANDLOCK)
FULL_DEVICE_ONLY: Final = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@cache
def can_close_paths() -> bool:
    """Whether a mount namespace can be made, in which paths are closed or read-only."""
    return try_closing(os.geteuid(), GATE)


MOUNT_NAMESPACE_ONLY: Final = pytest.mark.skipif(not can_close_paths(), reason=NO_MOUNT_NAMESPACE)


def not_installed(*programs: str, path: str | None = None) -> str:
    for program in programs:
        if shutil.which(program, path=path) is None:
            return f"{program} is not installed"
    return ""


def installed_only(*programs: str) -> pytest.MarkDecorator:
    missing = not_installed(*programs)
    return pytest.mark.skipif(bool(missing), reason=missing or "-")


@cache
def bwrap() -> str:
    """The `bwrap` that sandboxes are made by, the system's or the wheel's; empty for none."""
    found = find_packaged(platform.machine())
    return shutil.which("bwrap") or ("" if found.why else found.path)


BWRAP_ONLY: Final = pytest.mark.skipif(not bwrap(), reason=NO_BWRAP)


@cache
def broker_missing() -> str:
    """Why a program under Landlock can change no file's mode here, so that it can neither install nor clone."""
    why = probe_machine().why_no_broker
    return f"under Landlock no mode can be changed here: {why}" if why else ""


def installing_missing(tier: Tier | None = None) -> str:
    """Why nothing can be installed in a sandbox of this tier, by default the strongest one."""
    return broker_missing() if (tier or probe_machine().tier) is Tier.LANDLOCK else ""


@cache
def bubblewrap_missing() -> str:
    if not bwrap():
        return NO_BWRAP
    tried = ("--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc", "true")
    return "bwrap is installed and does not work here" if run(bwrap(), *tried).returncode else ""


def gives_only(tier: Tier) -> str:
    return f"the strongest tier of this machine is {tier}"


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[None]:
    """Mount something at `place` for the block, as `mount` is told; the test is skipped where that fails."""
    tried = run("mount", *words, place)
    if tried.returncode:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")
    try:
        yield
    finally:
        output("umount", place)
