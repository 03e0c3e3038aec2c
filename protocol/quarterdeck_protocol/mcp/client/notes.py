"""Read what a server says unasked, bounded.  Pure."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from quarterdeck_protocol.mcp import jsonrpc

from .events import Changed, Event, Logged, Noted, Progressed, Updated

MAX_NOTE_BYTES: Final = 1024 * 1024
"""Of a notification: nothing that is told in one is longer, and to read it costs many times its size."""

MAX_METHOD_CHARS: Final = 128
"""Of a method's name; the protocol's longest has forty."""

MAX_URI_CHARS: Final = 8 * 1024
"""Of a resource that changed."""

_T = TypeVar("_T")

CHANGES: Final = {
    "notifications/tools/list_changed": Changed(("tools",)),
    "notifications/prompts/list_changed": Changed(("prompts",)),
    "notifications/resources/list_changed": Changed(("resources",)),
}


class _Progress(msgspec.Struct):
    progressToken: int | str  # noqa: N815 - the wire's name
    progress: float
    total: float | None = None
    message: str | None = None


class _Log(msgspec.Struct):
    level: str = "info"
    logger: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Uri(msgspec.Struct):
    uri: str


class _Cancelled(msgspec.Struct):
    requestId: int | str | None = None  # noqa: N815


class _Stamp(msgspec.Struct):
    subscription_id: int | str | None = msgspec.field(name=f"{jsonrpc.ENVELOPE_PREFIX}subscriptionId", default=None)


class _Acknowledged(msgspec.Struct):
    notifications: msgspec.Raw
    meta: _Stamp = msgspec.field(name="_meta", default_factory=_Stamp)


def read_note(method: str, params: msgspec.Raw, owner_of: Callable[[int | str | None], int | None]) -> Event | None:
    """Read a notification; None for progress that `owner_of` knows no request of. Raises `BodyError`."""
    if (changed := CHANGES.get(method)) is not None:
        return changed
    match method:
        case "notifications/progress":
            note = _read(_progress, params)
            request_id = owner_of(jsonrpc.correlation_key(note.progressToken))
            return None if request_id is None else Progressed(request_id, note.progress, note.total, note.message)
        case "notifications/message":
            line = _read(_log, params)
            return Logged(line.level, line.logger or "", jsonrpc.checked_value(bytes(line.data)))
        case "notifications/resources/updated":
            uri = _read(_uri, params).uri
            if len(uri) > MAX_URI_CHARS:
                raise jsonrpc.BodyError(f"a resource's URI has {len(uri):,} characters")
            return Updated(uri)
    if len(method) > MAX_METHOD_CHARS:
        raise jsonrpc.BodyError(f"a method's name has {len(method):,} characters")
    if not params:
        return Noted(method, b"")
    return Noted(
        method, jsonrpc.params_without_envelope(jsonrpc.checked_object(bytes(params), max_bytes=MAX_NOTE_BYTES))
    )


def read_cancelled(params: msgspec.Raw) -> int | str | None:
    """Return the id of the request that the server gives up; raises `BodyError`."""
    return _read(_cancelled, params).requestId


def read_acknowledged(params: msgspec.Raw) -> tuple[int | str | None, bytes]:
    """Return which standing request is acknowledged, and the agreed filter; raises `BodyError`."""
    said = _read(_acknowledged, params)
    return said.meta.subscription_id, jsonrpc.checked_object(bytes(said.notifications), max_bytes=MAX_NOTE_BYTES)


def _read(decoder: msgspec.json.Decoder[_T], params: msgspec.Raw) -> _T:
    try:
        return decoder.decode(params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise jsonrpc.BodyError("not a notification of MCP", error) from None


_progress: Final = msgspec.json.Decoder(_Progress)
_log: Final = msgspec.json.Decoder(_Log)
_uri: Final = msgspec.json.Decoder(_Uri)
_cancelled: Final = msgspec.json.Decoder(_Cancelled)
_acknowledged: Final = msgspec.json.Decoder(_Acknowledged)
