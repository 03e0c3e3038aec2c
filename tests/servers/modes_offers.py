"""Modes of `hostile.py` about what servers have beside tools, and what they ask: too much, too long, too late."""

import itertools
from typing import Any, Final

import echo
import wire
from moments import CALL, HANDSHAKE, REPLY, answer_line, during, flood, notification_line
from wire import JsonObject

PROMPTS: Final = "prompts/list"
RESOURCES: Final = "resources/list"
TEMPLATES: Final = "resources/templates/list"
READ: Final = "resources/read"
SUBSCRIBE: Final = "resources/subscribe"
COMPLETE: Final = "completion/complete"

CAPABILITIES: Final[JsonObject] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
}

LARGE_BYTES: Final = 200_000_000


_asked: Final[dict[Any, JsonObject]] = {}
_numbers: Final = itertools.count(1)
_pages: Final = itertools.count(1)


@during(HANDSHAKE, PROMPTS, RESOURCES, TEMPLATES)
def a_million_resources(message: JsonObject) -> bool:
    """Say that it has everything, and list a thousand resources a page, and never a last page; one good prompt."""
    page = next(_pages)
    return _offer(
        message,
        {
            PROMPTS: {"prompts": [{"name": "ok"}]},
            RESOURCES: {
                "resources": [{"uri": f"f:{page}/{n}", "name": "r"} for n in range(1_000)],
                "nextCursor": f"c{page}",
            },
            TEMPLATES: {"resourceTemplates": []},
        },
    )


@during(HANDSHAKE, PROMPTS, RESOURCES, TEMPLATES, READ, COMPLETE)
def huge_answers(message: JsonObject) -> bool:
    """Read a resource of 200 MB, and complete with 10,000 values."""
    if message["method"] == READ:
        head = b'{"jsonrpc":"2.0","id":%d,"result":{"contents":[{"uri":"f:1","text":"' % message["id"]
        wire.write(head)
        for _ in range(LARGE_BYTES // 1_000_000):
            wire.write(b"x" * 1_000_000)
        wire.write(b'"}]}}\n')
        return True
    if message["method"] == COMPLETE:
        wire.answer(message["id"], {"completion": {"values": [str(n) for n in range(10_000)]}})
        return True
    return _offer(
        message, {PROMPTS: {"prompts": []}, RESOURCES: {"resources": []}, TEMPLATES: {"resourceTemplates": []}}
    )


@during(HANDSHAKE, PROMPTS, RESOURCES, TEMPLATES, SUBSCRIBE)
def update_flood(message: JsonObject) -> bool:
    """Once subscribed, tell of changes for ever, of that resource and of others."""
    if message["method"] == SUBSCRIBE:
        wire.answer(message["id"], {})
        uris = itertools.cycle([message["params"]["uri"], "f:other", "nonsense"])
        flood(notification_line("notifications/resources/updated", {"uri": uri}) for uri in uris)
        return True
    return _offer(
        message, {PROMPTS: {"prompts": []}, RESOURCES: {"resources": []}, TEMPLATES: {"resourceTemplates": []}}
    )


@during(CALL, REPLY)
def asks_a_thousand_times(message: JsonObject) -> bool:
    """Ask a thousand questions at once, and answer the call with how many of them were answered with a result."""
    if message.get("method") == CALL:
        _asked["call"] = message
        _asked["good"], _asked["left"] = {"count": 0}, {"count": 1_000}
        for _ in range(1_000):
            _ask("roots/list", {})
    else:
        _asked["left"]["count"] -= 1
        _asked["good"]["count"] += "result" in message
        if not _asked["left"]["count"]:
            wire.write(answer_line(_asked["call"], str(_asked["good"]["count"])))
    return True


def _offer(message: JsonObject, answers: dict[str, JsonObject]) -> bool:
    if message["method"] == HANDSHAKE:
        wire.answer(message["id"], {"protocolVersion": "2025-11-25", **echo.INITIALIZED, "capabilities": CAPABILITIES})
        return True
    if message["method"] in answers:
        wire.answer(message["id"], answers[message["method"]])
        return True
    return False


def _ask(method: str, params: JsonObject) -> str:
    """Ask; the id of the question."""
    id_ = f"ask-{next(_numbers)}"
    wire.send({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
    return id_
