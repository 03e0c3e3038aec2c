"""A client of either era that can be asked, and does the same things in the words of its era: raw JSON over stdio."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from support.clients.direct_client import without_envelope
from support.clients.raw_client import JsonObject, RawStdioClient, RequestId, RpcError


class Era(StrEnum):
    """What it speaks, as the documentation calls it."""

    OLD = "2025-11-25"
    NEW = "2026-07-28"


CAPABILITIES: Final = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}

TAKES_TASKS: Final = {"extensions": {"io.modelcontextprotocol/tasks": {}}}

ANSWERS: Final[dict[str, JsonObject]] = {
    "elicitation/create": {
        "action": "accept",
        "content": {"name": "Ada", "response": "yes", "ok": True, "color": "red"},
    },
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "Paris"},
        "model": "m",
        "stopReason": "endTurn",
    },
    "roots/list": {"roots": [{"uri": "file:///home/ada", "name": "home"}]},
}
"""What it answers."""

MAX_ROUNDS: Final = 8

_LISTEN: Final = "listening"
"""The id of the one request by which a modern client listens."""


class EraClient(RawStdioClient):
    """The client; `questions` is what it was asked, method and params, in the order in which it was."""

    def __init__(self, argv: Sequence[str], era: Era, **options: Any) -> None:
        super().__init__(argv, **options)
        self.era: Final = era
        self.questions: list[tuple[str, JsonObject]] = []
        try:
            self.greeting: Final = (
                self.initialize(capabilities=CAPABILITIES)
                if era is Era.OLD
                else self.discover(CAPABILITIES | TAKES_TASKS)
            )
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, /, **params: Any) -> JsonObject:
        """A result without its envelope, every question that comes before it answered.

        Raises:
            RpcError, TimeoutError, PeerClosedError: as `request`.
        """
        for _ in range(MAX_ROUNDS):
            reply = self.reply(self.send(method, params), answering=self.answer_to)
            if "error" in reply:
                raise RpcError(reply["error"])
            result: JsonObject = reply["result"]
            if result.get("resultType") != "input_required":
                return without_envelope(result)
            answers = {key: self.answer_to(question) for key, question in result.get("inputRequests", {}).items()}
            params |= {"inputResponses": answers} | {k: v for k, v in result.items() if k == "requestState"}
        raise TimeoutError(f"{method} asks for ever")

    def error(self, method: str, /, **params: Any) -> JsonObject:
        error: JsonObject = self.reply(self.send(method, params), answering=self.answer_to)["error"]
        return error

    def pages(self, method: str, key: str) -> list[JsonObject]:
        found: list[JsonObject] = []
        cursor: JsonObject = {}
        while True:
            page = self.ask(method, **cursor)
            found += page[key]
            if not page.get("nextCursor"):
                return found
            cursor = {"cursor": page["nextCursor"]}

    def listen(self, uri: str = "") -> None:
        if self.era is Era.OLD:
            if uri:
                self.ask("resources/subscribe", uri=uri)
            return
        wanted: JsonObject = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        if uri:
            wanted["resourceSubscriptions"] = [uri]
        self.send("subscriptions/listen", {"notifications": wanted}, _LISTEN)
        self.notification("notifications/subscriptions/acknowledged")

    def listen_no_more(self, uri: str = "") -> None:
        if self.era is Era.NEW:
            self.cancel(_LISTEN)
        elif uri:
            self.ask("resources/unsubscribe", uri=uri)

    def call_with_log(self, tool: str, level: str) -> JsonObject:
        meta: JsonObject = {}
        if self.era is Era.OLD:
            self.ask("logging/setLevel", level=level)
        else:
            meta = {"_meta": {"io.modelcontextprotocol/logLevel": level}}
        return self.ask("tools/call", name=tool, arguments={}, **meta)

    def start_call(self, tool: str) -> RequestId:
        return self.send("tools/call", {"name": tool, "arguments": {}})

    def heard(self, method: str) -> list[JsonObject]:
        """The params of all notifications of this method so far, taken out, without the envelope."""
        found = [note for note in self.notifications if note["method"] == method]
        self.notifications[:] = [note for note in self.notifications if note["method"] != method]
        return [without_envelope(note.get("params", {})) for note in found]

    def answer_to(self, question: JsonObject) -> JsonObject:
        self.questions.append((question["method"], json.loads(json.dumps(question.get("params") or {}))))
        return ANSWERS[question["method"]]
