"""Accept doors, check them, serve the clients that they hand over, and tell each door how to end.

Commands connect to the same socket, with an order and no client.
"""

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Final

import msgspec

from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import cancelled, carried_through
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.host.calls import GRACE_S, Drain
from quarterdeck.host.journal import Interrupted
from quarterdeck.host.stdio.client_streams import refuse_client
from quarterdeck.telemetry.faces import Telemetry
from quarterdeck.tools import session_notes
from quarterdeck.tools.session_notes import SessionNotes
from quarterdeck_protocol.identity import CLIENT_VERSION

from .connection import Door, DoorError, NobodyError, client_key, client_of
from .decks import Deck, DeckEndedError, Decks, RefusalError, ToRefusal, current_deck
from .http_listening import HttpListening
from .messages import ACCEPTED, ANSWER, REFUSED, Ask, ClientStatus, DaemonStatus, Handover, Order, ServerStatus, frame
from .session_memory import NoMemoryError, SessionMemory

MAX_DOORS: Final = 512
"""Doors at one time; each has five descriptors here."""

PAUSE_S: Final = 0.2
"""Seconds before the next try to accept when the machine is out of some resource."""

_log = logging.getLogger("quarterdeck.daemon")


class DoorServer:
    """The server of doors and commands; `run` accepts until it is cancelled. `listener` is borrowed. `changed` is set
    whenever a client came or went, or an order came; `order` is `END` or `REPLACE` once requested.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: str,
        decks: Decks,
        to_refusal: ToRefusal,
        http: HttpListening | None = None,
        drain: Drain | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._drain = drain or Drain(GRACE_S)
        self._http = http
        self._telemetry = telemetry
        if http is not None:
            http.on_listener = self._have_held
        listener.setblocking(False)  # noqa: FBT003 - takes no keyword
        self._listener = listener
        self._key = key
        self._decks = decks
        self._to_refusal = to_refusal
        self._since = datetime.now(UTC)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._attending: set[asyncio.Task[None]] = set()
        self._sessions: dict[_Session, None] = {}  # in the order in which they came
        self._refused = 0
        self.refusal = ""
        self.changed = asyncio.Event()
        self._is_told_to_stay = False
        self.order: Order | None = None

    @property
    def stays(self) -> bool:
        """Whether the daemon ends only when told to; one that HTTP clients may find at any time does."""
        return self._is_told_to_stay or (self._http is not None and self._http.is_there)

    @property
    def is_idle(self) -> bool:
        """Whether no door or command is connected."""
        return not self._attending

    async def run(self) -> None:
        """Accept doors; when cancelled, end every session, and wait until they have ended."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(self._listener)
                except OSError as error:
                    if error.errno != errno.ECONNABORTED:
                        _log.error("no door can be let in: %s", error.strerror)
                        await asyncio.sleep(PAUSE_S)
                    continue
                self._take_in(accepted)
        finally:
            await carried_through(self._end_all)

    def take_waiting(self) -> bool:
        """Take in the doors that wait to be accepted; whether there was one."""
        found = False
        with suppress(BlockingIOError):
            while True:
                accepted, _ = self._listener.accept()
                self._take_in(accepted)
                found = True
        return found

    def log(self, deck: str, level: int, plain: Callable[[], str], as_json: Callable[[], str]) -> None:
        """Have every door of this deck that wants lines of this level write it on its stderr, in its form."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.log, deck, level, plain, as_json)
            return
        for session in self._sessions:
            if session.deck is not None and session.deck.key == deck and level >= session.handover.log_level:
                session.door.log((as_json if session.handover.log_is_json else plain)())

    def status(self) -> DaemonStatus:
        """Return who is connected, and what runs."""
        doors = (session.status() for session in self._sessions)
        guests, http = (self._http.clients(), self._http.status) if self._http is not None else ((), None)
        clients = sorted((*doors, *guests), key=lambda client: client.since)
        decks = tuple(deck.status() for deck in self._decks)
        return DaemonStatus(
            os.getpid(),
            CLIENT_VERSION,
            _iso(self._since),
            self.stays,
            tuple(clients),
            decks,
            http,
            self._servers(),
            len(self._attending),
            MAX_DOORS,
            self._refused,
            self._drain.wished_s,
            self._telemetry.url if self._telemetry is not None else "",
            self._telemetry.problem if self._telemetry is not None else "",
            self.refusal,
        )

    def _servers(self) -> tuple[ServerStatus, ...]:
        seen: dict[CallQueue, ServerStatus] = {}
        for deck in self._decks:
            for id_, queue in deck.queues():
                if queue not in seen:
                    awake = deck.kept_awake_by(id_)
                    seen[queue] = ServerStatus(id_, deck.key, *queue.load, queue.refused, queue.long_waits, awake)
        return tuple(seen.values())

    def _take_in(self, accepted: socket.socket) -> None:
        if len(self._attending) >= MAX_DOORS:
            self._refused += 1
            _log.warning("a door was not let in: %d are open", MAX_DOORS)
            with suppress(OSError), accepted:
                accepted.setblocking(False)  # noqa: FBT003 - takes no keyword
                accepted.send(frame(REFUSED, f"it serves {MAX_DOORS} clients, and takes no more: close some"))
            return
        task = asyncio.create_task(self._attend(accepted))
        self._attending.add(task)
        task.add_done_callback(self._left)
        self.changed.set()

    def _left(self, task: asyncio.Task[None]) -> None:
        self._attending.discard(task)
        self.changed.set()

    async def _end_all(self) -> None:
        if self.order is Order.REPLACE:
            for session in self._sessions:
                session.hand_on()
        tasks = list(self._attending)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _attend(self, accepted: socket.socket) -> None:
        with Door(accepted) as door:
            try:
                request = await door.receive(self._key)
            except NobodyError:
                return
            except DoorError as error:
                _log.warning("a door was not let in (pid %d): %s", door.peer.pid, error)
                await door.tell(REFUSED, str(error))
                return
            if isinstance(request, Ask):
                if door.has_left():
                    return  # it gave up waiting, and has done something else since
                if request.order is Order.STAY:
                    self.obey(Order.STAY)
                    if (listener := door.take_listener()) is not None:
                        self._offer(listener)
                    if self._http is not None:
                        await self._http.began(request.http)
                    if self._telemetry is not None and request.metrics:
                        await self._telemetry.listen(request.metrics)
                elif request.order is Order.REPLACE and self._http is not None:
                    door.hold(self._http.listener)
                await door.tell(ANSWER, msgspec.json.encode(self.status()).decode())
                self.obey(request.order)
            else:
                await self._serve_door(door, request)

    def obey(self, order: Order) -> None:
        """Do what a command, or a signal, wants."""
        if order is Order.STAY:
            self._is_told_to_stay = True
        elif order is not Order.STATUS:
            self.order = order
        self.changed.set()

    async def _serve_door(self, door: Door, handover: Handover) -> None:
        try:
            if (listener := door.take_listener()) is not None:
                self._offer(listener)
            memory = SessionMemory.map(door.fds[-1])
        except (NoMemoryError, OSError) as error:
            _log.warning("a door was not let in (pid %d): %s", door.peer.pid, error)
            await door.tell(REFUSED, str(error))
            return
        session = _Session(door, handover, memory)
        self._sessions[session] = None
        serving = asyncio.create_task(self._serve(session))
        leaving = asyncio.create_task(door.until_left())
        try:
            await door.tell(ACCEPTED, CLIENT_VERSION)
            self._have_held(door)
            await asyncio.wait([serving, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(leaving, serving)
            del self._sessions[session]
            memory.close()
            if self.order is not Order.REPLACE:
                await carried_through(partial(door.end, 0 if serving.cancelled() else serving.result()))

    def _offer(self, listener: int) -> None:
        """Take ownership of the last daemon's HTTP socket, which a door has held."""
        if self._http is None:
            os.close(listener)
        else:
            self._http.offer(socket.socket(fileno=listener))

    def _have_held(self, *doors: Door) -> None:
        """Have these doors, or all, hold our HTTP socket for the next daemon; without HTTP, have them hold no socket.
        Until the first try to listen is over, doors keep the socket that they hold.
        """
        if self._http is not None and self._http.has_begun:
            for door in doors or [session.door for session in self._sessions]:
                door.hold(self._http.listener)

    async def _serve(self, session: "_Session") -> int:
        """Serve one client to its end. Return the exit code of its door."""
        try:
            await session.serve(self._decks, self._drain)
        except Exception as error:
            refusal = _ended(error) if isinstance(error, DeckEndedError) else self._to_refusal(error)
            if refusal is None:
                _log.exception("a client could not be served")
                message = f"an unforeseen error: {type(error).__name__}: {error}"
                refusal = RefusalError(70, message, "quarterdeck logs --daemon says more: please report it")
            await session.refuse(refusal)
            return refusal.code
        return 0


class _Session:
    """One client of a door."""

    def __init__(self, door: Door, handover: Handover, memory: SessionMemory) -> None:
        self.door: Final = door
        self.deck: Deck | None = None
        self.handover: Final = handover
        self._memory = memory
        self._since = datetime.now(UTC)
        self._unanswered: Interrupted | None = Interrupted()
        """The client's words, until a session answers them."""

    async def serve(self, decks: Decks, drain: Drain) -> None:
        """Serve the client until it leaves, or this is cancelled. Raise the reason if it cannot be served."""
        handover, memory = self.handover, self._memory
        stdin_fd, stdout_fd, stderr_fd, _ = self.door.fds
        interrupted = memory.begin_session()
        # A door that lost its daemon before that had read anything is as good as new.
        is_resumed = handover.is_resumed and interrupted != Interrupted()
        if is_resumed:
            self._unanswered = interrupted
        environ = {os.fsdecode(name): os.fsdecode(value) for name, value in handover.environ.items()}
        async with decks.borrow(handover.request, environ) as (deck, served):
            self.deck = deck
            product = served.product
            request = handover.request
            client = client_of(self.door.peer.pid)
            name = f"{client.name} as {request.user}" if request.user else client.name
            client = msgspec.structs.replace(client, name=name, is_searched=request.search, user=request.user)
            client = product.groups.narrow(client, request.groups)
            current_deck.set(deck.key)
            notes = SessionNotes(memory.keep_notes, memory.notes())
            session_notes.current.set(notes)
            if notes.lost:
                self.door.log(f"warning: the daemon before this one ended, and with it: {notes.lost}\n")
            await imported("quarterdeck.host.stdio.serve")
            self._unanswered = None  # the session answers from here on
            from quarterdeck.host.stdio.serve import serve_stdio

            host = product.create_host(portable_schemas=request.portable_schemas, greeted_at=monotonic())
            with closing(host):
                if (name := memory.client[0]) and is_resumed:  # a client introduces itself only once
                    product.programs.introduce(client, name)
                serving = serve_stdio(
                    host,
                    stdin_fd=stdin_fd,
                    stdout_fd=stdout_fd,
                    stderr_fd=stderr_fd,
                    journal=memory,
                    interrupted=interrupted if is_resumed else None,
                    client=client,
                    drain=drain,
                )
                await deck.lasting(served.guard(serving))

    def hand_on(self) -> None:
        self._memory.hands_on = True

    async def refuse(self, refusal: RefusalError) -> None:
        """Tell the client, and the reader of the door's stderr, why it is not served."""
        message, remedy = refusal.message, refusal.remedy
        self.door.log(refusal.words)
        reason = f"{message}; {remedy}" if remedy else message
        unanswered, self._unanswered = self._unanswered, None
        if unanswered is not None:
            stdin_fd, stdout_fd, _, _ = self.door.fds
            refuse = partial(
                refuse_client,
                stdin_fd,
                stdout_fd,
                reason,
                unread=unanswered.unread,
                greeted_id=unanswered.greeted_id,
                ids=unanswered.under_way,
            )
            # To its end, for the descriptors are closed then, and their numbers another client's.
            await carried_through(partial(asyncio.to_thread, refuse))

    def status(self) -> ClientStatus:
        memory, handover = self._memory, self.handover
        deck, me = self.deck, client_key(self.door.peer.pid)
        return ClientStatus(
            *memory.client,
            self.door.peer.pid,
            deck.key if deck is not None else "",
            handover.request.cwd,
            memory.under_way,
            _iso(self._since),
            waiting=sum(queue.waiting_of(me) for _, queue in deck.queues()) if deck is not None else 0,
            rate=memory.rate.last_minute(),
            refused=memory.refusals,
            own_servers=deck.own_servers(me) if deck is not None else (),
        )


def _ended(error: DeckEndedError) -> RefusalError:
    return RefusalError(70, str(error), "connect again; quarterdeck logs --daemon says more: please report it")


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
