"""A approvals over a fleet in memory, with a recorder that a test can hold up, or fill the disk of."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from quarterdeck.common.watchers import Told
from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.fleet.session_servers import SessionServers
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import LedgerEvent, Stored, Subject
from quarterdeck.ledger.events.fold import Book, Entry, Item, ItemKey
from quarterdeck.route.deck_server import DeckServers
from quarterdeck.route.router import Router
from quarterdeck.trust.approvals import Approvals
from quarterdeck.trust.configured_servers import Surroundings, row_of
from quarterdeck.trust.judge.documents import Document, hash_of
from quarterdeck.trust.judge.offers import Offer
from quarterdeck.trust.judge.server_rows import Locks, ServerRow
from quarterdeck.trust.judge.server_verdict import ServerVerdict
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig, ToolFilter, TrustMode
from quarterdeck_protocol.contract import EndpointPhase, RemoteTool
from quarterdeck_protocol.link.frames import ServerCard
from quarterdeck_protocol.names import RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.tools import CancelToken, RawCall, ToolCall, ToolDescriptor
from support.fleet.memory_fleet import ERA, FakeEndpoint, FakeFleet
from support.waiting import PATIENCE_S, until

AT: Final = "2026-01-02T03:04:05.678Z"

FILE: Final = Path("/nonexistent/deck.json")
"""The file of a test's rows."""

INSTRUCTIONS: Final = ItemKey(Subject.INSTRUCTIONS)
CAPABILITIES: Final = ItemKey(Subject.CAPABILITIES)
LAUNCH: Final = ItemKey(Subject.LAUNCH)


def tool_key(name: str) -> ItemKey:
    return ItemKey(Subject.TOOL, name)


def book_of(*events: LedgerEvent) -> Book:
    """What these events amount to."""
    return Book.of(Stored(seq, AT, event) for seq, event in enumerate(events, 1))


class ReviewGate(threading.Event):
    """While it is cleared, lists are being looked through; `started` says of how many that began."""

    started = 0


class MemoryRecorder:
    """What it records, it records at once, unless a test clears `may_write` or sets `is_full`.

    Attributes:
        writing: how many wait for `may_write`.
        refused: how many could not be kept.
        slow: the hash of a document that is not read before `may_read` is set.
        reading: how many began to wait for that.
    """

    def __init__(self, book: Book | None = None, documents: Mapping[str, bytes] | None = None) -> None:
        self.book: Final = book or Book()
        self.documents: Final = dict(documents or {})
        self.events: Final[list[LedgerEvent]] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.writing = 0
        self.is_full = False
        self.refused = 0
        self.may_read = asyncio.Event()
        self.slow = ""
        self.reading = 0

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        self.writing += 1
        try:
            await self.may_write.wait()
        finally:
            self.writing -= 1
        if self.is_full and events:
            self.refused += 1
            raise LedgerWriteError("disk full")
        self.documents |= documents
        for event in events:
            self.events.append(event)
            self.book.apply(Stored(self.book.last_seq + 1, AT, event))

    async def document(self, hash_: str) -> bytes | None:
        return (await self.bodies([hash_])).get(hash_)

    async def bodies(self, hashes: Iterable[str]) -> Mapping[str, bytes]:
        hashes = tuple(hashes)
        if self.slow in hashes:
            self.reading += 1
            await self.may_read.wait()
        return {hash_: self.documents[hash_] for hash_ in hashes if hash_ in self.documents}


class ToldEndpoint(FakeEndpoint):
    """An endpoint whose definitions a test writes."""

    def __init__(
        self, config: ServerConfig, *, instructions: str = "", capabilities: bytes = b'{"tools":{}}', **tools: str
    ) -> None:
        super().__init__(config.id)
        self.config = config
        self.card = ServerCard(  # type: ignore[assignment]
            ERA, name="told", version="1", instructions=instructions, capabilities=capabilities
        )
        self.lists(**tools)

    def lists(self, **tools: str) -> None:
        self._tools = tuple(told_tool(self.config.id, name, text) for name, text in tools.items())


def told_tool(server: str, name: str, text: str) -> RemoteTool:
    ref = RemoteToolRef(server, name)
    schema = {"type": "object", "properties": {}}
    definition = msgspec.json.encode({"name": name, "description": text, "inputSchema": schema})
    return RemoteTool(ref, ToolDescriptor(qualify_tool_name(ref), text, schema, definition))


def stdio(
    server: str = "fs", command: str = "run", *, trust: TrustMode = TrustMode.BASELINE, deny: tuple[str, ...] = ()
) -> StdioServerConfig:
    return StdioServerConfig(id=server, command=command, trust=trust, tools=ToolFilter(deny=deny))


def row(
    config: ServerConfig, *, standing: Standing = Standing.NAMED, path: Path = FILE, lock: Locks | None = None
) -> ServerRow:
    written: dict[str, Any] = {"command": getattr(config, "command", ""), "trust": str(config.trust)}
    return row_of(config, Origin(path, f"{config.id}", standing, written), Surroundings(lock))


class Bench:
    """A approvals at work."""

    def __init__(self, recorder: MemoryRecorder | None = None) -> None:
        self.recorder = recorder or MemoryRecorder()
        self.fleet: Any = FakeFleet()
        self.approvals = Approvals(self.recorder, self.fleet, home_of=lambda _: Path("/nonexistent"))
        self.sessions = SessionServers(FakeFleet)  # type: ignore[arg-type, return-value]
        self.servers = DeckServers(self.fleet, self.approvals, self.sessions)

    async def runs(self, endpoint: FakeEndpoint, **options: Any) -> None:
        """Configure one server alone, have it ready, and judged."""
        await self.approvals.set_rows([row(endpoint.config, **options)])
        self.replaces(endpoint)
        await self.judged(endpoint.config.id)

    def replaces(self, endpoint: FakeEndpoint) -> None:
        """It is the endpoint of its server from now on."""
        self.fleet.by_id[endpoint.config.id] = endpoint
        self.fleet.tell()

    async def lists(self, server: str = "fs", **tools: str) -> None:
        self.fleet.by_id[server].lists(**tools)
        self.fleet.tell()
        await self.judged(server)

    async def judged(self, server: str = "fs") -> None:
        await self.until(lambda: self.approvals.is_judged(server))
        await self.approvals.scanned()

    async def until(self, is_so: Callable[[], bool]) -> None:
        await until(is_so)

    def offered(self, server: str = "fs") -> list[tuple[str, str]]:
        gate = self.servers.endpoint(server)
        return [(tool.ref.name, tool.descriptor.description) for tool in gate.offered()] if gate is not None else []

    def held(self, server: str = "fs") -> dict[str, str]:
        """What is held, by name; the instructions have an empty one, and capabilities are left out."""
        held = self.approvals.offer(server).held.items()
        return {key.name: verdict.value for key, verdict in held if key != CAPABILITIES}

    def can_call(self, tool: str, server: str = "fs") -> bool:
        """Whether a call of it goes to the server at once."""
        gate, endpoint = self.servers.endpoint(server), self.fleet.by_id.get(server)
        if gate is None or endpoint is None:
            return False
        before = len(endpoint.begun)
        gate.begin(RawCall(tool, b"{}"), lambda _: None).cancel()
        return len(endpoint.begun) > before

    async def run(self, name: str) -> tuple[object, bool]:
        """A call that is run, not raw: its output, and whether that is an error."""
        outcome = await Router(self.servers).run(ToolCall("1", name, {}), CancelToken())
        return outcome.output, outcome.is_error

    def entry(self, server: str = "fs", path: Path = FILE) -> Entry:
        return self.recorder.book.entry(str(path), server)

    def item(self, key: ItemKey, server: str = "fs") -> Item:
        return self.entry(server).items[key]

    async def approve(self, key: ItemKey, server: str = "fs") -> None:
        await self.approvals.decide([Decision(str(FILE), server, key, self.item(key, server).seen)])
        await self.judged(server)


@asynccontextmanager
async def bench(recorder: MemoryRecorder | None = None) -> AsyncIterator[Bench]:
    """A approvals that watches; it is closed at the end."""
    made = Bench(recorder)
    made.approvals.start()
    yield made
    made.recorder.may_write.set()
    made.recorder.may_read.set()
    with anyio.fail_after(PATIENCE_S):
        await made.approvals.close()


@asynccontextmanager
async def started_again(endpoint: ToldEndpoint, phase: EndpointPhase) -> AsyncIterator[Bench]:
    """A deck that starts with what was approved of the server `fs` last time: its tool `a` as `one`."""
    async with bench() as before:
        await before.runs(ToldEndpoint(stdio(), a="one"))
    endpoint.phase = phase
    async with bench(MemoryRecorder(before.recorder.book, before.recorder.documents)) as at:
        await at.approvals.set_rows([row(endpoint.config)])
        if phase is EndpointPhase.IDLE:
            at.fleet.asleep.add("fs")
        at.replaces(endpoint)
        yield at


def definition_hash(name: str, text: str, server: str = "fs") -> str:
    return hash_of(told_tool(server, name, text).descriptor.definition or b"")


class OnlyNamed:
    """A `deck.lock` that names tools of servers, in every form; see `Locks`."""

    def __init__(self, **names: set[str]) -> None:
        self._names = names

    def for_server(self, server: str) -> "OnlyNamed":
        return OnlyNamed(**{server: self._names.get(server, set())})

    def admits(self, document: Document) -> bool:
        return any(document.key.name in names for names in self._names.values())


class TrustingApprovals:
    """Offers what the fleet's endpoints have; see `Approvals`."""

    def __init__(self, fleet: FakeFleet, configs: tuple[ServerConfig, ...]) -> None:
        self.rows: tuple[ServerRow, ...] = tuple(row_of(config, None) for config in configs)
        self._fleet = fleet

    @property
    def held(self) -> Mapping[str, Offer]:
        return {}

    @property
    def held_counts(self) -> Mapping[str, int]:
        return {}

    @property
    def held_launches(self) -> tuple[str, ...]:
        return ()

    def held_of(self, _: str) -> Counter[Subject]:
        return Counter()

    @property
    def book(self) -> Book:
        return Book()

    def changed_files(self, _: str) -> tuple[str, ...]:
        return ()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._fleet.watch_each(lambda _: callback())

    def watch_each(self, callback: Told) -> Callable[[], None]:
        return self._fleet.watch_each(callback)

    def watch_one(self, _: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self.watch(callback)

    def why_awake(self, _: ServerConfig) -> str:
        return "it is trusted, but not recorded"

    def has_row(self, server: str) -> bool:
        return any(row.id == server for row in self.rows)

    async def scanned(self) -> None:
        """Nothing is scanned."""

    def offer(self, server: str) -> Offer:
        endpoint = self._fleet.endpoint(server)
        tools = endpoint.offered() if endpoint is not None else ()
        return Offer(tools, frozenset(tool.ref.name for tool in tools))

    def was_listed(self, _: str) -> bool:
        return False

    def is_provisional(self, _: str) -> bool:
        return False

    def verdict(self, server: str) -> ServerVerdict | None:
        found = next((row for row in self.rows if row.id == server), None)
        endpoint: Any = self._fleet.endpoint(server)
        return found and ServerVerdict(found, None, self.offer(server), Book(), endpoint, is_judged=True)

    def launch_fault(self, _: str) -> None:
        return None

    def is_judged(self, _: str) -> bool:
        return True


def home_of(_: str) -> Path:
    return Path("/nonexistent")
