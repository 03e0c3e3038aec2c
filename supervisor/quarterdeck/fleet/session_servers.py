"""Servers besides the deck's own: for one client session, for one client, or for all clients of 2026-07-28.

Each starts at its first call, and ends with its session or after some idle time. The gate above has judged the lists of
the deck's own server of the row; below is a fleet for each server, which restarts it after a death. All servers of a
row share its private home, but for those of clients: each has a home, secrets and logins of its own, and sleeps as a
deck's own server does. It ends when one of its secrets changes; the next call starts it with the new one.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable
from time import monotonic
from typing import Final

import msgspec
from msgspec.structs import replace

from quarterdeck.common.in_flight import who_of
from quarterdeck.common.shielding import cancelled, carried_through
from quarterdeck_protocol.configs import BridgeConfig, Revision, ServerConfig, ServerScope
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.offers import News, ResourceUpdated
from quarterdeck_protocol.tools import Client

from .call_queue import CallQueue
from .core.wakefulness import Use, wakefulness
from .endpoint import ServerEndpointImpl
from .exchange.news import NewsWatchers, TakeNews
from .fleet import ServerFleetImpl

MAX_EACH: Final = 16
"""Servers at one time of one client: of a door, or of a token with all its sessions."""

MAX_TOGETHER: Final = 64
"""Servers at one time of one deck."""

MAX_CLIENTS: Final = 64
"""Clients that have a server of one row for themselves at one time."""

LOOK_S: Final = 1.0
"""Seconds between two looks at what ends or restarts clients' servers; none are made while there is none."""

NEWER: Final = Revision.R2026_07_28
"""The client name of a server that is for all clients of this revision."""

OWNER: Final = "owner"
"""How the client is called that has no name."""

IDLE_S: Final = 600.0
"""Seconds that a server waits for the next call of a client without a session that could end."""

_log = logging.getLogger("quarterdeck.fleet")


class SessionServerStatus(msgspec.Struct, frozen=True):
    """One session's or client's server; `client` is the name of its client."""

    client: str
    status: EndpointStatus


def session_of_user(client: Client) -> str:
    """Return the `session` of a server that a client has for all its sessions."""
    return f"user {client.user}"


class SessionServer:
    """One server of one session, or with a `queue` of one client: its row, the client whose calls it takes, and, for
    each thing that was `checked` against the approved one, both lists that it stood in. It starts once an `earlier` one
    has ended.
    """

    def __init__(
        self,
        row: ServerConfig,
        config: ServerConfig,
        client: Client,
        session: str,
        fleet: ServerFleetImpl,
        tell_news: TakeNews,
        queue: CallQueue | None = None,
        earlier: "asyncio.Task[None] | None" = None,
    ) -> None:
        self.row: Final = row
        self.config: Final = config
        self.client: Final = client
        self.checked: Final[dict[Hashable, tuple[object, object]]] = {}
        self.mark: object = None
        self.used_at = monotonic()
        self._session = session
        self._follows = False
        self._fleet = fleet
        self._queue = queue or CallQueue()
        self.is_of_user: Final = queue is not None
        self.is_of_all: Final = self.is_of_user and session == session_of_user(client)
        self._tell_news = tell_news
        self._unhear = fleet.watch_news(self._hear)
        self._beginning = asyncio.create_task(self._begin(earlier))

    @property
    def endpoint(self) -> ServerEndpointImpl | None:
        """Its present endpoint."""
        return self._fleet.endpoint(self.config.id)

    @property
    def is_coming(self) -> bool:
        """Whether it is being started."""
        return not self._beginning.done() or self._fleet.is_coming(self.config.id)

    @property
    def last_fault(self) -> ProtocolFault | None:
        """How it last died."""
        return self._fleet.last_fault(self.config.id)

    async def _begin(self, earlier: "asyncio.Task[None] | None") -> None:
        if earlier is not None:
            await asyncio.wait((earlier,))  # it has the same home
        await self._fleet.begin_start(BridgeConfig(servers=(self.config,)))

    def status(self) -> SessionServerStatus:
        """Return its client and its state."""
        found = self._fleet.status_of(self.config.id) or EndpointStatus(self.config.id, EndpointPhase.IDLE, 0)
        name = self.client.user or OWNER if self.is_of_user else self.client.name
        return SessionServerStatus(name, found)

    def is_needed(self, sessions: Collection[str]) -> bool:
        """Return whether a client's server stays awake, as the deck's own would; `sessions` are the open ones."""
        endpoint = self.endpoint
        if self.is_coming or (endpoint is not None and endpoint.is_busy):
            return True
        use = endpoint.use() if endpoint is not None else Use(unused_s=monotonic() - self.used_at)
        known = sum(client in sessions for client in self._queue.clients)
        use = replace(use, calls=sum(self._queue.load), sessions=known, guests=len(self._queue.clients) - known)
        return bool(wakefulness(use, "", self.row.idle_stop_s).reasons)

    @property
    def asked(self) -> Client | None:
        """The client during whose call it first asked a question, or None."""
        return self._fleet.queue(self.config.id).asked

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change; returns what unregisters it."""
        return self._fleet.watch_each(lambda _: callback())

    def follow_lists(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of a list that had already come; only the first callback is kept."""
        if self._follows:
            return
        self._follows = True
        version: int | None = None

        def look() -> None:
            nonlocal version
            endpoint = self.endpoint
            if endpoint is None or not endpoint.has_listed:
                return
            before, version = version, endpoint.lists_version
            if before is not None and before != version:
                on_change()

        self.watch(look)

    def mute(self) -> None:
        """Pass on nothing more that it says: its session is over."""
        self._unhear()

    async def end(self) -> None:
        """Stop it."""
        await asyncio.gather(self._beginning, return_exceptions=True)
        await self._fleet.tear_down()

    def _hear(self, news: News) -> None:
        """Pass on its notifications; those for every client are for its session alone, or its client's sessions."""
        if not isinstance(news, ResourceUpdated) and not news.clients:
            clients = map(str, self._queue.clients) if self.is_of_user else ()
            news = replace(news, clients=frozenset({self._session, *clients}))
        self._tell_news(news)


class SessionServers:
    """The sessions' and clients' servers of one deck."""

    def __init__(
        self,
        make_fleet: Callable[..., ServerFleetImpl],
        *,
        idle_s: float = IDLE_S,
        mark_of: Callable[[str, str], object] = lambda _server, _client: None,
        look_s: float = LOOK_S,
    ) -> None:
        """Run none yet.

        Args:
            make_fleet: makes a fleet whose servers start with the settings of the moment; takes the name of the client
                (empty for the owner) that has them, if one has.
            idle_s: how long a server outlives the last call of a session that does not report its end.
            mark_of: of a server's id and a client's name, a value that changes with its secrets and login; blocking.
            look_s: how often it is asked.
        """
        self._make_fleet = make_fleet
        self._mark_of = mark_of
        self._look_s = look_s
        self._looking: asyncio.Task[None] | None = None
        self._idle_s = idle_s
        self._servers: dict[tuple[str, str], SessionServer] = {}
        self._queues: dict[tuple[str, str], CallQueue] = {}
        self._open: dict[str, None] = {}
        self._ending: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._news = NewsWatchers()

    def watch_news(self, callback: TakeNews) -> Callable[[], None]:
        """Call `callback` with all that these servers say unasked; returns what unregisters it."""
        return self._news.watch(callback)

    def opened(self, session: str) -> None:
        """Note a session that will report its end; servers of other sessions end when idle."""
        self._open[session] = None

    def ended(self, session: str) -> None:
        """End the servers of a session that has ended, in the background."""
        self._open.pop(session, None)
        self._end_those(lambda _, whose: whose == session)
        for queue in self._queues.values():
            queue.forget_client(session)

    def end_user(self, user: str) -> None:
        """End the servers of a client whose token opens nothing any more."""
        self._end_those(lambda server, _: server.is_of_user and server.client.user == user)

    def end_failed(self, server_id: str) -> None:
        """End the servers of this row that do not run: the next call starts them with what was decided meanwhile."""
        self._end_those(
            lambda server, _: (
                server.row.id == server_id
                and server.endpoint is not None
                and server.endpoint.phase is EndpointPhase.FAULTED
            )
        )

    def is_open(self, session: str) -> bool:
        """Return whether this session will report its end."""
        return session in self._open

    def queue(self, server: str, session: str) -> CallQueue:
        """The calls of this session for its own server."""
        key = (server, session)
        if key not in self._queues:
            self._queues[key] = CallQueue(server)
        return self._queues[key]

    def queues(self) -> tuple[tuple[str, CallQueue], ...]:
        """Return the queue of each session's server, with its row's id."""
        return tuple((server, queue) for (server, _), queue in self._queues.items())

    def get(
        self, row: ServerConfig, client: Client, session: str = "", config: ServerConfig | None = None
    ) -> SessionServer | ProtocolFault:
        """Return this session's server of a row for a client, started if it has none yet, or the reason why it gets
        none. The `session` is the client's key if empty, and the started `config` the row itself if None.
        """
        session = session or client.key
        key = (row.id, session)
        server = self._servers.get(key)
        if server is None:
            if (refused := self.refusal(row, client, session)) is not None:
                return refused
            is_of_user = row.scope is ServerScope.CLIENT
            fleet = self._make_fleet(client.user) if is_of_user else self._make_fleet()
            queue = self.queue(row.id, session) if is_of_user else None
            ends = (task for task, whose in reversed(self._ending.items()) if whose == key)
            earlier = next(ends, None) if is_of_user else None
            server = SessionServer(row, config or row, client, session, fleet, self._news.tell, queue, earlier)
            self._servers[key] = server
            if is_of_user:
                server.mark = self._mark_of(row.id, client.user)
                if self._looking is None:
                    self._looking = asyncio.create_task(self._look_after_clients())
            elif session not in self._open:
                self._look_again()
        server.used_at = monotonic()
        return server

    def has(self, server_id: str, session: str) -> bool:
        """Return whether this session has a server of this row."""
        return (server_id, session) in self._servers

    def asked(self, server_id: str, session: str) -> Client | None:
        """Return the client that this session's server first asked a question, or None."""
        server = self._servers.get((server_id, session))
        return server.asked if server is not None else None

    def endpoint(self, server_id: str, session: str) -> ServerEndpointImpl | None:
        """Return the endpoint of this session's own server, or None if it has none; start nothing."""
        server = self._servers.get((server_id, session))
        return server.endpoint if server is not None else None

    def endpoints(self, server_id: str) -> tuple[ServerEndpointImpl, ...]:
        """Return the endpoints of all sessions' servers of one row."""
        found = (server.endpoint for (row, _), server in self._servers.items() if row == server_id)
        return tuple(endpoint for endpoint in found if endpoint is not None)

    def reconfigure(self, configs: Iterable[ServerConfig]) -> None:
        """End those of rows that are gone, or others than they were."""
        present = {config.id: config for config in configs}
        self._end_those(lambda server, _: present.get(server.row.id) != server.row)

    def end_all_of(self, server_id: str) -> None:
        """End the servers of this row; each is started again when it is called."""
        self._end_those(lambda server, _: server.config.id == server_id)

    def of(self, session: str) -> tuple[str, ...]:
        """The ids of those that a session has."""
        return tuple(
            server_id
            for (server_id, whose), server in self._servers.items()
            if whose == session or (server.is_of_user and session in self.queue(server_id, whose).clients)
        )

    def statuses(self, server_id: str = "") -> tuple[SessionServerStatus, ...]:
        """Return the state of all servers, or those of one row, the oldest first."""
        return tuple(each.status() for each in self._servers.values() if server_id in ("", each.config.id))

    async def close(self) -> None:
        """End all, and wait until they have; none is begun any more."""
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._looking is not None:
            await cancelled(self._looking)
        self._end_those(lambda *_: True)
        while self._ending:
            await asyncio.wait(tuple(self._ending))

    def refusal(self, config: ServerConfig, client: Client, session: str = "") -> ProtocolFault | None:
        """Return why a session of this client gets no further server; None if it may have one."""
        who = who_of(client.key)
        # Servers for all clients of a revision are not counted: a row has at most one.  A client's first one of a row,
        # for all its sessions, is counted apart.
        own = [each for each in self._servers.values() if each.client.name != NEWER and not each.is_of_all]
        clients = sum(each.is_of_all and each.row.id == config.id for each in self._servers.values())
        mine = sum(who_of(each.client.key) == who for each in own)
        if self._is_closed:
            why = f"{config.id} is not started: quarterdeck is shutting down"
            return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "shutting_down")
        if config.scope is ServerScope.CLIENT and session == session_of_user(client):
            if clients < MAX_CLIENTS:
                return None
            why = f"{config.id} is not started for this client: {MAX_CLIENTS} clients have it already: call again later"
            return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "busy")
        if mine >= MAX_EACH:
            most = f"{MAX_EACH} servers run for sessions of this client"
        elif len(own) >= MAX_TOGETHER:
            most = f"{MAX_TOGETHER} servers run for sessions of this deck"
        else:
            return None
        why = f"{config.id} is not started for this session: {most} already: end some sessions"
        return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "busy")

    def _end_those(self, are: Callable[[SessionServer, str], bool]) -> None:
        for key, server in tuple(self._servers.items()):
            if are(server, key[1]):
                del self._servers[key]
                self._queues.pop(key, None)
                server.mute()
                task = asyncio.get_running_loop().create_task(carried_through(server.end))
                self._ending[task] = key
                task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        del self._ending[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a session's server did not end", exc_info=error)

    async def _look_after_clients(self) -> None:
        """End clients' servers that nothing keeps awake, or whose secrets or login changed, while there are any."""
        while users := [each for each in self._servers.values() if each.is_of_user]:
            await asyncio.sleep(self._look_s)
            try:
                await self._end_unneeded(users)
            except Exception:
                # Ours to mend; without this task no client's server would ever end.
                _log.exception("the servers of clients could not be looked after")
        self._looking = None

    async def _end_unneeded(self, users: Collection[SessionServer]) -> None:
        changed = await asyncio.to_thread(self._changed, users)
        self._end_those(lambda server, _: server in users and (server in changed or not server.is_needed(self._open)))

    def _changed(self, users: Iterable[SessionServer]) -> set[SessionServer]:
        return {each for each in users if each.mark != self._mark_of(each.row.id, each.client.user)}

    def _look_again(self) -> None:
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._idle_s / 2, self._end_idle)

    def _end_idle(self) -> None:
        self._alarm = None
        until = monotonic() - self._idle_s
        self._end_those(
            lambda server, whose: (
                whose not in self._open
                and not server.is_of_user
                and server.used_at <= until
                and not self._is_busy(server, whose)
            )
        )
        if any(whose not in self._open and not server.is_of_user for (_, whose), server in self._servers.items()):
            self._look_again()

    def _is_busy(self, server: SessionServer, session: str) -> bool:
        queue, endpoint = self._queues.get((server.row.id, session)), server.endpoint
        return (queue is not None and any(queue.load)) or (endpoint is not None and endpoint.is_busy)
