"""What is tried with a server that is a process of this machine, beside what is tried with every one.

install   only of a package runner: one start with a network, until it answers; nothing is called
legacy    and in the end rest, and the end of stdin
modern    and in the end SIGTERM
bytes     lines that are none, pieces of lines, the end of stdin within one; started again when one ended it
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from quarterdeck_sandbox import TreeMonitor

from .episode import Ending, Episode, FileChanges, Members, Recording
from .peer import END_S, Peer
from .place import Snapshot, Subject, changes
from .requests import LEGACY, LONG_LINE_BYTES, TRIALS
from .scenario import MAX_RESTARTS, Scenario, Wishes

INSTALL_S: Final = 180.0
"""How long the first answer may take while a package is fetched."""

AT_REST_S: Final = 1.0
"""How long it is left alone, to see what it does then."""

MAX_RESTS: Final = 4
"""The quietest of so many counts."""

QUIET_S: Final = 0.1
"""Of processor time, in a rest that needs no other."""


async def record(subject: Subject, wishes: Wishes) -> Recording:
    """Try everything, or raise LaunchError if it cannot be started."""
    return await _ProcessScenario(subject, wishes).record()


class _ProcessScenario(Scenario[Peer]):
    def __init__(self, subject: Subject, wishes: Wishes) -> None:
        super().__init__(wishes)
        self._subject = subject
        self._monitor = TreeMonitor()
        self._gaps: tuple[str, ...] = ()

    async def record(self) -> Recording:
        watching = asyncio.create_task(self._monitor.run())
        try:
            await self.go_through()
        finally:
            watching.cancel()
        return Recording(tuple(self.episodes), self.untried, self._gaps)

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
        process = await self._subject.start(with_network=with_network)
        self._gaps = process.receipt.gaps
        limits = process.confinement.limits
        forget = self._monitor.watch(
            process.tree((str(self._subject.place.tmp), str(self._subject.place.work))),
            limits,
            lambda excess: process.kill_for(excess.limit),
        )
        peer = Peer(process, episode)
        try:
            yield peer
        finally:
            forget()
            await peer.close()

    def look(self) -> Snapshot:
        return self._subject.place.look()

    def changes_since(self, before: Snapshot) -> FileChanges:
        changed = changes(before, self._subject.place.look())
        if changed.any:
            self._subject.place.fill()
        return changed

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
