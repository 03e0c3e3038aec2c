"""Pretends to be a well-behaved MCP server of the modern era (2026-07-28), over stdio.

It answers `server/discover`, wants the `_meta` envelope on every request, refuses `initialize`, stamps its results
and announces changes to those alone who listen.  Same tools as `echo.py`, and `input_required`.
"""

from collections.abc import Callable
from typing import Final

import calls
import wire
from tools import STRING, TOOLS
from wire import JsonObject, RequestId

VERSION: Final = "2026-07-28"

PREFIX: Final = "io.modelcontextprotocol/"
"""Of the `_meta` keys that make the envelope."""

CACHING: Final[JsonObject] = {"ttlMs": 0, "cacheScope": "private"}

listeners: Final[dict[object, JsonObject]] = {}
"""Open `subscriptions/listen` requests: id -> what was granted."""


def stamped(result: JsonObject) -> JsonObject:
    meta = {**(result.get("_meta") or {}), f"{PREFIX}serverInfo": {"name": "modern", "version": "1.0.0"}}
    return {"resultType": "complete", **result, "_meta": meta}


class Call(calls.Call):
    """One tools/call of this era."""

    __slots__ = ()

    def answer(self, result: JsonObject) -> None:
        wire.answer(self.id, stamped(result))

    def answer_encoded(self, result: bytes) -> None:
        stamp = wire.dumps(stamped({}))
        wire.answer_encoded(self.id, stamp[:-1] + b"," + result[1:])

    def log(self, params: JsonObject) -> None:
        if f"{PREFIX}logLevel" in self.meta:
            super().log(params)

    def announce(self) -> None:
        for listener, granted in listeners.items():
            if granted.get("toolsListChanged"):
                wire.notify("notifications/tools/list_changed", {"_meta": {f"{PREFIX}subscriptionId": listener}})


@calls.tool("Ask for the user's name first, then greet.")
def input_required(call: calls.Call) -> None:
    if responses := call.params.get("inputResponses"):
        call.say("hello", structuredContent={"responses": responses, "state": call.params.get("requestState")})
        return
    form = {"type": "object", "properties": {"name": STRING}, "required": ["name"]}
    question = {"mode": "form", "message": "Your name?", "requestedSchema": form}
    requests = {"name": {"method": "elicitation/create", "params": question}}
    call.answer({"resultType": "input_required", "inputRequests": requests, "requestState": "round-1"})


def handle(message: JsonObject) -> None:
    """Answer one message; notifications and replies get no answer."""
    method = message.get("method")
    params = message.get("params") or {}
    if "id" not in message or method is None:
        if method == "notifications/cancelled":
            calls.cancel(params.get("requestId"))
            listeners.pop(params.get("requestId"), None)
        return
    try:
        _answer(message["id"], method, params)
    except (LookupError, TypeError, ValueError) as error:
        wire.fail(message["id"], wire.INVALID_PARAMS, f"{type(error).__name__}: {error}")


def _answer(request_id: RequestId, method: str, params: JsonObject) -> None:
    meta = params.get("_meta") or {}
    version = params.get("protocolVersion") if method == "initialize" else meta.get(f"{PREFIX}protocolVersion")
    if method == "initialize" or version not in (None, VERSION):
        data = {"supported": [VERSION], "requested": version}
        wire.fail(request_id, wire.UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    elif version is None or f"{PREFIX}clientCapabilities" not in meta:
        wire.fail(request_id, wire.INVALID_PARAMS, "params._meta lacks the version or the client's capabilities")
    elif method == "tools/call":
        calls.run(Call(request_id, params))
    elif method == "subscriptions/listen":
        _listen(request_id, params["notifications"])
    elif method in METHODS:
        wire.answer(request_id, stamped(METHODS[method](params)))
    else:
        wire.fail(request_id, wire.METHOD_NOT_FOUND, "Method not found", method)


def _listen(request_id: RequestId, wanted: JsonObject) -> None:
    granted = {"toolsListChanged": True} if wanted.get("toolsListChanged") else {}
    listeners[request_id] = granted
    acknowledged = {"notifications": granted, "_meta": {f"{PREFIX}subscriptionId": request_id}}
    wire.notify("notifications/subscriptions/acknowledged", acknowledged)


def _discover(params: JsonObject) -> JsonObject:
    capabilities = {"tools": {"listChanged": True}, "logging": {}}
    return {"supportedVersions": [VERSION], "capabilities": capabilities, "instructions": "Modern echo."} | CACHING


def _list_tools(params: JsonObject) -> JsonObject:
    return {"tools": [definition for definition, _ in TOOLS.values()]} | CACHING


METHODS: Final[dict[str, Callable[[JsonObject], JsonObject]]] = {
    "server/discover": _discover,
    "tools/list": _list_tools,
}
"""What is answered from the params alone: params in, result out."""


if __name__ == "__main__":
    wire.serve(handle)
