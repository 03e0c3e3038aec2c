"""The client's side of one MCP connection over lines.  Pure; see the package for its shape and its caller's duties."""

from collections.abc import Sequence
from enum import StrEnum
from math import inf
from typing import Final

import msgspec
from msgspec import UNSET

from quarterdeck_protocol.link.credit import Deadlines
from quarterdeck_protocol.mcp.jsonrpc import (
    BodyError,
    Message,
    correlation_key,
    split_line,
    split_result,
)

from . import events
from .asks import MAX_ASK_BYTES, MAX_ID_CHARS, Asks
from .eras import Client, envelope
from .greeting import greet
from .lines import error_line, notification_line, request_line, result_line
from .notes import MAX_NOTE_BYTES, read_acknowledged, read_cancelled, read_note
from .paging import list_all
from .replies import ids_in, parts_of, read_error
from .steps import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Ask,
    Dialogue,
    ErrorReply,
    SilenceError,
    checked_object,
)
from .subscription import Subscription

FIRST_ID: Final = 1 << 40
"""On the wire a request of the caller's has this and its own number; our own requests count from 1."""

MAX_IN_FLIGHT: Final = 8192
"""Requests of the caller's without an answer, as many as a link has."""

MAX_REPLY_BYTES: Final = 256 * 1024
"""Answers to the server that nobody has taken: a server that asks and does not read gets no more of them."""

UNKNOWN_METHOD: Final = "this client did not declare that capability"
UNREADABLE: Final = "the server's answer does not follow MCP"
ECHOED: Final = "the program sends back what it is sent"
NO_MESSAGE: Final = "the answer is not a JSON-RPC message: broken, cut, or nested too deeply"

OPENING_REQUESTS: Final = frozenset({"initialize", "server/discover"})
"""Only clients send these."""

Events = Sequence[events.Event]


class RelayMisuseError(Exception):
    """Our bug: a request number that is in use, an answer to nothing."""


class Refusal(StrEnum):
    """Why a request was not taken; not a byte of it will be sent."""

    NOT_OPEN = "not_open"
    BUSY = "busy"


class _Talk:
    """A dialogue under way, and whose it is: the caller's request, or 0 for our own."""

    __slots__ = ("request_id", "steps")

    def __init__(self, steps: Dialogue, request_id: int) -> None:
        self.steps = steps
        self.request_id = request_id


class Relay:
    """One connection; see the package."""

    def __init__(
        self,
        client: Client,
        *,
        now: float,
        max_bytes: int,
        era: str = "",
        forced: str | None = None,
        offers: frozenset[str] = frozenset(),
    ) -> None:
        """Start it; the first line of the greeting is ready to be taken.

        Args:
            client: who we say we are, and what we offer.
            now: monotonic seconds, as everywhere.
            max_bytes: the largest result.
            era: the revision that this server spoke last time, empty when unknown.
            forced: the one revision that may be spoken; None for any.
            offers: the server's requests that the caller answers; all others are refused here, pings answered.
        """
        self._client = client
        self._max_bytes = max_bytes
        self._offers = offers
        self._stamp = b""
        self._out: list[bytes] = []
        self._reply_bytes = 0
        self._calls = Deadlines()
        self._last_own = 0
        self._talks: dict[int, _Talk] = {}
        self._talks_until = Deadlines()
        self._asks = Asks()
        self._subscription = Subscription()
        self.server: events.Server | None = None
        self._begin(greet(client, era, forced), 0, now)

    # What the caller does

    @property
    def wake_at(self) -> float:
        """When `advance` must be called at the latest, monotonic seconds; infinite for never."""
        return min(self._calls.soonest, self._talks_until.soonest, self._asks.soonest, self._subscription.wake_at)

    def take(self) -> bytes:
        """The lines to write now, empty for none.  While the server does not read, leave them here."""
        if not self._out:
            return b""
        lines = b"".join(self._out)
        self._out.clear()
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
        until: float = inf,
    ) -> Refusal | None:
        """Ask the server; None when it was taken, and then it ends once, or is cancelled.

        Args:
            request_id: the caller's own number, at most 2**40, never used twice.
            method: any.
            params: one JSON object without `_meta`, untouched but for line breaks between its values; empty for none.
            meta: the caller's own `_meta`, an object without envelope keys and progress token; empty for none.
            progress: whether `Progressed` is wanted.
            until: its deadline, monotonic seconds.

        Raises:
            RelayMisuseError: the number is in use.
        """
        if self.server is None:
            return Refusal.NOT_OPEN
        if len(self._calls) >= MAX_IN_FLIGHT:
            return Refusal.BUSY
        wire_id = FIRST_ID + request_id
        if wire_id in self._calls:
            raise RelayMisuseError(f"request {request_id} is under way already")
        self._calls.add(wire_id, until)
        members = self._stamp
        if meta or progress:
            own = meta.strip()[1:-1].strip()
            token = b'"progressToken":%d' % wire_id if progress else b""
            members = b",".join(part for part in (own, members, token) if part)
        self._out.append(request_line(wire_id, method, params, members))
        return None

    def list_all(self, request_id: int, method: str, now: float) -> Refusal | None:
        """Take a whole list, all pages: ends in `Listed`, `ListingFailed` or `Refused`; see `request`, `paging`."""
        if self.server is None:
            return Refusal.NOT_OPEN
        self._begin(list_all(request_id, method), request_id, now)
        return None

    def cancel(self, request_id: int, reason: str = "") -> bool:
        """Give up a request and tell the server; a late answer is dropped.  False when it has ended already."""
        wire_id = FIRST_ID + request_id
        if not self._calls.remove(wire_id):
            mine = (key for key, talk in self._talks.items() if talk.request_id == request_id != 0)
            if (wire_id := next(mine, 0)) == 0:
                return False
            self._end_talk(wire_id).steps.close()
        self._tell_cancelled(wire_id, reason or "the caller gave up")
        return True

    def notify(self, method: str, params: bytes = b"") -> None:
        """Tell the server something; `params` as for `request`."""
        self._out.append(notification_line(method, params, self._stamp))

    def listen(self, kinds: Sequence[str], uris: Sequence[str] = ()) -> None:
        """Hear from a modern server that these lists or resources changed, instead of what was listened for before.

        Ends in `Listening`, or in nothing where the server refuses.  A lost subscription is told as `Changed` and asked
        again.  Older servers say `Changed` unasked, and take `resources/subscribe` as an ordinary request.

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

    def set_log_level(self, level: str) -> None:
        """Ask a modern server for log lines from this level on; an older one takes `logging/setLevel` as a request."""
        self._client = msgspec.structs.replace(self._client, log_level=level)
        if self.server is not None:
            self._stamp = envelope(self.server.era, self._client)

    def in_flight(self) -> list[int]:
        """The caller's requests without an answer: when the connection ends, what came of them is unknown."""
        listing = [talk.request_id for talk in self._talks.values() if talk.request_id]
        return [wire_id - FIRST_ID for wire_id in self._calls] + listing

    # What the clock does

    def advance(self, now: float) -> Events:
        """What follows from time alone; to be called at `wake_at`, and whenever it is convenient."""
        happened: list[events.Event] = []
        for wire_id in self._calls.due(now):
            self._calls.remove(wire_id)
            self._tell_cancelled(wire_id, "the deadline has passed")
            happened.append(events.Expired(wire_id - FIRST_ID))
        for wire_id in self._talks_until.due(now):
            happened += self._resume(self._end_talk(wire_id), SilenceError(), now)
        for ask_id in self._asks.due(now):
            self.refuse(ask_id, INVALID_REQUEST, "nobody answered in time")
            happened.append(events.AskEnded(ask_id, events.EndOfAsk.EXPIRED))
        if now >= self._subscription.wake_at:
            self._ask_subscription()
        return happened

    # What the server says

    def receive(self, line: bytes, now: float) -> Events:
        """What a line means, usually one event; whatever it is, nothing is raised."""
        try:
            message = split_line(line)
        except BodyError:
            return self._junk(line, now)
        if message.method is UNSET:
            return self._answered(message, now)
        if message.id is UNSET:
            return self._noted(message, line, now)
        return self._asked(message, line, now)

    def _answered(self, message: Message, now: float) -> Events:
        key = message.id if type(message.id) is int else correlation_key(message.id)
        if not isinstance(key, int):
            return ()
        if self._calls.remove(key):
            return (self._outcome(key - FIRST_ID, message),)
        if self._subscription.is_asked_by(key):
            return self._subscription_ended(message, now)
        if key not in self._talks:
            return ()  # late, forged, or a second answer
        talk = self._end_talk(key)
        try:
            result, error = parts_of(message)
            return self._resume(talk, read_error(error) if error else result, now)
        except BodyError:
            return self._resume(talk, ErrorReply(PARSE_ERROR, UNREADABLE), now)

    def _outcome(self, request_id: int, message: Message) -> events.Event:
        try:
            result, error = parts_of(message)
            if error:
                refused = read_error(error)
                return events.Refused(request_id, refused.code, refused.message, refused.data)
            return events.Answered(request_id, split_result(result, max_bytes=self._max_bytes))
        except BodyError as problem:
            return events.Spoiled(request_id, str(problem))

    def _junk(self, line: bytes, now: float) -> Events:
        """Take a line that is no message: a request that it was meant to answer ends here, not by timeout."""
        junk = events.Junk(line)
        if not line.startswith(b"{"):
            return (junk,)
        for key in ids_in(line):
            if self._calls.remove(key):
                return junk, events.Spoiled(key - FIRST_ID, NO_MESSAGE)
            if key in self._talks:
                return junk, *self._resume(self._end_talk(key), ErrorReply(PARSE_ERROR, UNREADABLE), now)
        return (junk,)

    def _noted(self, message: Message, line: bytes, now: float) -> Events:
        method = str(message.method)
        if len(line) > MAX_NOTE_BYTES:
            return (events.Junk(line),)
        try:
            if method == "notifications/cancelled":
                return self._cancelled(message.params, now)
            if method == "notifications/subscriptions/acknowledged":
                return self._acknowledged(message.params)
            note = read_note(method, message.params, self._owner_of)
        except BodyError:
            return (events.Junk(line),)
        return () if note is None else (note,)

    def _owner_of(self, token: int | str | None) -> int | None:
        return token - FIRST_ID if isinstance(token, int) and token in self._calls else None

    def _cancelled(self, params: msgspec.Raw, now: float) -> Events:
        server_id = read_cancelled(params)
        if self._subscription.is_asked_by(correlation_key(server_id)):
            return self._subscription_lost(now)
        ask_id = self._asks.cancelled(server_id)
        return () if ask_id is None else (events.AskEnded(ask_id, events.EndOfAsk.CANCELLED),)

    def _acknowledged(self, params: msgspec.Raw) -> Events:
        subscription_id, honoured = read_acknowledged(params)
        if not self._subscription.is_asked_by(correlation_key(subscription_id)):
            return ()
        self._subscription.acknowledged()
        return (events.Listening(honoured),)

    def _asked(self, message: Message, line: bytes, now: float) -> Events:
        """Answer a server's request at once where it is not the caller's: a flood must not stand before our answers."""
        method, server_id = str(message.method), message.id
        key = correlation_key(server_id)
        if method in OPENING_REQUESTS and self.server is None and isinstance(key, int) and key in self._talks:
            self._end_talk(key).steps.close()
            return (events.GreetingFailed(ECHOED, INVALID_REQUEST, is_echo=True),)
        if not isinstance(server_id, int | str) or (isinstance(server_id, str) and len(server_id) > MAX_ID_CHARS):
            return (events.Junk(line),)
        if self._reply_bytes > MAX_REPLY_BYTES:
            return ()
        if method == "ping":
            self._reply(result_line(server_id, b"{}"))
        elif method not in self._offers:
            self._reply(error_line(server_id, METHOD_NOT_FOUND, UNKNOWN_METHOD))
        elif self._asks.is_full or self._asks.waits(server_id):
            self._reply(error_line(server_id, INVALID_REQUEST, "too many requests at once, or two with one id"))
        else:
            try:
                params = checked_object(bytes(message.params), max_bytes=MAX_ASK_BYTES) if message.params else b"{}"
            except BodyError as problem:
                self._reply(error_line(server_id, INVALID_REQUEST, f"the params cannot be passed on: {problem}"))
            else:
                return (events.Asked(self._asks.admit(server_id, now), method, params),)
        return ()

    # Dialogues

    def _begin(self, dialogue: Dialogue, request_id: int, now: float) -> None:
        self._send(_Talk(dialogue, request_id), next(dialogue), now)

    def _send(self, talk: _Talk, ask: Ask, now: float) -> None:
        wire_id = self._next_id()
        self._talks[wire_id] = talk
        if ask.timeout_s is not None:
            self._talks_until.add(wire_id, now + ask.timeout_s)
        self._out.append(request_line(wire_id, ask.method, ask.params, self._stamp))

    def _end_talk(self, wire_id: int) -> _Talk:
        self._talks_until.remove(wire_id)
        return self._talks.pop(wire_id)

    def _resume(self, talk: _Talk, reply: bytes | Exception, now: float) -> Events:
        try:
            ask = talk.steps.send(reply) if isinstance(reply, bytes) else talk.steps.throw(reply)
        except StopIteration as end:
            event: events.Event = end.value
            if isinstance(event, events.Greeted):
                self._open(event.server)
            return (event,)
        self._send(talk, ask, now)
        return ()

    def _open(self, server: events.Server) -> None:
        self.server = server
        self._stamp = envelope(server.era, self._client)
        if not server.is_modern:
            self.notify("notifications/initialized")

    def _subscription_ended(self, message: Message, now: float) -> Events:
        """An answer ends it in good order; an error refuses it, or breaks it off when it was acknowledged before."""
        if message.error and self._subscription.is_open:
            return self._subscription_lost(now)
        self._subscription.ended()
        return ()

    def _subscription_lost(self, now: float) -> Events:
        self._subscription.lost(now)
        kinds, uris = self._subscription.kinds, self._subscription.uris
        return (*((events.Changed(kinds),) if kinds else ()), *map(events.Updated, uris))

    def _ask_subscription(self) -> None:
        wire_id = self._next_id()
        self._subscription.asked(wire_id)
        self._out.append(request_line(wire_id, "subscriptions/listen", self._subscription.params, self._stamp))

    # Lines

    def _next_id(self) -> int:
        self._last_own += 1
        return self._last_own

    def _tell_cancelled(self, wire_id: int, reason: str) -> None:
        params = msgspec.json.encode({"requestId": wire_id, "reason": reason})
        self.notify("notifications/cancelled", params)

    def _reply(self, line: bytes) -> None:
        self._reply_bytes += len(line)
        self._out.append(line)
