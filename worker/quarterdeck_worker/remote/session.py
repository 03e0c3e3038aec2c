"""The SDK's session, with ways past its models, which lose what they do not know: what goes and comes stays as it is.

A session that somebody else made is asked the same way; its news and what its server asks stay with whoever made it.
"""

import json
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Protocol

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from msgspec import Raw

from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.mcp.client import FIRST_ID, events
from quarterdeck_protocol.mcp.client.asks import ASK_S, MAX_ASK_BYTES, MAX_ASKS
from quarterdeck_protocol.mcp.client.notes import read_note
from quarterdeck_protocol.mcp.client.task_tokens import TaskTokens
from quarterdeck_protocol.mcp.jsonrpc import BodyError, checked_object, params_without_envelope
from quarterdeck_protocol.mcp.tasks import METHODS
from quarterdeck_protocol.questions import askable
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import UNASKABLE

CLIENT: Final = types.Implementation(name=CLIENT_NAME, version=CLIENT_VERSION)
"""Who we say we are to servers."""


class Progress(Protocol):
    """Takes the server's progress notes."""

    def __call__(self, progress: float, total: float | None, message: str | None) -> Coroutine[Any, Any, None]:
        """One of them."""


_OWN: Final = frozenset({"notifications/cancelled", "notifications/subscriptions/acknowledged"})
"""Notifications that the SDK has dealt with; it does so with the progress of what is not answered yet, too."""

_LISTENED: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Those that a server of 2026-07-28 sends to who listens, which hears them in another way."""


async def send(
    session: ClientSession,
    method: str,
    params: dict[str, Any],
    *,
    request_id: int | None = None,
    on_progress: Progress | None = None,
    capabilities: bytes = b"",
    log_level: str = "",
) -> dict[str, Any]:
    """Ask anything; the result as it came.

    Args:
        session: greeted.
        method: any.
        params: with the caller's own `_meta`.
        request_id: the caller's own number, never used twice in a session of ours, where its progress token is known by
            it; None for one of the SDK's.
        on_progress: takes the server's progress notes; None asks it for none.
        capabilities: where the era says so with each request, what the caller can be asked; empty for the session's.
        log_level: likewise, from which on it wants log lines; empty for the session's.

    Raises:
        MCPError: an error reply, or the connection is gone.
    """
    data: dict[str, Any] = {"method": method, "params": params}
    options: CallOptions = {} if request_id is None else {"request_id": FIRST_ID + request_id}
    session._stamp(data, options)  # noqa: SLF001 - what its typed requests go through (mcp 2.3)
    if is_modern_session(session):
        meta = data["params"]["_meta"]
        if capabilities:
            meta[types.CLIENT_CAPABILITIES_META_KEY] = json.loads(capabilities)
        if log_level:
            meta[types.LOG_LEVEL_META_KEY] = log_level
        if method in METHODS[True] and isinstance(task := params.get("taskId"), str):  # the SDK knows no tasks
            options.setdefault("headers", {})[MCP_NAME_HEADER] = encode_header_value(task)
    if on_progress is not None:
        options["on_progress"] = on_progress
    return await session._dispatcher.send_raw_request(method, data["params"], options)  # noqa: SLF001


async def tell(session: ClientSession, method: str, params: dict[str, Any]) -> None:
    """Pass a notification on."""
    data: dict[str, Any] = {"method": method, "params": params}
    options: CallOptions = {}
    session._stamp(data, options)  # noqa: SLF001
    await session._dispatcher.notify(method, data["params"] or None, options)  # noqa: SLF001


def is_modern_session(session: ClientSession) -> bool:
    """Whether its requests carry an envelope, and its server asks nothing."""
    return session.discover_result is not None


class Questions:
    """What a server of the handshake's era asks, until it is answered, gives it up, or nobody has answered in time."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._last = 0
        self._waiting: dict[int, tuple[anyio.Event, list[dict[str, Any] | MCPError]]] = {}

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """The answer.

        Raises:
            MCPError: what the server is to be told instead.
        """
        if len(self._waiting) >= MAX_ASKS:
            raise MCPError(types.INVALID_REQUEST, "too many requests at once")
        try:
            body = params_without_envelope(checked_object(as_json(dict(params or {})), max_bytes=MAX_ASK_BYTES))
        except (ValueError, RecursionError) as problem:
            raise MCPError(types.INVALID_REQUEST, f"the params cannot be passed on: {problem}") from None
        self._last += 1
        ask_id = self._last
        if not self._notifier.asked(ask_id, method, body):
            raise MCPError(*UNASKABLE)
        is_answered, given = self._waiting[ask_id] = anyio.Event(), []
        try:
            with anyio.move_on_after(ASK_S):
                await is_answered.wait()
        finally:
            del self._waiting[ask_id]
            if not given:
                self._notifier.ask_ended(ask_id)
        if not given:
            raise MCPError(types.INVALID_REQUEST, "nobody answered in time")
        if isinstance(given[0], MCPError):
            raise given[0]
        return given[0]

    def answer(self, ask_id: int, answer: dict[str, Any] | MCPError) -> None:
        """Answer one; harmless when it has ended."""
        if (waiting := self._waiting.get(ask_id)) is not None and not waiting[1]:
            waiting[1].append(answer)
            waiting[0].set()


class RawDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's own, which hands the server's notifications and questions on before its session sees them.

    Attributes:
        offers: what the server may ask; nothing until it is greeted.
        is_modern: whether it tells of changes to who listens alone.
        task_tokens: of calls that are to be tasks.
    """

    def __init__(self, read: Any, write: Any, notifier: Notifier) -> None:
        super().__init__(read, write)
        self._notifier = notifier
        self.questions = Questions(notifier)
        self.offers: frozenset[str] = frozenset()
        self.is_modern = False
        self.task_tokens = TaskTokens()

    async def run(
        self,
        on_request: Any,
        on_notify: Any,
        on_notify_intercept: Any = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `JSONRPCDispatcher`."""

        async def request(context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            if method in self.offers:
                return await self.questions.ask(method, params)
            answered: dict[str, Any] = await on_request(context, method, params)
            return answered

        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if on_notify_intercept is None or not on_notify_intercept(method, params):
                self._note(method, params)
            return True

        await super().run(request, on_notify, intercept, task_status=task_status)

    def _note(self, method: str, params: Mapping[str, Any] | None) -> None:
        if method in _OWN or (self.is_modern and method in _LISTENED):
            return
        try:
            note = read_note(method, Raw(as_json(params)) if params is not None else Raw(), self._task_call)
        except (ValueError, RecursionError):
            return
        if isinstance(note, events.Progressed):
            note = self.task_tokens.said(note)
        if isinstance(note, events.Said):
            self._notifier.said(note)

    def _task_call(self, token: int | str | None) -> int | None:
        """The call whose token this is, once it has become a task: the SDK has dropped its callback by then."""
        is_tasks = isinstance(token, int) and self.task_tokens.has(token - FIRST_ID)
        return token - FIRST_ID if isinstance(token, int) and is_tasks else None


class Session(ClientSession):
    """The SDK's own, which says of us what we are told to say."""

    def __init__(self, read: Any, write: Any, notifier: Notifier, capabilities: bytes) -> None:
        self.raw = RawDispatcher(read, write, notifier)
        self._offered = capabilities
        super().__init__(dispatcher=self.raw, client_info=CLIENT, log_level="info")

    def _build_capabilities(self, version: str) -> types.ClientCapabilities:  # noqa: ARG002 - the same in each
        return types.ClientCapabilities.model_validate_json(self._offered)

    def let_ask(self) -> None:
        """It is greeted: from now on its server may ask what our callers can be asked, if its era has it ask."""
        self.raw.is_modern = is_modern_session(self)
        self.raw.offers = frozenset() if self.raw.is_modern else askable(self._offered)


def as_json(value: object) -> bytes:
    """A value that the SDK parsed, as JSON again.

    Raises:
        ValueError: Python reads more than JSON knows.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise BodyError("not UTF-8", error) from None
