"""Take calls of servers' tools over HTTP from bytes to bytes, past the application and the SDK, in both eras.

A list of tools is answered here, too, where the SDK has answered one of the same tools before: with the same bytes.

Above it `connection`, which reads requests and writes answers; `raw_calls` decides, by the rules of stdio.  A legacy
session's calls are taken after the SDK greeted its client; those of 2026-07-28 after the SDK accepted the same
envelope, under the same version header, from the same client.  Everything else is left to the application: batches,
ids in use, headers that mirror arguments, large bodies, and whatever comes while serving ends.
"""

from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import anyio
import msgspec
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Send

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.host.asks.abilities import NOTHING
from quarterdeck.host.asks.requests import Asking
from quarterdeck.host.caller import Caller
from quarterdeck.host.calls import Drain
from quarterdeck.host.held_bytes import UNCOUNTED_BYTES, HeldBytes
from quarterdeck.host.mcp_server import ANSWERED
from quarterdeck.host.offers.content import Content
from quarterdeck.host.raw_calls import (
    OWNED,
    ClientMessage,
    Envelope,
    UnreadableError,
    WireRequest,
    envelope_of,
    read_call,
    read_cancellation,
    read_introduction,
    read_list,
    read_message,
)
from quarterdeck_protocol.mcp.jsonrpc import correlation_key
from quarterdeck_protocol.tools import Client

from .admission import Admitted, Header
from .connection import COMING, MAX_HELD_BYTES, NOBODY, Exchange, RawAnswer, Scope
from .guests import Guests
from .http_call import Holder, HttpCall, LegacySession
from .request_head import Head, read_head

HEAD: Final = "quarterdeck.head"
"""In the state of a request's scope: what the short way read of its head."""

ENDED: Final = "quarterdeck.ended"
"""In the state of a request's scope: called when the application has answered it."""

PING_S: Final = 15.0
"""Of silence at most, before an answer is kept open by a comment: as the SDK does, since proxies give up on it."""

MAX_ENVELOPES: Final = 256
"""Accepted ones remembered for one client; one more takes the place of the one used longest ago."""

MAX_ENVELOPE_BYTES: Final = 4096
"""Of one that is remembered: a name, a version and capabilities take some hundred."""

REQUEST_CANCELLED: Final = -32800
"""What the SDK answers a legacy request with that was cancelled."""

SESSION_ENDED: Final = -32000

_VERSIONS: Final = frozenset(one.encode() for one in HANDSHAKE_PROTOCOL_VERSIONS)
_MODERN_VERSIONS: Final = frozenset(one.encode() for one in MODERN_PROTOCOL_VERSIONS)
_OWNED: Final = frozenset(method.encode() for method in OWNED)
_LIST: Final = b"tools/list"


class HttpShortWay:
    """The short way to one host.

    Attributes:
        server_info: our identity as JSON.
        calls: those under way.
        guests: the clients without sessions.
    """

    def __init__(
        self,
        content: Content,
        server_info: bytes,
        drain: Drain,
        *,
        mirrors: Callable[[str], bool],
        ready_list: Callable[[Client, str], bytes | None],
        in_flight: InFlight,
        held: HeldBytes,
        on_end: Callable[[], None] = lambda: None,
        max_body_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        """A way that nothing has opened yet.

        Args:
            content: what clients are shown, and can reach.
            server_info: our identity as JSON.
            drain: how the calls end when serving does.
            mirrors: whether arguments of this tool stand in headers, too, so that the SDK has to compare them.
            ready_list: the result of `tools/list` for a client of this protocol version, where it is ready as bytes.
            in_flight: what is open of each client; what would be too much is left to the application, which refuses it.
            held: what is kept for each client: answers that it does not read, and large arguments.
            on_end: called when a call has ended.
            max_body_bytes: a larger body is left to the application.
        """
        self._content: Final = content
        self.server_info: Final = server_info
        self.calls: Final[dict[HttpCall, None]] = {}
        self.guests: Final = Guests()
        self.on_end: Final = on_end
        self._drain = drain
        self._mirrors = mirrors
        self._ready_list = ready_list
        self._in_flight = in_flight
        self._held = held
        self._max_body_bytes = max_body_bytes
        self._sessions: dict[bytes, LegacySession] = {}
        self._envelopes: dict[tuple[str, bytes], dict[Envelope, None]] = {}
        drain.ending.on_cancel(self._end_all)

    def caller_of(self, client: Client, session: LegacySession | None, exchange: Exchange) -> Caller:
        """A client as it makes requests; a session's client is asked on the stream of its request."""
        return Caller(self._content, client, Asking(session.asking, exchange.tell) if session is not None else None)

    def opened(
        self,
        session_id: str,
        client: Client,
        version: str,
        holder: Holder,
        stack: AsyncExitStack,
        capabilities: bytes = NOTHING,
    ) -> None:
        """The SDK greeted a legacy client in this version: take its calls until `stack` is left, with its session.

        `capabilities` say what the client can be asked.
        """
        key = session_id.encode()
        if key not in self._sessions:
            session = self._sessions[key] = LegacySession(who_of(client.key), version, holder, capabilities)
            stack.callback(self._closed, key, session)

    def may_take(self, scope: Scope, verdict: Admitted) -> bool:
        """See `ShortWay`, of a POST that was admitted."""
        state = scope["state"]
        head = state[HEAD] = self._head_of(verdict, scope["headers"])
        if head is None or self._drain.closing.cancelled:
            return False
        if head.body_bytes > UNCOUNTED_BYTES:
            # A client could open many, and send but the half of each.
            if self._held.begin(head.client.key, head.body_bytes):
                return False
            state[COMING] = partial(self._held.end, head.client.key, head.body_bytes)
        return True

    def take(self, scope: Scope, body: bytes, exchange: Exchange) -> RawAnswer | None:
        """See `ShortWay`."""
        head: Head = scope["state"][HEAD]
        try:
            message = read_message(body)
        except UnreadableError:
            return None
        exchange.headers = head.headers
        take = self._take_legacy if head.session else self._take_modern
        return take(head, message, scope, exchange)

    async def keep_open(self) -> None:
        """Send something now and then on connections whose answers take long; never returns, ends by cancellation."""
        while True:
            for call in tuple(self.calls):
                if call.exchange.is_silent:
                    call.exchange.ping()
                call.exchange.is_silent = True
            await anyio.sleep(PING_S / 2)

    def _head_of(self, verdict: Admitted, headers: list[Header]) -> Head | None:
        """What matters of it; None when the request is none for the short way."""
        head = read_head(verdict.client, verdict.headers, headers, self._max_body_bytes)
        if head is None or not head.session:
            return head if head is not None and head.version in _MODERN_VERSIONS else None
        session = self._session_of(head)
        if session is None or session.who != head.who or (head.version and head.version not in _VERSIONS):
            return None
        head.headers = (*head.headers, (b"mcp-session-id", head.session))
        return head

    def _session_of(self, head: Head) -> LegacySession | None:
        session = self._sessions.get(head.session)
        return None if session is None or session.holder.has_ended else session

    def _take_legacy(self, head: Head, message: ClientMessage, scope: Scope, exchange: Exchange) -> RawAnswer | None:
        if (session := self._session_of(head)) is None:
            return None
        gate = session.gate
        if session.asking.take(message):
            exchange.accept()
            return NOBODY
        if (cancelled := read_cancellation(message)) is not None:
            if (call := gate.call(cancelled.key)) is not None:
                call.cancel(REQUEST_CANCELLED, "Request cancelled", cancelled.reason)
            return None  # the SDK answers it
        request = gate.admit(message)
        if request is not None and (begun := self._begin(request, head, exchange, session)) is not None:
            return begun
        if (id_json := gate.admit_list(message)) is not None:
            session.holder.hold()
            answered = self._answer_list(id_json, session.version, head, exchange)
            session.holder.release()
            if answered is not None:
                return answered
        if (key := correlation_key(message.id)) is not None and message.method is not None:
            gate.forwarded(message)
            scope["state"][ENDED] = partial(gate.answered, key, is_success=False)
        return None

    def _take_modern(self, head: Head, message: ClientMessage, scope: Scope, exchange: Exchange) -> RawAnswer | None:
        self.guests.meet(head.client, message)
        # By version, too: the SDK compared the header with the envelope when it accepted both.
        place = head.who, head.version
        accepted = self._envelopes.get(place, {})
        if head.method in _OWNED and (request := read_call(message, accepted)) is not None:
            is_plain = request.method != "tools/call" or not self._mirrors(request.name)
            if is_plain and head.method == request.method.encode() and head.name == _named(request):
                return self._begin(request, head, exchange, None)
            return None
        if head.method == _LIST and not head.name and (id_json := read_list(message, accepted)) is not None:
            return self._answer_list(id_json, head.version.decode(), head, exchange)
        envelope = envelope_of(message)
        if envelope is not None and envelope not in accepted:
            if (info := read_introduction(message)) is not None:
                self._content.programs.introduce(head.client, info.name)
            scope["state"][ANSWERED] = partial(self._accept, place, envelope)
        return None

    def _begin(
        self, request: WireRequest, head: Head, exchange: Exchange, session: LegacySession | None
    ) -> "HttpCall | None":
        if self._drain.closing.cancelled:
            return None
        key = head.client.key
        if self._in_flight.begin(key):
            return None
        call = HttpCall(self, request, exchange, session)
        if not self._held.begin(key, call.request_bytes):
            if call.begin(head.client):
                return call
            self._held.end(key, call.request_bytes)
        self._in_flight.end(key)
        return None

    def ended(self, call: HttpCall) -> None:
        """A call that had begun is over; while its answer waits for its client to read it counts all the same."""
        key = call.client.key
        self._held.end(key, call.request_bytes)
        call.exchange.when_taken(partial(self._was_read, key, call.answer_bytes))
        self.on_end()

    def hold(self, client: Client, size: int) -> str:
        """Keep so much for a client; empty when it was counted, else which bound it met."""
        return self._held.begin(client.key, size)

    def _was_read(self, key: str, size: int) -> None:
        self._in_flight.end(key)
        self._held.end(key, size)

    def _answer_list(self, id_json: bytes, version: str, head: Head, exchange: Exchange) -> RawAnswer | None:
        """Answer with the tools, where they are ready as bytes."""
        listed = self._ready_list(head.client, version)
        if listed is None or self._drain.closing.cancelled or self._in_flight.begin(head.client.key):
            return None
        exchange.answer(b'{"jsonrpc":"2.0","id":', id_json, b',"result":', listed, b"}")
        exchange.when_taken(partial(self._in_flight.end, head.client.key))
        return NOBODY

    def _accept(self, place: tuple[str, bytes], envelope: Envelope) -> None:
        if sum(len(name) + len(value) for name, value in envelope) > MAX_ENVELOPE_BYTES:
            return
        accepted = self._envelopes.setdefault(place, {})
        accepted.pop(envelope, None)
        accepted[envelope] = None
        if len(accepted) > MAX_ENVELOPES:
            del accepted[next(iter(accepted))]

    def _closed(self, key: bytes, session: LegacySession) -> None:
        self._sessions.pop(key, None)
        session.asking.close()
        for call in session.gate.calls:
            call.cancel(SESSION_ENDED, "the session has ended", "the session has ended")

    def callers(self) -> Collection[str]:
        """See `CallsPast`."""
        return {who_of(call.client.key) for call in self.calls}

    def end_calls(self, who: str, why: str) -> None:
        """See `CallsPast`."""
        for call in tuple(self.calls):
            if who_of(call.client.key) == who:
                call.cancel(SESSION_ENDED, why, why)

    def _end_all(self) -> None:
        for call in tuple(self.calls):
            call.end()


class _Named(msgspec.Struct, gc=False):
    name: str = ""
    uri: str = ""


def _named(request: WireRequest) -> bytes:
    """What the header `Mcp-Name` has to say of a request (specification of 2026-07-28, basic/transports)."""
    name = request.name
    if request.method in ("prompts/get", "resources/read"):
        try:
            params = _params.decode(request.arguments)
        except msgspec.DecodeError:
            return b"\0"  # no header says so: the application refuses it
        name = params.name if request.method == "prompts/get" else params.uri
    return name.encode("utf-8", "surrogatepass")


_params: Final = msgspec.json.Decoder(_Named)


def telling(app: ASGIApp) -> ASGIApp:
    """`app`, and who wants to know when a request of it is over."""

    async def tell(scope: Any, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if (ended := scope.get("state", {}).get(ENDED)) is not None:
                ended()

    return tell
