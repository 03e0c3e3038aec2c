"""The product while it runs: its servers, what is trusted of them, and what a host shows of both.

`app` makes it and ends it.  Above it are those who look after a running deck; below it fleet, trust, bridge and host.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from quarterdeck.common.events import Bus
from quarterdeck.common.imports import imported
from quarterdeck.common.run_options import of_run
from quarterdeck.common.shielding import carried_through
from quarterdeck.common.watchers import wait_until
from quarterdeck.config.load.file import BrokenRow
from quarterdeck.config.native_tools import NO_SETTINGS
from quarterdeck.config.places.paths import state_dir
from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.config.settings import Settings
from quarterdeck.fleet.core.member import LOGIN_FAULTS
from quarterdeck.fleet.fleet import ServerFleetImpl, SupervisedFleet
from quarterdeck.fleet.session_servers import SessionServers
from quarterdeck.fleet.sleep_schedule import SleepSchedule
from quarterdeck.host.budget.kept_results import KeptResults
from quarterdeck.host.http.readiness import Obstacle, Unready
from quarterdeck.host.offers.groups import LiveGroups
from quarterdeck.host.program_names import ProgramNames
from quarterdeck.login.broker import LoginBroker, LoginPlace, OpenLogin
from quarterdeck.login.terms import LOGIN
from quarterdeck.route.deck_server import DeckServers, Note
from quarterdeck.route.router import Router
from quarterdeck.trust.approvals import Approvals
from quarterdeck.trust.common_record import CommonRecord
from quarterdeck.trust.configured_servers import command_options, configured, covered_scopes, places_of, record_exposure
from quarterdeck.trust.judge.held_messages import notice
from quarterdeck.trust.judge.merged_instructions import merged
from quarterdeck.trust.judge.server_rows import Locks, server_words
from quarterdeck.trust.judge.verdicts import PROGRAM, Decision
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus, FleetStatus
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_protocol.tools import ANONYMOUS, Client

if TYPE_CHECKING:
    from quarterdeck.host.offers.decks import Decks
    from quarterdeck.host.provider import ProviderHostImpl
    from quarterdeck.tools.session import DeckSession


WARM_UP_S: Final = 0.2
"""Seconds after a client has come before the zygote is started that its calls to sleeping servers need."""

STARTED_S: Final = 60.0
"""How long calls wait for a server that a person has just logged in at; then they say that it still starts."""


async def _write_nothing() -> None:
    """Do nothing: no calls are recorded."""


class Product:
    """The running product; made by `open_quarterdeck`.

    Attributes:
        directory: its runtime directory, gone at the end.
        settings: what it runs; another value after `reload`.
        fleet: the servers that run.
        sessions: those that single sessions have for themselves.
        schedule: puts servers to sleep; only where they may.
        approvals: what is trusted of them.
        servers: the deck's servers, with what is trusted of each, and what sessions have for themselves.
        router: what they offer, as clients are shown it, and the way of each request to its server.
        groups: parts of all that is offered, of which a client may be shown some.
        results: what clients may be answered, and what was cut of it.
        decks: the native tools, one deck for each client; None without any.
        logins: at its servers, as calls of clients bring them about.
        announce_url: tells who wants to serve the same where this does.
        programs: the names by which its clients introduce themselves.
        write_calls: writes the ended calls to the ledger, and returns once they can be read there.
        on_withheld: told all values that must not be shown, before a client's server is given new ones.
    """

    def __init__(
        self,
        settings: Settings,
        directory: RuntimeDirectory,
        fleet: SupervisedFleet,
        approvals: Approvals,
        lock: Locks | None = None,
        announce: Callable[[str], None] = lambda _: None,
        note: Note = lambda *_: None,
        *,
        serves: bool = False,
        common: CommonRecord | None = None,
        sessions: SessionServers | None = None,
        find_login: Callable[[str], LoginPlace | None] = lambda _: None,
        logins: dict[str, OpenLogin] | None = None,
        programs: ProgramNames | None = None,
        sleeps: bool = False,
        warm_up: Callable[[], None] = lambda: None,
        write_calls: Callable[[], Awaitable[None]] = _write_nothing,
        tell_session: Callable[[str, float], None] = lambda *_: None,
        bus: Bus | None = None,
    ) -> None:
        self._clients_secrets: set[str] = set()
        self.on_withheld: Callable[[Collection[str]], None] = lambda _: None
        self._take(settings)
        self._note = note
        self._tell_session = tell_session
        self._bus = bus
        self._opened_at: dict[str, float] = {}
        self._warm_up = warm_up
        self._common = common or CommonRecord()
        self._lock = lock
        self._serves = serves
        self._is_live = False
        self._scopes: dict[str, str] = {}
        self._decided: set[str] = set()
        self._native_settings = NO_SETTINGS
        self._applying = asyncio.Lock()
        self.directory: Final = directory
        self.fleet: Final = fleet
        self.approvals: Final = approvals
        self.sessions: Final = sessions or SessionServers(ServerFleetImpl)
        self._sleeps = sleeps
        self.schedule: Final = SleepSchedule(fleet, self.sessions, approvals.why_awake)
        self.servers: Final = DeckServers(fleet, approvals, self.sessions, note)
        # The names of a lone server's tools are its own: a command of ours in front of it changes none.
        self.router: Final = Router(
            self.servers, alone=settings.command or "", budget=settings.names, overrides=settings.overrides
        )
        self.groups: Final = LiveGroups(settings.groups)
        self.results: Final = KeptResults(settings.max_result_tokens)
        self.decks: Final = self._make_decks()
        self.logins: Final = LoginBroker(find_login, self._start_logged_in, under_way=logins)
        self.announce_url: Final = announce
        self.write_calls: Final = write_calls
        self.programs: Final = programs if programs is not None else ProgramNames()

    def _take(self, settings: Settings) -> None:
        self.settings = settings
        # Made once: who watches tells what is new by its identity.
        self._broken = {row.id: _broken_status(row) for row in settings.broken}
        self._redactor = Redactor(self.secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be shown: those of the settings, and what clients' own servers were given."""
        return (*self.settings.secrets, *self._clients_secrets)

    def withhold(self, secrets: frozenset[str]) -> None:
        """Keep the secrets of one client out of the log and all answers, from here on."""
        if not secrets <= self._clients_secrets:
            self._clients_secrets |= secrets
            self._redactor = Redactor(self.secrets)
            self.on_withheld(self.secrets)

    async def reload(self, settings: Settings) -> None:
        """Run these settings from now on: only what changed is stopped or started.

        Read them with `before=product.settings`, so that broken parts run in their earlier form; see `Settings.load`.
        Native tools follow with each client's next session; what else was wished on the command line stays.
        """
        self._take(settings)
        self.router.reconfigure(settings.overrides, settings.names)
        self.groups.take(settings.groups)
        self.results.max_tokens = settings.max_result_tokens
        await self.apply()

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """Take what a person decided: it is recorded, and what it concerns is offered, held, started or stopped.

        Cancellation does not interrupt it: what is recorded counts, and in every deck of this process.

        Raises:
            StaleDecisionError: a form that is not offered any more is to be approved; nothing was recorded.
            LedgerWriteError: it cannot be recorded, and does not count.
        """

        async def record_and_apply() -> None:
            await self.approvals.decide(decisions)
            try:
                await self.apply()
            finally:
                await self._common.carried_out(but=self.apply)

        await carried_through(record_and_apply)

    async def settled(self, since: float | None = None) -> bool:
        """Wait for servers without a known list.  Return whether all of them have come or failed.

        Wait at most `settle_s`, from now or from `since`, in monotonic seconds.
        """
        waited_s = 0.0 if since is None else monotonic() - since
        return await self._until_all(self._is_listable, max(0.0, self.settings.settle_s - waited_s))

    async def finished(self, within_s: float | None = None) -> None:
        """Wait until every server has been asked, judged and scanned, or has failed: each has deadlines of its own."""
        if await self._until_all(self.is_final, within_s):
            await self.approvals.scanned()

    async def until(self, is_so: Callable[[], bool], within_s: float | None) -> bool:
        """Wait until it is so, looking after each change of a server or of what is trusted; whether it is."""
        return await wait_until(self.approvals.watch, is_so, within_s)

    async def _until_all(self, is_done: Callable[[str], bool], within_s: float | None) -> bool:
        """Wait until it is so of every server, those that come meanwhile included; whether it is."""
        left = {row.id for row in self.approvals.rows if not is_done(row.id)}

        def look(server: str) -> None:
            (left.discard if is_done(server) else left.add)(server)

        unwatch = self.approvals.watch_each(look)
        try:
            return await wait_until(self.approvals.watch, lambda: not left, within_s)
        finally:
            unwatch()

    def status_of(self, server: str) -> EndpointStatus | None:
        """`status` of one server; None for an unknown one."""
        if (broken := self._broken.get(server)) is not None:
            return broken
        served = self.servers.endpoint(server)
        return (self.fleet.status_of(server) or served.status()) if served is not None else None

    def status(self) -> FleetStatus:
        """Every server in configuration order, held ones as faulted, then the rows that cannot be used, likewise."""
        running = self.fleet.status()
        rows = {each.config.id: running.get(each.config.id) or each.status() for each in self.servers.endpoints()}
        return MappingProxyType(rows | self._broken)

    def unready(self) -> Iterator[Unready]:
        """Yield the servers whose rows say `required`, and that would not be called now."""
        required = {config.id for config in self.settings.servers if config.required}
        required |= {row.id for row in self.settings.broken if row.is_required}
        for server in sorted(required):
            status = self.status_of(server)
            if status is None or status.phase is EndpointPhase.READY or status.is_asleep:
                continue
            if (fault := status.fault) is not None and status.phase is EndpointPhase.FAULTED:
                yield Unready(
                    Obstacle.SERVER_FAILED, server, "; ".join(filter(None, (fault.message, self.fix_of(server))))
                )
            else:
                yield Unready(Obstacle.SERVER_STARTING, server)

    def words_of(self, server: str) -> str:
        """Return the words by which a command finds this server; every fix that names it uses them."""
        row = next((row for row in self.approvals.rows if row.id == server), None)
        return row.words if row is not None else server_words(server, command_options())

    def fix_of(self, server: str) -> str | None:
        """Return the fix of a failed server, as `ps` shows it; None for any other server."""
        status = self.status_of(server)
        if status is None or status.phase is not EndpointPhase.FAULTED or status.fault is None:
            return None
        fault = of_run(status.fault) if self.settings.command else status.fault
        return fault.remedy_for(self.words_of(server))

    def scope(self, server: str) -> str | None:
        """How the ledger names what configures a server; None for an unknown one."""
        return self._scopes.get(server)

    def config(self, server: str) -> ServerConfig | None:
        """The configuration of a server that can be started."""
        return next((config for config in self.settings.servers if config.id == server), None)

    def log_path(self, server: str, client: str = "") -> Path:
        """The file that keeps this server's standard error, or a client's own one's; there is none before it writes."""
        return self.settings.paths_of(server, client).log

    def redact(self, text: str) -> str:
        """`text` without the secrets of the present configuration."""
        return self._redactor.clean_text(text)

    def create_host(self, *, portable_schemas: bool = False, greeted_at: float | None = None) -> "ProviderHostImpl":
        """The product as an MCP server, which whoever asks for it closes; its first list of tools waits for `settled`.

        Args:
            portable_schemas: publish the portable input schemas instead of the servers' own.
            greeted_at: when the one client was greeted, monotonic: it may wait for its list since then.
        """
        from quarterdeck.host.provider import (
            ProviderHostInfo,
            create_provider_host,
        )

        return create_provider_host(
            self.router,
            ProviderHostInfo(CLIENT_NAME, CLIENT_VERSION),
            portable_schemas=portable_schemas,
            settled=partial(self.settled, greeted_at),
            instructions=self.instructions,
            decks=self.decks,
            offers=self.router,
            groups=self.groups,
            results=self.results,
            logins=self.logins,
            on_opened=self._begin_session,
            on_ended=self._end_session,
            on_revoked=self.sessions.end_user,
            programs=self.programs,
            note=partial(self._note, "", ""),
            bus=self._bus,
            redact=self.redact,
        )

    def _begin_session(self, client: str) -> None:
        self.sessions.opened(client)
        self._opened_at[client] = monotonic()
        if self._sleeps and self.settings.starts_processes:
            # A client that has come will soon call: the zygote imports meanwhile, once the first list is answered.
            asyncio.get_running_loop().call_later(WARM_UP_S, self._warm_up)

    def _end_session(self, client: str) -> None:
        self.sessions.ended(client)
        if (opened_at := self._opened_at.pop(client, None)) is not None:
            self._tell_session(client, monotonic() - opened_at)
        self.schedule.left(client)
        self.results.leave(client)
        self.programs.pop(client, None)

    def instructions(self, client: Client = ANONYMOUS) -> str:
        """Return a client's instructions: held tools, unavailable servers, and servers' own words.

        Nothing in it is of a server that the client may not use.
        """
        used = [row.id for row in self.approvals.rows if client.allows_some_of(row.id)]
        counts = self.approvals.held_counts
        logged_out = [server for server in used if self._wants_login(server)]
        others = [*(each for each in used if each not in logged_out), *filter(client.allows_some_of, self._broken)]
        ours = notice(
            {server: counts[server] for server in used if server in counts},
            [server for server in self.approvals.held_launches if client.allows_some_of(server)],
            [server for server in used if not self.is_presentable(server)],
            logged_out,
            self._fixes(others),
        )
        theirs = merged([(server, self.approvals.offer(server).instructions) for server in used])
        return "\n\n".join(filter(None, (ours, theirs)))

    def _fixes(self, servers: Iterable[str]) -> dict[str, str]:
        """Return the fix of each failed server among these, except servers whose launch is held."""
        return {
            server: fix
            for server in servers
            if self.approvals.launch_fault(server) is None and (fix := self.fix_of(server))
        }

    def _wants_login(self, server: str) -> bool:
        status = self.fleet.status_of(server)
        return status is not None and status.fault is not None and status.fault.code in LOGIN_FAULTS

    def capabilities(self, others: bytes) -> bytes:
        """What a client of an older era is told at its start that we can: tasks beside these, where they are known."""
        return self.router.task_support(ANONYMOUS).declared_with(others, is_modern=False)

    async def apply(self) -> None:
        """Have the approvals judge the present settings, and the fleet run what it lets start."""
        async with self._applying:
            settings, is_live = self.settings, self._is_live
            await asyncio.to_thread(self._announce, settings)
            found = await asyncio.to_thread(configured, settings, self._lock)
            await self.approvals.set_rows(found.rows, is_live=is_live)
            self._native_settings = await self.approvals.approved_native(found.native, is_live=is_live)
            # Only now, when what was the user's word until these run is judged as such; and before they run.
            wish = settings.native and replace(settings.native, settings=self._native_settings)
            places = places_of(replace(settings, native=wish), self.approvals.startable)
            await asyncio.to_thread(record_exposure, state_dir(), places)
            self._is_live = True
            self._scopes = {row.id: row.scope for row in found.rows}
            if self._serves and not self.settings.unread:
                scopes = covered_scopes(self.settings.candidates, is_found=self.settings.is_found)
                await self.approvals.withdraw_unconfigured(scopes, self.settings.ids)
            startable = self.approvals.startable
            self.sessions.reconfigure(startable)
            asleep = self.schedule.asleep_of(startable) if self._sleeps else frozenset[str]()
            await self.fleet.reconfigure(BridgeConfig(servers=startable), asleep)
        await self._restart_decided()

    def note_decisions(self, decisions: Sequence[Decision]) -> None:
        """Keep in mind whose login or program a person has decided about; `apply` starts those that wait for one."""
        self._decided |= {
            each.server
            for each in decisions
            if each.key in (LOGIN, PROGRAM) and self._scopes.get(each.server) == each.scope
        }

    async def _restart_decided(self) -> None:
        decided, self._decided = self._decided, set()
        for server in decided:
            self.sessions.end_failed(server)
            status = self.fleet.status_of(server)
            # What starts just now has the token of before.
            if status is not None and status.phase in (EndpointPhase.CONNECTING, EndpointPhase.FAULTED):
                await self.restart(server)

    async def _start_logged_in(self, server: str) -> None:
        """Start a server that has just got its login, and wait until calls of it need not."""
        if self.fleet.status_of(server) is not None:
            await self.restart(server)  # whatever its phase: what starts just now has the token of before
        await self.until(lambda: self.is_final(server), STARTED_S)

    async def restart(self, server: str) -> None:
        """Restart one server, for all who share it; what sessions have of it for themselves starts at their next call.

        Raises:
            KeyError: none of this id runs.
        """
        self.sessions.end_all_of(server)
        self.schedule.started_by_hand(server)
        await self.fleet.restart(server)

    def kept_awake_by(self, server: str) -> tuple[str, ...]:
        """Return what keeps a server from falling asleep; empty where none does, and for one that is not ready."""
        found = self.schedule.judged(server) if self._sleeps else None
        return found.reasons if found is not None else ()

    def wake(self, server: str) -> None:
        """Start a server if it sleeps, and keep it awake for a while."""
        self.schedule.started_by_hand(server)
        self.fleet.wake(server)

    async def refresh(self, only: str = "", within_s: float | None = None) -> None:
        """Start every server that sleeps, or this one, and return once its lists are compared, or it has failed."""
        asleep = [each for each, status in self.fleet.status().items() if status.is_asleep and only in ("", each)]
        for server in asleep:
            self.fleet.wake(server)
        if asleep:
            await self.until(lambda: all(map(self.is_final, asleep)), within_s)

    def put_to_sleep(self, server: str) -> None:
        """Stop a server until it is called, in all decks that share it, whatever it is working on."""
        self.sessions.end_all_of(server)
        self.schedule.stopped_by_hand(server)
        self.fleet.sleep(server, by_hand=True)

    def _announce(self, settings: Settings) -> None:
        self.directory.announce_trusted(settings.trusted)
        self.directory.announce_homes(map(settings.home_digest, settings.ids))

    def _is_listable(self, server: str) -> bool:
        """Return whether the first list need not wait for a server: it was listed before, or a wait gains nothing."""
        return self.approvals.was_listed(server) or self.is_presentable(server)

    def is_presentable(self, server: str) -> bool:
        """Whether nothing is gained by waiting for a server: something of it can be shown, or it is final."""
        return self.approvals.is_provisional(server) or self.is_final(server)

    def is_final(self, server: str) -> bool:
        """Whether a server has been asked and judged, or has failed, or is not there or not started."""
        if self.approvals.launch_fault(server) is not None or not self.approvals.has_row(server):
            return True
        return self.fleet.has_settled(server) and self.approvals.is_judged(server)

    def _make_decks(self) -> "Decks | None":
        if self.settings.native is None:
            return None
        from quarterdeck.host.offers.decks import Decks

        @asynccontextmanager
        async def open_session() -> AsyncIterator["DeckSession"]:
            # Every tool, for the first client that asks for one; the others are answered meanwhile.
            await imported("quarterdeck.tools.session")
            from quarterdeck.tools.session import open_deck_session

            assert self.settings.native is not None
            wish = replace(self.settings.native, settings=self._native_settings)
            async with open_deck_session(
                wish,
                allow_unsandboxed=self.settings.allow_unsandboxed,
                open_port=self.settings.open_port,
                trusted=lambda: self.settings.trusted,
                environ=self.settings.environ,
            ) as session:
                yield session

        return Decks(self.router, open_session)


def _broken_status(row: BrokenRow) -> EndpointStatus:
    fault = ProtocolFault.not_sent(FaultKind.SPAWN_FAILED, row.message, row.code)
    return EndpointStatus(row.id, EndpointPhase.FAULTED, 0, fault)
