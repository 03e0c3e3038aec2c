"""One host over HTTP: its legacy sessions, the requests of 2026-07-28, and what is under way there.

A carrier: it knows heads, statuses and streams of events, and no method but the one that opens a session.  Above it
`serve`, which says which host a request is for; below it `host.session`.  Several hosts share one listener, and what
bounds its requests.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Final

import anyio
import msgspec

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.common.shielding import cancelled_by, told_to_end
from quarterdeck.host.calls import ANSWER_S, GRACE_S, Drain
from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck.host.session.session import Session
from quarterdeck_protocol.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ClientMessage,
    UnreadableError,
    read_message,
)
from quarterdeck_protocol.mcp.server.http_headers import MARK, check_mirrored, check_standard, decode_value
from quarterdeck_protocol.mcp.server.methods import (
    DEFAULT_VERSION,
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    HTTP_STATUS,
    MODERN_VERSION,
)
from quarterdeck_protocol.mcp.server.requests import ClientInfo, Refused, Request, nothing_to_check, unsupported
from quarterdeck_protocol.mcp.server.session import Answer, Cancelled, ServerSession
from quarterdeck_protocol.mcp.trace_context import with_headers
from quarterdeck_protocol.tools import CancelToken, Client

from .admission import Admitted, HttpAnswer
from .exchange import OK, Exchange
from .guests import Guests
from .sessions import RETRY_S, SESSION_HEADER, HttpSession, HttpSessions, TooManySessionsError

PING_S: Final = 15.0
"""Of silence at most, before an answer is kept open by a comment: proxies give up on it otherwise."""

SESSION_ENDED: Final = -32000

_MARK: Final = MARK.encode()
_VERSION: Final = b"mcp-protocol-version"
_DEFAULT_VERSION: Final = DEFAULT_VERSION.encode()
_HANDSHAKE_VERSIONS: Final = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)
_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream"
_NOT_JSON: Final = "the Content-Type must be application/json"
_ACCEPT_BOTH: Final = "Not Acceptable: Client must accept both application/json and text/event-stream"
_NO_SESSION: Final = "Session not found"
_NO_MESSAGE: Final = "Body must be a single JSON-RPC request or notification object"


class NoHostError(Exception):
    """Nothing can be served by this name; the text says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpClient:
    """A client that is there.

    Attributes:
        name: as it introduced itself, empty before it did; so is `version`.
        key: see `Client`.
        token: the name of the one that it shows.
        calls: its requests under way.
        since: ISO 8601, UTC.
        rate: its requests of the last minute.
        refused: its requests that met a bound.
    """

    name: str
    version: str
    key: str
    token: str
    calls: int
    since: str
    rate: int
    refused: int


class HttpHost:
    """See the module; `run` has to run while it is used.

    Attributes:
        sessions: the legacy ones that are open here.
    """

    def __init__(
        self,
        host: ProviderHostImpl,
        in_flight: InFlight,
        held: HeldBytes,
        uses: ClientUses | None = None,
        groups: Sequence[str] = (),
        *,
        is_searched: bool = False,
        drain: Drain | None = None,
    ) -> None:
        """A host that nobody has reached yet.

        Args:
            host: what is served.
            in_flight: what is open of each client, here and at other hosts of the same listener.
            held: likewise what is kept for each.
            uses: likewise what was asked; for `clients`.
            groups: those that all clients are shown, together; empty for everything.
            is_searched: whether all clients are shown two tools that find and call the others.
            drain: how long calls have at the end; None for `GRACE_S`.
        """
        self._host = host
        self._content = host.content
        self._in_flight = in_flight
        self._held = held
        self._uses = uses if uses is not None else ClientUses()
        self._served_groups = groups
        self._is_searched = is_searched
        self._drain = drain or Drain(GRACE_S, GRACE_S)
        self._closing = CancelToken()
        self._guests: Final = Guests()
        self.sessions: Final = HttpSessions(self._ended)
        self._under_way: dict[Exchange, None] = {}
        """The requests, until their clients have most of the answer."""
        self._mirroring: tuple[object, frozenset[str]] = ((), frozenset())
        self._none_left = asyncio.Event()
        self._told_to_end = asyncio.Event()
        self._is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until cancelled, or told to `end`; then what is under way is answered, and sessions end.

        Calls have as long as `drain` says, new ones are refused meanwhile, and what is left then is answered with a
        fault.
        """
        await told_to_end(self._own, self.end)

    def end(self) -> None:
        """Have `run` return, once what is under way is answered.  Repeatable."""
        self._told_to_end.set()

    async def ready(self) -> None:
        """Wait until requests can be served.

        Raises:
            ConnectionError: it has ended.
        """
        await asyncio.shield(self._is_ready)

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more requests."""
        return self._told_to_end.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a session or a request here."""
        return not (self.sessions or self._under_way)

    def clients(self) -> tuple[HttpClient, ...]:
        """Who is there: each legacy session, and of clients without sessions those that were here lately."""
        legacy = (
            self._view(each.client, each.session.core.client, each.since, streams=int(each.stream is not None))
            for each in self.sessions
        )
        guests = self._guests.present(self._in_flight.of)
        return (*legacy, *(self._view(each.client, each.info, each.since) for each in guests))

    def _view(self, client: Client, info: ClientInfo | None, since: datetime, streams: int = 0) -> HttpClient:
        name, version = (info.name, info.version) if info is not None else ("", "")
        # A stream that is open for what a client is told unasked has its share of the bound, and is no call.
        calls = self._in_flight.of(client.key) - streams
        asked = self._uses.of(client.key)
        return HttpClient(name, version, client.key, client.name, calls, since.isoformat(timespec="seconds"), *asked)

    # One request

    def serve(self, exchange: Exchange, admitted: Admitted, body: bytes) -> None:
        """Answer a request that was admitted, whose body is whole."""
        client, groups = admitted.client, self._content.groups
        if admitted.group and admitted.group not in groups.current:
            exchange.respond(HttpAnswer(404, f"there is no group {admitted.group!r} here"))
            return
        if self._served_groups or admitted.group or admitted.granted:
            named = (admitted.group,) if admitted.group else ()
            client = groups.narrow(client, self._served_groups, named, admitted.granted)
        if self._is_searched and not client.is_searched:
            client = msgspec.structs.replace(client, is_searched=True)
        version = exchange.fields.get(_VERSION, _DEFAULT_VERSION)
        if version not in _HANDSHAKE_VERSIONS:
            self._serve_modern(exchange, client, version.decode("latin-1"), body)
        elif exchange.method == "POST":
            self._serve_post(exchange, client, body)
        elif exchange.method in ("GET", "DELETE"):
            self._serve_session(exchange)
        else:
            exchange.headers += b"allow: GET, POST, DELETE\r\n"
            exchange.refuse(INVALID_REQUEST, "Method Not Allowed", status=405)

    def _serve_post(self, exchange: Exchange, client: Client, body: bytes) -> None:
        """Take a message of the legacy era."""
        fields, session = exchange.fields, exchange.session
        if session is None or session.has_ended:
            if fields.get(SESSION_HEADER):
                exchange.refuse(INVALID_REQUEST, _NO_SESSION, status=404)
                return
            session = None
        if not fields.get(b"content-type", b"").lower().startswith(_JSON):
            exchange.respond(HttpAnswer(400, _NOT_JSON))
            return
        if not accepts(fields.get(b"accept", b""), _JSON, _EVENTS):
            exchange.refuse(INVALID_REQUEST, _ACCEPT_BOTH, status=406)
            return
        try:
            message = read_message(body)
        except UnreadableError as error:
            exchange.refuse(error.code, str(error), status=400)
            return
        if session is None:
            if message.method != "initialize" or not message.is_request:
                exchange.refuse(INVALID_REQUEST, "Bad Request: Missing session ID", status=400)
                return
            if (session := self._opened(exchange, client)) is None:
                return
            exchange.session = session
        carrying = session.session
        session.posts += 1
        session.client = carrying.client = msgspec.structs.replace(client, key=session.key)
        exchange.headers += session.header
        self._take(exchange, carrying, message)
        if message.method == "initialize":
            self._greeted(session)

    def _serve_modern(self, exchange: Exchange, client: Client, version: str, body: bytes) -> None:
        """Take a message of 2026-07-28, which stands alone."""
        fields = exchange.fields
        exchange.session = None
        if exchange.method != "POST":
            exchange.respond(HttpAnswer(405, headers=((b"allow", b"POST"),)))
            return
        if not fields.get(b"content-type", b"").lower().startswith(_JSON):
            exchange.respond(HttpAnswer(400, _NOT_JSON))
            return
        if not accepts(fields.get(b"accept", b""), _JSON, _EVENTS):
            exchange.respond(HttpAnswer(406))
            return
        try:
            message = read_message(body)
        except UnreadableError as error:
            said = "Parse error" if error.code == PARSE_ERROR else _NO_MESSAGE
            exchange.refuse(error.code, said, status=400)
            return
        if not message.is_request:
            is_notification = message.id is msgspec.UNSET and isinstance(message.method, str)
            if is_notification and version == MODERN_VERSION:
                exchange.acknowledge()
            elif is_notification:
                refused = unsupported(version)
                exchange.refuse(refused.code, str(refused), status=400)
            else:
                exchange.refuse(INVALID_REQUEST, _NO_MESSAGE, status=400)
            return
        core = ServerSession(
            asyncio.get_running_loop().call_soon, version=MODERN_VERSION, has_offers=self._content.offers is not None
        )
        session = Session(self._host, client, core, self._closing)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items()}
        self._take(exchange, session, message, headers)
        self._guests.meet(client, core.client)
        if core.client is not None:
            self._content.programs.introduce(client, core.client.name)

    def _take(
        self,
        exchange: Exchange,
        session: Session,
        message: ClientMessage,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Have a session judge a message, and carry it out; `headers` are those that repeat its words, if any do."""
        core = session.core
        event = core.take(message, nothing_to_check if headers is None else partial(check_standard, message, headers))
        if isinstance(event, Request):
            exchange.host, exchange.request = self, event
            self._under_way[exchange] = None
            if exchange.session is not None:
                exchange.session.under_way += 1
            try:
                if headers is not None:
                    self._check_headers(event, headers, exchange)
            except Refused as refused:
                error: dict[str, object] = {"code": refused.code, "message": str(refused)}
                exchange.answer(event, core.refuse(event, error), refused.code)
            else:
                if self._content.bus.tracer is not None:
                    event.meta = with_headers(event.meta, exchange.fields)
                session.serve(event, exchange)
        elif isinstance(event, Answer):
            exchange.send(event.parts, HTTP_STATUS.get(event.code, OK) if headers is not None else OK)
        else:
            if isinstance(event, Cancelled):
                event.request.work.cancelled(event.reason)
            elif event is not None:
                session.take_notice(event)
            exchange.acknowledge()

    def _check_headers(self, request: Request, headers: Mapping[str, str], exchange: Exchange) -> None:
        """Compare the headers that only some requests have.

        Raises:
            Refused: one disagrees with the body.
        """
        if request.method.startswith("tasks/"):
            named = decode_value(headers.get("mcp-name", ""))
            if named != msgspec.json.decode(request.arguments).get("taskId"):
                why = "the header Mcp-Name does not say which task the request is about"
                raise Refused(HEADER_MISMATCH, why)
        elif request.method == "tools/call" and (schema := self._mirrored(request.name)) is not None:
            given = exchange.request_headers
            said = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in given)
            check_mirrored(schema, request.arguments, said)

    def _mirrored(self, tool: str) -> object:
        """The input schema of a tool whose arguments stand in headers, too; None of every other tool."""
        box = self._content.box
        descriptors, name = box.descriptors(), box.public(tool)
        if descriptors is not self._mirroring[0]:
            marked = frozenset(each.name for each in descriptors if each.definition and _MARK in each.definition)
            self._mirroring = descriptors, marked
        if name not in self._mirroring[1]:
            return None
        return self._content.catalog.header_schema(descriptors, name, MODERN_VERSION)

    # Legacy sessions

    def _opened(self, exchange: Exchange, client: Client) -> HttpSession | None:
        try:
            session = self.sessions.open(client)
        except TooManySessionsError as error:
            self._uses.refused(client, "sessions")
            exchange.headers += b"retry-after: %d\r\n" % RETRY_S
            exchange.refuse(INTERNAL_ERROR, str(error), status=429)
            return None
        own = msgspec.structs.replace(client, key=session.key)
        core = ServerSession(asyncio.get_running_loop().call_soon, has_offers=self._content.offers is not None)
        session.client = own
        session.session = Session(self._host, own, core, self._closing, outlet=session)
        self._content.on_opened(own.key)
        return session

    def _greeted(self, session: HttpSession) -> None:
        """Know a client by the name that it introduced itself with, or end the session of one that was refused."""
        core = session.session.core
        if not core.version:
            self.sessions.end(session)
        elif core.client is not None:
            self._content.programs.introduce(session.client, core.client.name)

    def _serve_session(self, exchange: Exchange) -> None:
        """Open the stream of a session, or end it."""
        fields, session = exchange.fields, exchange.session
        if session is None or session.has_ended:
            if fields.get(SESSION_HEADER):
                exchange.refuse(INVALID_REQUEST, _NO_SESSION, status=404)
            else:
                exchange.refuse(INVALID_REQUEST, "Bad Request: Missing session ID", status=400)
            return
        exchange.headers += session.header
        if exchange.method == "DELETE":
            self.sessions.end(session)
            exchange.acknowledge(OK)
        elif not accepts(fields.get(b"accept", b""), _EVENTS):
            exchange.refuse(INVALID_REQUEST, "Not Acceptable: Client must accept text/event-stream", status=406)
        elif session.stream is not None:
            exchange.refuse(INVALID_REQUEST, "Conflict: Only one SSE stream is allowed per session", status=409)
        else:
            session.stream = exchange
            session.under_way += 1
            exchange.host = self
            exchange.open()

    def _ended(self, session: HttpSession) -> None:
        for exchange in tuple(self._under_way):
            if exchange.session is session:
                exchange.give_up(SESSION_ENDED, "the session has ended")
        if (stream := session.stream) is not None:
            session.stream = None
            stream.close()
        session.session.leave()
        self._content.on_ended(session.client.key)

    # What is under way

    def gone(self, exchange: Exchange) -> None:
        """See `ExchangeHost`."""
        session = exchange.session
        if exchange.request is not None:
            exchange.request.work.cancel("the client closed its connection")
        elif session is not None:
            session.stream = None
            session.release()

    def over(self, exchange: Exchange) -> None:
        """See `ExchangeHost`; the stream of a session has no counts but its own."""
        if exchange.request is None:
            return
        del self._under_way[exchange]
        if not self._under_way:
            self._none_left.set()
        if exchange.session is not None:
            exchange.session.release()
        if exchange.kept_bytes:
            self._held.end(exchange.client_key, exchange.kept_bytes)

    def keep(self, client: str, size: int) -> str:
        """See `ExchangeHost`."""
        return self._held.begin(client, size)

    def end_client(self, client: Client, why: str) -> None:
        """End all that the holder of one token has here, and tell it why."""
        for exchange in tuple(self._under_way):
            if who_of(exchange.client_key) == client.key:
                exchange.give_up(SESSION_ENDED, why)
        for session in self.sessions:
            if session.who == client.key:
                self.sessions.end(session)
        self._content.on_revoked(client.user)

    async def _own(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_open)
                self._is_ready.set_result(None)
                await self._told_to_end.wait()
                await self._finish()
                tasks.cancel_scope.cancel()
        finally:
            self.end()
            for session in self.sessions:
                self.sessions.end(session)
            if not self._is_ready.done():
                self._is_ready.set_exception(ConnectionError("the deck has ended"))
                self._is_ready.exception()  # nobody may wait

    async def _finish(self) -> None:
        """Let what is under way end, then have it end; return when all is answered, or nothing more for a while."""
        self._closing.cancel()
        with cancelled_by(self._drain.hurry, self._drain.within_s):
            await self._answered()
        for exchange in tuple(self._under_way):
            request = exchange.request
            if request is not None and request.work is not None:
                request.work.end()
        # On a busy machine hundreds of answers take their time; a client that reads none does not keep us.
        left = len(self._under_way) + 1
        while 0 < len(self._under_way) < left:
            left = len(self._under_way)
            with anyio.move_on_after(ANSWER_S):
                await self._answered()

    async def _answered(self) -> None:
        while self._under_way:
            self._none_left.clear()
            await self._none_left.wait()

    async def _keep_open(self) -> None:
        """Send something now and then on connections whose answers take long; end sessions that are idle."""
        while True:
            streams = [session.stream for session in self.sessions if session.stream is not None]
            for exchange in (*self._under_way, *streams):
                if exchange.is_silent:
                    exchange.ping()
                exchange.is_silent = True
            self.sessions.expire()
            await anyio.sleep(PING_S / 2)


@lru_cache(maxsize=64)
def accepts(accept: bytes, *kinds: bytes) -> bool:
    """Return whether an `Accept` takes answers of all these media types (RFC 9110, 12.5.1)."""
    given = {each.partition(b";")[0].strip().lower() for each in accept.split(b",")}
    return all(given & {kind, kind.partition(b"/")[0] + b"/*", b"*/*"} for kind in kinds)
