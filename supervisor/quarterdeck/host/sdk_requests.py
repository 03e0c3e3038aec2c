"""A request that the SDK's session has judged, as the rest of the host takes it: as it came, not as models have it."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types import CLIENT_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from quarterdeck_protocol.mcp.jsonrpc import ENVELOPE_PREFIX
from quarterdeck_protocol.mcp.tasks import METHODS
from quarterdeck_protocol.tools import Client, ProgressNote, ToolDescriptor

from .calls import Tell
from .offers.content import Content
from .raw_calls import Resumption, WireRequest, caller_of

HOLD: Final = "quarterdeck.hold"
"""In the state of an HTTP request's scope: keeps a result for its client, see `refused_result`."""

MAX_LINES: Final = 64
"""Log lines that wait for a slow client; more are dropped."""

MAX_LINES_BYTES: Final = 1024 * 1024
"""Of those."""

_LOG_LEVEL: Final = f"{ENVELOPE_PREFIX}logLevel"

_META: Final = frozenset({"_meta"})

_NOT_OWN: Final = frozenset({"_meta", "inputResponses", "requestState"})


@dataclass(slots=True)
class ResultSlot:
    """Where a handler leaves the whole result for the middleware that asked it.

    Attributes:
        listed: what a list of tools shows, where every client of its version is shown the same.
    """

    whole: dict[str, object] | None = None
    listed: "tuple[ToolDescriptor, ...] | None" = None


Context = ServerRequestContext[ResultSlot, Any]


def is_modern(context: Context) -> bool:
    """Whether the request is one of 2026-07-28."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def raw_meta(context: Context) -> Mapping[str, object]:
    """`_meta` as it came: the typed one is for the SDK."""
    meta = (context.params or {}).get("_meta")
    return meta if isinstance(meta, dict) else {}


def own_meta(meta: Mapping[str, object]) -> bytes:
    """The caller's own part of `_meta`: hop-by-hop keys end here."""
    own = {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(ENVELOPE_PREFIX)}
    return msgspec.json.encode(own) if own else b""


def own_params(context: Context) -> dict[str, object]:
    """The params without `_meta` and what a request brings that is made again, which one about a task never is."""
    not_own = _META if context.method in METHODS[True] else _NOT_OWN
    return {name: value for name, value in (context.params or {}).items() if name not in not_own}


def wire_request(context: Context, *, name: str = "", arguments: object = None) -> WireRequest:
    """The request as one that came over the wire, past the SDK.

    Args:
        context: of the request.
        name: of the tool that is called; empty for another method.
        arguments: of that tool; for another method all its own params count.
    """
    meta, params = raw_meta(context), context.params or {}
    level = _log_level(context)
    able = json_bytes(meta.get(f"{ENVELOPE_PREFIX}clientCapabilities") or {}) if is_modern(context) else b""
    resumption = None
    if is_modern(context) and ("inputResponses" in params or "requestState" in params):
        state = params.get("requestState")
        responses = json_bytes(params["inputResponses"]) if "inputResponses" in params else b""
        resumption = Resumption(state if isinstance(state, str | None) else "", responses)
    return WireRequest(
        key=str(context.request_id),
        id_json=msgspec.json.encode(context.request_id),
        name=name,
        arguments=json_bytes(arguments if name else own_params(context)),
        meta=own_meta(meta),
        progress_token=_progress_token(meta),
        is_modern=is_modern(context),
        method=context.method,
        capabilities=able,
        log_level=level,
        caller=caller(context) if is_modern(context) else "",
        resumption=resumption,
        version=str(context.protocol_version),
        task=json_bytes(params["task"]) if name and not is_modern(context) and params.get("task") is not None else b"",
    )


def _progress_token(meta: Mapping[str, object]) -> bytes:
    token = meta.get("progressToken")
    return json_bytes(token) if isinstance(token, int | str) else b""


def caller(context: Context) -> str:
    """See `caller_of`, of the request of a client of 2026-07-28."""
    return caller_of(json_bytes(raw_meta(context).get(CLIENT_INFO_META_KEY)))


def hold_of(context: Context) -> Callable[[Client, int], str] | None:
    """What keeps a result for whoever makes a request; None where that is bounded otherwise."""
    if context.request is None:
        return None
    hold: Callable[[Client, int], str] | None = context.request.scope["state"].get(HOLD)
    return hold


def _log_level(context: Context) -> str:
    """From which level on a request of 2026-07-28 wants log lines; empty for none."""
    return str(raw_meta(context).get(_LOG_LEVEL) or "") if is_modern(context) else ""


def json_bytes(value: object) -> bytes:
    """A value that came as JSON, as JSON again; numbers of any size stay what they are."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


@asynccontextmanager
async def log_lines_told(content: Content, client: Client, context: Context) -> AsyncIterator[None]:
    """Tell whoever makes a request of 2026-07-28 the log lines that it asked for, all of them before its answer.

    What is raised inside comes out in a group.
    """
    level = _log_level(context)
    if not level or content.logs is None:
        yield
        return
    send, receive = anyio.create_memory_object_stream[bytes](MAX_LINES)
    waiting_bytes = 0

    def tell(notification: bytes) -> None:
        # The client reads slowly: a line is worth less than memory.
        nonlocal waiting_bytes
        if waiting_bytes + len(notification) > MAX_LINES_BYTES:
            return
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            send.send_nowait(notification)
            waiting_bytes += len(notification)

    async def pass_on() -> None:
        # Private, but the only way to a notification that the SDK does not rebuild (mcp 2.3).
        channel = context.session._request_outbound  # noqa: SLF001
        nonlocal waiting_bytes
        async with receive:
            async for notification in receive:
                waiting_bytes -= len(notification)
                message = msgspec.json.decode(notification)
                await channel.notify(message["method"], message["params"])

    close = content.logs.open(msgspec.structs.replace(client, part=caller(context)), level, tell)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pass_on)
        try:
            yield
        finally:
            close()
            send.close()


def teller(context: Context) -> Tell | None:
    """Sends progress notes to whoever made a request; None where none are wanted."""
    if "progressToken" not in raw_meta(context):
        return None

    async def tell(note: ProgressNote) -> None:
        await context.session.report_progress(note.progress, note.total, note.message)

    return tell
