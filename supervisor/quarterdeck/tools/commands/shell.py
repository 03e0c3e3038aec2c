"""Run commands for tools, each in a sandbox of its own: the `Shell` seam over `quarterdeck_sandbox`.

A command reaches only what its policy grants; its output is bounded; its descendants never outlive it, nor the shell.
`command_policy` makes the setup of a session's commands.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec.structs import replace

from quarterdeck.common.shielding import cancelled_by
from quarterdeck.config.places.kept_state import warn_of_gaps
from quarterdeck.config.places.paths import quarantine_dir
from quarterdeck.tools.context import ExecResult, OnOutput, Stream
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.tools import CancelToken
from quarterdeck_sandbox import (
    Confinement,
    HookGuard,
    LaunchError,
    Requester,
    TreeMonitor,
    Watch,
    confine,
    plan_launch,
    start,
)

from .command import KILL_S, SandboxedCommand

SHELL: Final = "/bin/sh"
STREAM_BYTES: Final = 8 * 1024 * 1024  # kept of each stream by `exec` without `on_output`; the rest is read and dropped
MAX_COMMAND_BYTES: Final = 128 * 1024 - 1  # Linux takes no longer argument (MAX_ARG_STRLEN)


_log = logging.getLogger("quarterdeck.tools")


class CommandError(OSError):
    """A command that could not be started, or was cancelled; the text has reason and remedy."""


@dataclass(frozen=True, slots=True)
class CommandSetup:
    """The setup of every command: private directories, the machine's abilities, and paths that it may not write."""

    policy: SandboxPolicy
    requester: Requester
    env: Mapping[str, str]
    protected: Callable[[], Iterable[str]] = tuple


class SandboxedShell:
    """A `Shell` with one setup; made by `open`.

    `running` are the commands that have not ended yet.
    """

    def __init__(self, setup: Callable[[], CommandSetup], cwd: str, monitor: TreeMonitor, tasks: TaskGroup) -> None:
        self._find_setup = setup
        self._setup: CommandSetup | None = None
        self._finding = asyncio.Lock()
        self._cwd = cwd
        self._monitor = monitor
        self._tasks = tasks
        self.running: set[SandboxedCommand] = set()
        self._starting: set[anyio.Event] = set()
        self._is_open = True
        self._has_told = False

    @classmethod
    @asynccontextmanager
    async def open(cls, setup: Callable[[], CommandSetup], cwd: str) -> AsyncIterator[Self]:
        """Open a shell for as long as the block lasts; at its end all commands are ended with their descendants.

        `setup` is called in a thread, before the first command, and may raise `LaunchError`.
        """
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            monitor = TreeMonitor()
            tasks.start_soon(monitor.run)
            async with anyio.create_task_group() as commands:
                shell = cls(setup, cwd, monitor, commands)
                try:
                    yield shell
                except Exception as error:
                    failure = error  # out of a task group it would come as a group
                finally:
                    await shell._close()
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        cancel: CancelToken | None = None,
        timeout_s: float | None = None,
        stdin: str = "",
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """See `Shell`; the reason of an early end is the last line of its stderr."""
        kept = {stream: bytearray() for stream in Stream}

        def keep(stream: Stream, data: bytes) -> None:
            kept[stream] += data[: STREAM_BYTES - len(kept[stream])]

        with cancelled_by(cancel or CancelToken()):
            running = await self._start(command, cwd, env, stdin.encode("utf-8", "replace"), on_output or keep)
            try:
                with anyio.fail_after(timeout_s):
                    await running.ended()
            finally:
                await running.stop()
            stdout, stderr = (bytes(each).decode(errors="replace") for each in kept.values())
            status, number = running.status
            return ExecResult(stdout, stderr, status, number, running.process.limit)
        raise CommandError("the command was cancelled, and ended with all that it had started")

    async def spawn(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> SandboxedCommand:
        """See `Shell`."""
        return await self._start(command, cwd, env, b"", on_output)

    async def _start(
        self, command: str, cwd: str | None, env: Mapping[str, str] | None, stdin: bytes, on_output: OnOutput | None
    ) -> SandboxedCommand:
        started = anyio.Event()
        self._starting.add(started)
        try:
            return await self._begin(command, cwd, env or {}, stdin, on_output)
        except LaunchError as error:
            raise CommandError(str(error)) from error
        finally:
            self._starting.discard(started)
            started.set()

    async def _begin(
        self, command: str, cwd: str | None, env: Mapping[str, str], stdin: bytes, on_output: OnOutput | None
    ) -> SandboxedCommand:
        if not self._is_open:
            raise CommandError("the session has ended: nothing can be started any more")
        if problem := problem_with(command):
            raise CommandError(problem)
        place = os.path.join(self._cwd, cwd) if cwd is not None else self._cwd
        async with self._finding:
            if self._setup is None:
                self._setup = await anyio.to_thread.run_sync(self._find_setup)
            setup = self._setup
        # It looks at many files; the start itself belongs to the thread that lives as long as the command may.
        confinement = await anyio.to_thread.run_sync(_confine, setup, command, place, env)
        process = await start(confinement)
        if confinement.gaps and not self._has_told:  # all commands of a session are confined alike
            self._has_told = True
            warn_of_gaps(confinement.gaps)
        if not self._is_open:
            process.kill()  # at once: the end of the session waits for it
            await process.stop(KILL_S)
            process.close_fds()
            raise CommandError("the session has ended, and its commands with it")
        guard = HookGuard(confinement.view, str(quarantine_dir()), "a command")
        running = SandboxedCommand(process, stdin, on_output, setup.policy.limits.output_bytes, guard)
        self.running.add(running)
        tree = process.tree((str(setup.requester.places.tmp),))
        watch = self._monitor.watch(tree, setup.policy.values.limits, running.stop_for)
        self._tasks.start_soon(self._accompany, running, watch)
        return running

    async def _accompany(self, running: SandboxedCommand, watch: Watch) -> None:
        running.on_exit(lambda _status, _signal: watch())
        try:
            await running.live()
        except Exception:
            _log.exception("a command could not be ended in order")
        finally:
            self.running.discard(running)

    async def _close(self) -> None:
        self._is_open = False
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as ends:
                for running in self.running:
                    ends.start_soon(running.stop)
                for started in self._starting:
                    ends.start_soon(started.wait)


def problem_with(command: str) -> str | None:
    """Return why no shell could be given `command`, with a remedy, or None."""
    if "\0" in command:
        return "a command cannot hold a NUL character: take it out"
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        return f"a command cannot hold half of a surrogate pair, as character {error.start} is: write the whole one"
    if size > MAX_COMMAND_BYTES:
        return (
            f"the command is {size:,} bytes long, and the system takes {MAX_COMMAND_BYTES:,}: write it to a file and "
            "run that"
        )
    return None


def _confine(setup: CommandSetup, command: str, place: str, env: Mapping[str, str]) -> Confinement:
    # The paths that a command line names are the shell's to find or to miss; an argument's would be judged here.
    plan = plan_launch(SHELL, (), {**setup.env, **env}, place)
    places = replace(setup.requester.places, protected=tuple(setup.protected()))
    confinement = confine(plan, setup.policy.values, replace(setup.requester, places=places))
    return replace(confinement, plan=replace(confinement.plan, argv=(SHELL, "-c", command)))
