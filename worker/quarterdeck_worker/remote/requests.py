"""Requests through the SDK's session: the greeting, the list of tools, calls.

A server is greeted in one of two ways, and its caller remembers which, so that the next start need not ask: one of the
2026 revision answers `server/discover`; every other answer, and silence, means the older handshake.  Requests are
tasks, one each.  A list is taken whole and bounded, page by page.  The session refuses a page for one bad tool, so
`PageDispatcher` takes the tools off a page before the session sees it; which can be shown is the supervisor's to say.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import Call, ServerCard
from quarterdeck_protocol.mcp.jsonrpc import SplitResult, split_result
from quarterdeck_protocol.mcp.relay.events import bad_output, refusal
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import Done

PROBE_S: Final = 5.0
"""How long a server may think about `server/discover` before it is greeted the old way; some never answer what they
do not know.  One that is only slow refuses the old greeting later, and is asked again."""

MAX_INSTRUCTIONS_CHARS: Final = 64 * 1024
"""A server's instructions beyond it are cut."""


async def greet(session: ClientSession, era: str, forced: str | None = None) -> ServerCard:
    """Agree on an era and say who is there.

    Args:
        session: entered, not yet greeted.
        era: the revision that this server spoke last time, empty when unknown.
        forced: the one revision that may be spoken; None for any.

    Raises:
        MCPError: it refused both ways, or the one that may be.
        RuntimeError: it speaks a revision that nobody knows, or another one than it must.
    """
    if forced is not None:
        await _insist(session, forced)
    elif era in HANDSHAKE_PROTOCOL_VERSIONS:
        await _shake_hands(session)
    else:
        await _probe(session)
    return _card(session)


async def _probe(session: ClientSession) -> None:
    with anyio.move_on_after(PROBE_S):
        try:
            await session.discover()
            return
        except MCPError as error:
            if _is_modern_only(error):
                raise
        except (ValidationError, RuntimeError):
            pass  # it answers the question, but shares no modern revision: an older one it may share
    await _shake_hands(session)


async def _insist(session: ClientSession, revision: str) -> None:
    """Agree on this revision or on none."""
    try:
        if revision in HANDSHAKE_PROTOCOL_VERSIONS:
            await _initialize_as(session, revision)
        else:
            await session.discover()
    except MCPError as error:
        if error.error.code not in (types.UNSUPPORTED_PROTOCOL_VERSION, types.METHOD_NOT_FOUND):
            raise
        raise RuntimeError(f"it does not speak {revision}, which the key protocol of its row forces") from error
    if session.protocol_version != revision:
        spoken = session.protocol_version
        raise RuntimeError(f"it speaks {spoken}, and not {revision}, which the key protocol of its row forces")


async def _initialize_as(session: ClientSession, revision: str) -> None:
    """As the SDK's own `initialize`, which asks for the newest revision."""
    params = types.InitializeRequestParams(
        protocol_version=revision,
        capabilities=types.ClientCapabilities(),
        client_info=session._client_info,  # noqa: SLF001 - it has no other way to say it (mcp 2.3)
    )
    session.adopt(await session.send_request(types.InitializeRequest(params=params), types.InitializeResult))
    await session.send_notification(types.InitializedNotification())


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        # Only a modern server says this: it was asleep when it was asked first.
        if error.error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


def _is_modern_only(error: MCPError) -> bool:
    if error.error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
        return False
    try:
        supported = types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return False
    return not any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)


def _card(session: ClientSession) -> ServerCard:
    info = session.server_info
    capabilities = session.server_capabilities
    tools = capabilities.tools if capabilities is not None else None
    return ServerCard(
        era=session.protocol_version or "",
        name=info.name[:200] if info else "",
        version=info.version[:200] if info else "",
        instructions=(session.instructions or "")[:MAX_INSTRUCTIONS_CHARS],
        announces_tools=bool(tools and tools.list_changed),
    )


def is_modern(era: str) -> bool:
    """Whether requests of this era carry an envelope."""
    return era in MODERN_PROTOCOL_VERSIONS


# Calls

RAW_RESULT: TypeAdapter[Any] = TypeAdapter(dict[str, object])
"""Results as plain values: the SDK's models drop fields that they do not know."""

LOCAL_ERRORS = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
"""Codes that the SDK makes up here; a server that sends them says nothing we can tell apart."""

PING_S = 5.0
"""How long a server that broke off may take to say that it is there."""


_Work = Callable[[], Awaitable[SplitResult | FaultRecord]]


class SdkServer:
    """See `Server`.  Tasks live in the given group; ending it ends them.

    `lost` is set when the connection was found to be gone.
    """

    def __init__(
        self,
        card: ServerCard,
        session: ClientSession,
        tasks: anyio.abc.TaskGroup,
        notifier: Notifier,
        signs_of_loss: Sequence[anyio.Event] = (),
        *,
        max_bytes: int,
    ) -> None:
        self.card = card
        self._session = session
        self._tasks = tasks
        self._notifier = notifier
        self._max_bytes = max_bytes
        self._running: dict[int, tuple[anyio.CancelScope, Done]] = {}
        self._signs_of_loss = signs_of_loss
        self.lost = anyio.Event()

    def refusal(self) -> FaultRecord | None:
        """See `Server`: how much waits is the transport's to bound."""
        return None

    def call(self, call: Call, arguments: bytes, done: Done) -> None:
        """See `Server`."""
        self._start(call.request_id, partial(self._ask, call, arguments), done)

    def list_tools(self, request_id: int, done: Done) -> None:
        """See `Server`."""
        self._start(request_id, self._list, done)

    def cancel(self, request_id: int, reason: str) -> bool:  # noqa: ARG002 - the SDK sends its own reason
        """See `Server`; the SDK tells the server in its transport's way."""
        running = self._running.pop(request_id, None)
        if running is None:
            return False
        running[0].cancel()
        return True

    def _start(self, request_id: int, work: _Work, done: Done) -> None:
        scope = anyio.CancelScope()
        self._running[request_id] = (scope, done)
        self._tasks.start_soon(self._run, request_id, work, scope)

    async def _run(self, request_id: int, work: _Work, scope: anyio.CancelScope) -> None:
        with scope:
            outcome = await work()
            if (running := self._running.pop(request_id, None)) is not None:
                running[1](outcome)

    async def _list(self) -> SplitResult | FaultRecord:
        try:
            return SplitResult(await list_tools(self._session))
        except ListingError as error:
            return FaultRecord(FaultKind.PROTOCOL, str(error), error.code, Delivery.ANSWERED)
        except MCPError as error:
            return fault_of_error(error)

    async def _ask(self, call: Call, arguments: bytes) -> SplitResult | FaultRecord:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            self._notifier.progress(call.request_id, progress, total, message)

        try:
            params = _params(call, arguments)
        except (ValueError, RecursionError) as error:
            message = f"the arguments cannot be sent: {plain_words(error)}"
            return FaultRecord(FaultKind.TOOL_ERROR, message, "bad_arguments", Delivery.NOT_SENT)
        try:
            raw: dict[str, object] = await self._session.send_request(
                types.CallToolRequest(params=params),
                RAW_RESULT,
                progress_callback=on_progress if call.progress else None,
            )
            body = json.dumps(raw, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
            return split_result(body, max_bytes=self._max_bytes)
        except MCPError as error:
            if any(sign.is_set() for sign in self._signs_of_loss):
                await anyio.sleep_forever()  # whoever watches the signs ends all calls alike
            if error.error.code == types.CONNECTION_CLOSED:
                self._tasks.start_soon(self._look_again)
            return fault_of_error(error)
        except (ValueError, RecursionError) as error:
            return bad_output(plain_words(error))

    async def _look_again(self) -> None:
        """One broken stream may be an accident.  A transport that is gone says so when it is used again."""
        with anyio.move_on_after(PING_S):
            try:
                await self._session.send_request(types.PingRequest(), RAW_RESULT)
            except MCPError as error:
                if error.error.code == types.CONNECTION_CLOSED:
                    self.lost.set()


def _params(call: Call, arguments: bytes) -> types.CallToolRequestParams:
    meta = {"_meta": json.loads(call.meta)} if call.meta else {}
    return types.CallToolRequestParams.model_validate(
        {"name": call.tool, "arguments": json.loads(arguments or b"{}"), **meta}
    )


def fault_of_error(error: MCPError) -> FaultRecord:
    """What the SDK's one error means: the server refused, or there is no server any more."""
    if error.error.code in LOCAL_ERRORS:
        message = f"the connection broke before the answer: {error.error.message}"
        return FaultRecord(FaultKind.TOOL_ERROR, message, code="server_lost", delivery=Delivery.UNKNOWN)
    data = b"" if error.error.data is None else json.dumps(error.error.data, default=str).encode()
    return refusal(error.error.code, error.error.message, data)


# Lists

MAX_TOOLS: Final = 5_000
"""More than any model can be shown, by a factor of ten."""

MAX_PAGES: Final = 500
"""A list of `MAX_TOOLS` in pages of ten; what is longer does not end."""

MAX_LIST_BYTES: Final = 32 * 1024 * 1024
"""All tool objects together, as JSON."""


MAX_CURSOR_CHARS: Final = 64 * 1024
"""Of a page's cursor; every one is kept, to know a list that goes round."""


class ListingError(Exception):
    """A list that cannot be taken; `code` is its stable name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def list_tools(session: ClientSession) -> bytes:
    """Every tool object as one JSON array, in the server's order; unknown fields are kept.

    Raises:
        ListingError: `too_many_pages`, `too_many_tools` or `bad_output`.
        MCPError: the server refused.
    """
    tools: list[str] = []
    size = 0
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        rows, following = await _page(session, cursor)
        for row in rows:
            text = _as_json(row)
            size += len(text)
            tools.append(text)
        if len(tools) > MAX_TOOLS or size > MAX_LIST_BYTES:
            raise ListingError("too_many_tools", f"more than {MAX_TOOLS:,} tools, or {MAX_LIST_BYTES:,} bytes of them")
        if following is None:
            return ("[" + ",".join(tools) + "]").encode(errors="replace")
        if len(following) > MAX_CURSOR_CHARS:
            raise ListingError("bad_output", f"a cursor of the list of tools has {len(following):,} characters")
        if following in seen:
            raise ListingError("too_many_pages", "the list of tools comes back to a page that it had")
        seen.add(following)
        cursor = following
    raise ListingError("too_many_pages", f"the list of tools has more than {MAX_PAGES} pages")


class PageDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's own, but for one thing; see the module."""

    async def send_raw_request(self, method: str, *args: Any, **more: Any) -> dict[str, Any]:
        """See `JSONRPCDispatcher`."""
        page = await super().send_raw_request(method, *args, **more)
        taken = _taken.get(None)
        rows = page.get("tools")
        if taken is None or method != "tools/list" or not isinstance(rows, list):
            return page
        taken += rows
        return page | {"tools": []}


async def _page(session: ClientSession, cursor: str | None) -> tuple[list[object], str | None]:
    """The tool objects of one page, and the cursor of the next."""
    params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
    rows: list[object] = []
    _taken.set(rows)
    try:
        page = await session.send_request(types.ListToolsRequest(params=params), RAW_RESULT)
    except (ValidationError, RecursionError) as error:
        raise ListingError("bad_output", f"the list of tools does not follow MCP: {plain_words(error)}") from error
    # A session that somebody else made has another dispatcher, and leaves the tools in their place.
    return [*rows, *page["tools"]], page.get("nextCursor")


def _as_json(row: object) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return "null"  # Python reads more than JSON knows: this is left out like any other broken tool


_taken: Final[ContextVar[list[object]]] = ContextVar("_taken")
"""Where the tools of the page go that this very task asks for."""
