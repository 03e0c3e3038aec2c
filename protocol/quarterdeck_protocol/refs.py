"""Ids and names: what a server may be called, and how its tools are called beside everyone else's.  Pure."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

QUALIFIER: Final = "__"
"""Between server id and tool name; a server id never contains it, so the first one always splits a qualified name."""

MAX_SERVER_ID_CHARS: Final = 32
"""Leaves half of the 64 characters that the strictest clients allow to the tool's own name."""

MAX_TOOL_NAME_CHARS: Final = 128
"""The 2026-07-28 specification's bound on a tool name (server/tools, "Tool Names")."""

_SERVER_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class RemoteToolRef:
    """One tool on one server, by the server's own name for it."""

    server: str
    name: str


def is_server_id(text: str) -> bool:
    """Whether `text` is a legal server id: 1 to 32 of `A-Za-z0-9-` and single inner underscores."""
    return _SERVER_ID.fullmatch(text) is not None


def is_tool_name(text: str) -> bool:
    """Whether `text` is a tool name that every client can be shown."""
    return _TOOL_NAME.fullmatch(text) is not None


def to_server_id(name: str) -> str:
    """The legal id nearest to a configured `name`; equal to it when it is legal already.

    Where nothing of the name can be kept, it is `server-` and six digits of the name's hash: the same at every start.
    """
    if is_server_id(name):
        return name
    text = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    text = re.sub(r"__+", "_", text).lstrip("_-")[:MAX_SERVER_ID_CHARS].rstrip("_-")
    if is_server_id(text):
        return text
    return f"server-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def qualify_tool_name(ref: RemoteToolRef) -> str:
    """The agent-facing name of a tool: `<server>__<tool>`."""
    return f"{ref.server}{QUALIFIER}{ref.name}"


def server_of_qualified(name: str) -> str | None:
    """The server id in a qualified name, None when there is none."""
    server, found, _ = name.partition(QUALIFIER)
    return server if found and server else None
