"""Write what a client is sent: answers under the envelope of its era, errors, notifications.  Each is one JSON value
without a line end, in parts where a server's own bytes are among them.
"""

import math
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from quarterdeck_protocol.mcp.jsonrpc import ENVELOPE_PREFIX
from quarterdeck_protocol.tools import ProgressNote

from .methods import MODERN_VERSION
from .requests import Refused, Request

Part = bytes | memoryview

SUBSCRIPTION_KEY: Final = f"{ENVELOPE_PREFIX}subscriptionId"
"""`_meta` key of each message of a stream of 2026-07-28: the id of the request that opened it."""

_HEAD: Final = b'{"resultType":"complete",%b%b"_meta":{"%bserverInfo":%b%b}}'
_CACHE: Final = b'"ttlMs":0,"cacheScope":"private",'


def error_parts(id_json: bytes, error: object) -> tuple[Part, ...]:
    """Return an answer with this error, an object of a code, a message and perhaps data."""
    return (b'{"jsonrpc":"2.0","id":', id_json, b',"error":', msgspec.json.encode(error), b"}")


def refusal_parts(id_json: bytes, refused: Refused) -> tuple[Part, ...]:
    """Return the error that a refused request is answered with."""
    error: dict[str, object] = {"code": refused.code, "message": str(refused)}
    return error_parts(id_json, error if refused.data is UNSET else {**error, "data": refused.data})


def enveloped(request: Request, members: bytes, server_info: bytes, *, is_cacheable: bool = False) -> bytes:
    """Return a result of these members in the envelope of the request's era.

    Args:
        request: it is answered.
        members: of the result, as JSON without the braces.
        server_info: our `Implementation` as JSON.
        is_cacheable: whether a client of 2026-07-28 is told how long it holds: not at all.
    """
    if not request.is_modern:
        return b"{%b}" % members
    cache = _CACHE if is_cacheable else b""
    subscription = b""
    if request.method == "subscriptions/listen":
        subscription = b',"%b":%b' % (SUBSCRIPTION_KEY.encode(), request.id_json)
    comma = b"," if members else b""
    return _HEAD % (cache, members + comma, ENVELOPE_PREFIX.encode(), server_info, subscription)


def greeting(version: str, capabilities: bytes, server_info: bytes, instructions: str) -> bytes:
    """Return the result of `initialize`."""
    told = b',"instructions":%b' % msgspec.json.encode(instructions) if instructions else b""
    parts = (version.encode(), capabilities, server_info, told)
    return b'{"protocolVersion":"%b","capabilities":%b,"serverInfo":%b%b}' % parts


def discovery(request: Request, capabilities: bytes, server_info: bytes, instructions: str) -> bytes:
    """Return the result of `server/discover`."""
    told = b',"instructions":%b' % msgspec.json.encode(instructions) if instructions else b""
    members = b'"capabilities":%b,"supportedVersions":["%b"]%b' % (capabilities, MODERN_VERSION.encode(), told)
    return enveloped(request, members, server_info, is_cacheable=True)


def notification(method: str, params: object = None) -> bytes:
    """Return a notification; without params where there are none."""
    message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
    return msgspec.json.encode(message if params is None else {**message, "params": params})


def progress(request: Request, note: ProgressNote) -> bytes:
    """Return a note of how far a request is, under its client's own token; empty for one that is not a number."""
    if not (math.isfinite(note.progress) and math.isfinite(note.total or 0)):
        return b""
    params: dict[str, object] = {"progressToken": Raw(request.progress_token), "progress": note.progress}
    params |= {} if note.total is None else {"total": note.total}
    params |= {} if note.message is None else {"message": note.message}
    return notification("notifications/progress", params)
