"""A relay over a server that is a script: each method has its answer; no process, and a clock of plain numbers."""

import json
from collections.abc import Mapping
from typing import Any, Final

from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, METHOD_NOT_FOUND, Answer, JsonObject

from quarterdeck_protocol.mcp.client import FIRST_ID, Client, Relay, events

CLIENT: Final = Client("us", "1")

ANSWERS: Final[JsonObject] = {"server/discover": DISCOVERED, "initialize": INITIALIZED}
"""Of a server that speaks both eras."""


def unsupported(*versions: str) -> JsonObject:
    return {"error": {"code": -32022, "message": "no", "data": {"supported": list(versions), "requested": "x"}}}


def initialized(**members: object) -> JsonObject:
    return {"result": {**INITIALIZED["result"], **members}}


class Talk:
    """A relay and its scripted server; `heard` holds every message that the server was sent, `told` every event."""

    def __init__(self, answers: Mapping[str, Answer] | None = None, **members: Any) -> None:
        self.answers: dict[str, Answer] = dict(ANSWERS if answers is None else answers)
        self.heard: list[JsonObject] = []
        self.told: list[events.Event] = []
        self.now = 0.0
        self.relay = Relay(CLIENT, now=0.0, **{"max_bytes": 1_000_000, **members})
        self.settle()

    def settle(self) -> None:
        while lines := self.relay.take():
            for line in lines.splitlines():
                self._hear(json.loads(line))

    def _hear(self, message: JsonObject) -> None:
        assert message["jsonrpc"] == "2.0"
        self.heard.append(message)
        if "id" not in message or "method" not in message:
            return
        answer = self.answers.get(message["method"], METHOD_NOT_FOUND)
        reply = answer(message.get("params") or {}) if callable(answer) else answer
        if reply is not None:
            self.say({"id": message["id"], **reply})

    def say(self, *messages: JsonObject | bytes) -> list[events.Event]:
        """Have the server say these; what the relay told of them, and not of what it went on to ask."""
        happened: list[events.Event] = []
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            happened += self.relay.receive(line, self.now)
        self.told += happened
        return happened

    def wait(self, seconds: float) -> list[events.Event]:
        self.now += seconds
        happened = list(self.relay.advance(self.now))
        self.told += happened
        self.settle()
        return happened

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard if "method" in message]

    @property
    def server(self) -> events.Server:
        assert self.relay.server is not None
        return self.relay.server

    @property
    def failure(self) -> events.GreetingFailed:
        [failure] = self.told
        assert isinstance(failure, events.GreetingFailed)
        assert self.relay.server is None
        return failure


def talk(era: str = LEGACY, answers: Mapping[str, Answer] | None = None, **members: Any) -> Talk:
    talked = Talk({**ANSWERS, **(answers or {})}, forced=era, **members)
    assert talked.server.era == era
    talked.heard.clear()
    talked.told.clear()
    return talked


def in_flight(relay: Relay) -> list[int]:
    """Of the first numbers of a caller's, those whose calls have no answer."""
    return [number for number in range(16) if relay.awaits(FIRST_ID + number)]
