"""Commands that run on while a session does other things: started, watched, stopped, ended with the session.

A job's last lines are kept here, all that it writes also in capture files.  `process` and `bg-process` use a table
each; `end_jobs` ends all that belong to one context.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final
from weakref import WeakKeyDictionary

import anyio

from quarterdeck.tools.context import ContextId, Shell, ShellProcess, Stream
from quarterdeck_protocol.tools import CancelToken

from .output import LineRing
from .output_files import Capture, CaptureDirectory

STOP_GRACE_MS: Final = 3_000
"""Between TERM and KILL."""

MAX_RUNNING: Final = 32
"""Jobs of one table at a time."""

MAX_REMEMBERED: Final = 128
"""Jobs of one table, those that have ended included; the oldest of them are forgotten first."""

MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Of the lines of jobs that have ended; likewise."""

CAPTURES_NAME: Final = ".indusvx-bg"
"""Where captures go in a workspace, unless the session has another place for them."""


class JobError(Exception):
    """A job that could not be started, in words for a model."""


class JobState(StrEnum):
    """What has become of a job."""

    RUNNING = "running"
    EXITED = "exited"
    SIGNALLED = "signalled"


class Job:
    """One command; `JobTable` makes it.

    Attributes:
        captures: its files; none when they could not be made, `no_captures` says why.
    """

    def __init__(self, name: str, command: str, now: float) -> None:
        self.id: Final = name
        self.command: Final = command
        self.state = JobState.RUNNING
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.captures: dict[Stream, Capture] = {}
        self.no_captures = ""
        self.lines: Final = {stream: LineRing() for stream in Stream}
        self._process: ShellProcess | None = None
        self._started_at = now
        self._ended_at: float | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.state is JobState.RUNNING

    @property
    def status(self) -> str:
        """What has become of it, for a model."""
        match self.state:
            case JobState.RUNNING:
                return "running"
            case JobState.EXITED:
                return f"exited (code {self.exit_code})"
            case JobState.SIGNALLED:
                return f"signalled ({self.signal_name})"

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, as `SIGTERM`; None for none."""
        return None if self.signal is None else name_of_signal(self.signal)

    @property
    def kept_bytes(self) -> int:
        """What its lines take, about."""
        return sum(ring.kept_bytes for ring in self.lines.values())

    def age_s(self, now: float) -> float:
        """From its start to its end, or to `now`."""
        return (now if self._ended_at is None else self._ended_at) - self._started_at

    def take(self, stream: Stream, data: bytes) -> None:
        """Keep what it wrote."""
        self.lines[stream].feed(data)
        if capture := self.captures.get(stream):
            capture.feed(data)

    def begin(self, process: ShellProcess) -> None:
        """It runs as `process`."""
        self._process = process

    def end(self, code: int | None, number: int | None, now: float) -> None:
        """It has ended, and all that it wrote was taken."""
        self.exit_code, self.signal, self._ended_at = code, number, now
        self.state = JobState.SIGNALLED if code is None else JobState.EXITED
        for ring in self.lines.values():
            ring.close()

    async def stop(self, grace_s: float) -> None:
        """See `ShellProcess.stop`."""
        if self._process is not None:
            await self._process.stop(grace_s)


class JobTable:
    """The jobs of one face of one session."""

    def __init__(self, prefix: str, captures: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Jobs named `<prefix>-1` and so on, whose output files go to the directory `captures`."""
        self._prefix = prefix
        self._files = CaptureDirectory(captures)
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._made = 0
        self._starting = 0
        self._is_open = True
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All that are remembered, in the order of their starts."""
        return tuple(self._jobs.values())

    @property
    def now(self) -> float:
        """For `Job.age_s`."""
        return self._clock()

    def get(self, name: str) -> Job | None:
        """The job called `name`."""
        return self._jobs.get(name)

    async def start(self, shell: Shell, command: str, cancel: CancelToken | None = None) -> Job:
        """Start `command` in the shell's directory.

        Raises:
            JobError: it could not be started, or was ended because `cancel` came first: whoever cancelled is told no
                id; the text says why and what to do.
        """
        if not self._is_open:
            raise JobError("the session has ended: nothing can be started any more")
        running = sum(job.is_running for job in self._jobs.values()) + self._starting
        if running >= MAX_RUNNING:
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
        """TERM, after `STOP_GRACE_MS` KILL, for all of it; returns when nothing of it is left.

        Returns:
            whether it was running.
        """
        was_running = job.is_running
        await job.stop(STOP_GRACE_MS / 1000)
        return was_running

    def forget(self, job: Job) -> None:
        """Drop a job that has ended."""
        self._jobs.pop(job.id, None)

    async def aclose(self) -> None:
        """End every job with all that it started, and remove the captures.  Repeatable."""
        self._is_open = False
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as ends:
                for job in self._jobs.values():
                    ends.start_soon(self.stop, job)
            if self._closing:
                await asyncio.wait(self._closing)
            await self._files.close()

    async def _start(self, shell: Shell, command: str) -> Job:
        self._made += 1
        job = Job(f"{self._prefix}-{self._made}", command, self._clock())
        try:
            job.captures = dict(zip(Stream, await self._files.open(job.id), strict=True))
        except OSError as error:
            job.no_captures = str(error)
        try:
            process = await shell.spawn(command, on_output=job.take)
        except BaseException as error:
            await self._close_captures(job)
            if isinstance(error, OSError):
                raise JobError(str(error)) from error
            raise
        job.begin(process)
        self._jobs[job.id] = job
        process.on_exit(lambda code, number: self._end(job, code, number))
        if not self._is_open:
            await self.stop(job)
        self._make_room()
        return job

    def _end(self, job: Job, code: int | None, number: int | None) -> None:
        job.end(code, number, self._clock())
        closing = asyncio.ensure_future(self._close_captures(job))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._make_room()

    async def _close_captures(self, job: Job) -> None:
        for capture in job.captures.values():
            await capture.close()

    def _make_room(self) -> None:
        ended = [job for job in self._jobs.values() if not job.is_running]
        kept_bytes = sum(job.kept_bytes for job in ended)
        for job in ended[:-1]:  # the last one's end is worth telling, however much it said
            if len(self._jobs) <= MAX_REMEMBERED and kept_bytes <= MAX_KEPT_BYTES:
                break
            kept_bytes -= job.kept_bytes
            self.forget(job)


_tables: Final[WeakKeyDictionary[ContextId, list[JobTable]]] = WeakKeyDictionary()

_places: Final[WeakKeyDictionary[ContextId, str]] = WeakKeyDictionary()


def keep_captures_in(identity: ContextId, directory: str) -> None:
    """Let the jobs of a context write their captures there; its parent exists, and no command can replace that."""
    _places[identity] = directory


def captures_of(identity: ContextId, cwd: str) -> str:
    """Where the jobs of a context write their captures: what it was given, else a directory in `cwd`."""
    return _places.get(identity) or os.path.join(cwd, CAPTURES_NAME)


def adopt(table: JobTable, identity: ContextId) -> None:
    """Let `table` end with the context."""
    tables = _tables.setdefault(identity, [])
    if table not in tables:
        tables.append(table)


async def end_jobs(identity: ContextId) -> None:
    """End every job of a context, of whichever table, and remove their captures.  A session calls it at its end.

    At most some seconds beyond `STOP_GRACE_MS`; cancellation does not interrupt it.
    """
    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as ends:
            for table in _tables.pop(identity, []):
                ends.start_soon(table.aclose)


def name_of_signal(number: int) -> str:
    """`SIGTERM` for 15; a number without a name as `signal 40`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
