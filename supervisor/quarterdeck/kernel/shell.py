"""Commands for tools, each in a sandbox of its own: the `Shell` seam over `quarterdeck_sandbox`.

A command reaches what its policy grants and nothing else; what it writes on its streams is bounded; nothing that it
started outlives it, nor the shell.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Self

import anyio
import anyio.to_thread

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.tools import CancelToken
from quarterdeck_sandbox.confine import Asker, confine
from quarterdeck_sandbox.launch import LaunchError, plan_launch
from quarterdeck_sandbox.monitor import TreeMonitor
from quarterdeck_sandbox.process import ConfinedProcess
from quarterdeck_sandbox.start import start
from quarterdeck_sandbox.usage import Excess

from .backends import ExecResult

SHELL: Final = "/bin/sh"

STREAM_BYTES: Final = 8 * 1024 * 1024
"""What is kept of each stream where the policy sets no `output_bytes`; what follows is read and dropped."""

STOP_GRACE_S: Final = 1.0
"""Between TERM and KILL, for a command that is ended before its time."""

AFTERLIFE_S: Final = 0.5
"""How long the streams of a command that has ended are still read: a child of its own may hold them."""

READ_BYTES: Final = 64 * 1024


class CommandError(OSError):
    """A command that could not be started, or was cancelled; the text says why and what to do."""


class SandboxedShell:
    """`Shell` under one policy; made by `open`."""

    def __init__(self, policy: SandboxPolicy, asker: Asker, env: Mapping[str, str], cwd: str) -> None:
        self._policy = policy
        self._asker = asker
        self._env = dict(env)
        self._cwd = cwd
        self._monitor = TreeMonitor()
        self._running: set[SandboxedCommand] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, policy: SandboxPolicy, asker: Asker, env: Mapping[str, str], cwd: str) -> AsyncIterator[Self]:
        """A shell for as long as the block lasts; what still runs at its end is ended with all that it started.

        Args:
            policy: what every command may reach and use.
            asker: where private directories are, and what the machine gives.
            env: the environment that commands begin with.
            cwd: where they run unless told otherwise.
        """
        shell = cls(policy, asker, env, cwd)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell._monitor.run)
            try:
                yield shell
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as ends:
                        for command in shell._running:
                            ends.start_soon(command.end)
                tasks.cancel_scope.cancel()

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        cancel: CancelToken | None = None,
        timeout_s: float | None = None,
        stdin: str = "",
    ) -> ExecResult:
        """See `Shell.exec`; a limit that the command hit is the last line of its stderr."""
        with anyio.CancelScope() as scope:
            forget = cancel.on_cancel(scope.cancel) if cancel is not None else None
            try:
                running = await self.spawn(command, cwd=cwd, env=env)
                try:
                    with anyio.fail_after(timeout_s):
                        return await running.converse(stdin.encode())
                finally:
                    await running.end()
            finally:
                if forget is not None:
                    forget()
        raise CommandError("the command was cancelled, and ended with all that it had started")

    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> "SandboxedCommand":
        """See `Shell.spawn`; what nobody `converse`s with waits when its streams are full."""
        place = os.path.join(self._cwd, cwd) if cwd is not None else self._cwd
        try:
            plan = plan_launch(SHELL, ("-c", command), {**self._env, **(env or {})}, place)
            # It looks at many files; the start itself belongs to the thread that lives as long as the command may.
            confinement = await anyio.to_thread.run_sync(confine, plan, self._policy, self._asker)
            process = await start(confinement)
        except LaunchError as error:
            raise CommandError(str(error)) from error
        running = SandboxedCommand(process, self._policy.limits.output_bytes, self._running.discard)
        self._running.add(running)
        tree = process.tree((str(self._asker.places.tmp),))
        running.on_exit(_forget(self._monitor.watch(tree, self._policy.limits, running.condemn)))
        return running


class SandboxedCommand:
    """`ShellProcess`: a command under way."""

    def __init__(
        self, process: ConfinedProcess, output_bytes: int | None, on_end: Callable[["SandboxedCommand"], None]
    ) -> None:
        self._process = process
        self._output_bytes = output_bytes
        self._on_end = on_end
        self._listeners: list[Callable[[int | None, int | None], None]] = []
        self._said: list[str] = []
        self._released = False
        self._waiting = asyncio.ensure_future(self._wait())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def process(self) -> ConfinedProcess:
        """What confines it: its receipt, its limit, its streams."""
        return self._process

    def kill(self, number: int) -> None:
        """See `ShellProcess.kill`; KILL reaches all that it started, another signal what has stayed in its group."""
        if number == signal.SIGKILL:
            self._process.kill()
        else:
            self._process.signal(number)

    def on_exit(self, listener: Callable[[int | None, int | None], None]) -> None:
        """See `ShellProcess.on_exit`."""
        if self._process.returncode is None:
            self._listeners.append(listener)
        else:
            listener(*_status(self._process.returncode))

    def condemn(self, excess: Excess) -> None:
        """End it because it passed a limit."""
        self._said.append(f"ended: {excess.detail} (limit {excess.limit})")
        self._process.condemn(excess.limit)

    async def converse(self, stdin: bytes) -> ExecResult:
        """Give it its whole stdin, take what it writes, wait for its end."""
        streams = {fd: bytearray() for fd in (self._process.stdout_fd, self._process.stderr_fd)}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, stdin)
            ended = [anyio.Event() for _ in streams]
            for (fd, kept), end in zip(streams.items(), ended, strict=True):
                tasks.start_soon(self._read, fd, kept, end)
            await self._process.wait()
            with anyio.move_on_after(AFTERLIFE_S):
                for end in ended:
                    await end.wait()
            tasks.cancel_scope.cancel()
        stdout, stderr = (kept.decode(errors="replace") for kept in streams.values())
        said = "".join(f"{line}\n" for line in self._said)
        status, _ = _status(self._process.returncode or 0)
        return ExecResult(stdout, stderr + said, status)

    async def end(self) -> None:
        """End it and all that it started, release everything; idempotent, cancellation does not interrupt it."""
        if self._released:
            return
        self._released = True
        with anyio.CancelScope(shield=True):
            self._process.close_stdin()
            self._process.signal(signal.SIGTERM)
            await self._process.stop(STOP_GRACE_S)
            await asyncio.wait([self._waiting])
        self._process.close_fds()
        self._on_end(self)

    async def _wait(self) -> None:
        returncode = await self._process.wait()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(*_status(returncode))

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            await anyio.wait_writable(self._process.stdin_fd)
            try:
                view = view[os.write(self._process.stdin_fd, view[:READ_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError:
                break  # it does not want the rest
        self._process.close_stdin()

    async def _read(self, fd: int, kept: bytearray, end: anyio.Event) -> None:
        most = self._output_bytes or STREAM_BYTES
        while True:
            await anyio.wait_readable(fd)
            data = os.read(fd, READ_BYTES)
            if not data:
                end.set()
                return
            kept += data[: most - len(kept)]
            if self._output_bytes is not None and len(kept) >= most and self._process.limit is None:
                self.condemn(Excess("output_bytes", f"it wrote more than {most:,} bytes on a stream"))


def _status(returncode: int) -> tuple[int | None, int | None]:
    """Exit status and signal, one of them None."""
    return (returncode, None) if returncode >= 0 else (None, -returncode)


def _forget(watch: Callable[[], None]) -> Callable[[int | None, int | None], None]:
    return lambda _status, _signal: watch()
