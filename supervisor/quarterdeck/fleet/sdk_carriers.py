"""Carry a connection over what the SDK connected in this process: a pair of streams, or a greeted session.

The relay above speaks lines, as to any server; here each line becomes an SDK message, and back.
"""

import json
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

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
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_worker.connection import Connection

PING_S: Final = 5.0
"""Seconds that a session whose connection seems closed may take to show that it is not."""

MAX_LINES: Final = 1_000
"""Messages that wait for a server that does not read."""

UNREAD: Final = FaultRecord(FaultKind.TOOL_ERROR, "the server does not read what it is sent", "busy", Delivery.NOT_SENT)

LOCAL_ERRORS: Final = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
"""Codes that the SDK makes up here; a server that sends them says nothing that we can tell apart."""

CHANGES: Final = {
    ToolsListChanged: "notifications/tools/list_changed",
    PromptsListChanged: "notifications/prompts/list_changed",
    ResourcesListChanged: "notifications/resources/list_changed",
}

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"


class SdkCarrier:
    """The common part of both carriers; the owner provides the task group."""

    def __init__(self, connection: Connection, tasks: anyio.abc.TaskGroup) -> None:
        self._connection = connection
        self._tasks = tasks

    def refusal(self) -> FaultRecord | None:
        """Return why the server takes no more; None when it does."""
        return None

    def _say(self, message: Mapping[str, Any], to: int = 0) -> None:
        try:
            line = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, RecursionError):  # Python reads more than JSON knows
            line = b"{"
        self._connection.receive(line, to)


class StreamsCarrier(SdkCarrier):
    """A carrier over the streams of an SDK transport, which its owner closes."""

    def __init__(self, connection: Connection, tasks: anyio.abc.TaskGroup, read: Any, write: Any) -> None:
        super().__init__(connection, tasks)
        self._read = read
        self._write = write
        self._lines: deque[bytes] = deque()
        self._line_came = anyio.Event()

    def start(self) -> None:
        """Greet the server."""
        self._tasks.start_soon(self._send_all)
        self._tasks.start_soon(self._receive_all)
        self._connection.begin(self)

    def refusal(self) -> FaultRecord | None:
        """See `Carrier`."""
        return UNREAD if len(self._lines) > MAX_LINES else None

    def write(self, lines: bytes) -> None:
        """See `Carrier`."""
        self._lines.extend(lines.splitlines())
        self._line_came.set()

    async def _send_all(self) -> None:
        try:
            while True:
                while self._lines:
                    message = types.jsonrpc_message_adapter.validate_json(self._lines[0], by_name=False)
                    await self._write.send(SessionMessage(message))
                    self._lines.popleft()
                    self._connection.flush()
                self._line_came = anyio.Event()
                await self._line_came.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # its end is told by the other stream

    async def _receive_all(self) -> None:
        try:
            async for item in self._read:
                if isinstance(item, SessionMessage):
                    self._say(item.message.model_dump(by_alias=True, exclude_unset=True))
        except anyio.ClosedResourceError:
            pass
        self._connection.end()


class SessionCarrier(SdkCarrier):
    """A carrier over a session that was greeted elsewhere: the greeting is repeated from memory. The server's
    notifications and questions stay with the session's maker.
    """

    def __init__(self, connection: Connection, tasks: anyio.abc.TaskGroup, session: ClientSession) -> None:
        super().__init__(connection, tasks)
        self._session = session
        self._asked: dict[int, anyio.CancelScope] = {}

    def start(self) -> None:
        """Greet it once more."""
        self._connection.begin(self)

    def write(self, lines: bytes) -> None:
        """See `Carrier`."""
        for line in lines.splitlines():
            message: dict[str, Any] = json.loads(line)
            method, params = message["method"], message.get("params") or {}
            if "id" in message:
                scope = self._asked[message["id"]] = anyio.CancelScope()
                self._tasks.start_soon(self._ask, message["id"], method, params, scope)
            elif method == "notifications/cancelled":
                if (asked := self._asked.get(params["requestId"])) is not None:
                    asked.cancel()  # the SDK tells the server
            elif method != "notifications/initialized":
                self._tasks.start_soon(self._tell, method, params)

    async def _tell(self, method: str, params: dict[str, Any]) -> None:
        data, options = self._stamped(method, params)
        try:
            await self._session._dispatcher.notify(method, data["params"] or None, options)  # noqa: SLF001
        except MCPError:
            pass  # what is told unasked can be missed

    async def _ask(self, wire_id: int, method: str, params: dict[str, Any], scope: anyio.CancelScope) -> None:
        answer: dict[str, Any] | None = None
        try:
            with scope:
                if method in {"initialize", "server/discover"}:
                    answer = {"result": self._greeting(method)}
                elif method == "subscriptions/listen":
                    answer = await self._listen(wire_id, params)
                else:
                    answer = {"result": await self._result(wire_id, method, params)}
        except MCPError as error:
            if error.error.code in LOCAL_ERRORS:
                message = f"the connection broke before the answer: {error.error.message}"
                fault = FaultRecord(FaultKind.TOOL_ERROR, message, "server_lost", Delivery.UNKNOWN)
                self._connection.fail(wire_id, fault, is_passing=True)
                self._tasks.start_soon(self._look_again)
            else:
                answer = {"error": error.error.model_dump(exclude_none=True)}
        finally:
            del self._asked[wire_id]
        if answer is not None:
            self._say({"id": wire_id, **answer}, wire_id)

    def _greeting(self, method: str) -> dict[str, Any]:
        """Return the server's answer to its greeting. Raise MCPError if it was not greeted in this way."""
        session = self._session
        said = session.initialize_result if method == "initialize" else session.discover_result
        if said is None:
            raise MCPError(types.METHOD_NOT_FOUND, "the session was greeted in another way")
        return said.model_dump(by_alias=True, mode="json", exclude_none=True)

    def _stamped(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], CallOptions]:
        """Return a message as the session's own typed requests leave it (mcp 2.3)."""
        data: dict[str, Any] = {"method": method, "params": params}
        options: CallOptions = {}
        who = (params.get("_meta") or {}).get(types.CLIENT_CAPABILITIES_META_KEY)
        self._session._stamp(data, options)  # noqa: SLF001
        if who:  # who asks can be asked more than the session's maker
            data["params"]["_meta"][types.CLIENT_CAPABILITIES_META_KEY] = who
        return data, options

    async def _result(self, wire_id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        token = (params.get("_meta") or {}).pop("progressToken", None)
        if params.get("_meta") == {}:
            del params["_meta"]
        data, options = self._stamped(method, params)
        if token is not None:
            options["on_progress"] = partial(self._progress, wire_id)
        return await self._session._dispatcher.send_raw_request(method, data["params"], options)  # noqa: SLF001

    async def _progress(self, wire_id: int, progress: float, total: float | None, message: str | None) -> None:
        said = {"progressToken": wire_id, "progress": progress, "total": total, "message": message}
        self._say({"method": "notifications/progress", "params": said})

    async def _listen(self, wire_id: int, params: dict[str, Any]) -> dict[str, Any]:
        """Hold the standing request of a modern session; its events become notifications."""
        wanted = types.SubscriptionFilter.model_validate(params["notifications"])
        stamp = {"_meta": {SUBSCRIPTION: wire_id}}
        try:
            async with listen(
                self._session,
                tools_list_changed=bool(wanted.tools_list_changed),
                prompts_list_changed=bool(wanted.prompts_list_changed),
                resources_list_changed=bool(wanted.resources_list_changed),
                resource_subscriptions=list(wanted.resource_subscriptions or ()),
            ) as told:
                acknowledged = {"notifications": params["notifications"], **stamp}
                self._say({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
                async for event in told:
                    if isinstance(event, ResourceUpdated):
                        self._say({"method": "notifications/resources/updated", "params": {"uri": event.uri, **stamp}})
                    else:
                        self._say({"method": CHANGES[type(event)], "params": stamp})
        except SubscriptionLost as lost:
            raise MCPError(types.INTERNAL_ERROR, str(lost)) from lost
        return {"result": {}}

    async def _look_again(self) -> None:
        with anyio.move_on_after(PING_S):
            try:
                await self._result(0, "ping", {})
            except MCPError as error:
                if error.error.code == types.CONNECTION_CLOSED:
                    self._connection.end()
