"""Decide which calls of a client bypass the SDK's session as raw calls, and know which are under way.  Pure.

None does before that session has answered a request of this connection, so that the handshake, the version checks and
the era are the SDK's word; and then only a call that needs no judgement.  Whatever is unusual goes to the session.
"""

from typing import Final, Generic, Literal, TypeVar

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import correlation_key
from quarterdeck_protocol.mcp.tasks import asks_for_task

from .journal import Journal, RequestKind
from .raw_calls import (
    LEGACY,
    ClientMessage,
    Envelope,
    Key,
    WireRequest,
    envelope_of,
    read_call,
    read_cancellation,
    read_list,
)

_MAX_ENVELOPES: Final = 8
"""Distinct accepted envelopes remembered per connection; a client varies at most its log level."""

GREETED_ALREADY: Final = (
    "this session is initialized already: to begin anew, open another connection; over HTTP, send initialize without "
    "Mcp-Session-Id"
)
"""Why there is no second `initialize`, which would change what is agreed under requests that are under way."""

T = TypeVar("T")


class RawCallGate(Generic[T]):
    """What one connection has been granted so far, and its requests under way.

    `T` is a raw call, as its owner knows it.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal or Journal()
        self._forwarded: dict[Key, Envelope | Literal["initialize"] | None] = {}
        self._raw: dict[Key, T] = {}
        self._initialize_seen = False
        self._initialize_answered = False
        self._initialized = False
        self._envelopes: dict[Envelope, None] = {}

    @property
    def in_flight(self) -> int:
        """How many requests are under way."""
        return len(self._forwarded) + len(self._raw)

    @property
    def is_open(self) -> bool:
        """Whether any call may be a raw one."""
        return bool(self._envelopes) or (self._initialize_answered and self._initialized)

    @property
    def has_greeted(self) -> bool:
        """Whether `initialize` has its answer, or will: there is no second one in a session."""
        return self._initialize_answered or "initialize" in self._forwarded.values()

    def open(self) -> None:
        """Let legacy calls through: whoever owns the session saw its greeting answered and completed."""
        self._initialize_answered = self._initialized = True

    def admit(self, message: ClientMessage) -> WireRequest | None:
        """The call in `message` when it may be a raw one, None when the SDK's session has to see it."""
        if not self.is_open:
            return None
        request = read_call(message, self._envelopes or LEGACY)
        return None if request is None or request.key in self._forwarded or request.key in self._raw else request

    def admit_list(self, message: ClientMessage) -> bytes | None:
        """The id, as JSON, of a request for all tools that may be answered past the SDK's session; None for others."""
        key = correlation_key(message.id)
        if not self.is_open or key in self._forwarded or key in self._raw:
            return None
        return read_list(message, self._envelopes or LEGACY)

    def began(self, request: WireRequest, call: T) -> None:
        """A raw call is under way."""
        self._raw[request.key] = call
        kind = RequestKind.MODERN_CALL if request.is_modern else RequestKind.CALL
        self._journal.began(request.id_json, kind if request.method == "tools/call" else RequestKind.OTHER)

    def ended(self, key: Key) -> None:
        """A raw call has ended."""
        self._raw.pop(key, None)

    def call(self, key: Key) -> T | None:
        """The raw call of this request, while it is under way."""
        return self._raw.get(key)

    @property
    def calls(self) -> tuple[T, ...]:
        """The raw calls under way."""
        return tuple(self._raw.values())

    def forwarded(self, message: ClientMessage) -> None:
        """`message` was given to the SDK's session."""
        key = correlation_key(message.id)
        if key is not None and isinstance(message.method, str):
            self._initialize_seen |= message.method == "initialize"
            opening: Envelope | Literal["initialize"] | None = "initialize"
            if message.method != "initialize":
                opening = envelope_of(message)
            self._forwarded[key] = opening
            self._journal.began(msgspec.json.encode(message.id), _kind_of(message, opening))
        elif message.method == "notifications/initialized":
            self._initialized |= self._initialize_seen
        elif (cancelled := read_cancellation(message)) is not None:
            # The session never answers what was cancelled.
            self._forwarded.pop(cancelled.key, None)
            self._journal.ended(cancelled.id_json)

    def answered(self, request_id: Key | None, *, is_success: bool) -> None:
        """The SDK's session answered a request; after a success there may be raw calls."""
        key = correlation_key(request_id)
        opening = self._forwarded.pop(key, None) if key is not None else None
        if not is_success or opening is None:
            return
        if opening == "initialize":
            self._initialize_answered = True
        else:
            self._envelopes[opening] = None
            if len(self._envelopes) > _MAX_ENVELOPES:
                del self._envelopes[next(iter(self._envelopes))]


def _kind_of(message: ClientMessage, opening: Envelope | Literal["initialize"] | None) -> RequestKind:
    if opening == "initialize":
        return RequestKind.INITIALIZE
    if message.method != "tools/call":
        return RequestKind.OTHER
    if opening is not None:
        return RequestKind.MODERN_CALL
    # Who asks for a task takes no result of a call for one.
    return RequestKind.OTHER if asks_for_task(bytes(message.params)) else RequestKind.CALL
