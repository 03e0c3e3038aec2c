"""Try every server in a few episodes, each one start of its process or one connection.

    legacy    initialize, lists, prompts, resources, wrong requests
    modern    server/discover, lists, wrong requests
    version   initialize with a version that does not exist
    bytes     what is no request
    calls     tools, a few times each, started again when one ended it; last, as a tool may change what the server keeps

How it is reached, and what else is tried with it, says `process_scenario` or `remote_scenario`.  What is left out (no
time, no tool) is said in the recording.  Every wait is bounded, and so is the whole.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from quarterdeck.common.words import counted
from quarterdeck_protocol.mcp.client.eras import MODERN_REVISIONS
from quarterdeck_protocol.schema.canonical import JsonValue

from .episode import MEMBERS, Ending, Episode, Exchange, FileChanges, Members, Recording, Touches, items_of
from .place import Snapshot
from .requests import INITIALIZE, LEGACY, MODERN, NO_VERSION, PlannedCall, envelope, planned_calls, prompt_arguments
from .schemas import shown
from .speaker import Speaker

GREETING_S: Final = 60.0
"""Seconds for the first answer; clients give up after thirty to sixty."""

DISCOVER_S: Final = 20.0
"""Seconds that a legacy server may ignore a method that it does not know."""

REQUEST_S: Final = 20.0

MAX_TOOLS: Final = 100
MAX_RESTARTS: Final = 6
"""Starts of an episode in which the server keeps ending."""

LATE_WAIT_S: Final = 1.5
"""Seconds in which an answer that should not come may come."""


_PARTS: Final = {
    "install": "to fetch its package",
    "legacy": "it as clients of 2025-11-25 do",
    "modern": "it as clients of 2026-07-28 do",
    "version": "a version that nobody knows",
    "calls": "its tools",
    "bytes": "odd bytes",
}
"""The episodes, as they are told while they last."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of a check.

    Attributes:
        call_all: whether remote tools without readOnlyHint are called too.
        tell: told what is being tried, in words that follow "trying".
    """

    timeout_s: float = 300.0
    call_s: float = 10.0
    calls: bool = True
    call_all: bool = False
    tell: Callable[[str], None] = lambda _: None


Peers = TypeVar("Peers", bound=Speaker)


class Scenario(ABC, Generic[Peers]):
    """Tries everything with one server, and records it in `episodes`."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes: Final = wishes
        self.episodes: list[Episode] = []
        self._until = time.monotonic() + wishes.timeout_s
        self._untried: list[str] = []

    async def go_through(self) -> None:
        """Try everything."""
        for part in (*self.first_parts, self._legacy, self._modern):
            await self._part(part)
        if self.eras:
            for part in (self._version, self.odd_bytes, self._calls):
                await self._part(part)

    @property
    def untried(self) -> tuple[str, ...]:
        """The parts that were left out and why, each once."""
        return tuple(dict.fromkeys(self._untried))

    async def _part(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            self.wait_s()
            await part()
        except _TimeOverError:
            self.skip(f"{part.__name__.strip('_').replace('_', ' ')}, or the rest of it: the time was over (--timeout)")

    # What differs

    @property
    def first_parts(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """The parts before all others."""
        return ()

    @property
    @abstractmethod
    def folder(self) -> str:
        """The folder of paths that tools are called with."""

    @abstractmethod
    def opened(self, episode: Episode, *, with_network: bool = False) -> AbstractAsyncContextManager[Peers]:
        """Reach the server for one episode."""

    @abstractmethod
    async def end_legacy(self, peer: Peers) -> None:
        """Do the last steps of the legacy episode."""

    @abstractmethod
    async def end_modern(self, peer: Peers) -> None:
        """Do the last steps of the modern episode."""

    @abstractmethod
    async def odd_bytes(self) -> None:
        """Send what is no request."""

    def look(self) -> Snapshot:
        """Return the files that the server may change."""
        return {}

    def effects_since(self, before: Snapshot) -> tuple[FileChanges, Touches]:  # noqa: ARG002 - for a process
        """Return what a call changed there, and what it did in the world."""
        return FileChanges(), Touches()

    def is_called(self, tool: Members) -> bool:  # noqa: ARG002 - for those that can do harm
        """Return whether this tool may be called with made-up values."""
        return True

    # The parts

    async def _legacy(self) -> None:
        async with self.episode("legacy") as peer:
            result = await self.initialize(peer, LEGACY)
            if result is None:
                return
            await peer.request("ping", "ping", wait_s=self.wait_s())
            await peer.request("ping", "ping", wait_s=self.wait_s(), request_id="text-id")
            await take_offers(peer, result, {}, self.wait_s, gets=self.wishes.calls)
            before = peer.hearing.null_errors
            await peer.notify("notifications/quarterdeck-no-such-thing")
            await peer.request("ping", "ping", wait_s=self.wait_s())
            if peer.hearing.null_errors > before:
                peer.episode.answered_notifications.append("notifications/quarterdeck-no-such-thing")
            await self.end_legacy(peer)

    async def _modern(self) -> None:
        async with self.episode("modern") as peer:
            asked = await peer.request("discover", "server/discover", envelope(), wait_s=self.wait_s(DISCOVER_S))
            peer.episode.greeted_s = asked.waited_s if asked.result_members else None
            supported = asked.result_members.get("supportedVersions")
            if isinstance(supported, list) and MODERN in supported:
                peer.episode.era = MODERN
                await take_offers(peer, asked.result_members, envelope(), self.wait_s, gets=self.wishes.calls)
                await peer.request("version", "tools/list", envelope(NO_VERSION), wait_s=self.wait_s())
            else:
                await self.initialize(peer, LEGACY)
            await self.end_modern(peer)

    async def _version(self) -> None:
        if LEGACY_ERA not in self.eras:
            return
        async with self.episode("version") as peer:
            params = {**INITIALIZE, "protocolVersion": NO_VERSION}
            await peer.request("version", "initialize", params, wait_s=self.wait_s(GREETING_S))

    async def _calls(self) -> None:
        recording = Recording(tuple(self.episodes))
        named = [tool for tool in recording.tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
        if not self.wishes.calls:
            self.skip("calls: --no-calls")
            return
        tools = [tool for tool in named if self.is_called(tool)]
        if len(tools) > MAX_TOOLS:
            self.skip(f"{len(tools) - MAX_TOOLS} tools beyond the first {MAX_TOOLS} were not called")
        planned: list[PlannedCall] = []
        for tool in tools[:MAX_TOOLS]:
            calls = planned_calls(tool, self.folder)
            if not any(call.purpose == "call" for call in calls):
                self.skip(f"{shown(str(tool['name']))}: no arguments could be made of its schema")
            planned += calls
        for _ in range(MAX_RESTARTS):
            if not planned:
                return
            async with self.episode("calls") as peer:
                meta = await self.greet_any(peer)
                if meta is None:
                    return
                while planned and not peer.gone.is_set():
                    call = planned.pop(0)
                    if await self._call(peer, call, meta) is Ending.SILENT:
                        planned = self._without(call.name, planned)
                if not peer.gone.is_set():
                    await self._cancel(peer, meta)
        if planned:
            self.skip(f"{len(planned)} calls: the server ended {MAX_RESTARTS} times")

    # Their steps

    @asynccontextmanager
    async def episode(self, name: str, *, with_network: bool = False) -> AsyncIterator[Peers]:
        """Reach the server, and leave it."""
        self.wishes.tell(_PARTS[name])
        episode = Episode(name)
        self.episodes.append(episode)
        peer: Peers | None = None
        try:
            async with self.opened(episode, with_network=with_network) as peer:
                yield peer
        finally:
            late = peer.hearing.late if peer is not None else ()
            told = [replace(each, late=each.request_id in late) for each in episode.exchanges]
            episode.exchanges[:] = [each for each in told if not self._was_cut(each)]

    async def initialize(self, peer: Peers, version: str, wait_s: float = GREETING_S) -> Members | None:
        """Greet as legacy clients do. Return the result, None without one."""
        params = {**INITIALIZE, "protocolVersion": version}
        greeted = await peer.request("initialize", "initialize", params, wait_s=self.wait_s(wait_s))
        if not greeted.result_members:
            return None
        peer.episode.greeted_s = time.monotonic() - peer.started_at
        agreed = greeted.result_members.get("protocolVersion")
        peer.episode.era = agreed if isinstance(agreed, str) else version
        peer.episode.outside = greeted.outside
        await peer.notify("notifications/initialized")
        return greeted.result_members

    async def greet_any(self, peer: Peers) -> Members | None:
        """Greet in the legacy era if the server knows it, else in the modern one.

        Return the envelope of each request, or None if the server does not answer.
        """
        if LEGACY_ERA in self.eras:
            return {} if await self.initialize(peer, LEGACY) is not None else None
        asked = await peer.request("discover", "server/discover", envelope(), wait_s=self.wait_s(GREETING_S))
        peer.episode.era = MODERN
        return envelope() if asked.result_members else None

    async def _call(self, peer: Peers, call: PlannedCall, meta: Members) -> Ending:
        purpose, name, arguments = call
        self.wishes.tell(f"the tool {shown(name)}")
        before = self.look()
        params: Members = {**meta, "name": name, "arguments": arguments}
        wait_s = self.wait_s(self.wishes.call_s)
        await peer.request(purpose, "tools/call", params, wait_s=wait_s, subject=name, progress=True)
        exchanges = peer.episode.exchanges
        changed, touches = self.effects_since(before)
        exchanges[-1] = replace(exchanges[-1], changes=changed, touches=touches)
        if exchanges[-1].ending is Ending.LOST:
            peer.episode.gone_at = f"{name} was called"
        return exchanges[-1].ending

    def _without(self, name: str, planned: list[PlannedCall]) -> list[PlannedCall]:
        """Return the calls of other tools than one that did not answer: each would take as long again."""
        left = [call for call in planned if call.name != name]
        if len(left) < len(planned):
            self.skip(f"{counted(len(planned) - len(left), 'more call')} of {shown(name)}: one had no answer")
        return left

    async def _cancel(self, peer: Peers, meta: Members) -> None:
        """Cancel the call that took longest, if it took long enough for a cancellation to show."""
        calls = [each for each in peer.episode.of("call") if each.ending is Ending.ANSWERED]
        longest = max(calls, key=lambda each: each.waited_s, default=None)
        if longest is not None and longest.waited_s >= MIN_CANCELLED_S and longest.waited_s < self._left_s:
            params = {**longest.params, "_meta": {}} if not meta else {**longest.params, **meta}
            await peer.request("cancelled", "tools/call", params, wait_s=0.05, subject=longest.subject)
            await asyncio.sleep(longest.waited_s)
        if any(each.ending is Ending.SILENT for each in peer.episode.of("call", "cancelled")):
            await asyncio.sleep(LATE_WAIT_S)
            await self.probe(peer, "after:cancelled", meta)

    async def probe(self, peer: Peers, purpose: str, meta: Members, *, in_pieces: bool = False) -> None:
        """Ask something that every server answers."""
        method = "server/discover" if peer.episode.era in MODERN_REVISIONS else "ping"
        exchange = await peer.request(purpose, method, meta, wait_s=self.wait_s(), in_pieces=in_pieces)
        if exchange.ending is Ending.LOST and not peer.episode.gone_at:
            peer.episode.gone_at = purpose

    # What it goes by

    @property
    def eras(self) -> set[str]:
        """The eras in which it was greeted, `LEGACY_ERA` for all legacy ones."""
        return {MODERN if each.era == MODERN else LEGACY_ERA for each in self.episodes if each.era}

    @property
    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def wait_s(self, wanted: float = REQUEST_S) -> float:
        """Return how long an answer may take now; raise _TimeOverError if there is no time left."""
        if self._left_s <= 0:
            raise _TimeOverError
        return min(wanted, self._left_s)

    def _was_cut(self, each: Exchange) -> bool:
        """Return whether a request has no answer because the time was over, which says nothing of the server."""
        if each.ending is not Ending.SILENT or each.purpose in _WAITED_LESS:
            return False
        patience_s = self.wishes.call_s if each.purpose.startswith(("call", "refused")) else REQUEST_S
        return self._left_s <= 0 and each.waited_s < patience_s - SLACK_S

    def skip(self, why: str) -> None:
        """Note what is left out."""
        self._untried.append(why)


class _TimeOverError(Exception): ...


LEGACY_ERA: Final = "legacy"

_WAITED_LESS: Final = frozenset({"initialize", "discover", "cancelled"})
"""Requests that were waited for as long as there was time, or no longer than was meant."""

SLACK_S: Final = 0.5

MIN_CANCELLED_S: Final = 0.75
"""A call that is cancelled has taken at least so long before."""


MAX_PAGES: Final = 100

MAX_OFFERS: Final = 10

CAPABILITY_OF: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}


async def take_offers(
    peer: Speaker, greeting: Members, meta: Members, wait_s: Callable[[], float], *, gets: bool
) -> None:
    """Read all lists after a handshake, and ask for what exists and for what does not.

    `meta` goes into each request, `wait_s` returns the seconds for the next answer, `gets` also gets prompts and
    resources.
    """
    declared = greeting.get("capabilities")
    capabilities = declared if isinstance(declared, dict) else {}
    found: dict[str, list[JsonValue]] = {}
    for method, capability in CAPABILITY_OF.items():
        if capability in capabilities:
            found[method] = await _list(peer, method, meta, wait_s)
        elif method != "resources/templates/list":
            await peer.request(f"undeclared:{method}", method, meta, wait_s=wait_s())
    await peer.request("unknown-method", "quarterdeck/no-such-method", meta, wait_s=wait_s())
    if "tools" in capabilities:
        await peer.request("again:tools/list", "tools/list", meta, wait_s=wait_s())
        lost = {**meta, "cursor": "quarterdeck-no-such-cursor"}
        await peer.request("unknown-cursor", "tools/list", lost, wait_s=wait_s())
        params: Members = {**meta, "name": "quarterdeck-no-such-tool", "arguments": {}}
        await peer.request("unknown-tool", "tools/call", params, wait_s=wait_s())
    if "prompts" in capabilities:
        params = {**meta, "name": "quarterdeck-no-such-prompt"}
        await peer.request("unknown-prompt", "prompts/get", params, wait_s=wait_s())
    if "resources" in capabilities:
        params = {**meta, "uri": "quarterdeck://no/such/resource"}
        await peer.request("unknown-resource", "resources/read", params, wait_s=wait_s())
    if gets:
        await _get(peer, found, meta, wait_s)


async def _get(peer: Speaker, found: dict[str, list[JsonValue]], meta: Members, wait_s: Callable[[], float]) -> None:
    for item in found.get("prompts/list", ())[:MAX_OFFERS]:
        if isinstance(item, dict) and isinstance(name := item.get("name"), str):
            params: Members = {**meta, "name": name, "arguments": prompt_arguments(item)}
            await peer.request("prompt", "prompts/get", params, wait_s=wait_s(), subject=name)
    for item in found.get("resources/list", ())[:MAX_OFFERS]:
        if isinstance(item, dict) and isinstance(uri := item.get("uri"), str):
            params = {**meta, "uri": uri}
            await peer.request("resource", "resources/read", params, wait_s=wait_s(), subject=uri)


async def _list(peer: Speaker, method: str, meta: Members, wait_s: Callable[[], float]) -> list[JsonValue]:
    items: list[JsonValue] = []
    params, seen = meta, set[str]()
    for _ in range(MAX_PAGES):
        page = await peer.request(f"list:{method}", method, params, wait_s=wait_s(), subject=MEMBERS[method])
        items += items_of(page)
        cursor = page.result_members.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            break
        seen.add(cursor)
        params = {**meta, "cursor": cursor}
    return items
