"""Read what a client says, and which of its requests may be answered past the SDK's session.  Pure.

Only a call that needs no judgement may; whatever is unusual goes to the session.  `raw_call_gate` knows when.
"""

import hashlib
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck_protocol.mcp.jsonrpc import (
    ENVELOPE_PREFIX,
    INVALID_REQUEST,
    PARSE_ERROR,
    BodyError,
    Message,
    check_object,
    correlation_key,
)
from quarterdeck_protocol.tools import Report

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""One line of a client; the same as one line of a server."""

MAX_KEPT_INFO_BYTES: Final = 4096
"""Of a client's word about itself whose digest is remembered."""

_VERSION_KEY: Final = ENVELOPE_PREFIX + "protocolVersion"

Key = int | str
Envelope = tuple[tuple[str, bytes], ...]

_CAPABILITIES_KEY: Final = ENVELOPE_PREFIX + "clientCapabilities"
_LOG_LEVEL_KEY: Final = ENVELOPE_PREFIX + "logLevel"

OWNED: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
"""The requests that one server answers, which their names or URIs tell."""

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


class Resumption(msgspec.Struct, frozen=True, gc=False):
    """What a request of 2026-07-28 brings that is made again, with answers.

    Attributes:
        state: its `requestState`, as it came; None where it brings none.
        responses: its `inputResponses`, one JSON object; empty for none.
    """

    state: str | None = None
    responses: bytes = b""


class WireRequest(msgspec.Struct, frozen=True, gc=False):
    """A client's request as it came over the wire, which may become a raw call.

    Attributes:
        id_json: the request's id as JSON, for the answer.
        name: of the tool; empty for another method.
        arguments: of the tool, one JSON object, untouched; of another method all its params but `_meta`.
        meta: the caller's own `_meta`, empty for none.
        progress_token: as JSON, empty when no progress is wanted.
        is_modern: whether the answer needs the 2026-07-28 envelope.
        method: one of `OWNED`; by the SDK's session also one about a task.
        capabilities: what a client of 2026-07-28 says with it that it can be asked; empty for an older one.
        log_level: from which on it wants log lines; empty for none, and for an older one.
        caller: a digest of the client's description of itself, see `caller_of`; empty for a legacy client.
        resumption: what it brings when it is made again.
        task: of a call of 2025-11-25 that is to be a task, what it says of it, as JSON; empty for an ordinary call.
        version: the protocol revision that its client speaks; empty for one of which no more than the era is known.
        on_progress: takes progress notes; None where none are wanted.
    """

    key: Key
    id_json: bytes
    name: str
    arguments: bytes
    meta: bytes
    progress_token: bytes
    is_modern: bool
    method: str = "tools/call"
    capabilities: bytes = b""
    log_level: str = ""
    caller: str = ""
    resumption: Resumption | None = None
    task: bytes = b""
    version: str = ""
    on_progress: Report | None = None


class Cancellation(msgspec.Struct, frozen=True):
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


def caller_of(info: bytes) -> str:
    """What tells programs apart that share a token: their own words about themselves, JSON, as a short digest."""
    return _known_caller(info) if len(info) <= MAX_KEPT_INFO_BYTES else _caller(info)


@lru_cache(maxsize=64)
def _known_caller(info: bytes) -> str:
    return _caller(info)


def _caller(info: bytes) -> str:
    try:
        words = msgspec.json.encode(msgspec.json.decode(info or b"null"), order="sorted")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        words = info
    return hashlib.sha256(words).hexdigest()[:16]


class _Able(msgspec.Struct, gc=False):
    capabilities: Raw = Raw(b"{}")


def read_capabilities(message: ClientMessage) -> bytes:
    """What a client says in `initialize` that it can be asked, one JSON object."""
    try:
        return bytes(_able.decode(message.params).capabilities)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return b"{}"


def read_call(message: ClientMessage, envelopes: Container[Envelope]) -> WireRequest | None:
    """The call in `message` when it may be a raw one, None for whatever else it is.

    Args:
        message: what the client sent.
        envelopes: those that the SDK accepted before, byte for byte; `LEGACY` for a legacy client, which has none.
    """
    key = correlation_key(message.id) if message.method in OWNED else None
    if key is None:
        return None
    try:
        return _read_call(message, key, envelopes)
    except (msgspec.DecodeError, BodyError):
        return None


def _read_call(message: ClientMessage, key: Key, envelopes: Container[Envelope]) -> WireRequest | None:
    params = _call_params.decode(message.params) if message.method == "tools/call" else _other_params(message.params)
    arguments = bytes(params.arguments)
    check_object(arguments, max_bytes=MAX_LINE_BYTES)
    meta = bytes(params.meta)
    members = check_object(meta, max_bytes=MAX_LINE_BYTES) if meta else {}
    envelope = _envelope(members) if members else ()
    if envelope not in envelopes:
        return None
    token = members.pop("progressToken", None) if members else None
    if token is not None:
        _token.decode(token)
    own = {name: raw for name, raw in members.items() if not name.startswith(ENVELOPE_PREFIX)} if members else members
    resumption = None
    if params.responses is not UNSET or params.state is not UNSET:
        if not envelope:
            return None
        responses = b"" if params.responses is UNSET else bytes(params.responses)
        resumption = Resumption(None if params.state is UNSET else params.state, responses)
    return WireRequest(
        key=key,
        id_json=msgspec.json.encode(message.id),
        name=params.name,
        arguments=arguments,
        meta=msgspec.json.encode(own) if own else b"",
        progress_token=b"" if token is None else bytes(token),
        is_modern=bool(envelope),
        method=str(message.method),
        capabilities=bytes(members.get(_CAPABILITIES_KEY, b"")),
        log_level=_text.decode(members[_LOG_LEVEL_KEY]) if _LOG_LEVEL_KEY in members else "",
        caller=caller_of(bytes(members.get(_CLIENT_KEY, b""))) if envelope else "",
        resumption=resumption,
    )


def _other_params(params: Raw) -> "_CallParams":
    """The params of a method whose own ones are nobody's business here."""
    members = check_object(bytes(params or b"{}"), max_bytes=MAX_LINE_BYTES)
    others = {name: raw for name, raw in members.items() if name not in _NOT_OWN}
    return _CallParams(
        name="",
        arguments=params if len(others) == len(members) and params else Raw(msgspec.json.encode(others)),
        meta=members.get("_meta", Raw()),
        responses=members.get("inputResponses", UNSET),
        state=_text.decode(members["requestState"]) if "requestState" in members else UNSET,
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
    responses: Raw | UnsetType = msgspec.field(name="inputResponses", default=UNSET)
    state: str | UnsetType = msgspec.field(name="requestState", default=UNSET)


_NOT_OWN: Final = frozenset({"_meta", "inputResponses", "requestState"})


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
_able: Final = msgspec.json.Decoder(_Able)
_client_info: Final = msgspec.json.Decoder(ClientInfo)
_call_params: Final = msgspec.json.Decoder(_CallParams)
_meta_only: Final = msgspec.json.Decoder(_MetaOnly)
_list_params: Final = msgspec.json.Decoder(_ListParams)
_cancelled: Final = msgspec.json.Decoder(_CancelledParams)
_token: Final = msgspec.json.Decoder(int | str)
_text: Final = msgspec.json.Decoder(str)


def _envelope(meta: Mapping[str, Raw]) -> Envelope:
    return tuple(sorted((name, bytes(raw)) for name, raw in meta.items() if name.startswith(ENVELOPE_PREFIX)))


def envelope_of(message: ClientMessage) -> Envelope | None:
    """The envelope of a request that claims the modern era, None for any other."""
    try:
        meta = _meta_only.decode(message.params).meta
    except msgspec.DecodeError:
        return None
    return _envelope(meta) if meta and _VERSION_KEY in meta else None
