"""Judge one request: its era's envelope, its method, the shape of its parameters.  What is right becomes a `Request`.

The order of the judgements, and the words of the refusals, are those of the SDK's server.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from quarterdeck_protocol.mcp.jsonrpc import (
    ENVELOPE_PREFIX,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ClientMessage,
    Key,
)
from quarterdeck_protocol.mcp.tasks import METHODS
from quarterdeck_protocol.tools import CallTrace, ProgressNote

from .methods import DECODERS, IN_ERA, MODERN_VERSION, TOOL_METHODS, UNSUPPORTED_VERSION, Abilities

MAX_KNOWN_BYTES: Final = 4096
"""Size of an envelope whose judgement is remembered: a name, a version and capabilities take some hundred."""

VERSION_KEY: Final = f"{ENVELOPE_PREFIX}protocolVersion"
_CAPABILITIES_KEY: Final = f"{ENVELOPE_PREFIX}clientCapabilities"
_CLIENT_KEY: Final = f"{ENVELOPE_PREFIX}clientInfo"
_LEVEL_KEY: Final = f"{ENVELOPE_PREFIX}logLevel"
_AGAIN: Final = ("inputResponses", "requestState")
_BAD_PARAMS: Final = "Invalid request parameters"
_EMPTY: Final = Raw(b"{}")
_NULL: Final = b"null"


class ClientInfo(msgspec.Struct, frozen=True, gc=False):
    """The name and version by which a client introduces itself."""

    name: str
    version: str


class Params(msgspec.Struct, gc=False, rename="camel"):
    """The parameters that are looked at before their method is, or whatever it is; raw, and empty where absent."""

    meta: Raw = msgspec.field(name="_meta", default=Raw())
    name: Raw = Raw()
    uri: Raw = Raw()
    arguments: Raw = Raw()
    task: Raw = Raw()
    input_responses: Raw = Raw()
    request_state: Raw = Raw()
    protocol_version: Raw = Raw()
    capabilities: Raw = Raw()


Check = Callable[[Params], None]
"""Compares the parameters of a request with what its carrier said; raises `Refused`."""


def nothing_to_check(_: Params) -> None:
    """A carrier that says nothing besides a request."""


class Refused(Exception):  # noqa: N818 - a verdict
    """A request that is not carried out; the fields are those of its JSON-RPC error, `data` absent for `UNSET`."""

    def __init__(self, code: int, message: str, data: object = UNSET) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Resumption(msgspec.Struct, frozen=True, gc=False):
    """The answers of a request of 2026-07-28 that is made again.

    Attributes:
        state: its `requestState`, as it came; None where it brings none.
        responses: its `inputResponses`, one JSON object; empty for none.
    """

    state: str | None = None
    responses: bytes = b""


class Request(msgspec.Struct):
    """A client's request, judged.

    Attributes:
        key: the id for correlation: 7 and "7" are one.
        id_json: the id as JSON, for the answer.
        version: the revision that its client speaks.
        name: of the tool that is called; empty for another method.
        arguments: of the tool, one JSON object, untouched; of another method all its parameters but `_meta`.
        meta: the caller's own `_meta`, without hop-by-hop keys; empty for none.
        progress_token: as JSON, empty when no progress is wanted.
        capabilities: what a client of 2026-07-28 can be asked, one JSON object; empty for a legacy client.
        log_level: from which on a client of 2026-07-28 wants log lines; empty for none.
        caller: a digest of a 2026-07-28 client's description of itself; programs that share a token differ by it.
        resumption: the answers that it brings when it is made again.
        on_progress: takes notes of how far it is; None where none are wanted.
        task: of a call of 2025-11-25 that is to be a task, what it says of it, as JSON; empty for an ordinary call.
        line: it as it came, where a carrier keeps that.
        work: whatever carries it out, for its owner.
        trace: None where nobody traces it.
    """

    key: Key
    id_json: bytes
    method: str
    version: str
    name: str = ""
    arguments: bytes = b"{}"
    meta: bytes = b""
    progress_token: bytes = b""
    is_modern: bool = False
    capabilities: bytes = b""
    log_level: str = ""
    caller: str = ""
    resumption: Resumption | None = None
    on_progress: Callable[[ProgressNote], None] | None = None
    task: bytes = b""
    line: bytes = b""
    work: Any = None
    trace: CallTrace | None = None
    older: "Request | None" = None
    """One that is under way under the same id."""


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The envelope of a request of 2026-07-28."""

    capabilities: bytes
    caller: str
    info: ClientInfo | None
    log_level: str


def read_params(message: ClientMessage) -> Params:
    """Return the members of a request's parameters.

    Raises:
        Refused: they are not an object.
    """
    # The line is known to be JSON, UTF-8 and without line breaks: `read_message` has seen to it.
    try:
        return _params.decode(message.params or _EMPTY) or _NO_PARAMS
    except (msgspec.DecodeError, RecursionError):
        raise Refused(INVALID_REQUEST, "not a JSON-RPC 2.0 message: its params are not one JSON object") from None


def claims_modern(meta: Raw) -> bool:
    """Whether a `_meta` carries the version of a modern envelope, which no legacy client sends."""
    try:
        return VERSION_KEY in _object.decode(meta)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def judge(
    message: ClientMessage,
    key: Key,
    params: Params,
    version: str,
    *,
    check: Check = nothing_to_check,
    has_offers: bool = True,
) -> tuple[Request, Envelope | None]:
    """Return the request that a message is, and its envelope where it is one of 2026-07-28.

    Args:
        message: it.
        key: of its id.
        params: of it.
        version: the revision of its session.
        check: compares an envelope that is there with what its carrier said.
        has_offers: whether there is more than tools here.

    Raises:
        Refused: it is not carried out.
    """
    method, is_modern = str(message.method), version == MODERN_VERSION
    members = _members(params.meta, is_modern=is_modern) if params.meta or is_modern else {}
    envelope = read_envelope(members, params, check) if is_modern else None
    if method not in IN_ERA[is_modern] or not (has_offers or method in TOOL_METHODS):
        raise Refused(METHOD_NOT_FOUND, "Method not found", method)
    try:
        if method == "tools/call":
            # Not by its shape: the arguments, which may be large, would be looked at once more.
            name, arguments = _text.decode(params.name or _EMPTY), bytes(params.arguments)
            if not arguments.startswith(b"{"):
                if _present(arguments):
                    raise Refused(INVALID_PARAMS, _BAD_PARAMS, "")
                arguments = b"{}"
        else:
            name, arguments = "", _own_params(message, method)
        request = Request(key, msgspec.json.encode(message.id), method, version, name, arguments)
        if members:
            request.meta, request.progress_token = _passed_on(members)
        if envelope is not None:
            request.is_modern = True
            request.capabilities, request.caller = envelope.capabilities, envelope.caller
            request.log_level = envelope.log_level
            if params.request_state or params.input_responses:
                state = _state.decode(params.request_state or _NULL)
                request.resumption = Resumption(state, bytes(params.input_responses))
        elif params.task and method == "tools/call" and (task := _present(params.task)):
            _object.decode(task)
            request.task = task
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(INVALID_PARAMS, _BAD_PARAMS, "") from None
    return request, envelope


def _present(value: bytes | Raw) -> bytes:
    """The JSON of a value; empty for null, too."""
    return b"" if (given := bytes(value)) == _NULL else given


def _own_params(message: ClientMessage, method: str) -> bytes:
    """The parameters of a request that calls no tool, without those of the hop: the very bytes where there are none."""
    given = _object_or_null.decode(message.params or _EMPTY) or {}
    DECODERS[method].decode(message.params if given else _EMPTY)
    left_out = {"_meta"} if method in METHODS[True] else {"_meta", *_AGAIN}
    own = {name: raw for name, raw in given.items() if name not in left_out}
    return bytes(message.params) if given and len(own) == len(given) else msgspec.json.encode(own)


def _passed_on(members: Mapping[str, Raw]) -> tuple[bytes, bytes]:
    """What of a `_meta` is the caller's own, and the progress token; each empty where there is none."""
    token = b""
    if "progressToken" in members:
        _token.decode(members["progressToken"])
        token = _present(members["progressToken"])
    own = {
        name: raw for name, raw in members.items() if name != "progressToken" and not name.startswith(ENVELOPE_PREFIX)
    }
    return (msgspec.json.encode(own) if own else b""), token


def _members(meta: Raw, *, is_modern: bool) -> Mapping[str, Raw]:
    if not is_modern and not _present(meta):
        return {}
    try:
        return _object.decode(meta or _NULL)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if not is_modern:
            raise Refused(INVALID_PARAMS, _BAD_PARAMS, "") from None
        needed = f"the required {VERSION_KEY!r} and {_CAPABILITIES_KEY!r} envelope keys"
        raise Refused(INVALID_PARAMS, f"params._meta must be an object carrying {needed}") from None


def read_envelope(members: Mapping[str, Raw], params: Params, check: Check) -> Envelope:
    """Return the envelope among the members of a `_meta`.

    Raises:
        Refused: there is none, or it is of another revision.
    """
    if missing := [key for key in (VERSION_KEY, _CAPABILITIES_KEY) if key not in members]:
        raise Refused(INVALID_PARAMS, f"params._meta is missing the required envelope key(s): {', '.join(missing)}")
    check(params)
    parts = tuple(bytes(members.get(key, b"")) for key in (VERSION_KEY, _CAPABILITIES_KEY, _CLIENT_KEY, _LEVEL_KEY))
    read = _known_envelope if sum(map(len, parts)) <= MAX_KNOWN_BYTES else _envelope
    return read(*parts)


def _envelope(version_json: bytes, capabilities: bytes, info_json: bytes, level_json: bytes) -> Envelope:
    try:
        version = _text.decode(version_json)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refused(INVALID_PARAMS, "the protocol-version envelope value must be a string") from None
    if version != MODERN_VERSION:
        raise unsupported(version)
    try:
        _abilities.decode(capabilities)
        info = _info.decode(info_json or _NULL)
        level = _level.decode(level_json or _NULL)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(INVALID_PARAMS, _BAD_PARAMS, "") from None
    return Envelope(capabilities, caller_of(info_json), info, level or "")


def unsupported(version: str) -> Refused:
    """Return the refusal of a revision that is not served."""
    data = {"supported": [MODERN_VERSION], "requested": version}
    return Refused(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def caller_of(info: bytes) -> str:
    """Return a short digest of a program's description of itself, JSON, by which those of one token differ."""
    try:
        words = msgspec.json.encode(msgspec.json.decode(info or _NULL), order="sorted")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        words = info
    return hashlib.sha256(words).hexdigest()[:16]


_known_envelope: Final = lru_cache(maxsize=256)(_envelope)
_params: Final = msgspec.json.Decoder(Params | None)
_NO_PARAMS: Final = Params()
_object: Final = msgspec.json.Decoder(dict[str, Raw])
_object_or_null: Final = msgspec.json.Decoder(dict[str, Raw] | None)
_abilities: Final = msgspec.json.Decoder(Abilities)
_info: Final = msgspec.json.Decoder(ClientInfo | None)
_level: Final = msgspec.json.Decoder(str | None)
_token: Final = msgspec.json.Decoder(int | str | None)
_text: Final = msgspec.json.Decoder(str)
_state: Final = msgspec.json.Decoder(str | None)
