"""Try what only a process of this machine has: an installation, rest, odd bytes, its end.

install   only of a package runner: one start with a network, until it answers; nothing is called
legacy    and in the end rest, and the end of stdin
modern    and in the end SIGTERM
bytes     lines that are none, pieces of lines, the end of stdin within one; started again when one ended it
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import LineBuffer, LineTooLongError
from quarterdeck_protocol.policy_values import NetworkMode
from quarterdeck_sandbox import ConfinedProcess, HostRecorder, TreeMonitor, infer_hints

from .decoys import Marks
from .episode import NOT_REACHED, End, Ending, Episode, FileChanges, Members, Recording, Touches
from .place import Snapshot, Subject, changes
from .requests import LEGACY, LONG_LINE_BYTES, TRIALS, message
from .scenario import MAX_RESTARTS, Scenario, Wishes
from .speaker import OpenRequest, Outcome, Speaker

INSTALL_S: Final = 180.0
"""Seconds for the first answer while a package is fetched."""

AT_REST_S: Final = 1.0
"""Seconds without a request, to measure idling."""

MAX_RESTS: Final = 4
"""Measurements of idling; the quietest counts."""

QUIET_S: Final = 0.1
"""Processor time of a rest that needs no second one."""


MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of one start; more ends it."""

READ_BYTES: Final = 64 * 1024
READS_A_WAKE: Final = 16

STDERR_BYTES: Final = 32 * 1024
"""The last bytes of stderr that are kept."""

WRITE_S: Final = 10.0
"""Seconds that a server may leave its stdin unread."""

PIECE_S: Final = 0.2
"""Between the two pieces of a line."""

LAST_WORDS_S: Final = 1.0
"""Seconds for reading the output of a server that has ended."""

END_S: Final = 15.0
"""Seconds that a server may take to end; clients wait two to five seconds, on a machine at rest."""

GRACE_S: Final = 1.0
"""Seconds for each step of ending a server that is no longer needed."""


class Peer(Speaker):
    """Speaks to a server process over its pipes, line by line or byte by byte. Call `close` in the end.

    Lines and all that is read are bounded, and every wait has a deadline.
    """

    def __init__(self, process: ConfinedProcess, episode: Episode, marks: Marks, hosts: HostRecorder) -> None:
        super().__init__(episode, marks)
        self._hosts = hosts
        self._overlap = marks.longest
        self.process = process
        self._loop = asyncio.get_running_loop()
        self._lines = LineBuffer(MAX_LINE_BYTES)
        self._held: bytearray | None = None
        self._writing = asyncio.Lock()
        self._read = 0
        self._stderr = bytearray()
        self._stderr_read = 0
        self._eof = asyncio.Event()
        self._loop.add_reader(process.stdout_fd, self._readable)
        self._loop.add_reader(process.stderr_fd, self._stderr_readable)
        self._watching = self._loop.create_task(self._watch())

    # Speaking

    async def carry(self, request: OpenRequest, wait_s: float, *, in_pieces: bool) -> Outcome:
        """Write a request's line, and wait for its answer."""
        line = request.message + b"\n"
        mark, asked, began = self._stderr_read, self._hosts.asked, time.monotonic()
        if in_pieces:
            await self.write(line[: len(line) // 2], wait_s)
            await asyncio.sleep(PIECE_S)
            line = line[len(line) // 2 :]
        if await self.write(line, wait_s):
            await self._answered_or_gone(request.answer, wait_s - (time.monotonic() - began))
        if self.gone.is_set() and not request.answer.done():
            await self._drained()
        request.close()
        is_lost = self.gone.is_set()
        ending = Ending.ANSWERED if request.reply is not None else Ending.LOST if is_lost else Ending.SILENT
        if ending is Ending.SILENT and request.method != "initialize":
            self.hearing.cancelled(request.request_id, time.monotonic())
            await self.notify(
                "notifications/cancelled", {"requestId": request.request_id, "reason": "no longer wanted"}
            )
        # Instructions may speak of errors.
        reply = request.reply if request.method != "initialize" else None
        return Outcome(ending, self._hints_since(mark, asked, reply))

    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Write a notification. Return whether the server took it."""
        return await self.write(message(method, params) + b"\n")

    async def write(self, data: bytes, wait_s: float = WRITE_S) -> bool:
        """Write bytes as they are. Return False if the server does not take them in time."""
        if self._held is not None:
            self._held += data
            return True
        until = time.monotonic() + min(wait_s, WRITE_S)
        view = memoryview(data)
        async with self._writing:
            while view and not self.gone.is_set() and self.process.stdin_fd >= 0:
                try:
                    view = view[os.write(self.process.stdin_fd, view) :]
                except BlockingIOError:
                    if time.monotonic() > until:
                        return False
                    await asyncio.sleep(0.01)
                except OSError:
                    return False
        self._write_answers()
        return not view

    def hold(self) -> None:
        """Keep everything that is written from now on, until `release`."""
        self._held = bytearray()

    async def release(self) -> None:
        """Write all that was kept at once."""
        held, self._held = self._held, None
        await self.write(bytes(held or b""))

    async def end(self, asked: str) -> None:
        """Ask it to end (`stdin`, `half line` or `term`), and record how long it takes."""
        if self.gone.is_set():
            return
        mark, began = self._stderr_read, time.monotonic()
        if asked == "half line":
            await self.write(b'{"jsonrpc": "2.0", "id": 99, "met')
        if asked == "term":
            self.process.signal(signal.SIGTERM)
        else:
            self.process.close_stdin()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.gone.wait()
        after_s = time.monotonic() - began if self.gone.is_set() else None
        await self._drained()
        self._stderr_readable()
        words = bytes(self._stderr[-new:]) if (new := self._stderr_read - mark) else b""
        last = words.decode(errors="replace")
        self.episode.end = End(asked, after_s, self.process.returncode, self.process.limit, last)

    async def close(self) -> None:
        """End the whole tree, release its pipes, and record its usage."""
        self.process.look()
        if self.gone.is_set() and not self.episode.end.asked:
            await self._drained()
            self.episode.end = End("", None, self.process.returncode, self.process.limit)
        await self.process.stop(GRACE_S)
        self._watching.cancel()
        for fd in (self.process.stdout_fd, self.process.stderr_fd):
            self._loop.remove_reader(fd)
        self._stderr_readable()
        self.process.close_fds()
        self.episode.cpu_s = self.process.cpu_s
        self.episode.peak_bytes = self.process.dossier("", ()).peak_rss_bytes
        self.episode.stderr = bytes(self._stderr).decode(errors="replace")

    def _hints_since(self, mark: int, asked: int, reply: Members | None) -> tuple[str, ...]:
        """Return hosts and files that it was refused: recorded since `asked`, or by stderr since `mark` and `reply`."""
        new = self._stderr_read - mark
        text = bytes(self._stderr[-new:]).decode(errors="replace") if new else ""
        if reply is not None and (b"error" in (told := msgspec.json.encode(reply)[:8192]) or b"isError" in told):
            text += "\n" + told.decode(errors="replace").replace("\\n", "\n")
        refused = wanted_outside(text, self.process) if text else ()
        hosts = [f"{host}{NOT_REACHED}" for host in self._hosts.since(asked)]
        return tuple(dict.fromkeys((*hosts, *(hint for hint in refused if not hosts or "reached" not in hint))))

    # Listening

    def _readable(self) -> None:
        for _ in range(READS_A_WAKE):
            try:
                data = os.read(self.process.stdout_fd, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._read += len(data)
            if not data or self._read > MAX_READ_BYTES:
                self._stop_reading("it wrote more than 64 MiB on stdout" if data else "")
                return
            try:
                for line in self._lines.feed(data):
                    self.hearing.receive(line, time.monotonic())
            except LineTooLongError:
                self._stop_reading("a line on stdout is longer than 8 MiB")
                return
            self._write_answers()

    def _stop_reading(self, why: str) -> None:
        self._loop.remove_reader(self.process.stdout_fd)
        self._eof.set()
        if why:
            self.hearing.note(self.episode.misshapen, why)
            self.process.kill()

    def _write_answers(self) -> None:
        """Answer the server's requests, but never within a line of ours; one that does not read gets no answer."""
        if self._writing.locked():
            return
        with suppress(OSError):
            while self.hearing.answers:
                os.write(self.process.stdin_fd, self.hearing.answers.pop(0))

    def _stderr_readable(self) -> None:
        for _ in range(READS_A_WAKE):
            try:
                data = os.read(self.process.stderr_fd, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self.process.stderr_fd)
                return
            self._stderr_read += len(data)
            self.hearing.heard_on_stderr(bytes(self._stderr[-self._overlap :]) + data)
            self._stderr += data
            del self._stderr[:-STDERR_BYTES]

    async def _watch(self) -> None:
        await self.process.wait()
        self.gone.set()

    async def _answered_or_gone(self, answer: "asyncio.Future[Members]", wait_s: float) -> None:
        gone = self._loop.create_task(self.gone.wait())
        try:
            await asyncio.wait((answer, gone), timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()

    async def _drained(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._eof.wait()


def wanted_outside(text: str, process: ConfinedProcess) -> tuple[str, ...]:
    """Return in few words the hosts and files that a text says were refused, except its own directories."""
    # A list of hosts whose answers are recorded reaches none.
    confinement = msgspec.structs.replace(process.confinement, network=NetworkMode.NONE)
    own = os.path.dirname(confinement.plan.env["HOME"])
    hints = infer_hints(text[-8192:], confinement)
    return tuple(
        hint.partition(";")[0] for hint in hints if ("reached" in hint or "hidden" in hint) and own not in hint
    )


async def record(subject: Subject, wishes: Wishes) -> Recording:
    """Try everything, or raise LaunchError if it cannot be started."""
    return await _ProcessScenario(subject, wishes).record()


class _ProcessScenario(Scenario[Peer]):
    def __init__(self, subject: Subject, wishes: Wishes) -> None:
        super().__init__(wishes)
        self._subject = subject
        self._monitor = TreeMonitor()
        self._gaps: tuple[str, ...] = ()
        self._marks = Marks(subject.world.decoys)

    async def record(self) -> Recording:
        world = self._subject.world
        watching = asyncio.create_task(self._monitor.run())
        try:
            with world.watched():
                await self.go_through()
        finally:
            watching.cancel()
        return world.recording(*self.episodes, untried=self.untried, gaps=self._gaps)

    @property
    def first_parts(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (self._install,) if self._subject.installs else ()

    @property
    def folder(self) -> str:
        return str(self._subject.place.work)

    async def _install(self) -> None:
        async with self.episode("install", with_network=True) as peer:
            await self.initialize(peer, LEGACY, INSTALL_S)
            is_answered = any(each.ending is Ending.ANSWERED for each in peer.episode.exchanges)
            if not is_answered:
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_S):
                        await peer.gone.wait()
            is_lost = not is_answered and peer.gone.is_set()
            await peer.end("stdin")
        # What it said when it ended of itself is kept: later starts have no network, and speak of that alone.
        if not is_lost:
            self.episodes.pop()

    async def end_legacy(self, peer: Peer) -> None:
        await self._rest(peer)
        await peer.end("stdin")

    async def end_modern(self, peer: Peer) -> None:
        await peer.end("term")

    async def odd_bytes(self) -> None:
        trials = list(TRIALS)
        for _ in range(MAX_RESTARTS):
            async with self.episode("bytes") as peer:
                meta = await self.greet_any(peer)
                if meta is None:
                    return
                while trials and not peer.gone.is_set():
                    name, lines = trials.pop(0)
                    for line in lines:
                        await peer.write(line)
                    await self.probe(peer, f"after:{name}", meta)
                    if peer.episode.exchanges[-1].ending is Ending.SILENT:
                        break
                if not trials and not peer.gone.is_set():
                    await self.probe(peer, "pieces", meta, in_pieces=True)
                    await self._probe_twice_at_once(peer, meta)
                    await self.probe(peer, "long-line", {**meta, "filler": "a" * LONG_LINE_BYTES})
                    await peer.end("half line")
                    return

    @asynccontextmanager
    async def opened(self, episode: Episode, *, with_network: bool = False) -> AsyncIterator[Peer]:
        world = self._subject.world
        process = await self._subject.start(with_network=with_network)
        world.forget_listings()  # a start hands the home over to its user
        self._gaps = process.receipt.gaps
        limits = process.confinement.limits
        forget = self._monitor.watch(
            process.tree((str(self._subject.place.tmp), str(self._subject.place.work))),
            limits,
            lambda excess: process.kill_for(excess.limit),
        )
        peer = Peer(process, episode, self._marks, self._subject.world.hosts)
        try:
            yield peer
        finally:
            forget()
            await peer.close()
            episode.touches.append(world.take())

    def look(self) -> Snapshot:
        self.episodes[-1].touches.append(self._subject.world.take())
        found = self._subject.place.look()
        self._subject.world.forget_listings()
        return found

    def effects_since(self, before: Snapshot) -> tuple[FileChanges, Touches]:
        touches = self._subject.world.take()
        changed = changes(before, self._subject.place.look())
        self._subject.world.forget_listings()
        if changed.any:
            self._subject.place.fill()
        return changed, touches

    async def _probe_twice_at_once(self, peer: Peer, meta: Members) -> None:
        peer.hold()
        probes = [asyncio.create_task(self.probe(peer, "together", meta)) for _ in range(2)]
        await asyncio.sleep(0)
        await peer.release()
        await asyncio.gather(*probes)

    async def _rest(self, peer: Peer) -> None:
        """Measure processor time at rest, again while it may be busy with its start."""
        least: float | None = None
        for _ in range(MAX_RESTS):
            peer.process.look()
            before = peer.process.cpu_s
            await asyncio.sleep(AT_REST_S)
            peer.process.look()
            if before is None or peer.process.cpu_s is None or peer.gone.is_set():
                return
            spent_s = peer.process.cpu_s - before
            least = spent_s if least is None else min(least, spent_s)
            if least <= QUIET_S:
                break
        peer.episode.idle_cpu_s, peer.episode.idle_s = least, AT_REST_S
