"""Finding a common era: with servers of each, with silent ones, and with ones that share none."""

import json

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, METHOD_NOT_FOUND, MODERN, Answer, JsonObject

from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.mcp.client import HANDSHAKE_REVISIONS, MODERN_REVISIONS, Refusal
from quarterdeck_protocol.mcp.client.events import GreetingFailed, Server
from quarterdeck_protocol.mcp.client.greeting import DISCOVER_S, MAX_INSTRUCTIONS_CHARS

from .relays import Talk, initialized, unsupported

LEGACY_SERVER = Server(
    LEGACY,
    "scripted",
    "1",
    instructions="be kind",
    capabilities=b'{"tools": {"listChanged": true}}',
    info=b'{"name": "scripted", "version": "1"}',
    announces=frozenset({"tools"}),
)
MODERN_SERVER = Server(
    MODERN, "scripted", "2", capabilities=b'{"tools": {}}', info=b'{"name": "scripted", "version": "2"}'
)
SHAKEN = ["initialize", "notifications/initialized"]
ASKED = ["initialize", "server/discover"]


def refused(code: int, **members: object) -> JsonObject:
    return {"error": {"code": code, "message": "no", **members}}


@pytest.mark.parametrize(
    ("handshake", "server", "methods"),
    [
        pytest.param(INITIALIZED, LEGACY_SERVER, SHAKEN, id="both eras"),
        pytest.param(unsupported(MODERN), MODERN_SERVER, ASKED, id="modern"),
        pytest.param(refused(-32022, data=7), MODERN_SERVER, ASKED, id="without a list"),
        pytest.param(refused(-32020), MODERN_SERVER, ASKED, id="for want of a header"),
        pytest.param(refused(-32601), MODERN_SERVER, ASKED, id="no such method"),
        pytest.param(refused(-32602), MODERN_SERVER, ASKED, id="for want of an envelope"),
        pytest.param(refused(-32600), MODERN_SERVER, ASKED, id="no request"),
        pytest.param({"result": {}}, MODERN_SERVER, ASKED, id="nonsense"),
        pytest.param(initialized(protocolVersion=MODERN), MODERN_SERVER, ASKED, id="shakes hands on the newer"),
    ],
)
def test_a_server_is_asked_for_the_newer_era_only_when_it_refuses_the_older(
    handshake: JsonObject, server: Server, methods: list[str]
) -> None:
    """A server of both eras could not ask its clients, or a modern one would not connect."""
    talked = Talk({"initialize": handshake, "server/discover": DISCOVERED})
    assert (talked.server, talked.methods) == (server, methods)


@pytest.mark.parametrize(
    "discovery",
    [DISCOVERED, METHOD_NOT_FOUND, {"result": []}, unsupported(LEGACY)],
    ids=["both eras", "legacy", "nonsense", "names the older"],
)
def test_the_newer_era_comes_first_where_it_is_wanted(discovery: JsonObject) -> None:
    """A process that is restarted for its clients of 2026-07-28 would speak the older era again, or not start."""
    talked = Talk({"initialize": INITIALIZED, "server/discover": discovery}, newer_first=True)
    is_modern = discovery is DISCOVERED
    assert talked.server == (MODERN_SERVER if is_modern else LEGACY_SERVER)
    assert talked.methods == ["server/discover", *([] if is_modern else SHAKEN)]


@pytest.mark.parametrize("agreed", HANDSHAKE_REVISIONS)
def test_every_revision_of_the_handshake_is_spoken(agreed: str) -> None:
    """A server of an older revision would not connect."""
    talked = Talk({"initialize": initialized(protocolVersion=agreed)})
    assert talked.server.era == agreed
    assert talked.heard[0]["params"] == {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "us", "version": "1"},
    }
    assert talked.heard[1] == {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_a_modern_server_that_refuses_our_revision_and_names_it_is_asked_once_more() -> None:
    """One hiccup would end its start; without a bound it would be asked for ever."""
    talked = Talk({"initialize": unsupported(MODERN), "server/discover": unsupported(MODERN)})
    assert talked.methods == ["initialize", "server/discover", "server/discover"]
    assert talked.failure == GreetingFailed("no", -32022)


def test_a_modern_server_that_is_silent_about_its_era_is_given_up() -> None:
    """Its start would last until the deadline of its row, for a server that has refused us already."""
    talked = Talk({"initialize": unsupported(MODERN), "server/discover": None})
    assert talked.wait(DISCOVER_S - 0.1) == []
    talked.wait(0.1)
    assert talked.failure == GreetingFailed("the server did not answer in time")


METHODLESS = {"error": {"code": -32000, "message": "not today"}}


@pytest.mark.parametrize(
    ("answers", "failure"),
    [
        ({"initialize": unsupported("2099-01-01"), "server/discover": METHODLESS}, GreetingFailed("not today", -32000)),
        ({}, GreetingFailed("no such method", -32601)),
        ({"initialize": METHODLESS}, GreetingFailed("not today", -32000)),
        (
            {"initialize": initialized(protocolVersion="1999-01-01")},
            GreetingFailed("Unsupported protocol version from the server: 1999-01-01"),
        ),
        (
            {"initialize": {"result": {"protocolVersion": LEGACY}}},
            GreetingFailed("the answer does not follow MCP: the field 'capabilities' is missing"),
        ),
        (
            {"initialize": initialized(serverInfo={"name": 7, "version": "1"})},
            GreetingFailed("the answer does not follow MCP: expected a string, got a whole number at 'name'"),
        ),
        ({"initialize": {"error": 7}}, GreetingFailed("the server's answer does not follow MCP", -32700)),
    ],
    ids=["a later era", "neither", "refuses", "unheard of", "half", "nameless", "odd error"],
)
def test_a_server_that_shares_no_way_is_a_failure_that_says_why(
    answers: dict[str, Answer], failure: GreetingFailed
) -> None:
    """A server that we cannot speak to would look ready."""
    talked = Talk(answers)
    assert talked.failure == failure
    assert talked.relay.request(1, "tools/call") is Refusal.NOT_OPEN
    assert talked.relay.list_all(1, "tools/list", 0.0) is Refusal.NOT_OPEN


def test_a_program_that_sends_back_what_it_is_sent_is_no_server() -> None:
    """`cat` would be waited for until the deadline."""
    talked = Talk({"initialize": None})
    talked.say(json.dumps(talked.heard[0]).encode())
    assert talked.failure.is_echo


def test_an_answer_that_cannot_be_read_ends_the_wait() -> None:
    """A server whose first words are broken would be waited for."""
    talked = Talk({"initialize": None, "server/discover": DISCOVERED})
    talked.say(b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}')
    talked.settle()
    assert talked.methods == ["initialize"]
    assert isinstance(talked.told[-1], GreetingFailed)


def test_what_a_server_says_of_itself_is_cut() -> None:
    """A megabyte of instructions would travel in every list of servers."""
    said = initialized(
        serverInfo={"name": "n" * 1_000, "version": "v" * 1_000, "title": "t" * 1_000, "icons": "i" * 65_000},
        instructions="i" * (MAX_INSTRUCTIONS_CHARS + 1),
        capabilities={"tools": 7, "prompts": {"listChanged": 1}, "resources": {"subscribe": True}},
    )
    server = Talk({"initialize": said}).server
    assert (len(server.name), len(server.version), len(server.title)) == (200, 200, 200)
    assert len(server.instructions) == MAX_INSTRUCTIONS_CHARS
    assert (server.info, server.announces) == (b"{}", frozenset())


def test_a_modern_server_need_not_say_who_it_is() -> None:
    """A server whose name is broken would not connect, though the name is for people only."""
    for meta in ({}, {"io.modelcontextprotocol/serverInfo": {"name": 1}}, {"io.modelcontextprotocol/serverInfo": 7}):
        server = Talk({"server/discover": {"result": {**DISCOVERED["result"], "_meta": meta}}}).server
        assert (server.name, server.info, server.era) == ("", b"{}", MODERN)


@pytest.mark.parametrize("forced", ["2025-03-26", LEGACY, MODERN])
def test_a_revision_that_is_forced_is_the_one_that_is_asked_for(forced: str) -> None:
    """A server that breaks the newer revision could not be used, whatever its user wrote."""
    answers: dict[str, Answer] = {"server/discover": DISCOVERED, "initialize": initialized(protocolVersion=forced)}
    talked = Talk(answers, forced=forced)
    assert talked.server.era == forced
    assert talked.methods[0] == ("server/discover" if forced == MODERN else "initialize")
    if forced != MODERN:
        assert talked.heard[0]["params"]["protocolVersion"] == forced


@pytest.mark.parametrize(
    ("answers", "forced", "message"),
    [
        (
            {"initialize": INITIALIZED},
            "2024-11-05",
            f"it speaks {LEGACY}, and not 2024-11-05, which the key protocol of its row forces",
        ),
        ({"initialize": INITIALIZED}, MODERN, f"it does not speak {MODERN}, which the key protocol of its row forces"),
        (
            {"server/discover": {"result": {**DISCOVERED["result"], "supportedVersions": ["a", "b"]}}},
            MODERN,
            "it shares no protocol revision with us: it speaks a, b",
        ),
    ],
)
def test_a_server_that_does_not_speak_what_is_forced_is_a_failure_that_names_the_key(
    answers: dict[str, Answer], forced: str, message: str
) -> None:
    """What was forced would be a wish."""
    talked = Talk(answers, forced=forced)
    assert talked.failure.message == message
    assert len(talked.heard) == 1


def test_a_server_that_is_silent_although_its_revision_is_forced_is_a_failure() -> None:
    """It would be waited for without an end."""
    talked = Talk({"server/discover": None}, forced=MODERN)
    talked.wait(10.0)
    assert talked.failure == GreetingFailed("the server did not answer in time")


def test_the_revisions_are_the_sdks_and_those_that_can_be_forced() -> None:
    """One that the SDK speaks could not be spoken, or one be promised that is not known here."""
    assert HANDSHAKE_REVISIONS == HANDSHAKE_PROTOCOL_VERSIONS
    assert MODERN_REVISIONS == MODERN_PROTOCOL_VERSIONS
    assert {revision.value for revision in Revision} == {*HANDSHAKE_REVISIONS, *MODERN_REVISIONS}
