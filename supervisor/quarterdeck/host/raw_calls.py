"""Decide which calls of a client bypass the SDK's session as raw calls, and know which are under way.  Pure.

None does before that session has answered a request of this connection, so that the handshake, the version checks and
the era are the SDK's word; and then only a call that needs no judgement.  Whatever is unusual goes to the session.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.jsonrpc import (
    ENVELOPE_PREFIX,
    INVALID_REQUEST,
    PARSE_ERROR,
    BodyError,
    Message,
    check_object,
    correlation_key,
)

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""One line of a client; the same as one line of a server."""

_MAX_ENVELOPES: Final = 8
"""Distinct accepted envelopes remembered per connection; a client varies at most its log level."""

_VERSION_KEY: Final = ENVELOPE_PREFIX + "protocolVersion"

Key = int | str
Envelope = tuple[tuple[str, bytes], ...]

LEGACY: Final[Container[Envelope]] = frozenset({()})
"""The envelopes of clients that have none."""


class ClientMessage(Message, kw_only=True, gc=False):
    """One message of a client; JSON-RPC's version is checked, as the SDK's session does."""

    jsonrpc: Literal["2.0"]


class UnreadableError(BodyError):
    """A line that is no message; `code` is what JSON-RPC calls it."""

    def __init__(self, code: int, reason: object) -> None:
        what = "not JSON" if code == PARSE_ERROR else "not a JSON-RPC 2.0 message"
        super().__init__(f"{what}: {reason}")
        self.code = code


class RawRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that may become a raw call.

    Attributes:
        id_json: the request's id as JSON, for the answer.
        arguments: one JSON object, untouched.
        meta: the caller's own `_meta`, empty for none.
        progress_token: as JSON, empty when no progress is wanted.
        is_modern: whether the answer needs the 2026-07-28 envelope.
    """

    key: Key
    id_json: bytes
    name: str
    arguments: bytes
    meta: bytes
    progress_token: bytes
    is_modern: bool


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The client gives up on a request."""

    key: Key
    reason: str
    id_json: bytes = b""


def read_message(line: bytes) -> ClientMessage:
    """The parts of one line of a client.

    Raises:
        UnreadableError: it is not a JSON-RPC message, nests too deeply, or is no UTF-8.
    """
    try:
        if not line.isascii():
            line.decode()
        return _message.decode(line)
    except msgspec.ValidationError as error:
        raise UnreadableError(INVALID_REQUEST, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(PARSE_ERROR, error) from None


def read_cancellation(message: Message) -> Cancellation | None:
    """What a `notifications/cancelled` names, None for any other message."""
    if message.method != "notifications/cancelled":
        return None
    try:
        params = _cancelled.decode(message.params)
    except msgspec.DecodeError:
        return None
    key = correlation_key(params.request_id)
    return None if key is None else Cancellation(key, params.reason or "", msgspec.json.encode(params.request_id))


class RequestKind(IntEnum):
    """How a request is answered that nobody can answer any more."""

    OTHER = 0
    INITIALIZE = 1
    CALL = 2
    MODERN_CALL = 3


class Journal:
    """Keeps what a session needs to go on after the death of its process; this one keeps nothing."""

    def introduced(self, name: str, version: str) -> None:
        """The client said who it is."""

    def received(self, data: bytes) -> None:
        """The client said this, of which nothing is taken up yet."""

    def unread(self, size: int) -> None:
        """Of all that the client said, the last so many bytes are not taken up yet."""

    def greeted(self, line: bytes) -> None:
        """The client sent a line of its greeting, which a session needs before all others."""

    def greeting_answered(self) -> None:
        """The client has the answer to its greeting."""

    def began(self, id_json: bytes, kind: RequestKind) -> None:
        """A request is under way; by its id as JSON, for 1 is another one than "1"."""

    def refused(self) -> None:
        """A request met a bound of the connection."""

    def ended(self, id_json: bytes) -> None:
        """It is not any more: its answer, if it gets one, has been written."""

    def writing(self, *, is_half: bool) -> None:
        """Whether a line to the client is half written."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A session whose process died, as its journal kept it.

    Attributes:
        greeting: the client's lines of it.
        under_way: the ids of its requests, as JSON, that have no answer.
        unread: what it said that was not taken up, the begin of a line last.
        is_greeted: whether it has the answer to its greeting.
        is_half_written: whether a line to the client was begun, of which no more comes.
    """

    greeting: bytes = b""
    under_way: Mapping[bytes, RequestKind] = field(default_factory=dict[bytes, RequestKind])
    unread: bytes = b""
    is_greeted: bool = False
    is_half_written: bool = False

    @property
    def greeted_id(self) -> Key | None:
        """The id of the greeting's request, where the client has its answer."""
        if not self.is_greeted:
            return None
        try:
            message = read_message((self.greeting + self.unread).partition(b"\n")[0])
        except UnreadableError:
            return None
        return message.id if isinstance(message.id, int | str) else None


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

    def open(self) -> None:
        """Let legacy calls through: whoever owns the session saw its greeting answered and completed."""
        self._initialize_answered = self._initialized = True

    def admit(self, message: ClientMessage) -> RawRequest | None:
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

    def began(self, request: RawRequest, call: T) -> None:
        """A raw call is under way."""
        self._raw[request.key] = call
        self._journal.began(request.id_json, RequestKind.MODERN_CALL if request.is_modern else RequestKind.CALL)

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
            self._journal.began(msgspec.json.encode(message.id), _kind_of(message.method, opening))
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


class ClientInfo(msgspec.Struct, gc=False):
    """Who a client says it is."""

    name: str
    version: str


class _Greeting(msgspec.Struct, gc=False):
    client_info: ClientInfo = msgspec.field(name="clientInfo")


def read_introduction(message: ClientMessage) -> ClientInfo | None:
    """Who sent this message, where it says so: in `initialize`, or in the envelope of 2026-07-28."""
    try:
        if message.method == "initialize":
            return _greeting.decode(message.params).client_info
        meta = _meta_only.decode(message.params).meta or {}
        return _client_info.decode(meta[_CLIENT_KEY]) if _CLIENT_KEY in meta else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_call(message: ClientMessage, envelopes: Container[Envelope]) -> RawRequest | None:
    """The call in `message` when it may be a raw one, None for whatever else it is.

    Args:
        message: what the client sent.
        envelopes: those that the SDK accepted before, byte for byte; `LEGACY` for a legacy client, which has none.
    """
    key = correlation_key(message.id) if message.method == "tools/call" else None
    if key is None:
        return None
    try:
        return _read_call(message, key, envelopes)
    except (msgspec.DecodeError, BodyError):
        return None


def _read_call(message: ClientMessage, key: Key, envelopes: Container[Envelope]) -> RawRequest | None:
    params = _call_params.decode(message.params)
    arguments = bytes(params.arguments)
    check_object(arguments, max_bytes=MAX_LINE_BYTES)
    meta = bytes(params.meta)
    members = check_object(meta, max_bytes=MAX_LINE_BYTES) if meta else {}
    envelope = _envelope(members)
    if envelope not in envelopes:
        return None
    token = members.pop("progressToken", None)
    if token is not None:
        _token.decode(token)
    own = {name: raw for name, raw in members.items() if not name.startswith(ENVELOPE_PREFIX)}
    return RawRequest(
        key=key,
        id_json=msgspec.json.encode(message.id),
        name=params.name,
        arguments=arguments,
        meta=msgspec.json.encode(own) if own else b"",
        progress_token=b"" if token is None else bytes(token),
        is_modern=bool(envelope),
    )


def read_list(message: ClientMessage, envelopes: Container[Envelope]) -> bytes | None:
    """The id, as JSON, of a `tools/list` that says no more than its era needs, None for all else; see `read_call`."""
    if message.method != "tools/list" or correlation_key(message.id) is None:
        return None
    try:
        meta = _list_params.decode(message.params or b"{}").meta or {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    envelope = _envelope(meta)
    return msgspec.json.encode(message.id) if len(envelope) == len(meta) and envelope in envelopes else None


class _CallParams(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: Raw = Raw(b"{}")
    meta: Raw = msgspec.field(name="_meta", default=Raw())


class _MetaOnly(msgspec.Struct, gc=False):
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


class _ListParams(_MetaOnly, forbid_unknown_fields=True, gc=False):
    pass


class _CancelledParams(msgspec.Struct, gc=False):
    request_id: int | str = msgspec.field(name="requestId")
    reason: str | None = None


_CLIENT_KEY: Final = ENVELOPE_PREFIX + "clientInfo"

_message: Final = msgspec.json.Decoder(ClientMessage)
_greeting: Final = msgspec.json.Decoder(_Greeting)
_client_info: Final = msgspec.json.Decoder(ClientInfo)
_call_params: Final = msgspec.json.Decoder(_CallParams)
_meta_only: Final = msgspec.json.Decoder(_MetaOnly)
_list_params: Final = msgspec.json.Decoder(_ListParams)
_cancelled: Final = msgspec.json.Decoder(_CancelledParams)
_token: Final = msgspec.json.Decoder(int | str)


def _kind_of(method: str, opening: Envelope | Literal["initialize"] | None) -> RequestKind:
    if opening == "initialize":
        return RequestKind.INITIALIZE
    if method != "tools/call":
        return RequestKind.OTHER
    return RequestKind.CALL if opening is None else RequestKind.MODERN_CALL


def _envelope(meta: Mapping[str, Raw]) -> Envelope:
    return tuple(sorted((name, bytes(raw)) for name, raw in meta.items() if name.startswith(ENVELOPE_PREFIX)))


def envelope_of(message: ClientMessage) -> Envelope | None:
    """The envelope of a request that claims the modern era, None for any other."""
    try:
        meta = _meta_only.decode(message.params).meta
    except msgspec.DecodeError:
        return None
    return _envelope(meta) if meta and _VERSION_KEY in meta else None
