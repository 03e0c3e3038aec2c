"""What a server asks: answered at once, or by our caller, each once, with a deadline and a bound."""

import json
from math import inf

import pytest
from support.servers.greetings import LEGACY, MODERN, JsonObject

from quarterdeck_protocol.mcp.client import asks, connection
from quarterdeck_protocol.mcp.client.events import Asked, AskEnded, EndOfAsk, Junk

from .relays import Talk, talk

OFFERS = frozenset({"elicitation/create", "roots/list"})


def asking(era: str = LEGACY) -> Talk:
    return talk(era, offers=OFFERS)


def ask(server_id: object, method: str = "elicitation/create", **params: object) -> JsonObject:
    return {"id": server_id, "method": method, "params": params}


def answers(talked: Talk) -> list[JsonObject]:
    return [json.loads(line) for line in talked.relay.take().splitlines()]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("server_id", [0, 7, "7", "p"])
def test_a_ping_is_answered_at_once(era: str, server_id: int | str) -> None:
    """A server that pings would hang up."""
    talked = asking(era)
    assert talked.say({"id": server_id, "method": "ping"}) == []
    assert answers(talked) == [{"jsonrpc": "2.0", "id": server_id, "result": {}}]


@pytest.mark.parametrize(("era", "method"), [(LEGACY, "sampling/createMessage"), (LEGACY, "x"), (MODERN, "roots/list")])
def test_what_is_not_offered_is_refused_at_once(era: str, method: str) -> None:
    """A server that asks for more would wait for ever; a modern one may ask nothing at all."""
    talked = asking(era)
    assert talked.say(ask("s", method)) == []
    [answer] = answers(talked)
    assert (answer["id"], answer["error"]["code"]) == ("s", -32601)


@pytest.mark.parametrize("server_id", [0, 7, "7", "p"])
def test_what_is_offered_is_asked_and_answered_once_under_the_servers_own_id(server_id: int | str) -> None:
    """A person's answer would reach nobody, or somebody else."""
    talked = asking()
    [asked] = talked.say(ask(server_id, message="name?"))
    assert isinstance(asked, Asked)
    assert (asked.method, asked.params) == ("elicitation/create", b'{"message": "name?"}')
    assert answers(talked) == []
    assert talked.relay.answer(asked.ask_id, b'{"action":"accept"}')
    assert answers(talked) == [{"jsonrpc": "2.0", "id": server_id, "result": {"action": "accept"}}]
    assert not talked.relay.answer(asked.ask_id, b"{}")
    assert not talked.relay.refuse(asked.ask_id, 1, "no")
    assert answers(talked) == []


def test_a_refusal_is_an_error_for_the_server() -> None:
    """A server would take a refusal for an answer."""
    talked = asking()
    [first, second] = talked.say({"id": 1, "method": "roots/list"}, ask(2))
    assert isinstance(first, Asked)
    assert isinstance(second, Asked)
    assert first.params == b"{}"
    talked.relay.refuse(first.ask_id, -1, "no\nnever")
    talked.relay.refuse(second.ask_id, -1, "no", b'{"a":\n1}')
    assert [answer["error"] for answer in answers(talked)] == [
        {"code": -1, "message": "no\nnever"},
        {"code": -1, "message": "no", "data": {"a": 1}},
    ]


def test_a_request_that_the_server_gives_up_ends() -> None:
    """A person would be asked what nobody wants to know any more."""
    talked = asking()
    [asked] = talked.say(ask("7"))
    assert isinstance(asked, Asked)
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
    assert talked.say(cancelled, cancelled) == [AskEnded(asked.ask_id, EndOfAsk.CANCELLED)]
    assert not talked.relay.answer(asked.ask_id, b"{}")
    assert answers(talked) == []


def test_a_request_that_nobody_answers_ends_with_an_error() -> None:
    """A server would wait for ever for a person who went away."""
    talked = asking()
    [asked] = talked.say(ask(1))
    assert isinstance(asked, Asked)
    assert talked.relay.wake_at == asks.ASK_S
    talked.now += asks.ASK_S
    assert talked.relay.advance(talked.now) == [AskEnded(asked.ask_id, EndOfAsk.EXPIRED)]
    assert [answer["error"]["message"] for answer in answers(talked)] == ["nobody answered in time"]
    assert talked.relay.wake_at == inf


def test_questions_are_bounded_and_two_with_one_id_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that asks a thousand times would bury its user; one answer would go to two questions."""
    monkeypatch.setattr(asks, "MAX_ASKS", 2)
    talked = asking()
    assert len(talked.say(ask(1), ask("1"))) == 1
    assert len(talked.say(ask(2), ask(3))) == 1
    assert [(answer["id"], answer["error"]["code"]) for answer in answers(talked)] == [("1", -32600), (3, -32600)]


@pytest.mark.parametrize("params", [b"[1]", b"7", b'{"a":%s}' % (b"[" * 300 + b"]" * 300), b'{"a":"\xff"}'])
def test_params_that_cannot_be_passed_on_are_refused(params: bytes) -> None:
    """A client would be asked what its reader refuses."""
    talked = asking()
    assert talked.say(b'{"id":1,"method":"roots/list","params":%s}' % params) == []
    [answer] = answers(talked)
    assert answer["error"]["code"] == -32600


def test_a_question_of_megabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would have its user's client take all its memory."""
    monkeypatch.setattr(asks, "MAX_ASK_BYTES", 100)
    talked = asking()
    assert talked.say(ask(1, message="x" * 100)) == []
    assert "exceed the limit" in answers(talked)[0]["error"]["message"]


def test_a_question_of_a_million_members_is_refused_and_a_long_conversation_is_not() -> None:
    """Whoever looks at the params would build an object of each, a hundred times their size."""
    talked = asking()
    many = b",".join(b'"k%d":1' % number for number in range(40_000))
    assert talked.say(b'{"id":1,"method":"roots/list","params":{%s}}' % many) == []
    assert "beside its content" in answers(talked)[0]["error"]["message"]
    [asked] = talked.say(b'{"id":2,"method":"roots/list","params":{"messages":[{%s}]}}' % many)
    assert isinstance(asked, Asked)


@pytest.mark.parametrize("server_id", [None, "x" * 300])
def test_a_request_without_a_sensible_id_is_junk(server_id: str | None) -> None:
    """What has no id cannot be answered; what has one of megabytes would be sent back whole."""
    talked = asking()
    [junk] = talked.say(ask(server_id))
    assert isinstance(junk, Junk)
    assert answers(talked) == []


def test_a_server_that_asks_and_does_not_read_gets_no_more_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of pings would fill our memory with answers."""
    monkeypatch.setattr(connection, "MAX_REPLY_BYTES", 100)
    talked = asking()
    ping = {"id": 1, "method": "ping"}
    assert talked.say(*[ping] * 50, *map(ask, range(50))) == []
    assert len(answers(talked)) == 3
    talked.say(ping)
    assert len(answers(talked)) == 1


def test_a_server_that_asks_before_it_is_greeted_is_refused() -> None:
    """A program would ask a user's client before anybody knows what it is."""
    talked = Talk({"server/discover": None}, offers=OFFERS)
    talked.say(ask("s"), {"id": "p", "method": "ping"})
    first, second = answers(talked)
    assert (first["error"]["code"], second["result"]) == (-32601, {})


def test_a_greeted_server_that_sends_a_clients_request_is_refused() -> None:
    """It would be taken for a program that copies its input, and a working connection be given up."""
    talked = asking()
    talked.relay.list_all(7, "tools/list", 0.0)
    wire_id = answers(talked)[0]["id"]
    assert talked.say({"id": wire_id, "method": "initialize"}) == []
    assert answers(talked)[0]["error"]["code"] == -32601
