"""One server as the supervisor sees it: its phase, its one connection, its tools, its calls.

A terminal phase is never left: a restart is another endpoint. The connection attempt runs in its own task, so that it
goes on when one of its callers is cancelled.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from quarterdeck.common.watchers import Watchers
from quarterdeck.common.words import flat
from quarterdeck.config.places.kept_state import names_of_gaps, warn_of_gaps
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import (
    TRANSITIONS,
    EndpointPhase,
    EndpointStatus,
    PhaseStep,
    RemoteCallResult,
    RemoteTool,
    is_terminal_phase,
)
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.frames import CLOSE_GRACE_S, Close, Hinted, Quarantined, ServerCard, ServerStart
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport, support_of
from quarterdeck_protocol.offers import ListAnnounced, Listing, Offered
from quarterdeck_protocol.tools import RawCall
from quarterdeck_sandbox import Caught, Receipt

from .exchange.exchange import Exchange
from .exchange.lists import ServerLists
from .sealed_start import SealedStart
from .worker_session import ConfinedServer, Session, WorkerSession
from .workers.handle import WorkerHandle
from .workers.requests import arguments_json, ask, ended

if TYPE_CHECKING:
    from .embedded import SessionFactory

CLOSE_S: Final = 3 * CLOSE_GRACE_S + 1.0
"""Seconds that a worker may take to stop its server: three graces, and a moment to say so."""


MAX_SCRIPTS_NAMED: Final = 5
"""Packages with install scripts that one remedy names."""

_log = logging.getLogger("quarterdeck.fleet")


class ServerEndpointImpl(Exchange):
    """The one implementation of `ServerEndpoint`; made by `create_server_endpoint`.

    Attributes:
        card: the server's description of itself.
        confined: what confines its process, kept after its end; None without a process of ours.
        patience: factor on its connect deadline; set before `open`.
        is_installing: whether its command has to fetch the program first, as far as its maker knows.
    """

    def __init__(self, config: ServerConfig, session: Session) -> None:
        super().__init__(config)
        self._session = session
        self._handle: WorkerHandle | None = None
        self.card: ServerCard | None = None
        self._task_support = NO_TASKS
        self.confined: ConfinedServer | None = None
        self._ready_at: float | None = None
        self._lists = ServerLists(
            config,
            is_wanted=lambda: self.phase is EndpointPhase.READY,
            on_change=self._notify,
            on_same=lambda listing: self.tell_news(ListAnnounced(config.id, listing)),
        )
        self._outcome: asyncio.Future[ProtocolFault | None] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watchers: Final = Watchers(config.id, _log)
        self.patience = 1
        self.is_installing = False

    @property
    def sealed(self) -> SealedStart | None:
        """How it is started from its package's seal; None for a server that runs as its row says."""
        return self._session.sealed

    @property
    def home(self) -> str:
        """Its private home; empty before its start, and without a process of ours."""
        return self._session.home

    def prefer_newer(self) -> None:
        """Speak the modern era with a process that speaks both; call this before `open`."""
        self._session.newer_first = True

    def follow(self, earlier: Exchange) -> None:
        """Be the next generation of a server: keep what its lists held, if its configuration is the same."""
        if isinstance(earlier, ServerEndpointImpl) and earlier.config == self.config:
            self._lists.follow(earlier._lists)  # noqa: SLF001 - of its own kind
        super().follow(earlier)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of phase or tools; returns what unregisters it."""
        return self._watchers.watch(callback)

    # Opening

    async def open(self) -> None:
        """See `ServerEndpoint`."""
        if self.phase is EndpointPhase.IDLE:
            self._step(PhaseStep.OPEN)
            self._outcome = asyncio.get_running_loop().create_future()
            self._start("connect", self._connect())
        match self.phase:
            case EndpointPhase.READY:
                return
            case EndpointPhase.CLOSING | EndpointPhase.CLOSED:
                raise self.not_connected()
            case EndpointPhase.FAULTED:
                assert self.fault is not None
                raise self.fault.with_traceback(None)
        assert self._outcome is not None
        fault = await asyncio.shield(self._outcome)
        if fault is not None:
            raise fault.with_traceback(None)

    async def _connect(self) -> None:
        assert self._outcome is not None
        try:
            fault = await self._attempt()
        except asyncio.CancelledError:
            # Only `close` cancels this task; it has moved the phase on.
            fault = self.not_connected()
        except Exception as error:
            _log.exception("connecting %s failed in an unforeseen way", self.config.id)
            what = f"{type(error).__name__}: {error}"
            fault = ProtocolFault(FaultKind.SPAWN_FAILED, what, error, code="spawn_failed")
        if fault is None:
            self._ready_at = time.monotonic()
            self._step(PhaseStep.CONNECTED)
            self._start("renew", self.renew())
        elif self.phase is EndpointPhase.CONNECTING:
            self.fault = fault
            self._step(PhaseStep.FAILED)
        if not self._outcome.done():
            self._outcome.set_result(fault)
        self._notify()
        if fault is not None:
            await self._session.end()

    async def _attempt(self) -> ProtocolFault | None:
        try:
            handle = self._handle = await self._session.start(self)
            card = await self._session.greet(handle, self.config.connect_timeout_s * self.patience)
        except ProtocolFault as fault:
            return self._at_connect(_with_scripts(fault, self.sealed))
        try:
            self._lists.promise(card.capabilities)
            self._task_support = support_of(msgspec.json.decode(card.capabilities))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            handle.violated("a server whose capabilities cannot be read")
        self.greeted(handle, card)
        self.card = card
        if handle.lost is not None:
            return self._at_connect(ProtocolFault.from_record(handle.lost))
        return None

    def _at_connect(self, fault: ProtocolFault) -> ProtocolFault:
        if fault.kind is not FaultKind.TIMEOUT:
            is_stdio = isinstance(self.config, StdioServerConfig)
            fault.kind = FaultKind.SPAWN_FAILED if is_stdio or fault.code == "worker_lost" else FaultKind.TRANSPORT
        fault.delivery = Delivery.NOT_SENT
        return fault

    # Lists

    def tools(self) -> tuple[RemoteTool, ...]:
        """Return the cached list; the same tuple until it changes."""
        return self._lists.tools

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        """Return another cached list; empty before it came, and for a server that says it has none."""
        return self._lists.offers(listing)

    def has_come(self, listing: Listing) -> bool:
        """Whether this list has come, or the server has said that it has none (before, an empty one means nothing)."""
        return self.card is not None and self._lists.has_come(listing)

    @property
    def has_listed(self) -> bool:
        """Whether any list of tools has come, and the others have, or were waited for long enough."""
        return self._lists.has_settled

    @property
    def lists_version(self) -> int:
        """A number that changes with each list."""
        return self._lists.version

    def offered(self) -> tuple[RemoteTool, ...]:
        """Return the cached list while the server is ready, else nothing."""
        return self._lists.tools if self.phase is EndpointPhase.READY else ()

    def refusal(self, _: str) -> ProtocolFault | None:
        """Return why no call is tried: the server is not ready. A call itself reports an unknown name."""
        return None if self.phase is EndpointPhase.READY else self.not_connected()

    async def list_tools(self) -> tuple[RemoteTool, ...]:
        """See `ServerEndpoint`; the other lists are fetched meanwhile, once, and awaited for a moment."""
        await self._lists.take(self._ready_handle(), self._start)
        return self._lists.tools

    # Calls

    async def result_of(self, call: RawCall) -> RemoteCallResult:
        """Make a raw call and return its result. Cancelling the task cancels the call.

        Raise ProtocolFault as `ServerEndpoint.invoke` does.
        """
        result = await ended(partial(self.begin, call))
        if result is None:
            self._ready_handle()
            why = f"{call.tool} is not offered: the configuration's tool filter hides it"
            raise ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "unknown_tool")
        return result

    async def invoke(self, name: str, args: object = None) -> RemoteCallResult:
        """See `ServerEndpoint`."""
        self._ready_handle()
        return await self.result_of(RawCall(name, arguments_json(args)))

    # Other offers

    def has_linked(self, uri: str) -> bool:
        """See `LiveEndpoint`."""
        return self._handle is not None and uri in self._handle.linked

    def task_support(self) -> TaskSupport:
        """See `LiveEndpoint`."""
        return self._task_support if self.phase is EndpointPhase.READY else NO_TASKS

    @property
    def is_busy(self) -> bool:
        """Whether a client's request is in progress on this server."""
        return self._handle is not None and any(self._handle.under_way())

    # What the worker says

    def on_list_changed(self, kind: str) -> None:
        """See `WorkerListener`: fetch the list again, soon."""
        if self.phase is EndpointPhase.READY:
            self._lists.on_changed(kind, self._ready_handle(), self._start)

    def on_unauthorized(self, scopes: tuple[str, ...] | None) -> None:
        """See `WorkerListener`."""
        self._session.on_unauthorized(scopes)

    def on_started(self, start: ServerStart, receipt: Receipt) -> None:
        """See `WorkerListener`: keep its receipt, enforce its limits, and say where its sandbox is too weak."""
        self.confined = ConfinedServer(start, receipt, self._session.enforce_limits(start))
        if start.gaps:
            server = self.config.id
            what = names_of_gaps(start.gaps)
            _log.info("%s: its sandbox is partial (%s): see quarterdeck inspect %s", server, what, server)
            warn_of_gaps(start.gaps)

    def on_quarantined(self, frame: Quarantined) -> None:
        """See `WorkerListener`; the report stays in the server's status until its next start."""
        told = flat(Caught(frame.path, frame.kept, frame.why).told)
        _log.warning("%s: %s", self.config.id, told)
        if self.confined is not None:
            self.confined = self.confined.with_caught(told)

    def on_hinted(self, frame: Hinted) -> None:
        """See `WorkerListener`; the hint stays in the server's status until its next start."""
        hint = flat(frame.hint)
        _log.info("%s: %s", self.config.id, hint)
        if self.confined is not None:
            self.confined = msgspec.structs.replace(self.confined, hint=hint)

    def on_lost(self, fault: FaultRecord) -> None:
        """See `WorkerListener`."""
        if self.phase is EndpointPhase.READY:
            self.fault = ProtocolFault.from_record(fault)
            self._lists.stop()
            self.stop()
            self._step(PhaseStep.LOST)
            self._start("release", self._session.end())
            self._notify()

    # Closing

    async def close(self) -> None:
        """See `ServerEndpoint`."""
        self._lists.stop()
        self.stop()
        match self.phase:
            case EndpointPhase.IDLE:
                self._step(PhaseStep.CLOSE)
                self._notify()
            case EndpointPhase.CONNECTING:
                self._step(PhaseStep.CLOSE)
                # Here and not in the task: cancelled before its first step, it never runs.
                assert self._outcome is not None
                self._outcome.set_result(self.not_connected())
                self._tasks["connect"].cancel()
                self._notify()
            case EndpointPhase.READY:
                self._step(PhaseStep.CLOSE)
                self._notify()
                self._start("close", self._shut_down())
        if self._tasks:
            # Shielded: a caller who gives up must not leave a half-closed endpoint behind.
            await asyncio.shield(asyncio.gather(*self._tasks.values(), return_exceptions=True))

    async def _shut_down(self) -> None:
        assert self._handle is not None
        try:
            await ask(self._handle, Close(self._handle.next_id(), CLOSE_S))
        except ProtocolFault as fault:
            _log.debug("closing %s: %s", self.config.id, fault)
        await self._session.end()
        self._step(PhaseStep.RELEASED)
        self._notify()

    # Status and helpers

    def status(self) -> EndpointStatus:
        """See `ServerEndpoint`."""
        alive = not is_terminal_phase(self.phase)
        return EndpointStatus(
            server=self.config.id,
            phase=self.phase,
            tool_count=len(self._lists.tools),
            fault=self.fault,
            pid=self.card.pid if self.card and alive else None,
            worker_pid=self._handle.pid if self._handle and alive else None,
            uptime_s=time.monotonic() - self._ready_at if self._ready_at and alive else None,
            isolated=self._session.isolated,
            era=self.card.era if self.card else None,
            sandbox=self.confined.status if self.confined else None,
            installing=(self.is_installing or self._session.is_sealing) and self.phase is EndpointPhase.CONNECTING,
            list_fault=self._lists.fault if alive else None,
            seal=self.sealed.seal if self.sealed is not None else None,
        )

    def _ready_handle(self) -> WorkerHandle:
        if self.phase is not EndpointPhase.READY or self._handle is None:
            raise self.not_connected()
        return self._handle

    def _step(self, step: PhaseStep) -> None:
        self.phase = TRANSITIONS[self.phase, step]

    def _notify(self) -> None:
        self._watchers.tell(self.config.id)

    def _start(self, name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._tasks[name] = asyncio.create_task(work, name=f"{self.config.id}: {name}")
        task.add_done_callback(lambda done: self._tasks.pop(name) if self._tasks.get(name) is done else None)
        return task


def _with_scripts(fault: ProtocolFault, sealed: SealedStart | None) -> ProtocolFault:
    """Return the fault of a failed start with the install scripts that it may lack."""
    if sealed is None or not sealed.unrun_scripts or fault.dossier is None:
        return fault
    packages = ", ".join(sealed.unrun_scripts[:MAX_SCRIPTS_NAMED])
    scripts = f"its package was sealed without install scripts ({packages}): quarterdeck upgrade SERVER --scripts"
    return ProtocolFault(
        fault.kind,
        fault.message,
        fault.cause,
        code=fault.code,
        delivery=fault.delivery,
        dossier=fault.dossier,
        remedy=f"{fault.remedy}; or {scripts}" if fault.remedy else scripts,
    )


def create_server_endpoint(
    config: ServerConfig, session_factory: "SessionFactory | None" = None, **options: Any
) -> ServerEndpointImpl:
    """Return an idle endpoint for one server, over a worker with these `options` of a `WorkerSession`.

    A `session_factory` makes a connected SDK session instead, which runs in this process, without isolation. Raise
    ValueError if `config` asks for what such a session cannot have.
    """
    if session_factory is None:
        return ServerEndpointImpl(config, WorkerSession(config, **options))
    from .embedded import EmbeddedSession

    return ServerEndpointImpl(config, EmbeddedSession(config, session_factory))
