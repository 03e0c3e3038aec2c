"""Make what a tried server is sent: handshakes, envelopes, calls, lines that are no messages.  Pure."""

from typing import Final, NamedTuple

import msgspec

from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.mcp.client.eras import HANDSHAKE_REVISIONS, MODERN_REVISIONS

from .episode import Members, RequestId
from .schemas import simple_schema
from .values import argument_sets, refused_sets

LEGACY: Final = HANDSHAKE_REVISIONS[-1]
MODERN: Final = MODERN_REVISIONS[-1]

NO_VERSION: Final = "1999-01-01"
"""A protocol version that never existed."""

LONG_LINE_BYTES: Final = 1024 * 1024

INITIALIZE: Final[Members] = {
    "capabilities": {},
    "clientInfo": {"name": "quarterdeck-check", "version": CLIENT_VERSION},
}

"""The params of `initialize` besides the version: a client without capabilities."""


class PlannedCall(NamedTuple):
    """A call; its purpose is `call`, or `refused: ` with what is wrong with its arguments."""

    purpose: str
    name: str
    arguments: Members


def planned_calls(tool: Members, folder: str) -> list[PlannedCall]:
    """Return the calls of one tool; paths in their arguments lie in `folder`."""
    name = str(tool["name"])
    simple = simple_schema(tool.get("inputSchema"))
    calls = [PlannedCall("call", name, arguments) for arguments in argument_sets(simple, folder)]
    return calls + [PlannedCall(f"refused: {what}", name, sent) for what, sent in refused_sets(simple, folder)]


def envelope(version: str = MODERN) -> Members:
    """Return the envelope of a request of 2026-07-28."""
    prefix = "io.modelcontextprotocol/"
    meta: Members = {
        f"{prefix}protocolVersion": version,
        f"{prefix}clientCapabilities": {},
        f"{prefix}clientInfo": INITIALIZE["clientInfo"],
    }
    return {"_meta": meta}


def with_progress(params: Members | None, token: str) -> Members:
    """Return the params of a request, with a progress token unless that is empty."""
    sent: Members = dict(params or {})
    if token:
        meta = sent.get("_meta")
        sent["_meta"] = {**(meta if isinstance(meta, dict) else {}), "progressToken": token}
    return sent


def message(method: str, params: Members | None, request_id: RequestId | None = None) -> bytes:
    """Return a request as JSON; a notification if it has no id."""
    members: Members = {"jsonrpc": "2.0"}
    if request_id is not None:
        members["id"] = request_id
    return msgspec.json.encode({**members, "method": method, "params": params or {}})


def prompt_arguments(prompt: Members) -> Members:
    """Return texts for the arguments that a prompt requires."""
    listed = prompt.get("arguments")
    named = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return {str(each.get("name")): "sample" for each in named if each.get("required") is True}


TRIALS: Final = (
    ("garbage", (b"this is no JSON\n", b'{"jsonrpc": "2.0", "id": 7000, "method"\n')),
    ("odd-json", (b"[]\n", b'"text"\n', b"null\n", b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}\n', b"{}\n")),
    ("bad-utf8", (b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"\xff\xfe"}}\n',)),
)
"""Lines that no client should send, and one bug or attack away all do."""
