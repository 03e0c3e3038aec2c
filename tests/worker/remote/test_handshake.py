"""Finding a common era: with servers of each, with silent ones, and with ones that share none."""

import anyio
import msgspec
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, MODERN, Answer, JsonObject
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
    ("answers", "card", "methods"),
    [
        ({"server/discover": DISCOVERED}, MODERN_CARD, ["server/discover"]),
        ({"initialize": INITIALIZED}, LEGACY_CARD, ["server/discover", "initialize", "notifications/initialized"]),
        (
            {"server/discover": unsupported(LEGACY), "initialize": INITIALIZED},
            LEGACY_CARD,
            ["server/discover", "initialize", "notifications/initialized"],
        ),
        (
            {"server/discover": {"result": {"nonsense": 1}}, "initialize": INITIALIZED},
            LEGACY_CARD,
            ["server/discover", "initialize", "notifications/initialized"],
        ),
        (
            {"server/discover": {"error": {"code": -32022, "message": "no", "data": 7}}, "initialize": INITIALIZED},
            LEGACY_CARD,
            ["server/discover", "initialize", "notifications/initialized"],
        ),
    ],
    ids=["modern", "legacy", "names an older one", "nonsense", "refuses without a list"],
)
async def test_an_unknown_server_is_greeted_in_its_own_era(
    answers: dict[str, Answer], card: ServerCard, methods: list[str]
) -> None:
    """Half of all servers would not connect."""
    async with scripted_session(answers) as (session, server):
        assert plain(await greet(session, "")) == card
        await server.until(methods[-1])
        assert server.methods == methods


@pytest.mark.parametrize(("era", "methods"), [(LEGACY, ["initialize"]), (MODERN, ["server/discover"])])
async def test_a_known_server_is_not_probed(era: str, methods: list[str]) -> None:
    """Every restart would pay for the probe again."""
    async with scripted_session({"server/discover": DISCOVERED, "initialize": INITIALIZED}) as (session, server):
        card = await greet(session, era)
        assert card.era == era
        assert server.methods[:1] == methods


async def test_a_server_that_never_answers_the_probe_is_greeted_the_old_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old servers that ignore what they do not know would never connect."""
    monkeypatch.setattr(handshake, "PROBE_S", 0.0)
    async with scripted_session({"server/discover": None, "initialize": INITIALIZED}) as (session, _):
        assert plain(await greet(session, "")) == LEGACY_CARD


async def test_a_modern_server_that_was_too_slow_for_the_probe_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A modern server on a busy machine would be called broken."""
    monkeypatch.setattr(handshake, "PROBE_S", 0.0)
    async with scripted_session({"initialize": unsupported(MODERN)}) as (session, server):
        server.answers["server/discover"] = lambda _: DISCOVERED if "initialize" in server.methods else None
        assert plain(await greet(session, "")) == MODERN_CARD


async def test_a_server_remembered_as_legacy_that_was_upgraded_is_found_again() -> None:
    """A server's upgrade would need our restart."""
    async with scripted_session({"initialize": unsupported(MODERN), "server/discover": DISCOVERED}) as (session, _):
        assert plain(await greet(session, LEGACY)) == MODERN_CARD


@pytest.mark.parametrize(
    "answers",
    [
        {"server/discover": unsupported("2099-01-01")},
        {},
        {"initialize": {"error": {"code": -32000, "message": "not today"}}},
    ],
    ids=["a later era", "neither", "refuses the handshake"],
)
async def test_a_server_that_refuses_both_ways_is_an_error(answers: dict[str, Answer]) -> None:
    """A server that we cannot speak to would look ready."""
    async with scripted_session(answers) as (session, _):
        with pytest.raises(MCPError):
            await greet(session, "")


async def test_a_server_with_an_unheard_of_old_revision_is_an_error() -> None:
    """We would speak a revision that we do not know."""
    answer = {"result": {**INITIALIZED["result"], "protocolVersion": "1999-01-01"}}
    async with scripted_session({"initialize": answer}) as (session, _):
        with pytest.raises(RuntimeError, match="1999"):
            await greet(session, "")


async def test_giving_up_during_the_probe_is_no_answer() -> None:
    """A closed endpoint would greet on."""
    async with scripted_session({"server/discover": None, "initialize": INITIALIZED}) as (session, server):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(greet, session, "")
                await server.until("server/discover")
                scope.cancel()
        assert "initialize" not in server.methods


async def test_what_a_server_says_of_itself_is_cut() -> None:
    """A megabyte of instructions would travel in every list of servers."""
    said = {
        **INITIALIZED["result"],
        "serverInfo": {"name": "n" * 1_000, "version": "v" * 1_000},
        "instructions": "i" * (MAX_INSTRUCTIONS_CHARS + 1),
        "capabilities": {},
    }
    async with scripted_session({"initialize": {"result": said}}) as (session, _):
        card = await greet(session, LEGACY)
        assert (len(card.name), len(card.version), len(card.instructions)) == (200, 200, MAX_INSTRUCTIONS_CHARS)
        assert not card.announces


@pytest.mark.parametrize("forced", ["2025-03-26", LEGACY, MODERN])
@pytest.mark.parametrize("era", ["", LEGACY, MODERN])
async def test_a_revision_that_is_forced_is_the_one_that_is_asked_for(forced: str, era: str) -> None:
    """A server that breaks the newer revision could not be used, whatever its user wrote."""
    agreed = {"result": {**INITIALIZED["result"], "protocolVersion": forced}}
    async with scripted_session({"server/discover": DISCOVERED, "initialize": agreed}) as (session, server):
        card = await greet(session, era, forced)
        assert card.era == forced
        assert server.methods[0] == ("server/discover" if forced == MODERN else "initialize")
        if forced != MODERN:
            await server.until("notifications/initialized")
            assert server.asked[0]["params"]["protocolVersion"] == forced


async def test_a_server_that_insists_on_another_revision_is_an_error_that_names_the_key() -> None:
    """It would be spoken to in a revision that its user has ruled out."""
    async with scripted_session({"initialize": INITIALIZED}) as (session, _):
        with pytest.raises(RuntimeError, match=f"speaks {LEGACY}, and not 2024-11-05, which the key protocol"):
            await greet(session, "", "2024-11-05")


async def test_a_server_that_knows_no_forced_revision_is_not_greeted_in_another_way() -> None:
    """What was forced would be a wish."""
    async with scripted_session({"initialize": INITIALIZED}) as (session, server):
        with pytest.raises(RuntimeError, match=f"does not speak {MODERN}, which the key protocol"):
            await greet(session, LEGACY, MODERN)
        assert "initialize" not in server.methods


def test_the_revisions_that_can_be_forced_are_the_sdks() -> None:
    """One that the SDK speaks could not be forced, or one be promised that it does not know."""
    assert {revision.value for revision in Revision} == {*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS}
