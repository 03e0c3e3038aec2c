"""Which servers may start and which of their tools may be offered: judged, recorded, and kept up to date.

Between the fleet, whose servers it watches, the ledger, and whoever offers tools.  `list_review` judges what servers
list; what could not be recorded is tried again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from quarterdeck.common.watchers import Told, Watchers
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.native_tools import NO_SETTINGS, NativeSettings
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import OURS, LedgerEvent, Subject
from quarterdeck.ledger.events.fold import Book, Item, ItemKey
from quarterdeck.ledger.open import Batch
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig, TrustMode
from quarterdeck_protocol.faults import ProtocolFault

from .common_record import CommonRecord
from .judge.documents import read_native, value_of
from .judge.held_messages import native_held
from .judge.offers import NOTHING, Offer, last_held, withdrawal, without
from .judge.server_rows import NativeRow, ServerRow, loosens, loosens_native
from .judge.server_verdict import ServerVerdict
from .judge.sleep import UNAPPROVED, is_approved, why_awake
from .judge.verdicts import Decision, Judgement, Verdict, decide, judge_launch, judge_native
from .list_review import ListReview, held_log
from .programs import Programs
from .server_state import Recorder, RunningServers, ServerState, WatchedFleet

CLOSE_S: Final = 5.0
"""Maximum seconds for judgements in progress at the end; later ones are not recorded."""

LISTED: Final = frozenset(Subject) - OURS
"""Subjects known only once the server was asked."""

_DECIDED: Final = (Verdict.ADMITTED, Verdict.BLOCKED)
"""Decided by a person, or by what they trust."""

_log = logging.getLogger("quarterdeck.trust")


class Approvals:
    """The approvals of one fleet's servers, watched from `start` to `close`.

    Args:
        home_of: the private home of a server, where package runners keep what they resolved.
        native_names: no server's tool may look like one of these.
        redact: takes secrets out of a text.
        common: shared by all who record with `recorder`.
        code: what is known of the servers' programs; None if nothing is looked at.
    """

    def __init__(
        self,
        recorder: Recorder,
        fleet: WatchedFleet,
        *,
        home_of: Callable[[str], Path],
        native_names: frozenset[str] = frozenset(),
        redact: Callable[[str], str] = str,
        common: CommonRecord | None = None,
        code: Programs | None = None,
    ) -> None:
        self._recorder = recorder
        self._code = code
        self._common = common or CommonRecord()
        self._fleet = fleet
        self._states: dict[str, ServerState] = {}
        self.rows: tuple[ServerRow, ...] = ()
        """All rows, in configuration order; the same tuple until they are set anew."""
        self._running = RunningServers(home_of, redact, self._common.starts)
        self._lists = ListReview(recorder, lambda: self._states, native_names, self._common, home_of, self._is_starting)
        self._working: set[asyncio.Task[None]] = set()
        self._watchers: Final = Watchers("what is offered", _log)
        self._unwatch: Callable[[], None] = lambda: None
        self._unhear: Callable[[], None] = lambda: None
        self._is_closed = False
        self._native_fault = ""

    @property
    def book(self) -> Book:
        """What is recorded."""
        return self._recorder.book

    # Rows

    async def set_rows(self, rows: Iterable[ServerRow], *, is_live: bool = False) -> None:
        """Judge how these, now all the servers, would be launched; `startable` has the outcome.

        Unchanged ones keep their offers, new ones offer what was approved last. `is_live`: a `serve` runs.
        """
        states: dict[str, ServerState] = {}
        old_states = list(self._states.values())
        events: list[LedgerEvent] = []
        documents: dict[str, bytes] = {}
        rows = tuple(rows)
        async with self._common.recording:
            # Together, as one after the other each would wait for a turn of the ledger's thread.
            bodies = await self._recorder.bodies(filter(None, map(self._approved_launch, rows)))
            for row in rows:
                loosened = self._loosened(row) if is_live else ()
                judgement = self._judge_launch(row, loosened, bodies)
                verdict = judgement.verdicts[row.launch.key]
                events += judgement.events
                documents[row.launch.hash] = row.launch.body
                old = self._states.get(row.id)
                is_same = old is not None and (old.row, old.verdict) == (row, verdict)
                if old is not None and is_same:
                    states[row.id] = old
                    continue
                is_new = old is not None or bool(judgement.events)
                states[row.id] = ServerState(row, verdict, loosened, is_uncompared=is_new)
            try:
                await self._recorder.record(events, documents)
            except LedgerWriteError as error:
                # A launch that nobody could record is as if never seen; the next start judges it again.
                _log.error("how servers are launched is not recorded: %s", error)
        unasked = (state for state in states.values() if state.judged is None and state.is_admitted)
        await self._lists.take_snapshots(unasked)
        if self._code is not None:
            await self._code.load(state.row for state in states.values())
        present = {(state.row.scope, state.row.id) for state in states.values()}
        gone = [state for state in self._states.values() if (state.row.scope, state.row.id) not in present]
        self._states = states
        self.rows = tuple(state.row for state in states.values())
        for state in states.values():
            fault = state.launch_fault
            if fault is not None and not any(state is old for old in old_states):
                held_log.warning("%s: %s", fault, fault.remedy)
        for state in gone:
            async with self._common.recording:
                entry = self.book.entry(state.row.scope, state.row.id)
                await self._record_quietly(withdrawal(state.row.scope, state.row.id, entry))
        for server in {**dict.fromkeys(state.row.id for state in gone), **states}:
            self._on_fleet(server)

    async def approved_native(self, row: NativeRow, *, is_live: bool) -> NativeSettings:
        """What of the key `native` holds now: what the files say, or what was approved last while that waits."""
        async with self._common.recording:
            entry = self.book.entry(row.scope, row.id)
            approved = entry.items.get(row.launch.key, Item()).approved
            if not approved and row.settings == NO_SETTINGS:
                return row.settings  # nobody ever said anything
            body = await self._recorder.document(approved) if approved else None
            before = read_native(body) if body is not None else NO_SETTINGS
            loosened = loosens_native(before, row.settings)
            judgement = judge_native(row, entry, loosened, is_live=is_live)
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

    async def withdraw_unconfigured(self, scopes: Iterable[str], ids: Iterable[str]) -> None:
        """Retire everything live of servers that the files `scopes` once configured; `ids` has all that they configure
        now, unusable ones too.
        """
        scopes, ids = set(scopes), set(ids)
        events: list[LedgerEvent] = []
        async with self._common.recording:
            for (scope, server), entry in self.book.entries.items():
                if scope in scopes and server not in ids:
                    events += withdrawal(scope, server, entry)
            await self._record_quietly(events)

    @property
    def startable(self) -> tuple[ServerConfig, ...]:
        """The servers that may be started, in configuration order."""
        return tuple(state.row.config for state in self._states.values() if state.verdict is Verdict.ADMITTED)

    def has_row(self, server: str) -> bool:
        """Whether there is a row of this id."""
        return server in self._states

    def launch_fault(self, server: str) -> ProtocolFault | None:
        """Why a server is not started; None when it may be, or there is no such row."""
        state = self._states.get(server)
        return state.launch_fault if state is not None else None

    def why_awake(self, config: ServerConfig) -> str:
        """Return why a server is not put to sleep; empty for one that may sleep."""
        state = self._states.get(config.id)
        if state is None:
            return UNAPPROVED
        rules, entry = state.row.rules, self.book.entry(state.row.scope, config.id)
        is_unsure = state.is_uncompared or state.is_unrecorded or not self.is_judged(config.id)
        return why_awake(
            config.start,
            is_own_word=rules.standing is not Standing.PROJECT and not rules.exposed,
            is_approved=state.is_admitted and not is_unsure and is_approved(entry),
            is_code_known=self._is_code_known(config, state.row.scope),
        )

    def _is_code_known(self, config: ServerConfig, scope: str) -> bool:
        if self._code is None:
            return not isinstance(config, StdioServerConfig)  # all of a remote one is what it lists
        return self._code.is_known(config, scope)

    def changed_files(self, server: str) -> tuple[str, ...]:
        """Return the files of a server's program that have changed since they were approved; empty for none."""
        state = self._states.get(server)
        return self._code.changed(state.row.scope, server) if self._code is not None and state is not None else ()

    # Offers

    def offer(self, server: str) -> Offer:
        """What a server may offer now, whatever its phase."""
        state = self._states.get(server)
        return state.offer if state is not None else NOTHING

    def was_listed(self, server: str) -> bool:
        """Return whether the ledger knows the server's lists, whether approved or held."""
        state = self._states.get(server)
        if state is None:
            return False
        return any(key.subject in LISTED for key in self.book.entry(state.row.scope, server).items)

    def is_provisional(self, server: str) -> bool:
        """Whether the offer is what was approved last time, before the server itself was asked."""
        state = self._states.get(server)
        return state is not None and state.judged is None and not state.offer.is_empty

    def verdict(self, server: str) -> ServerVerdict | None:
        """What is trusted of a server now, the same value until that changes; None where there is no such row."""
        state = self._states.get(server)
        if state is None:
            return None
        if state.trusted is None:
            judged = state.judged[0] if state.judged is not None else None
            is_judged = self.is_judged(server)
            state.trusted = ServerVerdict(state.row, state.launch_fault, state.offer, self.book, judged, is_judged)
        return state.trusted

    def is_judged(self, server: str) -> bool:
        """Whether nothing that a server listed waits to be judged."""
        state = self._states.get(server)
        return state is None or (state.work is None and not self._is_due(state))

    async def scanned(self) -> None:
        """Wait until what was judged was looked through, too."""
        await self._lists.scanned()

    @property
    def held(self) -> Mapping[str, Offer]:
        """The offers of which something is held, by server; a server whose launch is held offers nothing."""
        return MappingProxyType({server: state.offer for server, state in self._states.items() if state.offer.held})

    @property
    def held_counts(self) -> Mapping[str, Counter[Subject]]:
        """How much of what each server lists is held; of one that was not asked yet, how much was at last."""
        states = self._states.items()
        known = (server for server, state in states if state.judged is not None or state.is_admitted)
        return MappingProxyType({server: self.held_of(server) for server in known})

    def held_of(self, server: str) -> Counter[Subject]:
        """How much of what one server lists is held; likewise."""
        state = self._states.get(server)
        if state is None or (state.judged is None and not state.is_admitted):
            return Counter()
        judged = state.judged is not None
        return state.offer.waiting if judged else last_held(self.book.entry(state.row.scope, server))

    @property
    def held_launches(self) -> tuple[str, ...]:
        """The servers that are not started until a person approves how; not those that a person has blocked."""
        waiting = (server for server, state in self._states.items() if state.verdict not in _DECIDED)
        return tuple(waiting)

    # Decisions

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """Record what a person decided; then it counts: all it concerns is judged anew, and the blocked not offered.

        Raises:
            StaleDecisionError: one names a form that is not the one on offer: nothing was recorded.
            LedgerWriteError: it cannot be kept: nothing was recorded.
        """
        async with self._common.recording:
            record = decide(self.book, decisions)
            await self._recorder.record(record.events, record.documents)
        self.follow(decisions)
        self._common.tell(decisions, but=self.follow)

    async def record(self, batch: Batch) -> None:
        """Record the batch of a command that runs its own servers during this process. Raises `LedgerError`."""
        async with self._common.recording:
            await self._recorder.take(batch)

    def follow(self, decisions: Sequence[Decision]) -> None:
        """Judge anew what these decisions concern, which are recorded; what is blocked is not offered any more."""
        touched: dict[tuple[str, str], list[ItemKey]] = {}
        for decision in decisions:
            blocked = touched.setdefault((decision.scope, decision.server), [])
            if not decision.hash:
                blocked.append(decision.key)
        for state in self._states.values():
            if (keys := touched.get((state.row.scope, state.row.id))) is None:
                continue
            if keys:
                state.offer = without(state.offer, keys)
            if state.judged is not None:
                state.judged = (state.judged[0], None)
            state.is_uncompared = True
            state.retry_at = 0.0  # what could not be recorded a moment ago now can
            self._watchers.tell(state.row.id)
            self._review(state)

    # Watching

    def start(self) -> None:
        """Begin to watch the fleet, and to hear what is decided elsewhere."""
        self._unwatch = self._fleet.watch_each(self._on_fleet)
        self._unhear = self._common.hear(self.follow)
        for state in self._states.values():
            self._review(state)

    async def close(self) -> None:
        """Stop watching; what is being judged is recorded before."""
        self._is_closed = True
        self._unwatch()
        self._unhear()
        self._unhear = lambda: None
        if self._working:
            await asyncio.wait(self._working, timeout=CLOSE_S)
        if scans := self._lists.stop():
            await asyncio.wait(scans, timeout=CLOSE_S)
        await self._record_quietly(self._running.end_all())

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the fleet or of an offer; returns what unregisters it."""
        return self._watchers.watch(callback)

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """The same, with the server that it is of."""
        return self._watchers.watch_each(callback)

    def watch_one(self, server: str, callback: Callable[[], None]) -> Callable[[], None]:
        """The same for one server alone."""
        return self._watchers.watch_one(server, callback)

    def _is_starting(self) -> bool:
        return any(self._fleet.is_coming(server) for server, state in self._states.items() if state.is_admitted)

    def _on_fleet(self, server: str) -> None:
        if (state := self._states.get(server)) is not None:
            if state.judged is not None and self._fleet.is_asleep(server):
                state.judged = None  # as before its first start: the ledger says what it offers
            self._review(state)
            state.trusted = None
        self._watchers.tell(server)

    def _review(self, state: ServerState) -> None:
        is_present = self._states.get(state.row.id) is state and not self._is_closed
        if is_present and state.work is None and self._is_due(state):
            state.work = asyncio.get_running_loop().create_task(self._work(state))
            self._working.add(state.work)
            state.work.add_done_callback(self._working.discard)

    def _is_due(self, state: ServerState) -> bool:
        if asyncio.get_running_loop().time() < state.retry_at:
            return False
        endpoint = self._fleet.endpoint(state.row.id)
        if endpoint is None:
            return False
        return self._running.has_events(endpoint) or self._has_lists(state, endpoint)

    def _has_lists(self, state: ServerState, endpoint: ServerEndpointImpl) -> bool:
        return state.has_lists(endpoint, is_starting=self._fleet.is_coming(state.row.id))

    async def _work(self, state: ServerState) -> None:
        loop = asyncio.get_running_loop()
        try:
            endpoint = self._fleet.endpoint(state.row.id)
            if endpoint is not None:
                await self._record_quietly(await self._running.events_of(state.row, endpoint))
                if self._has_lists(state, endpoint):
                    await self._lists.review(state, endpoint)
        except Exception:
            _log.exception("what %s offers could not be judged", state.row.id)
            state.postpone()
        finally:
            state.work = None
        if state.retry_at > loop.time():
            loop.call_at(state.retry_at + 0.01, self._review, state)
        self._watchers.tell(state.row.id)
        self._review(state)

    # Helpers

    def _loosened(self, row: ServerRow) -> tuple[str, ...]:
        """By what a row asks for more than the one that runs; of a new one, than the defaults."""
        state = self._states.get(row.id)
        is_known = state is not None and state.is_admitted and state.row.scope == row.scope
        return loosens(state.row.config if state is not None and is_known else None, row.config)

    def _approved_launch(self, row: ServerRow) -> str:
        return self.book.entry(row.scope, row.id).items.get(row.launch.key, Item()).approved

    def _judge_launch(self, row: ServerRow, loosened: Sequence[str], bodies: Mapping[str, bytes]) -> Judgement:
        entry, approved = self.book.entry(row.scope, row.id), self._approved_launch(row)
        body = bodies.get(approved)
        before = value_of(body or b"null")
        was_open = isinstance(before, dict) and before.get("trust") == TrustMode.OPEN
        today = row.todays_hash(approved, body)
        return judge_launch(row, entry, loosened=loosened, was_open=was_open, today=today)

    async def _record_quietly(self, events: Sequence[LedgerEvent]) -> None:
        """Record events that no safety depends on; a failure is only logged."""
        try:
            await self._recorder.record(events, {})
        except LedgerWriteError as error:
            _log.error("not recorded: %s", error)
