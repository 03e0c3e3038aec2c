"""Requests through the SDK's session to a server that was greeted: lists, calls and all others.

Requests are tasks, one each.  A list is taken whole and bounded, page by page; what of it can be shown is the
supervisor's to say.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    SubscriptionLost,
    ToolsListChanged,
    listen,
)
from mcp.shared.exceptions import MCPError

from quarterdeck_protocol.backoff import RELISTEN, Backoff
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import AskAnswer, Call, Forward, ListKind, ServerCard
from quarterdeck_protocol.mcp.client import METHODS
from quarterdeck_protocol.mcp.client.connection import NO_MESSAGE
from quarterdeck_protocol.mcp.client.events import bad_output, refusal
from quarterdeck_protocol.mcp.client.paging import MAX_CURSOR_CHARS, MAX_ITEMS, MAX_LIST_BYTES, MAX_PAGES, noun
from quarterdeck_protocol.mcp.client.task_tokens import TaskTokens
from quarterdeck_protocol.mcp.jsonrpc import BodyError, SplitResult, checked_value, split_result
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import Done, first_of

from .handshake import is_modern
from .lifetime import Lifetime
from .recorder import BROKEN, ENDS_SESSION, TRANSIENT, StatusRecorder
from .session import Session, as_json, send, tell

LOCAL_ERRORS: Final = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
"""Codes that the SDK makes up here; a server that sends them says nothing we can tell apart."""

UNREADABLE: Final = "Failed to parse"
"""How the SDK begins the error that it puts in the place of an answer which is no message."""

PING_S: Final = 5.0
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
        recorder: StatusRecorder | None = None,
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
        # A session of ours speaks for whoever asks; one that others made has somebody who answers.
        self._nobody = b"{}" if isinstance(session, Session) else b""
        self._task_tokens = session.raw.task_tokens if isinstance(session, Session) else TaskTokens()
        self._recorder = recorder or StatusRecorder()
        self._changes = Changes(session, card.announces, notifier, self._refused)
        self.lost = anyio.Event()

    def start_listening(self) -> None:
        """Hear of changes from a server of 2026-07-28; the older ones just say so."""
        if is_modern(self.card.era):
            self._tasks.start_soon(self._changes.hear)

    def refusal(self) -> FaultRecord | None:
        """See `Server`: how much waits is the transport's to bound."""
        return None

    def call(self, call: Call, arguments: bytes, done: Done) -> None:
        """See `Server`."""
        self._start(call.request_id, partial(self._call, call, arguments), done)

    def forward(self, request: Forward, params: bytes, done: Done) -> None:
        """See `Server`."""
        self._start(request.request_id, partial(self._forward, request, params), done)

    def list_items(self, request_id: int, kind: ListKind, done: Done) -> None:
        """See `Server`."""
        self._start(request_id, partial(self._list, kind), done)

    def cancel(self, request_id: int, reason: str) -> bool:  # noqa: ARG002 - the SDK sends its own reason
        """See `Server`; the SDK tells the server in its transport's way."""
        running = self._running.pop(request_id, None)
        if running is None:
            return False
        running[0].cancel()
        self._task_tokens.ended(request_id)
        return True

    def answer(self, answer: AskAnswer, body: bytes) -> None:
        """See `Server`; a session that others made asks them."""
        if isinstance(self._session, Session):
            said = json.loads(body) if body else None
            end = MCPError(answer.code, answer.message, said) if answer.code else dict(said or {})
            self._session.raw.questions.answer(answer.ask_id, end)

    def tell(self, method: str, params: bytes) -> None:
        """See `Server`."""
        self._tasks.start_soon(self._tell, method, params)

    def listen(self, uris: tuple[str, ...]) -> None:
        """See `Server`."""
        self._changes.of_resources(uris)
        if uris:
            self._notifier.listening(len(uris))

    def _start(self, request_id: int, work: _Work, done: Done) -> None:
        scope = anyio.CancelScope()
        self._running[request_id] = (scope, done)
        self._tasks.start_soon(self._run, request_id, work, scope)

    async def _run(self, request_id: int, work: _Work, scope: anyio.CancelScope) -> None:
        with scope, Lifetime():
            outcome = await work()
            if (running := self._running.pop(request_id, None)) is not None:
                running[1](outcome)

    async def _tell(self, method: str, params: bytes) -> None:
        try:
            await tell(self._session, method, json.loads(params) if params else {})
        except (MCPError, ValueError, RecursionError):
            pass  # what is told unasked can be missed; a connection that is gone is noticed elsewhere

    async def _list(self, kind: ListKind) -> SplitResult | FaultRecord:
        try:
            return SplitResult(await list_items(self._session, kind))
        except ListingError as error:
            return FaultRecord(FaultKind.PROTOCOL, str(error), error.code, Delivery.ANSWERED)
        except MCPError as error:
            return self._refused(error) or fault_of_error(error)

    async def _call(self, call: Call, arguments: bytes) -> SplitResult | FaultRecord:
        try:
            params: dict[str, object] = {"name": call.tool, "arguments": _object_of(arguments or b"{}")}
        except (ValueError, RecursionError) as error:
            return _unsendable("arguments", error)
        return await self._ask("tools/call", params, call)

    async def _forward(self, request: Forward, body: bytes) -> SplitResult | FaultRecord:
        try:
            params = _object_of(body or b"{}")
        except (ValueError, RecursionError) as error:
            return _unsendable("params", error)
        if request.method == "tools/call" and request.progress and not is_modern(self.card.era):
            self._task_tokens.began(request.request_id, body)
        outcome = await self._ask(request.method, params, request)
        self._task_tokens.ended(request.request_id, outcome if isinstance(outcome, SplitResult) else None)
        return outcome

    async def _ask(self, method: str, params: dict[str, object], request: Call | Forward) -> SplitResult | FaultRecord:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            self._notifier.progress(request.request_id, progress, total, message)

        try:
            if request.meta:
                params["_meta"] = _object_of(request.meta)
        except (ValueError, RecursionError) as error:
            return _unsendable("_meta", error)
        try:
            raw = await send(
                self._session,
                method,
                params,
                request_id=request.request_id if isinstance(self._session, Session) else None,
                on_progress=on_progress if request.progress else None,
                capabilities=request.capabilities or self._nobody,
                log_level=request.log_level,
            )
            return split_result(as_json(raw), max_bytes=self._max_bytes, is_call=method == "tools/call")
        except MCPError as error:
            if (fault := self._refused(error)) is not None:
                return fault
            if any(sign.is_set() for sign in self._signs_of_loss):
                await anyio.sleep_forever()  # whoever watches the signs ends all calls alike
            if error.error.code == types.CONNECTION_CLOSED:
                self._tasks.start_soon(self._look_again)
            return fault_of_error(error)
        except (ValueError, RecursionError) as error:
            return bad_output(plain_words(error))

    def _refused(self, error: MCPError) -> FaultRecord | None:
        """The fault of a request that HTTP refused; None for the server's own word.

        What it means for all the others follows once whoever asked has it.
        """
        fault = self._recorder.fault_of(error)
        if fault is not None and fault.code in ENDS_SESSION:
            self._tasks.start_soon(self._end)
        elif fault is not None and fault.code in BROKEN:
            self._tasks.start_soon(self._look_again)
        return fault

    async def _end(self) -> None:
        self._recorder.rejected.set()

    async def _look_again(self) -> None:
        """One broken stream may be an accident.  A transport that is gone says so when it is used again."""
        with anyio.move_on_after(PING_S), Lifetime():
            try:
                await send(self._session, "ping", {})
            except MCPError as error:
                fault = self._recorder.fault_of(error)
                if fault is not None and fault.code in ENDS_SESSION:
                    await self._end()
                elif error.error.code == types.CONNECTION_CLOSED or (fault is not None and fault.code in BROKEN):
                    self.lost.set()


def _object_of(body: bytes) -> dict[str, object]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise BodyError("not one JSON object")
    return value


def _unsendable(what: str, error: Exception) -> FaultRecord:
    message = f"the {what} cannot be sent: {plain_words(error)}"
    return FaultRecord(FaultKind.TOOL_ERROR, message, "bad_arguments", Delivery.NOT_SENT)


def fault_of_error(error: MCPError) -> FaultRecord:
    """What the SDK's one error means: the server refused, or there is no server any more."""
    if error.error.code in LOCAL_ERRORS:
        message = f"the connection broke before the answer: {error.error.message}"
        return FaultRecord(FaultKind.TOOL_ERROR, message, code="server_lost", delivery=Delivery.UNKNOWN)
    if error.error.code == types.PARSE_ERROR and error.error.message.startswith(UNREADABLE):
        return bad_output(NO_MESSAGE)
    try:
        data = b"" if error.error.data is None else checked_value(as_json(error.error.data))
    except (ValueError, RecursionError):
        data = b""
    return refusal(error.error.code, error.error.message, data)


# What changes


class Changes:
    """The standing request by which a server of 2026-07-28 tells what changes."""

    def __init__(
        self,
        session: ClientSession,
        kinds: Sequence[str],
        notifier: Notifier,
        refused: Callable[[MCPError], FaultRecord | None],
    ) -> None:
        """`refused` says which fault of HTTP is behind an error."""
        self._refused = refused
        self._session = session
        self._kinds = kinds
        self._notifier = notifier
        self._uris: tuple[str, ...] = ()
        self._is_other = anyio.Event()

    def of_resources(self, uris: tuple[str, ...]) -> None:
        """Hear of these resources from now on, beside the lists."""
        self._uris = uris
        self._is_other.set()

    async def hear(self) -> None:
        """Pass on what changes; to be cancelled."""
        while True:
            self._is_other = anyio.Event()
            await first_of(self._hold, self._is_other.wait)

    async def _hold(self) -> None:
        pauses = Backoff(RELISTEN)
        while self._kinds or self._uris:
            since = anyio.current_time()
            try:
                async with listen(
                    self._session,
                    tools_list_changed="tools" in self._kinds,
                    prompts_list_changed="prompts" in self._kinds,
                    resources_list_changed="resources" in self._kinds,
                    resource_subscriptions=list(self._uris),
                ) as told:
                    async for event in told:
                        if isinstance(event, ResourceUpdated):
                            self._notifier.updated(event.uri)
                        else:
                            self._notifier.changed(_CHANGED[type(event)])
                break
            except SubscriptionLost:
                # No replay: whatever happened in between, all of it must be asked for again.
                for kind in self._kinds:
                    self._notifier.changed(kind)
                for uri in self._uris:
                    self._notifier.updated(uri)
            except MCPError as error:
                fault = self._refused(error)
                if fault is None or fault.code not in TRANSIENT:
                    break
            await anyio.sleep(pauses.after(anyio.current_time() - since))
        await anyio.sleep_forever()


_CHANGED: Final = {ToolsListChanged: "tools", PromptsListChanged: "prompts", ResourcesListChanged: "resources"}


# Lists


class ListingError(Exception):
    """A list that cannot be taken; `code` is its stable name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def list_items(session: ClientSession, kind: ListKind) -> bytes:
    """Every item as one JSON array, in the server's order; unknown fields are kept.

    Raises:
        ListingError: `too_many_pages`, `too_many_tools`, `too_many_items` or `bad_output`.
        MCPError: the server refused.
    """
    items: list[str] = []
    size = 0
    cursor: str | None = None
    seen: set[str] = set()
    what = noun(kind)
    for _ in range(MAX_PAGES):
        rows, following = await _page(session, kind, cursor)
        for row in rows:
            text = _as_item(row)
            size += len(text)
            items.append(text)
        if len(items) > MAX_ITEMS or size > MAX_LIST_BYTES:
            code = "too_many_tools" if kind == "tools" else "too_many_items"
            raise ListingError(code, f"more than {MAX_ITEMS:,} {what}, or {MAX_LIST_BYTES:,} bytes of them")
        if following is None:
            return ("[" + ",".join(items) + "]").encode(errors="replace")
        if len(following) > MAX_CURSOR_CHARS:
            raise ListingError("bad_output", f"a cursor of the list of {what} has {len(following):,} characters")
        if following in seen:
            raise ListingError("too_many_pages", f"the list of {what} comes back to a page that it had")
        seen.add(following)
        cursor = following
    raise ListingError("too_many_pages", f"the list of {what} has more than {MAX_PAGES} pages")


async def _page(session: ClientSession, kind: ListKind, cursor: str | None) -> tuple[list[object], str | None]:
    """The items of one page, and the cursor of the next."""
    try:
        page = await send(session, METHODS[kind], {"cursor": cursor} if cursor is not None else {})
    except RecursionError as error:
        raise _no_page(kind, plain_words(error)) from error
    rows, following = page.get(kind), page.get("nextCursor")
    if not isinstance(rows, list):
        raise _no_page(kind, f"a page has no {kind}")
    if following is not None and not isinstance(following, str):
        raise _no_page(kind, "a cursor is not text")
    return rows, following


def _no_page(kind: ListKind, why: str) -> ListingError:
    return ListingError("bad_output", f"the list of {noun(kind)} does not follow MCP: {why}")


def _as_item(row: object) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return "null"  # Python reads more than JSON knows: this is left out like any other broken item
