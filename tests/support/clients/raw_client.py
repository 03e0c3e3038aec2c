"""A JSON-RPC client over a child's stdio that hides nothing: no SDK, no validation, both protocol eras.

For acceptance tests, which compare raw JSON, and for benches.  Requests may be pipelined: `send` many, then take
each reply in any order.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from support.processes.line_child import LineChild, PeerClosedError

__all__ = ["LEGACY_VERSION", "MODERN_VERSION", "JsonObject", "PeerClosedError", "RawStdioClient", "RpcError"]

JsonObject = dict[str, Any]
"""One decoded JSON object; its values are whatever the peer wrote."""

RequestId = int | str

LEGACY_VERSION: Final = "2025-11-25"
MODERN_VERSION: Final = "2026-07-28"

CLIENT_INFO: Final = {"name": "raw-client", "version": "1.0.0"}

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_decode: Final = json.JSONDecoder().decode


class RpcError(Exception):
    """The child answered a request with a JSON-RPC error."""

    def __init__(self, error: JsonObject) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = error.get("code")
        self.message = error.get("message")
        self.data = error.get("data")


class RawStdioClient(LineChild):
    """An MCP client without opinions; see `LineChild` for its construction and its end.

    What the child sends of its own accord is collected, in order: `notifications`, `server_requests`, `strays`
    (replies to nothing in flight), `junk` (lines that are not JSON objects).  `last_line` is the last line read, raw.
    """

    notifications: list[JsonObject]
    server_requests: list[JsonObject]
    strays: list[JsonObject]
    junk: list[bytes]
    last_line: bytes = b""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notifications, self.server_requests, self.strays, self.junk = [], [], [], []
        self._in_flight: set[RequestId] = set()
        self._replies: dict[RequestId, JsonObject] = {}
        self._last_id = 0
        self._envelope: JsonObject | None = None

    def initialize(self, version: str = LEGACY_VERSION, capabilities: JsonObject | None = None) -> JsonObject:
        """Do the legacy handshake; its result.

        Raises:
            RpcError, TimeoutError, PeerClosedError: as `request`.
        """
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": CLIENT_INFO}
        result = self.request("initialize", params)
        self.notify("notifications/initialized")
        return result

    def discover(self, capabilities: JsonObject | None = None) -> JsonObject:
        """Speak the modern era from here on, every message in its envelope; the result of `server/discover`.

        Raises:
            RpcError, TimeoutError, PeerClosedError: as `request`.
        """
        self._envelope = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        }
        return self.request("server/discover")

    def list_tools(self) -> list[JsonObject]:
        """All pages of `tools/list`.

        Raises:
            RpcError, TimeoutError, PeerClosedError: as `request`.
        """
        page = self.request("tools/list")
        tools: list[JsonObject] = page["tools"]
        while cursor := page.get("nextCursor"):
            page = self.request("tools/list", {"cursor": cursor})
            tools += page["tools"]
        return tools

    def call(self, tool: str, within_s: float | None = None, **arguments: object) -> JsonObject:
        """Call a tool; its result.

        Raises:
            RpcError, TimeoutError, PeerClosedError: as `request`.
        """
        return self.request("tools/call", {"name": tool, "arguments": arguments}, within_s)

    def request(self, method: str, params: JsonObject | None = None, within_s: float | None = None) -> JsonObject:
        """Send a request and wait for its result.

        Raises:
            RpcError: the reply is an error.
            TimeoutError: no reply came within the deadline.
            PeerClosedError: the child's pipe ended first.
        """
        reply = self.reply(self.send(method, params), within_s)
        if "error" in reply:
            raise RpcError(reply["error"])
        result: JsonObject = reply["result"]
        return result

    def send(self, method: str, params: JsonObject | None = None, request_id: RequestId | None = None) -> RequestId:
        """Send a request without waiting; its id, which is a new number unless given."""
        if request_id is None:
            request_id = self._last_id = self._last_id + 1
        self._in_flight.add(request_id)
        self._write_message({"jsonrpc": "2.0", "id": request_id, "method": method}, params)
        return request_id

    def reply(
        self,
        request_id: RequestId,
        within_s: float | None = None,
        answering: Callable[[JsonObject], JsonObject] | None = None,
    ) -> JsonObject:
        """The whole reply to a request in flight, whenever it came or comes.

        Args:
            request_id: of the request.
            within_s: how long each message may take.
            answering: gives the result for each request that the child sends before; without it they are collected.

        Raises:
            TimeoutError: it did not come within the deadline.
            PeerClosedError: the child's pipe ended first.
        """
        while answering is not None:
            self._read_until(lambda: request_id in self._replies or bool(self.server_requests), within_s)
            if not self.server_requests:
                break
            asked = self.server_requests.pop(0)
            self.answer(asked, answering(asked))
        self._read_until(lambda: request_id in self._replies, within_s)
        return self._replies.pop(request_id)

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        self._write_message({"jsonrpc": "2.0", "method": method}, params)

    def send_recorded(self, message: JsonObject) -> None:
        """Send a message as another client had written it, without waiting."""
        if "method" in message and "id" in message:
            self._in_flight.add(message["id"])
        self.write(_encode(message).encode() + b"\n")

    def cancel(self, request_id: RequestId) -> None:
        """Cancel a request; a reply that still comes is collected as usual."""
        self.notify("notifications/cancelled", {"requestId": request_id, "reason": "test"})

    def notification(self, method: str, within_s: float | None = None) -> JsonObject:
        """The first notification of this method that was not taken yet, taken out of `notifications`.

        Raises:
            TimeoutError: none came within the deadline.
            PeerClosedError: the child's pipe ended first.
        """
        return self._first(self.notifications, method, within_s)

    def server_request(self, method: str, within_s: float | None = None) -> JsonObject:
        """The same of the child's requests, taken out of `server_requests`."""
        return self._first(self.server_requests, method, within_s)

    def _first(self, collected: list[JsonObject], method: str, within_s: float | None) -> JsonObject:
        self._read_until(lambda: any(each["method"] == method for each in collected), within_s)
        found = next(each for each in collected if each["method"] == method)
        collected.remove(found)
        return found

    def answer(self, server_request: JsonObject, result: JsonObject) -> None:
        self._write_message({"jsonrpc": "2.0", "id": server_request["id"], "result": result}, None)

    def _write_message(self, message: JsonObject, params: JsonObject | None) -> None:
        if self._envelope is not None and "method" in message:
            params = params or {}
            params = params | {"_meta": {**(params.get("_meta") or {}), **self._envelope}}
        if params is not None:
            message["params"] = params
        self.write(_encode(message).encode() + b"\n")

    def _read_until(self, arrived: Callable[[], bool], within_s: float | None) -> None:
        deadline = self._deadline(within_s)
        while not arrived():
            self._sort(self.read_line(until=deadline))

    def _sort(self, line: bytes) -> None:
        self.last_line = line
        try:
            message = _decode(line.decode())
        except (ValueError, RecursionError):
            self.junk.append(line)
            return
        if not isinstance(message, dict):
            self.junk.append(line)
        elif "method" in message:
            (self.server_requests if "id" in message else self.notifications).append(message)
        # By exact type too: to Python, true and 1.0 equal the id 1.
        elif type(request_id := message.get("id")) in (int, str) and request_id in self._in_flight:
            self._in_flight.remove(request_id)
            self._replies[request_id] = message
        else:
            self.strays.append(message)
