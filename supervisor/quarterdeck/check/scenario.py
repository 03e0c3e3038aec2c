"""What is tried with a server, in order: a few starts of its process, each recorded as an episode.

    install   only of a package runner: one start with a network, until it answers; nothing is called
    legacy    initialize, lists, prompts, resources, wrong requests, rest, the end of stdin
    modern    server/discover, lists, wrong requests, SIGTERM
    version   initialize with a version that does not exist
    bytes     lines that are none, pieces of lines, the end of stdin within one; started again when one ended it
    calls     every tool, a few times, started again likewise; last, as a tool may change what the server keeps

What is left out (no time, no tool) is said in the recording.  Every wait is bounded, and so is the whole.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from quarterdeck.common.words import counted
from quarterdeck_protocol.mcp.relay.eras import MODERN_REVISIONS
from quarterdeck_sandbox import TreeMonitor

from .episode import Ending, Episode, Exchange, Members, Recording
from .offers import take_offers
from .peer import Peer
from .place import Subject, changes
from .requests import (
    INITIALIZE,
    LEGACY,
    LONG_LINE_BYTES,
    MODERN,
    NO_VERSION,
    TRIALS,
    PlannedCall,
    envelope,
    planned_calls,
)
from .schemas import shown

GREETING_S: Final = 60.0
"""How long the first answer may take; clients give up after thirty to sixty seconds."""

INSTALL_S: Final = 180.0
"""The same while a package is fetched."""

DISCOVER_S: Final = 20.0
"""How long an older server may say nothing to a question that it does not know."""

REQUEST_S: Final = 20.0

AT_REST_S: Final = 1.0
"""How long it is left alone, to see what it does then."""

MAX_RESTS: Final = 4
"""The quietest of so many counts."""

QUIET_S: Final = 0.1
"""Of processor time, in a rest that needs no other."""

MAX_TOOLS: Final = 100
MAX_RESTARTS: Final = 6
"""Of the episodes in which servers end."""

LATE_WAIT_S: Final = 1.5
"""How long an answer is waited for that should not come."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a user wants of a check.

    Attributes:
        timeout_s: of the whole.
        call_s: of one call.
        calls: whether tools, prompts and resources are called at all.
        tell: is told what is being tried.
    """

    timeout_s: float = 300.0
    call_s: float = 10.0
    calls: bool = True
    tell: Callable[[str], None] = lambda _: None


async def record(subject: Subject, wishes: Wishes) -> Recording:
    """Try everything.

    Raises:
        LaunchError: it cannot be started at all.
    """
    return await _Scenario(subject, wishes).record()


class _Scenario:
    def __init__(self, subject: Subject, wishes: Wishes) -> None:
        self._subject = subject
        self._wishes = wishes
        self._until = time.monotonic() + wishes.timeout_s
        self._episodes: list[Episode] = []
        self._untried: list[str] = []
        self._monitor = TreeMonitor()
        self._gaps: tuple[str, ...] = ()

    async def record(self) -> Recording:
        """See `record`."""
        watching = asyncio.create_task(self._monitor.run())
        try:
            if self._subject.installs:
                await self._part(self._install)
            await self._part(self._legacy)
            await self._part(self._modern)
            if self._eras:
                for part in (self._version, self._bytes, self._calls):
                    await self._part(part)
        finally:
            watching.cancel()
        return Recording(tuple(self._episodes), tuple(dict.fromkeys(self._untried)), self._gaps)

    async def _part(self, part: Callable[[], Awaitable[None]]) -> None:
        """Go through one part, as far as the time allows."""
        try:
            self._wait_s()
            await part()
        except _TimeOverError:
            self._skip(f"{part.__name__.strip('_')}, or the rest of it: the time was over (--timeout)")

    # The parts

    async def _install(self) -> None:
        async with self._episode("install", with_network=True) as peer:
            await self._initialize(peer, LEGACY, INSTALL_S)
            await peer.end("stdin")
        self._episodes.pop()

    async def _legacy(self) -> None:
        async with self._episode("legacy") as peer:
            result = await self._initialize(peer, LEGACY)
            if result is None:
                return
            await peer.request("ping", "ping", wait_s=self._wait_s())
            await peer.request("ping", "ping", wait_s=self._wait_s(), request_id="text-id")
            await take_offers(peer, result, {}, self._wait_s, gets=self._wishes.calls)
            before = peer.hearing.null_errors
            await peer.notify("notifications/quarterdeck-no-such-thing")
            await peer.request("ping", "ping", wait_s=self._wait_s())
            if peer.hearing.null_errors > before:
                peer.episode.answered_notifications.append("notifications/quarterdeck-no-such-thing")
            await self._rest(peer)
            await peer.end("stdin")

    async def _modern(self) -> None:
        async with self._episode("modern") as peer:
            asked = await peer.request("discover", "server/discover", envelope(), wait_s=self._wait_s(DISCOVER_S))
            peer.episode.greeted_s = asked.waited_s if asked.result_members else None
            supported = asked.result_members.get("supportedVersions")
            if isinstance(supported, list) and MODERN in supported:
                peer.episode.era = MODERN
                await take_offers(peer, asked.result_members, envelope(), self._wait_s, gets=self._wishes.calls)
                await peer.request("version", "tools/list", envelope(NO_VERSION), wait_s=self._wait_s())
            else:
                await self._initialize(peer, LEGACY)
            await peer.end("term")

    async def _version(self) -> None:
        if LEGACY_ERA not in self._eras:
            return
        async with self._episode("version") as peer:
            params = {**INITIALIZE, "protocolVersion": NO_VERSION}
            await peer.request("version", "initialize", params, wait_s=self._wait_s(GREETING_S))

    async def _calls(self) -> None:
        recording = Recording(tuple(self._episodes))
        tools = [tool for tool in recording.tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
        if not self._wishes.calls:
            self._skip("calls: --no-calls")
            return
        if len(tools) > MAX_TOOLS:
            self._skip(f"{len(tools) - MAX_TOOLS} tools beyond the first {MAX_TOOLS} were not called")
        planned: list[PlannedCall] = []
        for tool in tools[:MAX_TOOLS]:
            calls = planned_calls(tool, str(self._subject.place.work))
            if not any(call.purpose == "call" for call in calls):
                self._skip(f"{shown(str(tool['name']))}: no arguments could be made of its schema")
            planned += calls
        for _ in range(MAX_RESTARTS):
            if not planned:
                return
            async with self._episode("calls") as peer:
                meta = await self._greet_any(peer)
                if meta is None:
                    return
                while planned and not peer.gone.is_set():
                    call = planned.pop(0)
                    if await self._call(peer, call, meta) is Ending.SILENT:
                        planned = self._without(call.name, planned)
                if not peer.gone.is_set():
                    await self._cancel(peer, meta)
        if planned:
            self._skip(f"{len(planned)} calls: the server ended {MAX_RESTARTS} times")

    async def _bytes(self) -> None:
        trials = list(TRIALS)
        for _ in range(MAX_RESTARTS):
            async with self._episode("bytes") as peer:
                meta = await self._greet_any(peer)
                if meta is None:
                    return
                while trials and not peer.gone.is_set():
                    name, lines = trials.pop(0)
                    for line in lines:
                        await peer.write(line)
                    await self._probe(peer, f"after:{name}", meta)
                    if peer.episode.exchanges[-1].ending is Ending.SILENT:
                        break
                if not trials and not peer.gone.is_set():
                    await self._probe(peer, "pieces", meta, in_pieces=True)
                    await self._probe_twice_at_once(peer, meta)
                    await self._probe(peer, "long-line", {**meta, "filler": "a" * LONG_LINE_BYTES})
                    await peer.end("half line")
                    return

    # Their steps

    @asynccontextmanager
    async def _episode(self, name: str, *, with_network: bool = False) -> AsyncIterator[Peer]:
        """Start the server, and end it."""
        self._wishes.tell(name)
        episode = Episode(name)
        self._episodes.append(episode)
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
            told = [replace(each, late=each.request_id in peer.hearing.late) for each in episode.exchanges]
            episode.exchanges[:] = [each for each in told if not self._was_cut(each)]

    async def _initialize(self, peer: Peer, version: str, wait_s: float = GREETING_S) -> Members | None:
        """Greet as older clients do; the result, None where there is none."""
        mark = peer.stderr_mark
        params = {**INITIALIZE, "protocolVersion": version}
        greeted = await peer.request("initialize", "initialize", params, wait_s=self._wait_s(wait_s))
        if not greeted.result_members:
            return None
        peer.episode.greeted_s = time.monotonic() - peer.started_at
        agreed = greeted.result_members.get("protocolVersion")
        peer.episode.era = agreed if isinstance(agreed, str) else version
        peer.episode.outside = peer.hints_since(mark, None)
        await peer.notify("notifications/initialized")
        return greeted.result_members

    async def _greet_any(self, peer: Peer) -> Members | None:
        """Greet in the older era if it knows that, else in the newer; what each request carries, None for nothing."""
        if LEGACY_ERA in self._eras:
            return {} if await self._initialize(peer, LEGACY) is not None else None
        asked = await peer.request("discover", "server/discover", envelope(), wait_s=self._wait_s(GREETING_S))
        peer.episode.era = MODERN
        return envelope() if asked.result_members else None

    async def _call(self, peer: Peer, call: PlannedCall, meta: Members) -> Ending:
        purpose, name, arguments = call
        place = self._subject.place
        before = place.look()
        params: Members = {**meta, "name": name, "arguments": arguments}
        wait_s = self._wait_s(self._wishes.call_s)
        await peer.request(purpose, "tools/call", params, wait_s=wait_s, subject=name, progress=True)
        changed = changes(before, place.look())
        exchanges = peer.episode.exchanges
        exchanges[-1] = replace(exchanges[-1], changes=changed)
        if exchanges[-1].ending is Ending.LOST:
            peer.episode.gone_at = f"{name} was called"
        if changed.any:
            place.fill()
        return exchanges[-1].ending

    def _without(self, name: str, planned: list[PlannedCall]) -> list[PlannedCall]:
        """What is left to call without a tool that did not answer: each call of it would take as long again."""
        left = [call for call in planned if call.name != name]
        if len(left) < len(planned):
            self._skip(f"{counted(len(planned) - len(left), 'more call')} of {shown(name)}: one had no answer")
        return left

    async def _cancel(self, peer: Peer, meta: Members) -> None:
        """Cancel the call that took longest, if one took so long that it can be told."""
        calls = [each for each in peer.episode.of("call") if each.ending is Ending.ANSWERED]
        longest = max(calls, key=lambda each: each.waited_s, default=None)
        if longest is not None and longest.waited_s >= MIN_CANCELLED_S and longest.waited_s < self._left_s:
            params = {**longest.params, "_meta": {}} if not meta else {**longest.params, **meta}
            await peer.request("cancelled", "tools/call", params, wait_s=0.05, subject=longest.subject)
            await asyncio.sleep(longest.waited_s)
        if any(each.ending is Ending.SILENT for each in peer.episode.of("call", "cancelled")):
            await asyncio.sleep(LATE_WAIT_S)
            await self._probe(peer, "after:cancelled", meta)

    async def _probe(self, peer: Peer, purpose: str, meta: Members, *, in_pieces: bool = False) -> None:
        """Ask something that every server answers."""
        method = "server/discover" if peer.episode.era in MODERN_REVISIONS else "ping"
        exchange = await peer.request(purpose, method, meta, wait_s=self._wait_s(), in_pieces=in_pieces)
        if exchange.ending is Ending.LOST and not peer.episode.gone_at:
            peer.episode.gone_at = purpose

    async def _probe_twice_at_once(self, peer: Peer, meta: Members) -> None:
        peer.hold()
        probes = [asyncio.create_task(self._probe(peer, "together", meta)) for _ in range(2)]
        await asyncio.sleep(0)
        await peer.release()
        await asyncio.gather(*probes)

    async def _rest(self, peer: Peer) -> None:
        """Leave it alone for a while, and see what that costs; again where it may be busy with its start still."""
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

    # What it goes by

    @property
    def _eras(self) -> set[str]:
        """The eras in which it was greeted, `LEGACY_ERA` for all older ones."""
        return {MODERN if each.era == MODERN else LEGACY_ERA for each in self._episodes if each.era}

    @property
    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _wait_s(self, wanted: float = REQUEST_S) -> float:
        """How long an answer may take now.

        Raises:
            _TimeOverError: nothing may take any longer.
        """
        if self._left_s <= 0:
            raise _TimeOverError
        return min(wanted, self._left_s)

    def _was_cut(self, each: Exchange) -> bool:
        """Whether a request has no answer because the time of all was over: that says nothing of the server."""
        if each.ending is not Ending.SILENT or each.purpose in _WAITED_LESS:
            return False
        patience_s = self._wishes.call_s if each.purpose.startswith(("call", "refused")) else REQUEST_S
        return self._left_s <= 0 and each.waited_s < patience_s - SLACK_S

    def _skip(self, why: str) -> None:
        self._untried.append(why)


class _TimeOverError(Exception):
    """What is not tried by now is left out."""


LEGACY_ERA: Final = "legacy"

_WAITED_LESS: Final = frozenset({"initialize", "discover", "cancelled"})
"""Requests that were waited for as long as there was time, or no longer than was meant."""

SLACK_S: Final = 0.5

MIN_CANCELLED_S: Final = 0.75
"""A call that is cancelled has taken at least so long before."""
