"""The client's side of one MCP connection over lines.  Pure; see the package for its shape and its caller's duties."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST, BodyError, Message, correlation_key, split_line

from . import events
from .asks import MAX_ID_CHARS, Asks
from .dialogues import Dialogues, ErrorReply, Question
from .eras import Client, envelope
from .events import Refusal, RelayMisuseError
from .greeting import greet
from .lines import call_line, error_line, members_of, notification_line, request_line, result_line
from .notes import MAX_NOTE_BYTES, read_acknowledged, read_cancelled, read_note
from .paging import list_all
from .replies import ids_in, outcome_of, reply_of, unreadable
from .subscription import Subscription
from .task_tokens import TaskTokens

FIRST_ID: Final = 1 << 40
"""On the wire a request of the caller's has this and its own number; our own requests count from 1."""

MAX_IN_FLIGHT: Final = 8192
"""Requests of the caller's without an answer, as many as a link has."""

MAX_LISTS: Final = 64
MAX_REPLY_BYTES: Final = 256 * 1024
"""Answers to the server that nobody has taken: a server that asks and does not read gets no more of them."""

ECHOED: Final = "the program sends back what it is sent"
NO_MESSAGE: Final = "the answer is not a JSON-RPC message: broken, cut, or nested too deeply"

OPENING_REQUESTS: Final = frozenset({"initialize", "server/discover"})
"""Only clients send these."""

Events = Sequence[events.Event]


class Relay:
    """One connection; see the package."""

    def __init__(
        self,
        client: Client,
        *,
        now: float,
        max_bytes: int,
        forced: str | None = None,
        newer_first: bool = False,
        offers: frozenset[str] = frozenset(),
    ) -> None:
        """Start it; the first line of the greeting is ready to be taken.

        Only the revision `forced` may be spoken, if given; else `newer_first` chooses the modern era if the server
        speaks both. `offers` are the server's requests that the caller answers; all others are refused here, pings
        answered.
        """
        self._client = client
        self._max_bytes = max_bytes
        self._stamp = b""
        self._lists_stamp = b""
        self._no_calls: set[int] = set()
        self._task_tokens = TaskTokens()
        self._out: list[bytes] = []
        self._reply_bytes = 0
        self._calls: set[int] = set()
        self._dialogues = Dialogues()
        self._asks = Asks(offers)
        self._subscription = Subscription()
        self.server: events.Server | None = None
        self._send(self._dialogues.begin(greet(client.for_all, forced, newer_first=newer_first), None, now))

    # What the caller does

    @property
    def wake_at(self) -> float:
        """When `advance` must be called at the latest, monotonic seconds; it may be early, infinite is never."""
        return min(self._dialogues.deadlines.soonest, self._asks.deadlines.soonest, self._subscription.wake_at)

    def take(self) -> bytes:
        """The lines to write now, empty for none.  While the server does not read, leave them here."""
        out = self._out
        if len(out) == 1:
            self._reply_bytes = 0
            return out.pop()
        lines = b"".join(out)
        out.clear()
        self._reply_bytes = 0
        return lines

    def request(
        self,
        request_id: int,
        method: str,
        params: bytes = b"",
        *,
        meta: bytes = b"",
        progress: bool = False,
        client: Client | None = None,
    ) -> Refusal | None:
        """Ask the server. None if taken: then it ends once, or is cancelled.

        Args:
            request_id: the caller's own number, at most 2**40, never used twice: else `RelayMisuseError`.
            method: any.
            params: one JSON object without `_meta`, untouched but for line breaks between its values; empty for none.
            meta: the caller's own `_meta`, an object without envelope keys and progress token; empty for none.
            progress: whether `Progressed` is wanted.
            client: its capabilities and log level, if the era sends them with each request; None for the connection's
                own.
        """
        wire_id = FIRST_ID + request_id
        if (refusal := self._admit(wire_id)) is None:
            plain = not meta and not progress and client is None
            meta = self._stamp if plain else self._meta(wire_id, meta, progress, client)
            if method != "tools/call":
                self._no_calls.add(wire_id)
            elif progress and self.server is not None and not self.server.is_modern:
                self._task_tokens.began(request_id, params)
            self._out.append(request_line(wire_id, method, params, meta))
        return refusal

    def call(
        self,
        request_id: int,
        tool: str,
        arguments: bytes = b"{}",
        *,
        meta: bytes = b"",
        progress: bool = False,
        client: Client | None = None,
    ) -> Refusal | None:
        """`request` for `tools/call`, which costs less so."""
        wire_id = FIRST_ID + request_id
        if (refusal := self._admit(wire_id)) is not None:
            return refusal
        plain = not meta and not progress and client is None
        meta = self._stamp if plain else self._meta(wire_id, meta, progress, client)
        self._out.append(call_line(wire_id, tool, arguments, meta))
        return None

    def list_all(self, request_id: int, method: str, now: float) -> Refusal | None:
        """Take a whole list, all pages: ends in `Listed`, `ListingFailed` or `Refused`; see `request`, `paging`."""
        if self.server is None:
            return Refusal.NOT_OPEN
        if len(self._dialogues) >= MAX_LISTS:
            return Refusal.BUSY
        self._send(self._dialogues.begin(list_all(request_id, method), request_id, now))
        return None

    def cancel(self, request_id: int, reason: str = "") -> bool:
        """Give up a request and tell the server; a late answer is dropped.  False when it has ended already."""
        wire_id = FIRST_ID + request_id
        if wire_id not in self._calls:
            wire_id = self._dialogues.asked_for(request_id)
            if not wire_id:
                return False
            self._dialogues.drop(wire_id)
        self._unanswered(wire_id)
        self._tell_cancelled(wire_id, reason or "the caller gave up")
        return True

    def notify(self, method: str, params: bytes = b"") -> None:
        """Tell the server something; `params` as for `request`."""
        self._out.append(notification_line(method, params, self._stamp))

    def listen(self, kinds: Sequence[str], uris: Sequence[str] = ()) -> None:
        """Listen for changes of these lists or resources at a modern server, instead of the previous ones.

        Ends in `Listening`, or in nothing if the server refuses. A lost subscription is told as `Changed` and asked
        again. Older servers say `Changed` unasked, and take `resources/subscribe` as an ordinary request.

        Raises:
            RelayMisuseError: there is no modern server.
        """
        if self.server is None or not self.server.is_modern:
            raise RelayMisuseError("only a modern server can be listened to")
        if self._subscription.wire_id:
            self._tell_cancelled(self._subscription.wire_id, "listening for something else")
            self._subscription.ended()
        if self._subscription.want(kinds, uris):
            self._ask_subscription()

    def answer(self, ask_id: int, result: bytes) -> bool:
        """Answer a request of the server's with one JSON object; False when it has ended already."""
        if (server_id := self._asks.end(ask_id)) is None:
            return False
        self._reply(result_line(server_id, result))
        return True

    def refuse(self, ask_id: int, code: int, message: str, data: bytes = b"") -> bool:
        """Answer a request of the server's with an error; False when it has ended already."""
        if (server_id := self._asks.end(ask_id)) is None:
            return False
        self._reply(error_line(server_id, code, message, data))
        return True

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was asked of the server waits for an answer, but for a subscription."""
        return not self._calls and not self._dialogues

    def awaits(self, wire_id: int) -> bool:
        """Whether the request with this id on the wire still waits for its answer."""
        return wire_id in self._calls or wire_id in self._dialogues or self._subscription.is_asked_by(wire_id)

    def fail(self, wire_id: int, fault: FaultRecord, now: float, *, is_passing: bool = False) -> Events:
        """End a request that its carrier could not deliver, or whose answer it cannot have: `Failed`; harmless if it
        has ended.

        `is_passing` says that a subscription that ends so is worth asking for again.
        """
        if self._subscription.is_asked_by(wire_id):
            return self._subscription.failed(now, is_passing=is_passing)
        if wire_id in self._calls:
            self._unanswered(wire_id)
            return (events.Failed(wire_id - FIRST_ID, fault),)
        request_id = self._dialogues.request_of(wire_id)
        if request_id is None:
            return ()
        self._dialogues.drop(wire_id)
        return (events.Failed(request_id, fault),)

    # What the clock does

    def advance(self, now: float) -> Events:
        """What follows from time alone; to be called at `wake_at`, and whenever it is convenient."""
        happened: list[events.Event] = []
        for wire_id in self._dialogues.deadlines.due(now):
            happened += self._resume(wire_id, None, now)
        for ask_id in self._asks.deadlines.due(now):
            self.refuse(ask_id, INVALID_REQUEST, "nobody answered in time")
            happened.append(events.AskEnded(ask_id, events.EndOfAsk.EXPIRED))
        if now >= self._subscription.wake_at:
            self._ask_subscription()
        return happened

    # What the server says

    def receive(self, line: bytes, now: float, to: int = 0) -> Events:
        """Return the meaning of a line (without its end), usually one event; never raises.

        `to` is the wire id of the one request that the line can answer, whatever id it names; 0 for any.
        """
        try:
            message = split_line(line)
        except BodyError:
            return self._junk(line, now, to)
        if message.method is UNSET:
            key = to or (message.id if type(message.id) is int else correlation_key(message.id))
            if isinstance(key, int) and key in self._calls:
                self._calls.remove(key)
                is_call = not (self._no_calls and key in self._no_calls)
                if not is_call:
                    self._no_calls.remove(key)
                outcome = outcome_of(message, key - FIRST_ID, self._max_bytes, is_call=is_call)
                if self._task_tokens.calls:
                    result = outcome.result if isinstance(outcome, events.Answered) else None
                    self._task_tokens.ended(key - FIRST_ID, result)
                return (outcome,)
            return self._answered(key, message, now)
        if message.id is UNSET:
            return self._noted(message, line, now)
        return self._asked(message, line, now)

    def _answered(self, key: int | str | None, message: Message, now: float) -> Events:
        if self._subscription.is_asked_by(key):
            return self._subscription.answered(is_error=bool(message.error), now=now)
        if isinstance(key, int) and key in self._dialogues:
            return self._resume(key, reply_of(message), now)
        return ()  # late, forged, or a second answer

    def _junk(self, line: bytes, now: float, to: int) -> Events:
        """Take a line that is no message: a request that it was meant to answer ends here, not by timeout."""
        junk = events.Junk(line)
        if not (to or line.startswith(b"{")):
            return (junk,)
        for key in (to,) if to else ids_in(line):
            if key in self._calls:
                self._unanswered(key)
                return junk, events.Spoiled(key - FIRST_ID, NO_MESSAGE)
            if key in self._dialogues:
                return junk, *self._resume(key, unreadable(), now)
        return (junk,)

    def _noted(self, message: Message, line: bytes, now: float) -> Events:
        method = str(message.method)
        if len(line) > MAX_NOTE_BYTES:
            return (events.Junk(line),)
        try:
            if method == "notifications/cancelled":
                return self._cancelled(message.params, now)
            if method == "notifications/subscriptions/acknowledged":
                return self._acknowledged(message.params, now)
            note = read_note(method, message.params, self._owner_of)
        except BodyError:
            return (events.Junk(line),)
        if isinstance(note, events.Progressed):
            return (self._task_tokens.said(note),)
        return () if note is None else (note,)

    def _owner_of(self, token: int | str | None) -> int | None:
        if not isinstance(token, int):
            return None
        request_id = token - FIRST_ID
        return request_id if token in self._calls or self._task_tokens.has(request_id) else None

    def _cancelled(self, params: msgspec.Raw, now: float) -> Events:
        server_id = read_cancelled(params)
        if self._subscription.is_asked_by(correlation_key(server_id)):
            return self._subscription.lost(now)
        ask_id = self._asks.cancelled(server_id)
        return () if ask_id is None else (events.AskEnded(ask_id, events.EndOfAsk.CANCELLED),)

    def _acknowledged(self, params: msgspec.Raw, now: float) -> Events:
        subscription_id, honoured = read_acknowledged(params)
        if not self._subscription.is_asked_by(correlation_key(subscription_id)):
            return ()
        self._subscription.acknowledged(now)
        return (events.Listening(honoured),)

    def _asked(self, message: Message, line: bytes, now: float) -> Events:
        """Answer a server's request at once where it is not the caller's: a flood must not stand before our answers."""
        method, server_id = str(message.method), message.id
        key = correlation_key(server_id)
        if method in OPENING_REQUESTS and self.server is None and isinstance(key, int) and key in self._dialogues:
            self._dialogues.drop(key)
            return (events.GreetingFailed(ECHOED, INVALID_REQUEST, is_echo=True),)
        if not isinstance(server_id, int | str) or (isinstance(server_id, str) and len(server_id) > MAX_ID_CHARS):
            return (events.Junk(line),)
        if self._reply_bytes > MAX_REPLY_BYTES:
            return ()
        may_ask = self.server is not None and not self.server.is_modern
        asked = self._asks.receive(method, server_id, message.params, now, may_ask=may_ask)
        if isinstance(asked, events.Asked):
            return (asked,)
        self._reply(asked)
        return ()

    # Requests

    def _unanswered(self, wire_id: int) -> None:
        self._calls.discard(wire_id)
        self._no_calls.discard(wire_id)
        self._task_tokens.ended(wire_id - FIRST_ID)

    def _admit(self, wire_id: int) -> Refusal | None:
        calls = self._calls
        if self.server is None:
            return Refusal.NOT_OPEN
        if len(calls) >= MAX_IN_FLIGHT:
            return Refusal.BUSY
        if wire_id in calls:
            raise RelayMisuseError(f"request {wire_id - FIRST_ID} is under way already")
        calls.add(wire_id)
        return None

    def _meta(self, wire_id: int, meta: bytes, progress: bool, client: Client | None) -> bytes:
        stamp = self._stamp if client is None or self.server is None else envelope(self.server.era, client)
        token = b'"progressToken":%d' % wire_id if progress else b""
        return b",".join(part for part in (members_of(meta), stamp, token) if part)

    # Our own requests

    def _send(self, question: Question) -> None:
        ask = question.ask
        self._out.append(request_line(question.wire_id, ask.method, ask.params, self._lists_stamp))

    def _resume(self, wire_id: int, reply: bytes | ErrorReply | None, now: float) -> Events:
        match self._dialogues.resume(wire_id, reply, now):
            case Question() as question:
                self._send(question)
                return ()
            case events.Greeted(server=server) as event:
                self.server = server
                self._stamp = envelope(server.era, self._client)
                self._lists_stamp = envelope(server.era, self._client.for_all)
                if not server.is_modern:
                    self.notify("notifications/initialized")
                return (event,)
            case event:
                return (event,)

    def _ask_subscription(self) -> None:
        wire_id = self._dialogues.next_id()
        self._subscription.asked(wire_id)
        self._out.append(request_line(wire_id, "subscriptions/listen", self._subscription.params, self._stamp))

    # Lines

    def _tell_cancelled(self, wire_id: int, reason: str) -> None:
        params = msgspec.json.encode({"requestId": wire_id, "reason": reason})
        self.notify("notifications/cancelled", params)

    def _reply(self, line: bytes) -> None:
        self._reply_bytes += len(line)
        self._out.append(line)
