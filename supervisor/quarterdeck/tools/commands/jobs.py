"""Background commands of a session: started, watched, stopped, ended with the session.

A job's last lines are kept in memory, all of its output in capture files, which end with the session. `process` and
`bg-process` use a table each; `end_jobs` ends all jobs of one context.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from typing import Final
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from quarterdeck.tools import session_notes
from quarterdeck.tools.context import ContextId, Shell, ShellProcess, Stream
from quarterdeck_protocol.tools import CancelToken
from quarterdeck_sandbox import signal_name

from .captures import Capture, CaptureDirectory
from .output import LineRing

STOP_GRACE_MS: Final = 3_000  # between TERM and KILL
MAX_RUNNING: Final = 32  # jobs of one table at a time
MAX_REMEMBERED: Final = 128  # jobs of one table, those that have ended included; the oldest of them are forgotten first
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024  # of the lines of jobs that have ended; likewise
CAPTURES_NAME: Final = ".indusvx-bg"  # the directory of captures in a workspace, if the session has no other place


class JobError(Exception):
    """A job that could not be started, in words for a model."""


class Job:
    """One command; `JobTable` makes it, and sets `process` before any other code sees it.

    `captures` is empty when its files could not be made, for the reason in `no_captures`.
    """

    process: ShellProcess

    def __init__(self, name: str, command: str, clock: Callable[[], float]) -> None:
        self.id: Final = name
        self.command: Final = command
        self.exit_code: int | None = None
        self.captures: dict[Stream, Capture] = {}
        self.no_captures = ""
        self.lines: Final = {stream: LineRing() for stream in Stream}
        self._signal: int | None = None
        self._clock = clock
        self._started_at = clock()
        self._ended_at: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._ended_at is None

    @property
    def status(self) -> str:
        """Its state, for a model."""
        if self.is_running:
            return "running"
        return f"signalled ({self.signal_name})" if self.exit_code is None else f"exited (code {self.exit_code})"

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, as `SIGTERM`; None for none."""
        return None if self._signal is None else signal_name(self._signal)

    @property
    def kept_bytes(self) -> int:
        """The approximate size of its lines."""
        return sum(ring.kept_bytes for ring in self.lines.values())

    @property
    def age_s(self) -> float:
        """Seconds from its start to its end, or to now."""
        return (self._clock() if self._ended_at is None else self._ended_at) - self._started_at

    def take(self, stream: Stream, data: bytes) -> None:
        """Keep a piece of its output."""
        self.lines[stream].feed(data)
        if capture := self.captures.get(stream):
            capture.feed(data)

    def end(self, code: int | None, number: int | None) -> None:
        """Note its end; all of its output was taken."""
        self.exit_code, self._signal, self._ended_at = code, number, self._clock()
        for ring in self.lines.values():
            ring.close()


class JobTable:
    """The jobs of one tool in one session, `<prefix>-1` and so on, with their files in the directory `captures`."""

    def __init__(self, prefix: str, captures: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._prefix = prefix
        self._files = CaptureDirectory(captures)
        self._opening = asyncio.Lock()
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._made = 0
        self._starting = 0
        self._is_open = True
        self._closing: set[asyncio.Task[None]] = set()
        self._notes = session_notes.current.get()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All remembered jobs, in the order of their starts."""
        return tuple(self._jobs.values())

    def get(self, name: str) -> Job | None:
        """Return the job called `name`, or None."""
        return self._jobs.get(name)

    async def start(self, shell: Shell, command: str, cancel: CancelToken | None = None) -> Job:
        """Start `command` in the shell's directory.

        Raise `JobError` if it could not be started, or was ended because `cancel` came before its id was returned.
        """
        if not self._is_open:
            raise JobError("the session has ended: nothing can be started any more")
        if (running := sum(job.is_running for job in self.jobs) + self._starting) >= MAX_RUNNING:
            raise JobError(f"{running} processes are running, the most that a session may have: stop one first")
        self._starting += 1
        try:
            job = await self._start(shell, command)
        finally:
            self._starting -= 1
        if cancel is not None and cancel.cancelled:
            await self.stop(job)
            self.forget(job)
            raise JobError("the call was cancelled")
        return job

    async def stop(self, job: Job) -> bool:
        """Send TERM, after `STOP_GRACE_MS` KILL, and wait until no process is left. Return whether it was running."""
        was_running = job.is_running
        await job.process.stop(STOP_GRACE_MS / 1_000)
        return was_running

    def forget(self, job: Job) -> None:
        """Drop a job that has ended."""
        self._jobs.pop(job.id, None)

    async def aclose(self) -> None:
        """End every job with its descendants, and remove the captures. Repeatable."""
        self._is_open = False
        self._notes = None  # they go with the session, which another process may go on with
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as ends:
                for job in self._jobs.values():
                    ends.start_soon(self.stop, job)
            if self._closing:
                await asyncio.wait(self._closing)
            async with self._opening:
                await anyio.to_thread.run_sync(self._files.close)

    async def _start(self, shell: Shell, command: str) -> Job:
        self._made += 1
        job = Job(f"{self._prefix}-{self._made}", command, self._clock)
        try:
            async with self._opening:
                job.captures = dict(zip(Stream, await anyio.to_thread.run_sync(self._files.open, job.id), strict=True))
        except OSError as error:
            job.no_captures = str(error)
        try:
            job.process = await shell.spawn(command, on_output=job.take)
        except BaseException as error:
            await _close(job.captures.values())
            if isinstance(error, OSError):
                raise JobError(str(error)) from error
            raise
        self._jobs[job.id] = job
        self._note()
        job.process.on_exit(lambda code, number: self._end(job, code, number))
        if not self._is_open:
            await self.stop(job)
        self._make_room()
        return job

    def _end(self, job: Job, code: int | None, number: int | None) -> None:
        job.end(code, number)
        closing = asyncio.ensure_future(_close(job.captures.values()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._note()
        self._make_room()

    def _note(self) -> None:
        if self._notes is not None:
            running = (f"{job.id} ({job.command})" for job in self.jobs if job.is_running)
            self._notes.note(f"{self._prefix} processes", running)

    def _make_room(self) -> None:
        ended = [job for job in self._jobs.values() if not job.is_running]
        kept_bytes = sum(job.kept_bytes for job in ended)
        for job in ended[:-1]:  # the last one's end is worth telling, however much it said
            if len(self._jobs) <= MAX_REMEMBERED and kept_bytes <= MAX_KEPT_BYTES:
                break
            kept_bytes -= job.kept_bytes
            self.forget(job)


async def _close(captures: Iterable[Capture]) -> None:
    for capture in captures:
        await capture.close()


_tables: Final[WeakKeyDictionary[ContextId, set[JobTable]]] = WeakKeyDictionary()

_places: Final[WeakKeyDictionary[ContextId, str]] = WeakKeyDictionary()


def keep_captures_in(identity: ContextId, directory: str) -> None:
    """Set the directory of the captures of a context's jobs; see `CaptureDirectory`."""
    _places[identity] = directory


def captures_of(identity: ContextId, cwd: str) -> str:
    """Return the directory of the captures of a context's jobs: the one that was set, else one in `cwd`."""
    return _places.get(identity) or os.path.join(cwd, CAPTURES_NAME)


def adopt(table: JobTable, identity: ContextId) -> None:
    """Let `table` end with the context."""
    _tables.setdefault(identity, set()).add(table)


async def end_jobs(identity: ContextId) -> None:
    """End every job of a context and remove its captures, in some seconds that cancellation does not interrupt."""
    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as ends:
            for table in _tables.pop(identity, set()):
                ends.start_soon(table.aclose)
