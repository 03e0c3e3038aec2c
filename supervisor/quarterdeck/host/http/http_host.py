"""One host over HTTP: its legacy sessions, the requests of 2026-07-28, and what is under way there.

A carrier: it knows heads, statuses and streams of events, and no method but the one that opens a session.  Above it
`serve`, which says which host a request is for; below it `host.session`.  Several hosts share one listener, and what
bounds its requests.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import msgspec

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.common.shielding import told_to_end
from quarterdeck.host.calls import ANSWER_S, GRACE_S
from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck.host.session.session import Session
from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from quarterdeck_protocol.mcp.server.http_headers import MARK, check_mirrored, check_standard, decode_value
from quarterdeck_protocol.mcp.server.messages import ClientInfo, ClientMessage, UnreadableError, read_message
from quarterdeck_protocol.mcp.server.methods import (
    DEFAULT_VERSION,
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    HTTP_STATUS,
    MODERN_VERSION,
)
from quarterdeck_protocol.mcp.server.requests import Refused, Request, nothing_to_check, unsupported
from quarterdeck_protocol.mcp.server.session import Answer, Cancelled, Notice, ServerSession
from quarterdeck_protocol.tools import CancelToken, Client

from .admission import Admitted, HttpAnswer
from .connection import OK, Exchange
from .guests import Guests
from .posts import EVENTS, JSON, Post, accepts, is_json
from .sessions import RETRY_S, HttpSession, HttpSessions, TooManySessionsError

PING_S: Final = 15.0
"""Of silence at most, before an answer is kept open by a comment: proxies give up on it otherwise."""

SESSION_ENDED: Final = -32000

_MARK: Final = MARK.encode()
_ACCEPT_BOTH: Final = "Not Acceptable: Client must accept both application/json and text/event-stream"
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


_VERSION: Final = b"mcp-protocol-version"
_SESSION: Final = b"mcp-session-id"


class HttpHost:
    """See the module; `run` has to run while it is used."""

    def __init__(
        self,
        host: ProviderHostImpl,
        in_flight: InFlight,
        held: HeldBytes,
        uses: ClientUses | None = None,
        groups: Sequence[str] = (),
        *,
        is_searched: bool = False,
    ) -> None:
        """A host that nobody has reached yet.

        Args:
            host: what is served.
            in_flight: what is open of each client, here and at other hosts of the same listener.
            held: likewise what is kept for each.
            uses: likewise what was asked; for `clients`.
            groups: those that all clients are shown, together; empty for everything.
            is_searched: whether all clients are shown two tools that find and call the others.
        """
        self._host = host
        self._content = host.content
        self._in_flight = in_flight
        self._held = held
        self._uses = uses if uses is not None else ClientUses()
        self._served_groups = groups
        self._is_searched = is_searched
        self._closing = CancelToken()
        self._guests: Final = Guests()
        self._sessions: Final = HttpSessions(self._ended)
        self._posts: dict[Post, None] = {}
        self._mirroring: tuple[object, frozenset[str]] = ((), frozenset())
        self._progress = asyncio.Event()
        self._told_to_end = asyncio.Event()
        self._is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until cancelled, or told to `end`; then what is under way is answered, and sessions end.

        Calls have `GRACE_S`, new ones are refused meanwhile, and what is left then is answered with a fault.
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
        return not (self._sessions or self._posts)

    def clients(self) -> tuple[HttpClient, ...]:
        """Who is there: each legacy session, and of clients without sessions those that were here lately."""
        legacy = (
            self._view(each.client, each.session.core.client, each.since, streams=int(each.stream is not None))
            for each in self._sessions
        )
        guests = self._guests.present(self._in_flight.of)
        return (*legacy, *(self._view(each.client, each.info, each.since) for each in guests))

    def _view(self, client: Client, info: ClientInfo | None, since: datetime, streams: int = 0) -> HttpClient:
        name, version = (info.name, info.version) if info is not None else ("", "")
        # A stream that is open for what a client is told unasked has its share of the bound, and is no call.
        calls = self._in_flight.of(client.key) - streams
        asked = self._uses.of(client.key)
        return HttpClient(name, version, client.key, client.name, calls, since.isoformat(timespec="seconds"), *asked)

    def known(self, client: Client) -> Client:
        """Who asks, in a session that there is: one that a client made up would give it bounds of its own."""
        who, _, session = client.key.partition("/")
        found = self._sessions.get(session) if session else None
        is_own = found is not None and found.who == who
        return client if not session or is_own else msgspec.structs.replace(client, key=who)

    def narrowed(self, client: Client, verdict: Admitted) -> Client:
        """Who asks, shown no more than the group of the path, and the groups of the token.

        Raises:
            NoHostError: there is no such group.
        """
        groups = self._content.groups
        if verdict.group and verdict.group not in groups.current:
            raise NoHostError(404, f"there is no group {verdict.group!r} here")
        if self._is_searched and not client.is_searched:
            client = msgspec.structs.replace(client, is_searched=True)
        return groups.narrow(client, self._served_groups, (verdict.group,) if verdict.group else (), verdict.granted)

    # One request

    def serve(self, exchange: Exchange, client: Client, body: bytes) -> None:
        """Answer a request that was admitted, whose body is whole."""
        headers = dict(exchange.request_headers)
        version = headers[_VERSION].decode("latin-1") if _VERSION in headers else DEFAULT_VERSION
        if version not in HANDSHAKE_VERSIONS:
            self._serve_modern(exchange, client, headers, version, body)
        elif exchange.method == "POST":
            self._serve_post(exchange, client, headers, body)
        elif exchange.method in ("GET", "DELETE"):
            self._serve_session(exchange, client, headers)
        else:
            allow = ((b"allow", b"GET, POST, DELETE"),)
            exchange.headers = (*exchange.headers, *allow)
            exchange.refuse(INVALID_REQUEST, "Method Not Allowed", status=405)

    def _serve_post(self, exchange: Exchange, client: Client, headers: Mapping[bytes, bytes], body: bytes) -> None:
        """Take a message of the legacy era."""
        session = self._session_of(exchange, client, headers)
        if session is None and _SESSION in headers:
            return
        if not is_json(headers.get(b"content-type", b"")):
            exchange.respond(HttpAnswer(400, "the Content-Type must be application/json"))
            return
        if not accepts(headers.get(b"accept", b""), JSON, EVENTS):
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
        session.posts += 1
        session.client = session.session.client = msgspec.structs.replace(client, key=session.key)
        exchange.headers = (*exchange.headers, (_SESSION, session.id.encode()))
        self._take(Post(self, session.session, exchange, session), message)
        core = session.session.core
        if not core.version:
            self._sessions.end(session)  # it was not greeted
        elif message.method == "initialize" and core.client is not None:
            self._content.programs.introduce(session.client, core.client.name)

    def _serve_modern(
        self, exchange: Exchange, client: Client, headers: Mapping[bytes, bytes], version: str, body: bytes
    ) -> None:
        """Take a message of 2026-07-28, which stands alone."""
        if exchange.method != "POST":
            exchange.respond(HttpAnswer(405, headers=((b"allow", b"POST"),)))
            return
        if not is_json(headers.get(b"content-type", b"")):
            exchange.respond(HttpAnswer(400, "the Content-Type must be application/json"))
            return
        if not accepts(headers.get(b"accept", b""), JSON, EVENTS):
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
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        self._take(Post(self, session, exchange), message, fields)
        self._guests.meet(client, core.client)
        if core.client is not None:
            self._content.programs.introduce(client, core.client.name)

    def _take(self, post: Post, message: ClientMessage, headers: Mapping[str, str] | None = None) -> None:
        core, exchange = post.session.core, post.exchange
        check = nothing_to_check if headers is None else partial(check_standard, message, headers)
        match core.take(message, check):
            case Request() as request:
                post.begin(request)
                try:
                    if headers is not None:
                        self._check_headers(request, headers, exchange)
                except Refused as refused:
                    error: dict[str, object] = {"code": refused.code, "message": str(refused)}
                    post.answer(request, core.refuse(request, error), refused.code)
                else:
                    post.session.serve(request, post)
            case Answer(parts=parts, code=code):
                exchange.answer(*parts, status=HTTP_STATUS.get(code, OK) if headers is not None else OK)
            case Cancelled(request, reason):
                request.work.cancelled(reason)
                exchange.acknowledge()
            case Notice() as notice:
                post.session.take_notice(notice)
                exchange.acknowledge()
            case None:
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

    def _session_of(self, exchange: Exchange, client: Client, headers: Mapping[bytes, bytes]) -> HttpSession | None:
        """The session that a request names; None where it names none, or another's, which is answered."""
        named = headers.get(_SESSION, b"").decode("latin-1")
        session = self._sessions.get(named)
        if session is not None and session.who == who_of(client.key):
            return session
        if named:
            # As of one that does not exist: what others have open is nobody's to learn.
            exchange.refuse(INVALID_REQUEST, "Session not found", status=404)
        return None

    def _opened(self, exchange: Exchange, client: Client) -> HttpSession | None:
        try:
            session = self._sessions.open(client)
        except TooManySessionsError as error:
            self._uses.refused(client, "sessions")
            exchange.headers = (*exchange.headers, (b"retry-after", str(RETRY_S).encode()))
            exchange.refuse(INTERNAL_ERROR, str(error), status=429)
            return None
        own = msgspec.structs.replace(client, key=session.key)
        core = ServerSession(asyncio.get_running_loop().call_soon, has_offers=self._content.offers is not None)
        session.client = own
        session.session = Session(self._host, own, core, self._closing, outlet=session)
        self._content.on_opened(own.key)
        return session

    def _serve_session(self, exchange: Exchange, client: Client, headers: Mapping[bytes, bytes]) -> None:
        """Open the stream of a session, or end it."""
        session = self._session_of(exchange, client, headers)
        if session is None:
            if _SESSION not in headers:
                exchange.refuse(INVALID_REQUEST, "Bad Request: Missing session ID", status=400)
            return
        exchange.headers = (*exchange.headers, (_SESSION, session.id.encode()))
        if exchange.method == "DELETE":
            self._sessions.end(session)
            exchange.acknowledge(OK)
        elif not accepts(headers.get(b"accept", b""), EVENTS):
            exchange.refuse(INVALID_REQUEST, "Not Acceptable: Client must accept text/event-stream", status=406)
        elif session.stream is not None:
            exchange.refuse(INVALID_REQUEST, "Conflict: Only one SSE stream is allowed per session", status=409)
        else:
            session.stream = exchange
            session.hold()
            exchange.on_gone = partial(self._unhear, session)
            exchange.open()

    def _unhear(self, session: HttpSession) -> None:
        session.stream = None
        session.release()

    def _ended(self, session: HttpSession) -> None:
        for post in tuple(self._posts):
            if post.http_session is session:
                post.give_up(SESSION_ENDED, "the session has ended")
        if (stream := session.stream) is not None:
            session.stream = None
            stream.close()
        session.session.leave()
        self._content.on_ended(session.client.key)

    # What is under way

    def began(self, post: Post) -> None:
        """A request is under way."""
        self._posts[post] = None

    def over(self, post: Post) -> None:
        """It is not any more."""
        self._posts.pop(post, None)
        self._progress.set()

    def keep(self, client: Client, size: int) -> str:
        """Keep so much for a client; empty when it was counted, else which bound it met."""
        return self._held.begin(client.key, size)

    def kept(self, client: Client, size: int) -> None:
        """Keep it no longer."""
        self._held.end(client.key, size)

    def end_client(self, who: str, why: str) -> None:
        """End all that one principal has here, and tell it why."""
        for post in tuple(self._posts):
            if who_of(post.client.key) == who:
                post.give_up(SESSION_ENDED, why)
        for session in self._sessions:
            if session.who == who:
                self._sessions.end(session)

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
            for session in self._sessions:
                self._sessions.end(session)
            if not self._is_ready.done():
                self._is_ready.set_exception(ConnectionError("the deck has ended"))
                self._is_ready.exception()  # nobody may wait

    async def _finish(self) -> None:
        """Let what is under way end, then have it end; return when all is answered, or nothing more for a while."""
        self._closing.cancel()
        with anyio.move_on_after(GRACE_S):
            await self._answered()
        for post in tuple(self._posts):
            post.end()
        # On a busy machine hundreds of answers take their time; a client that reads none does not keep us.
        left = len(self._posts) + 1
        while 0 < len(self._posts) < left:
            left = len(self._posts)
            with anyio.move_on_after(ANSWER_S):
                await self._answered()

    async def _answered(self) -> None:
        while self._posts:
            self._progress.clear()
            await self._progress.wait()

    async def _keep_open(self) -> None:
        """Send something now and then on connections whose answers take long; end sessions that are idle."""
        while True:
            streams = [session.stream for session in self._sessions if session.stream is not None]
            for exchange in (*(post.exchange for post in tuple(self._posts)), *streams):
                if exchange.is_silent:
                    exchange.ping()
                exchange.is_silent = True
            self._sessions.expire()
            await anyio.sleep(PING_S / 2)
