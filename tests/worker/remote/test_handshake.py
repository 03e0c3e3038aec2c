"""Finding a common era: with servers of each, with silent ones, and with ones that share none."""

import anyio
import msgspec
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, METHOD_NOT_FOUND, MODERN, Answer, JsonObject
from support.servers.scripted_session import scripted_session

from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.link.frames import ServerCard
from quarterdeck_worker.remote import handshake
from quarterdeck_worker.remote.handshake import MAX_INSTRUCTIONS_CHARS, greet

pytestmark = pytest.mark.anyio

LEGACY_CARD = ServerCard(LEGACY, None, "scripted", "1", "be kind", announces=("tools",))
MODERN_CARD = ServerCard(MODERN, None, "scripted", "2")


def plain(card: ServerCard) -> ServerCard:
    """A card without what it has in the server's own words."""
    return msgspec.structs.replace(card, capabilities=b"{}", info=b"{}")


def unsupported(*versions: str) -> JsonObject:
    """What a server says to a revision that it does not speak."""
    return {"error": {"code": -32022, "message": "no", "data": {"supported": list(versions), "requested": "x"}}}


@pytest.mark.parametrize(
    ("handshake", "card", "methods"),
    [
        (INITIALIZED, LEGACY_CARD, ["initialize", "notifications/initialized"]),
        (unsupported(MODERN), MODERN_CARD, ["initialize", "server/discover"]),
        (METHOD_NOT_FOUND, MODERN_CARD, ["initialize", "server/discover"]),
        ({"result": {"nonsense": 1}}, MODERN_CARD, ["initialize", "server/discover"]),
    ],
    ids=["both eras", "modern", "no such method", "nonsense"],
)
async def test_a_server_is_asked_for_the_newer_era_only_when_it_refuses_the_older(
    handshake: JsonObject, card: ServerCard, methods: list[str]
) -> None:
    """A server of both eras could not ask its clients, or a modern one would not connect."""
    async with scripted_session({"initialize": handshake, "server/discover": DISCOVERED}) as (session, server):
        assert plain(await greet(session)) == card
        await server.until(methods[-1])
        assert server.methods == methods


async def test_a_modern_server_that_is_silent_about_its_era_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start would last until the deadline of its row, for a server that has refused us already."""
    monkeypatch.setattr(handshake, "DISCOVER_S", 0.0)
    async with scripted_session({"initialize": unsupported(MODERN), "server/discover": None}) as (session, _):
        with pytest.raises(TimeoutError):
            await greet(session)


@pytest.mark.parametrize(
    "answers",
    [
        {"initialize": unsupported("2099-01-01")},
        {},
        {"initialize": {"error": {"code": -32000, "message": "not today"}}},
    ],
    ids=["a later era", "neither", "refuses the handshake"],
)
async def test_a_server_that_refuses_both_ways_is_an_error(answers: dict[str, Answer]) -> None:
    """A server that we cannot speak to would look ready."""
    async with scripted_session(answers) as (session, _):
        with pytest.raises(MCPError):
            await greet(session)


async def test_a_server_with_an_unheard_of_old_revision_is_an_error() -> None:
    """We would speak a revision that we do not know."""
    answer = {"result": {**INITIALIZED["result"], "protocolVersion": "1999-01-01"}}
    async with scripted_session({"initialize": answer}) as (session, _):
        with pytest.raises(RuntimeError, match="1999"):
            await greet(session)


async def test_giving_up_during_the_handshake_is_no_refusal() -> None:
    """A closed endpoint would greet on."""
    async with scripted_session({"initialize": None, "server/discover": DISCOVERED}) as (session, server):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(greet, session)
                await server.until("initialize")
                scope.cancel()
        assert "server/discover" not in server.methods


async def test_what_a_server_says_of_itself_is_cut() -> None:
    """A megabyte of instructions would travel in every list of servers."""
    said = {
        **INITIALIZED["result"],
        "serverInfo": {"name": "n" * 1_000, "version": "v" * 1_000},
        "instructions": "i" * (MAX_INSTRUCTIONS_CHARS + 1),
        "capabilities": {},
    }
    async with scripted_session({"initialize": {"result": said}}) as (session, _):
        card = await greet(session)
        assert (len(card.name), len(card.version), len(card.instructions)) == (200, 200, MAX_INSTRUCTIONS_CHARS)
        assert not card.announces


@pytest.mark.parametrize("forced", ["2025-03-26", LEGACY, MODERN])
async def test_a_revision_that_is_forced_is_the_one_that_is_asked_for(forced: str) -> None:
    """A server that breaks the newer revision could not be used, whatever its user wrote."""
    agreed = {"result": {**INITIALIZED["result"], "protocolVersion": forced}}
    async with scripted_session({"server/discover": DISCOVERED, "initialize": agreed}) as (session, server):
        card = await greet(session, forced)
        assert card.era == forced
        assert server.methods[0] == ("server/discover" if forced == MODERN else "initialize")
        if forced != MODERN:
            await server.until("notifications/initialized")
            assert server.asked[0]["params"]["protocolVersion"] == forced


async def test_a_server_that_insists_on_another_revision_is_an_error_that_names_the_key() -> None:
    """It would be spoken to in a revision that its user has ruled out."""
    async with scripted_session({"initialize": INITIALIZED}) as (session, _):
        with pytest.raises(RuntimeError, match=f"speaks {LEGACY}, and not 2024-11-05, which the key protocol"):
            await greet(session, "2024-11-05")


async def test_a_server_that_knows_no_forced_revision_is_not_greeted_in_another_way() -> None:
    """What was forced would be a wish."""
    async with scripted_session({"initialize": INITIALIZED}) as (session, server):
        with pytest.raises(RuntimeError, match=f"does not speak {MODERN}, which the key protocol"):
            await greet(session, MODERN)
        assert "initialize" not in server.methods


def test_the_revisions_that_can_be_forced_are_the_sdks() -> None:
    """One that the SDK speaks could not be forced, or one be promised that it does not know."""
    assert {revision.value for revision in Revision} == {*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS}
