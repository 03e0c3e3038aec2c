"""The standing request of the modern era: acknowledged, lost, asked again, refused, ended in good order."""

import json
from math import inf

import pytest
from support.servers.greetings import LEGACY, MODERN, JsonObject

from quarterdeck_protocol.backoff import RELISTEN
from quarterdeck_protocol.mcp.client import RelayMisuseError
from quarterdeck_protocol.mcp.client.events import Changed, Listening, Updated

from .relays import Talk, talk

ID_KEY = "io.modelcontextprotocol/subscriptionId"


def listening(kinds: tuple[str, ...] = ("tools", "prompts"), uris: tuple[str, ...] = ()) -> Talk:
    talked = talk(MODERN, {"subscriptions/listen": None})
    talked.relay.listen(kinds, uris)
    talked.settle()
    return talked


def asked_as(talked: Talk) -> int:
    asked = [message for message in talked.heard if message["method"] == "subscriptions/listen"]
    wire_id: int = asked[-1]["id"]
    return wire_id


def acknowledged(wire_id: object, **honoured: object) -> JsonObject:
    params = {"notifications": honoured, "_meta": {ID_KEY: wire_id}}
    return {"method": "notifications/subscriptions/acknowledged", "params": params}


def cancelled(wire_id: object) -> JsonObject:
    return {"method": "notifications/cancelled", "params": {"requestId": wire_id}}


def test_it_asks_for_what_is_wanted_in_the_eras_envelope() -> None:
    """A server would not say that its lists change."""
    talked = listening(("resources", "tools", "nonsense"), ("file:///a",))
    [message] = talked.heard
    wanted = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": ["file:///a"]}
    assert message["params"]["notifications"] == wanted
    assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN


def test_an_acknowledgment_is_told_and_changes_are_events() -> None:
    """Nobody would know what the server agreed to."""
    talked = listening()
    wire_id = asked_as(talked)
    assert talked.say(acknowledged("x", a=1), acknowledged(wire_id + 1, a=1)) == []
    assert talked.say(acknowledged(str(wire_id), toolsListChanged=True)) == [Listening(b'{"toolsListChanged": true}')]
    meta = {"_meta": {ID_KEY: wire_id}}
    changed = {"method": "notifications/tools/list_changed", "params": meta}
    updated = {"method": "notifications/resources/updated", "params": {"uri": "a", **meta}}
    assert talked.say(changed, updated) == [Changed(("tools",)), Updated("a")]


def test_after_a_loss_everything_may_have_changed_and_it_is_asked_again_after_a_pause() -> None:
    """Whatever changed meanwhile would be missed for ever; without the pause a server could have us ask in a circle."""
    talked = listening(("tools", "prompts"), ("a", "b"))
    pause_s = RELISTEN.first_s
    for _ in range(8):
        assert talked.say(cancelled(asked_as(talked))) == [Changed(("tools", "prompts")), Updated("a"), Updated("b")]
        assert talked.relay.wake_at == talked.now + pause_s
        before = len(talked.heard)
        talked.wait(pause_s - 0.5)
        assert len(talked.heard) == before
        talked.wait(0.5)
        assert talked.heard[-1]["params"]["notifications"]["resourceSubscriptions"] == ["a", "b"]
        assert talked.relay.wake_at == inf
        pause_s = min(2 * pause_s, RELISTEN.longest_s)


def test_a_server_that_acknowledges_and_gives_up_at_once_is_asked_ever_more_seldom() -> None:
    """It would be asked each second for ever, and each time all its lists."""
    talked = listening()
    pauses = []
    for _ in range(8):
        talked.say(acknowledged(asked_as(talked)), cancelled(asked_as(talked)))
        pauses.append(talked.relay.wake_at - talked.now)
        talked.wait(pauses[-1])
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    talked.say(acknowledged(asked_as(talked)))
    talked.wait(RELISTEN.steady_s)
    talked.say(acknowledged(asked_as(talked)), cancelled(asked_as(talked)))
    assert talked.relay.wake_at == talked.now + RELISTEN.first_s, "one that held was none of the row"


def test_an_error_after_the_acknowledgment_is_a_loss() -> None:
    """A server that breaks off would not be listened to again."""
    talked = listening(("tools",))
    error = {"id": asked_as(talked), "error": {"code": 1, "message": "x"}}
    assert talked.say(acknowledged(asked_as(talked)), error) == [Listening(b"{}"), Changed(("tools",))]
    assert talked.relay.wake_at == RELISTEN.first_s


@pytest.mark.parametrize("end", [{"result": {}}, {"error": {"code": -32601, "message": "no"}}])
def test_a_refusal_and_a_good_end_are_final(end: JsonObject) -> None:
    """A server that does not offer it would be asked every second."""
    talked = listening()
    answer = {"id": asked_as(talked), **end}
    assert talked.say(answer, answer, cancelled(asked_as(talked)), acknowledged(asked_as(talked))) == []
    assert talked.relay.wake_at == inf
    assert len(talked.heard) == 1


def test_listening_for_something_else_ends_what_was_before() -> None:
    """A server would be listened to twice, and each change be told twice."""
    talked = listening()
    first = asked_as(talked)
    talked.relay.listen(("prompts",))
    talked.settle()
    assert talked.methods[1:] == ["notifications/cancelled", "subscriptions/listen"]
    assert talked.heard[1]["params"]["requestId"] == first
    assert talked.say(cancelled(first), acknowledged(first)) == []
    assert talked.say(acknowledged(asked_as(talked))) == [Listening(b"{}")]
    talked.relay.listen((), ())
    assert json.loads(talked.relay.take())["method"] == "notifications/cancelled"


def test_only_a_modern_server_is_listened_to() -> None:
    """An older one would be sent a request that it does not know, again and again."""
    with pytest.raises(RelayMisuseError):
        talk(LEGACY).relay.listen(("tools",))
