"""Shells with a policy of their own, and without a session's tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from quarterdeck.tools.commands.shell import CommandSetup, SandboxedShell
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox.doctor.probe import known_machine
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import Places
from quarterdeck_sandbox.run.confine import Requester

PATIENCE_S: Final = 30.0


@asynccontextmanager
async def shell(folder: Path, machine: Machine | None = None, **policy: Any) -> AsyncIterator[SandboxedShell]:
    """A shell whose private places lie in `folder`, on `machine`, or on whatever this one gives."""
    home, tmp = folder / "home", folder / "tmp"
    for place in (folder, home, tmp):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    requester = Requester(Places(home, tmp, folder / "user"), {}, machine or known_machine(), allow_unsandboxed=True)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(tmp)}
    with anyio.fail_after(PATIENCE_S):
        async with SandboxedShell.open(CommandSetup(SandboxPolicy(**policy), requester, env), str(home)) as opened:
            yield opened
