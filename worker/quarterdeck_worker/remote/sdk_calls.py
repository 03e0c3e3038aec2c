"""Tool calls through the SDK's session: one task a call.  For remote servers, where the network outweighs it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import Call
from quarterdeck_protocol.mcp.jsonrpc import SplitResult, split_result
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_worker.stdio.calls import Ended, bad_output, refusal
from quarterdeck_worker.stdio.notifications import Newsroom

RAW_RESULT: TypeAdapter[Any] = TypeAdapter(dict[str, object])
"""Results as plain values: the SDK's models drop fields that they do not know."""

LOCAL_ERRORS = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
"""Codes that the SDK makes up here; a server that sends them says nothing we can tell apart."""

PING_S = 5.0
"""How long a server that broke off may take to say that it is there."""


class SdkCalls:
    """See `CallPath`.  Tasks live in the given group; ending it ends them.

    `lost` is set when the connection was found to be gone.
    """

    def __init__(
        self,
        session: ClientSession,
        tasks: anyio.abc.TaskGroup,
        newsroom: Newsroom,
        signs_of_loss: Sequence[anyio.Event] = (),
        *,
        max_bytes: int,
    ) -> None:
        self._session = session
        self._tasks = tasks
        self._newsroom = newsroom
        self._max_bytes = max_bytes
        self._running: dict[int, tuple[anyio.CancelScope, Callable[[Ended], None]]] = {}
        self._signs_of_loss = signs_of_loss
        self.lost = anyio.Event()

    def begin(self, call: Call, arguments: bytes, done: Callable[[Ended], None]) -> None:
        """See `CallPath`."""
        scope = anyio.CancelScope()
        self._running[call.request_id] = (scope, done)
        self._tasks.start_soon(self._run, call, arguments, scope)

    def cancel(self, request_id: int, reason: str) -> bool:  # noqa: ARG002 - the SDK sends its own reason
        """See `CallPath`; the SDK tells the server in its transport's way."""
        running = self._running.pop(request_id, None)
        if running is None:
            return False
        running[0].cancel()
        return True

    async def _run(self, call: Call, arguments: bytes, scope: anyio.CancelScope) -> None:
        with scope:
            outcome = await self._ask(call, arguments)
            if (running := self._running.pop(call.request_id, None)) is not None:
                running[1](Ended(outcome))

    async def _ask(self, call: Call, arguments: bytes) -> SplitResult | FaultRecord:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            self._newsroom.progress(call.request_id, progress, total, message)

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
            return judge(error)
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


def judge(error: MCPError) -> FaultRecord:
    """What the SDK's one error means: the server refused, or there is no server any more."""
    if error.error.code in LOCAL_ERRORS:
        message = f"the connection broke before the answer: {error.error.message}"
        return FaultRecord(FaultKind.TOOL_ERROR, message, code="server_lost", delivery=Delivery.UNKNOWN)
    data = b"" if error.error.data is None else json.dumps(error.error.data, default=str).encode()
    return refusal(error.error.code, error.error.message, data)
