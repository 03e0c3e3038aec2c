"""Headers of requests to a remote server: its session, the revision that is spoken, what a proxy routes by.  Pure."""

import base64
import re
from typing import Final

import httpx2
import msgspec

from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.mcp.jsonrpc import ENVELOPE_PREFIX, Message
from quarterdeck_protocol.mcp.tasks import METHODS

from .bodies import EVENT_STREAM

SESSION_ID: Final = "mcp-session-id"
VERSION: Final = "mcp-protocol-version"

BOTH_KINDS: Final = {"accept": f"application/json, {EVENT_STREAM}", "content-type": "application/json"}
"""Of a message, whose answer may be a body or events."""

EVENTS_ALONE: Final = {"accept": EVENT_STREAM, "cache-control": "no-store"}  # of a request for a stream
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")  # a session's id (2025-11-25, "Session Management")


class _Meta(msgspec.Struct):
    era: str = msgspec.field(name=f"{ENVELOPE_PREFIX}protocolVersion", default="")


class _Params(msgspec.Struct):
    name: str = ""
    uri: str = ""
    taskId: str = ""  # noqa: N815 - the wire's name
    requestId: int | str = 0  # noqa: N815
    meta: _Meta = msgspec.field(name="_meta", default_factory=_Meta)


_NO_PARAMS: Final = _Params()
_params: Final = msgspec.json.Decoder(_Params)
_NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(METHODS[True], "taskId"),
}
"""By which of its params a request is routed, which a header repeats for proxies (2026-07-28, "Standard Headers")."""

_PLAIN: Final = re.compile(r"(?!=\?base64\?.*\?=\Z)(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
"""A value that a header can hold as it is."""


def session_id_of(response: httpx2.Response) -> str:
    """Return the session that a server gave; empty for none, or for one that no header can hold."""
    given = response.headers.get(SESSION_ID, "")
    return given if _VISIBLE.fullmatch(given) else ""


def session_headers(session_id: str, era: str) -> dict[str, str]:
    """Return the headers of a greeted server's session; of either that is empty, none."""
    found = {SESSION_ID: session_id, VERSION: era}
    return {name: value for name, value in found.items() if value}


def routing_headers(message: Message | None) -> dict[str, str]:
    """Return what headers repeat of a request of 2026-07-28; nothing for any other message."""
    if message is None or not message.method:
        return {}
    method, params = str(message.method), params_of(message)
    if not is_modern(params.meta.era):
        return {}
    headers = {VERSION: params.meta.era, "mcp-method": method}
    if name := getattr(params, _NAMED_BY.get(method, ""), ""):
        headers["mcp-name"] = header_value(name)
    return headers


def header_value(text: str) -> str:
    """A text as a header holds it: as it is, or in base64 where it could not be (2026-07-28, "Header Encoding")."""
    return text if _PLAIN.fullmatch(text) else f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def params_of(message: Message) -> _Params:
    """Return those of its params that matter here; empty ones where they cannot be read."""
    try:
        return _params.decode(message.params) if message.params else _NO_PARAMS
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NO_PARAMS
