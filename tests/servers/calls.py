"""A tool call on its way to its answer, and the table of the tools that can be called.

A tool gets a `Call` and answers it, now, later or never.  The era is the server's business: it subclasses `Call`.
"""

import threading
from collections.abc import Callable
from typing import Final

import wire
from wire import JsonObject, RequestId

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
"""A picture of one pixel."""

EXTRAS: Final[JsonObject] = {
    "annotations": {"title": "Annotated", "readOnlyHint": True, "openWorldHint": False, "x-future": [1, None]},
    "icons": [{"src": f"data:image/png;base64,{PNG}", "mimeType": "image/png", "sizes": ["1x1"], "x-future": True}],
    "_meta": {"example.com/owner": {"team": None, "ids": [1, 2.5, "é"]}},
    "x-future": {"nested": {"null": None}},
}
"""What every definition carries beside the ordinary, so that whatever loses one of them is noticed."""


class Call:
    """One tools/call on its way to its answer, for the legacy era."""

    # No dataclass: importing those costs as much as all the rest of the start.
    __slots__ = ("arguments", "id", "params")

    def __init__(self, request_id: RequestId, params: JsonObject) -> None:
        self.id = request_id
        self.params = params
        self.arguments: JsonObject = params.get("arguments") or {}

    @property
    def meta(self) -> JsonObject:
        return self.params.get("_meta") or {}

    def answer(self, result: JsonObject) -> None:
        wire.answer(self.id, result)

    def answer_encoded(self, result: bytes) -> None:
        wire.answer_encoded(self.id, result)

    def say(self, text: str, **more: object) -> None:
        self.answer({"content": [{"type": "text", "text": text}], **more})

    def log(self, params: JsonObject) -> None:
        wire.notify("notifications/message", params)

    def announce(self) -> None:
        wire.notify("notifications/tools/list_changed")


Run = Callable[[Call], None]

TOOLS: Final[dict[str, tuple[JsonObject, Run]]] = {}
"""Name -> (definition as it is listed, what it does), in listing order."""

PENDING: Final[dict[object, threading.Event]] = {}
"""Calls of `slow` and `hang` that were not answered; the event means cancelled."""


def tool(
    description: str, required: JsonObject | None = None, optional: JsonObject | None = None, **more: object
) -> Callable[[Run], Run]:
    """List the decorated function as a tool of the same name, with arguments of these schemas."""

    def enlist(run: Run) -> Run:
        properties = (required or {}) | (optional or {})
        schema = {"type": "object", "properties": properties, "required": [*(required or {})]}
        head = {"name": run.__name__, "title": run.__name__.title(), "description": description, "inputSchema": schema}
        TOOLS[run.__name__] = (head | EXTRAS | more, run)
        return run

    return enlist


def run(call: Call) -> None:
    """Run the tool that the call names, whose arguments it must be able to use; else the answer is an error."""
    name = call.params.get("name")
    if name not in TOOLS:
        wire.fail(call.id, wire.INVALID_PARAMS, f"Unknown tool: {name}")
        return
    try:
        TOOLS[name][1](call)
    except (LookupError, TypeError, ValueError) as error:
        wire.fail(call.id, wire.INVALID_PARAMS, f"{type(error).__name__}: {error}")


def cancel(request_id: object) -> None:
    """Stop an unanswered call: it gets no answer, and stderr says `cancelled ID`."""
    if event := PENDING.pop(request_id, None):
        event.set()
        wire.print_error(f"cancelled {request_id}")
