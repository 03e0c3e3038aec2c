"""One confined command: its streams are always read, and its end is reported once.

At the end: the program ends or is ended, then its descendants; the rest in the pipes is read; the end is reported;
descriptors and directories are released.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from quarterdeck.common.words import flat
from quarterdeck.tools.context import OnOutput, Stream
from quarterdeck_sandbox import ConfinedProcess, Excess, HookGuard, ask_to_end, quarantine_notice, signal_tree

STOP_GRACE_S: Final = 1.0  # default seconds between TERM and KILL, for a command that is ended early
KILL_S: Final = 1.0  # bound of each step of ending a killed tree, which takes milliseconds
DRAIN_S: Final = 0.5  # seconds that the streams of an ended tree are still read, should anything hold them
REAP_S: Final = 10.0  # seconds that a killed command is waited for in the background: a busy machine reaps late
READ_BYTES: Final = 64 * 1024
BURST_BYTES: Final = 512 * 1024  # after so many the reader of a stream pauses
PAUSE_S: Final = 0.002  # leaves each stream some 150 MiB/s, and the event loop most of its time during a flood
LOOK_S: Final = 2.0  # seconds between checks for forbidden new files while the command runs

_log = logging.getLogger("quarterdeck.tools")


class SandboxedCommand:
    """A `ShellProcess`; `SandboxedShell` makes it, and runs its `live`.

    `process` is its confined process, with its receipt and limit.
    """

    def __init__(
        self,
        process: ConfinedProcess,
        stdin: bytes,
        on_output: OnOutput | None,
        output_bytes: int | None,
        guard: HookGuard,
    ) -> None:
        self.process = process
        self._stdin = stdin
        self._on_output = on_output
        self._output_bytes = output_bytes
        self._guard = guard
        self._listeners: list[Callable[[int | None, int | None], None]] = []
        self._said: list[str] = []
        self._is_stopping = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def status(self) -> tuple[int | None, int | None]:
        """Exit status and signal, one of them None; valid after its end."""
        code = self.process.returncode
        if code is None:
            return None, signal.SIGKILL  # nothing in it has run since
        return (code, None) if code >= 0 else (None, -code)

    def kill(self, number: int) -> None:
        """See `ShellProcess`."""
        if self.process.returncode is not None:
            return
        if number == signal.SIGKILL:
            self.process.kill()
        else:
            signal_tree(self.process.tree(()), number)

    def on_exit(self, listener: Callable[[int | None, int | None], None]) -> None:
        """See `ShellProcess`; by then none of its processes is left."""
        if self._ended.is_set():
            listener(*self.status)
        else:
            self._listeners.append(listener)

    def stop_for(self, excess: Excess) -> None:
        """End it because it exceeded a limit; the reason is the last line of its stderr."""
        self._said.append(f"ended: {excess.detail} (limit {excess.limit})\n")
        self.process.kill_for(excess.limit)

    async def ended(self) -> None:
        """Wait until none of its processes is left and `on_output` has received all output."""
        await self._ended.wait()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """See `ShellProcess`; cancellation does not interrupt it."""
        with anyio.CancelScope(shield=True):
            if self.process.returncode is None:
                with anyio.move_on_after(grace_s):
                    await ask_to_end(self.process.tree(()), grace_s)
                    await self._ended.wait()
            self._is_stopping.set()
            await self._ended.wait()

    async def live(self) -> None:
        """Run it to its end, once, and release everything; cancellation does not interrupt it: `stop` does."""
        with anyio.CancelScope(shield=True):
            try:
                await self._run()
            finally:
                self._tell()
            await self.process.release()
            self.process.close_fds()
            with anyio.move_on_after(REAP_S):
                await self.process.wait()

    async def _run(self) -> None:
        async with anyio.create_task_group() as reading:
            ends = [
                self._drain(reading, Stream.STDOUT, self.process.stdout_fd),
                self._drain(reading, Stream.STDERR, self.process.stderr_fd),
            ]
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(self._write)
                waiting.start_soon(self._wait_for_stop, waiting.cancel_scope)
                waiting.start_soon(self._tell_of_network)
                waiting.start_soon(self._look_for_hooks)
                await self.process.wait()
                waiting.cancel_scope.cancel()
            self.process.kill()
            await self.process.end(KILL_S)
            await self._take_hooks_away()
            with anyio.move_on_after(DRAIN_S):
                for end in ends:
                    await end.wait()
            reading.cancel_scope.cancel()
        for line in self._said:
            self._give(Stream.STDERR, line.encode())

    async def _wait_for_stop(self, scope: anyio.CancelScope) -> None:
        await self._is_stopping.wait()
        scope.cancel()

    async def _tell_of_network(self) -> None:
        """Report the end of its network at once; it runs on, as it may not need one."""
        why = await self.process.network_lost()
        self._give(
            Stream.STDERR,
            f"[quarterdeck] the command's network has ended ({why}): connections fail from now on\n".encode(),
        )

    async def _look_for_hooks(self) -> None:
        """Check regularly: a command may run as long as its session."""
        while True:
            await anyio.sleep(LOOK_S)
            await self._take_hooks_away()

    async def _take_hooks_away(self) -> None:
        if self._guard.is_quiet:
            return
        caught = await anyio.to_thread.run_sync(self._guard.look)
        for each in caught:
            _log.warning("a command: %s", flat(each.told))
        if caught:
            self._give(Stream.STDERR, f"{quarantine_notice(caught)}\n".encode("utf-8", "replace"))

    async def _write(self) -> None:
        view = memoryview(self._stdin)
        while view:
            await anyio.wait_writable(self.process.stdin_fd)
            try:
                view = view[os.write(self.process.stdin_fd, view[:READ_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError:
                break  # it does not want the rest
        self.process.close_stdin()

    def _drain(self, tasks: TaskGroup, stream: Stream, fd: int) -> anyio.Event:
        """Read `fd` from now on. Return the event of its end."""
        end = anyio.Event()

        async def run() -> None:
            total_bytes = 0
            async for data in _pieces(fd):
                self._give(stream, data if self._output_bytes is None else data[: self._output_bytes - total_bytes])
                total_bytes = min(total_bytes + len(data), self._output_bytes or sys.maxsize)
                if total_bytes == self._output_bytes and self.process.limit is None:
                    self.stop_for(Excess("output_bytes", f"it wrote more than {total_bytes:,} bytes on a stream"))
            end.set()

        tasks.start_soon(run)
        return end

    def _give(self, stream: Stream, data: bytes) -> None:
        if self._on_output is None or not data:
            return
        try:
            self._on_output(stream, data)
        except Exception:
            self._on_output = None  # the command goes on, its output is dropped
            _log.exception("the receiver of a command's output failed")

    def _tell(self) -> None:
        self._ended.set()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            try:
                listener(*self.status)
            except Exception:
                _log.exception("a listener for the end of a command failed")


async def _pieces(fd: int) -> AsyncIterator[bytes]:
    """Yield the data of `fd` until its end, with a pause after each burst."""
    burst_bytes = 0
    while True:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(fd)
            continue
        if not data:
            return
        yield data
        burst_bytes += len(data)
        if burst_bytes >= BURST_BYTES:
            burst_bytes = 0
            await anyio.sleep(PAUSE_S)
