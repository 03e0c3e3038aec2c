"""Shells with a policy of their own and without a session's tools, and played ones."""

import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from quarterdeck.tools.commands.shell import CommandSetup, SandboxedShell
from quarterdeck.tools.context import OnOutput, UnavailableShell
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
    setup = CommandSetup(SandboxPolicy(**policy), requester, env)
    with anyio.fail_after(PATIENCE_S):
        async with SandboxedShell.open(lambda: setup, str(home)) as opened:
            yield opened


class PlayedProcess:
    """A process that ends when it is told to."""

    pid = 4711

    def __init__(self, on_output: OnOutput | None) -> None:
        self.on_output = on_output
        self.listeners: list[Callable[[int | None, int | None], None]] = []
        self.graces: list[float] = []

    def kill(self, signal: int) -> None:
        """Nothing."""

    def on_exit(self, listener: Callable[[int | None, int | None], None]) -> None:
        self.listeners.append(listener)

    async def stop(self, grace_s: float) -> None:
        self.graces.append(grace_s)
        self.end(None, signal.SIGTERM)

    def end(self, code: int | None, number: int | None) -> None:
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener(code, number)


class PlayedShell(UnavailableShell):
    """Starts played processes."""

    def __init__(self) -> None:
        self.started: list[PlayedProcess] = []
        self.problem = ""

    async def spawn(  # type: ignore[override]
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> PlayedProcess:
        if self.problem:
            raise OSError(self.problem)
        self.started.append(PlayedProcess(on_output))
        return self.started[-1]

    exec = UnavailableShell.exec
