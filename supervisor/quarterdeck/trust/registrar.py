"""Record what servers offer, and say what of it may be shown: the edge between fleet, ledger and whoever offers tools.

What could not be recorded is tried again; see `examiner`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from quarterdeck.config.native_tools import NO_SETTINGS, NativeSettings
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import LedgerEvent, Subject
from quarterdeck.ledger.events.fold import Book, Item, ItemKey
from quarterdeck.trust.judge.configured_servers import NativeRow, Row
from quarterdeck.trust.judge.items import read_native, value_of
from quarterdeck.trust.judge.judgement import Judgement, Verdict, judge_launch, judge_native
from quarterdeck.trust.judge.loosening import loosens, loosens_native
from quarterdeck.trust.judge.offers import (
    NOTHING,
    Offer,
    last_held,
    last_verdict,
    native_held,
    snapshot_hashes,
    snapshot_offer,
    tool_held,
    withdrawal,
    without,
)
from quarterdeck.trust.judge.review import Decision, decide
from quarterdeck_protocol.configs import ServerConfig, TrustMode
from quarterdeck_protocol.faults import ProtocolFault

from .examiner import Examiner, held_log
from .server_state import Desk, Lives, LookedAfter, Recorder, has_list, is_admitted, postpone

CLOSE_S: Final = 5.0
"""For what is being judged at the end; what takes longer is not recorded."""

_DECIDED: Final = (Verdict.ADMITTED, Verdict.BLOCKED)
"""A person, or what they trust, has said yes or no."""

LOOK_AGAIN_S: Final = 5.0
"""Between two scans of everything because names have changed; the first is made at once."""

_log = logging.getLogger("quarterdeck.trust")


class Registrar:
    """Watches a fleet from `start` to `close`."""

    def __init__(
        self,
        recorder: Recorder,
        fleet: LookedAfter,
        *,
        home_of: Callable[[str], Path],
        native_names: frozenset[str] = frozenset(),
        redact: Callable[[str], str] = str,
    ) -> None:
        """Watch nothing yet.

        Args:
            recorder: where events go.
            fleet: whose servers they are about.
            home_of: the private home of a server, where package runners keep what they resolved.
            native_names: names that no server's tool may look like.
            redact: takes secrets out of a text.
        """
        self._recorder = recorder
        self._fleet = fleet
        self._desks: dict[str, Desk] = {}
        self._rows: tuple[Row, ...] = ()
        self._lives = Lives(home_of, redact)
        self._examiner = Examiner(recorder, lambda: self._desks, native_names)
        self._working: set[asyncio.Task[None]] = set()
        self._watchers: list[Callable[[], None]] = []
        self._unwatch: Callable[[], None] = lambda: None
        self._is_closed = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._native_fault = ""

    @property
    def book(self) -> Book:
        """What is recorded."""
        return self._recorder.book

    # Rows

    async def enlist(self, rows: Iterable[Row], *, is_live: bool = False) -> None:
        """Judge how these servers would be launched, in place of the rows before; `startable` says the outcome.

        What is unchanged keeps its offer.  A server that was not looked at yet offers its last approved tools.

        Args:
            rows: all that there are now.
            is_live: whether a person started us to have them, or they came while we run.
        """
        desks: dict[str, Desk] = {}
        old_desks = list(self._desks.values())
        events: list[LedgerEvent] = []
        documents: dict[str, bytes] = {}
        for row in rows:
            loosened = self._loosened(row) if is_live else ()
            judgement = await self._judge_launch(row, loosened)
            verdict = judgement.verdicts[row.launch.key]
            events += judgement.events
            documents[row.launch.hash] = row.launch.body
            old = self._desks.get(row.id)
            is_same = old is not None and (old.row, old.verdict) == (row, verdict)
            desks[row.id] = old if old is not None and is_same else Desk(row, verdict, loosened)
        try:
            await self._recorder.record(events, documents)
        except LedgerWriteError as error:
            # A launch that nobody could record is as if never seen; the next start judges it again.
            _log.error("how servers are launched is not recorded: %s", error)
        for desk in desks.values():
            if desk.judged is None and is_admitted(desk):
                await self._take_snapshot(desk)
        present = {(desk.row.scope, desk.row.id) for desk in desks.values()}
        gone = [desk for desk in self._desks.values() if (desk.row.scope, desk.row.id) not in present]
        self._desks = desks
        self._rows = tuple(desk.row for desk in desks.values())
        for desk in desks.values():
            fault = desk.launch_fault
            if fault is not None and not any(desk is old for old in old_desks):
                held_log.warning("%s: %s", fault, fault.remedy)
        await self._withdraw(gone)
        self._review()
        self._tell()

    async def settle_native(self, row: NativeRow, *, is_live: bool) -> NativeSettings:
        """What of the key `native` holds now: what the files say, or what was approved last while that waits."""
        entry = self.book.entry(row.scope, row.id)
        approved = entry.items.get(row.launch.key, Item()).approved
        if not approved and row.settings == NO_SETTINGS:
            return row.settings  # nobody ever said anything
        body = await self._recorder.document(approved) if approved else None
        before = read_native(body) if body is not None else NO_SETTINGS
        loosened = loosens_native(before, row.settings)
        exposed = bool(row.exposed)
        judgement = judge_native(row.scope, row.id, entry, row.launch, loosened, exposed=exposed, is_live=is_live)
        try:
            await self._recorder.record(judgement.events, {row.launch.hash: row.launch.body})
        except LedgerWriteError as error:
            _log.error("what is configured of native tools is not recorded: %s", error)
        verdict = judgement.verdicts[row.launch.key]
        if verdict is Verdict.ADMITTED:
            self._native_fault = ""
            return row.settings
        if (fault := native_held(row, verdict, loosened)) != self._native_fault:
            held_log.warning("%s", fault)
        self._native_fault = fault
        return before

    async def withdraw_strangers(self, scopes: Iterable[str], ids: Iterable[str]) -> None:
        """Have nothing live of servers that these files configured once, and do not any more.

        Args:
            scopes: the files, all of whose servers are known.
            ids: their servers, those that cannot be used included.
        """
        scopes, ids = set(scopes), set(ids)
        events: list[LedgerEvent] = []
        for (scope, server), entry in self.book.entries.items():
            if scope in scopes and server not in ids:
                events += withdrawal(scope, server, entry)
        await self._record_quietly(events)

    @property
    def startable(self) -> tuple[ServerConfig, ...]:
        """The servers that may be started, in configuration order."""
        return tuple(desk.row.config for desk in self._desks.values() if desk.verdict is Verdict.ADMITTED)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in configuration order; the same tuple until they are enlisted anew."""
        return self._rows

    def launch_fault(self, server: str) -> ProtocolFault | None:
        """Why a server is not started; None when it may be, or there is no such row."""
        desk = self._desks.get(server)
        return desk.launch_fault if desk is not None else None

    # Offers

    def offer(self, server: str) -> Offer:
        """What a server may offer now, whatever its phase."""
        desk = self._desks.get(server)
        return desk.offer if desk is not None else NOTHING

    def is_provisional(self, server: str) -> bool:
        """Whether the offer is what was approved last time, before the server itself was asked."""
        desk = self._desks.get(server)
        return desk is not None and desk.judged is None and bool(desk.offer.tools)

    def admits(self, server: str, tool: str, endpoint: ServerEndpointImpl) -> bool:
        """Whether a call of this tool on this endpoint may be made: the offer is of this endpoint, and has it."""
        desk = self._desks.get(server)
        return desk is not None and desk.judged is not None and desk.judged[0] is endpoint and tool in desk.offer.names

    def lacks(self, server: str, tool: str) -> bool:
        """Whether this tool is not in the server's last list of this process, as far as that is trusted."""
        desk = self._desks.get(server)
        return desk is not None and desk.judged is not None and tool not in desk.offer.names

    def refusal(self, server: str, tool: str) -> ProtocolFault | None:
        """Why a call of this tool is not made by what is trusted; None when that does not forbid it."""
        desk = self._desks.get(server)
        if desk is None:
            return None
        if not is_admitted(desk):
            return desk.launch_fault
        verdict = desk.offer.held.get(ItemKey(Subject.TOOL, tool), Verdict.ADMITTED)
        if desk.judged is None and tool not in desk.offer.names:
            verdict = last_verdict(self.book.entry(desk.row.scope, server), tool)
        return tool_held(desk.row, tool, verdict) if verdict is not Verdict.ADMITTED else None

    def is_judged(self, server: str) -> bool:
        """Whether nothing that a server listed waits to be judged."""
        desk = self._desks.get(server)
        return desk is None or (desk.work is None and not self._is_due(desk))

    @property
    def held(self) -> Mapping[str, Offer]:
        """The offers of which something is held, by server; a server whose launch is held offers nothing."""
        return MappingProxyType({server: desk.offer for server, desk in self._desks.items() if desk.offer.held})

    @property
    def held_counts(self) -> Mapping[str, int]:
        """How many tools of each server are held; of one that was not asked yet, how many were at last."""
        counts = {}
        for server, desk in self._desks.items():
            if desk.judged is not None:
                counts[server] = desk.offer.held_tools
            elif is_admitted(desk):
                counts[server] = last_held(self.book.entry(desk.row.scope, server))
        return MappingProxyType(counts)

    @property
    def held_launches(self) -> tuple[str, ...]:
        """The servers that are not started until a person approves how; not those that a person has blocked."""
        waiting = (server for server, desk in self._desks.items() if desk.verdict not in _DECIDED)
        return tuple(waiting)

    # Decisions

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """Record what a person decided, on the disk before it counts; what it concerns is judged anew.

        What is blocked is not offered any more when this returns.

        Raises:
            StaleDecisionError: one names a form that is not the one on offer: nothing was recorded.
            LedgerWriteError: it cannot be kept: nothing was recorded.
        """
        async with self._examiner.recording:
            record = decide(self.book, decisions)
            await self._recorder.record(record.events, record.documents)
        touched: dict[tuple[str, str], list[ItemKey]] = {}
        for decision in decisions:
            blocked = touched.setdefault((decision.scope, decision.server), [])
            if not decision.hash:
                blocked.append(decision.key)
        for desk in self._desks.values():
            if (keys := touched.get((desk.row.scope, desk.row.id))) is None:
                continue
            if keys:
                desk.offer = without(desk.offer, keys)
            if desk.judged is not None:
                desk.judged = (desk.judged[0], None)
            desk.retry_at = 0.0  # what could not be recorded a moment ago now can
        self._tell()
        self._review()

    # Watching

    def start(self) -> None:
        """Begin to watch the fleet."""
        self._unwatch = self._fleet.watch(self._on_fleet)
        self._review()

    async def close(self) -> None:
        """Stop watching; what is being judged is recorded before."""
        self._is_closed = True
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._unwatch()
        if self._working:
            await asyncio.wait(tuple(self._working), timeout=CLOSE_S)
        await self._record_quietly(self._lives.end_all())

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the fleet or of an offer; returns what unregisters it."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback) if callback in self._watchers else None

    def _on_fleet(self) -> None:
        self._review()
        self._tell()

    def _tell(self) -> None:
        for callback in tuple(self._watchers):
            try:
                callback()
            except Exception:
                _log.exception("a watcher of what is offered failed")

    def _review(self) -> None:
        """Have every server looked at that has something new, each in a task of its own."""
        for desk in self._desks.values():
            if not self._is_closed and desk.work is None and self._is_due(desk):
                desk.work = asyncio.get_running_loop().create_task(self._work(desk))
                self._working.add(desk.work)
                desk.work.add_done_callback(self._working.discard)

    def _is_due(self, desk: Desk) -> bool:
        if asyncio.get_running_loop().time() < desk.retry_at:
            return False
        endpoint = self._fleet.endpoint(desk.row.id)
        if endpoint is None:
            return False
        return self._lives.has_news(endpoint) or has_list(desk, endpoint)

    async def _work(self, desk: Desk) -> None:
        loop = asyncio.get_running_loop()
        try:
            endpoint = self._fleet.endpoint(desk.row.id)
            if endpoint is not None:
                await self._record_quietly(await self._lives.news(desk.row, endpoint))
                await self._examiner.examine(desk, endpoint)
                self._look_again_soon()
        except Exception:
            _log.exception("what %s offers could not be judged", desk.row.id)
            postpone(desk)
        finally:
            desk.work = None
        if desk.retry_at > loop.time():
            loop.call_at(desk.retry_at + 0.01, self._review)
        self._tell()
        self._review()

    def _look_again_soon(self) -> None:
        """Have everything scanned beside the names that are known now; not more often than a storm would make it."""
        loop = asyncio.get_running_loop()
        if self._look_timer is None and not self._is_closed and self._examiner.has_new_names:
            self._look_timer = loop.call_at(max(loop.time(), self._looked_at + LOOK_AGAIN_S), self._look_again)

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        self._look_timer, self._looked_at = None, loop.time()
        task = loop.create_task(self._look_at_all())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _look_at_all(self) -> None:
        try:
            await self._examiner.look_again()
        except Exception:
            _log.exception("what servers offer could not be scanned again")
        self._look_again_soon()

    # Helpers

    def _loosened(self, row: Row) -> tuple[str, ...]:
        """By what a row asks for more than the one that runs; of a new one, than the defaults."""
        desk = self._desks.get(row.id)
        is_known = desk is not None and is_admitted(desk) and desk.row.scope == row.scope
        return loosens(desk.row.config if desk is not None and is_known else None, row.config)

    async def _judge_launch(self, row: Row, loosened: Sequence[str]) -> Judgement:
        entry = self.book.entry(row.scope, row.id)
        approved = entry.items.get(row.launch.key, Item()).approved
        body = await self._recorder.document(approved) if approved else None
        before = value_of(body or b"null")
        was_open = isinstance(before, dict) and before.get("trust") == TrustMode.OPEN
        return judge_launch(
            row.scope,
            row.id,
            entry,
            row.launch,
            row.rules,
            twin=row.twin,
            loosened=loosened,
            was_open=was_open,
            today=row.todays_hash(approved, body),
        )

    async def _take_snapshot(self, desk: Desk) -> None:
        """Offer what was approved last; of a server that is judged meanwhile, what that says."""
        wanted = snapshot_hashes(desk.row, self.book.entry(desk.row.scope, desk.row.id))
        if wanted == desk.snapshot:
            return
        offer = await self._snapshot(desk.row, wanted)
        if desk.judged is None:
            desk.snapshot, desk.offer = wanted, offer

    async def _snapshot(self, row: Row, wanted: Mapping[str, str]) -> Offer:
        documents = [
            (name, hash_, body)
            for name, hash_ in wanted.items()
            if (body := await self._recorder.document(hash_)) is not None
        ]
        return await asyncio.to_thread(snapshot_offer, row, documents) if documents else NOTHING

    async def _withdraw(self, gone: Sequence[Desk]) -> None:
        """Nothing of a server that is configured no more stays live."""
        for desk in gone:
            async with self._examiner.recording:
                entry = self.book.entry(desk.row.scope, desk.row.id)
                await self._record_quietly(withdrawal(desk.row.scope, desk.row.id, entry))

    async def _record_quietly(self, events: Sequence[LedgerEvent]) -> None:
        """Record what nobody's safety depends on."""
        try:
            await self._recorder.record(events, {})
        except LedgerWriteError as error:
            _log.error("not recorded: %s", error)
