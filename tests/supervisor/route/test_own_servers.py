"""A session's own server behind its gate: called for just those definitions that were judged on the deck's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from support.fleet.answers import Answering
from support.fleet.memory_fleet import FakeFleet
from support.trust.approvals import Bench, ToldEndpoint, bench, tool_key
from support.waiting import turns

from quarterdeck.fleet import session_servers
from quarterdeck.fleet.session_servers import SessionServer, SessionServers
from quarterdeck.route.deck_server import DeckServers
from quarterdeck_protocol.configs import (
    BridgeConfig,
    Revision,
    ServerScope,
    StdioServerConfig,
    StreamableHttpServerConfig,
    TrustMode,
)
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.offers import Listing, RawRequest
from quarterdeck_protocol.tools import CallEnd, Client, RawCall, WireResult

ROW = StdioServerConfig(id="fs", command="run", trust=TrustMode.BASELINE, scope=ServerScope.SESSION)


SHARED = StdioServerConfig(id="fs", command="run", trust=TrustMode.BASELINE)


class OwnFleet(FakeFleet):
    """The fleet of one session's server, which a test starts."""

    async def begin_start(self, config: BridgeConfig) -> None:
        """It is being started until it `runs`."""
        self.coming |= {each.id for each in config.servers}

    def runs(self, endpoint: ToldEndpoint) -> None:
        self.by_id[endpoint.config.id] = endpoint
        self.coming.clear()
        self.tell()

    def last_fault(self, _: str) -> None:
        """It has none."""


class Lab:
    """A judged server, and the session's own behind its gate."""

    def __init__(self, at: Bench) -> None:
        self.judged = at
        self.fleets: list[OwnFleet] = []
        self.sessions = SessionServers(self._make)
        at.servers = DeckServers(at.fleet, at.approvals, self.sessions)

    @property
    def servers(self) -> list[SessionServer]:
        return list(self.sessions._servers.values())

    def _make(self) -> Any:
        self.fleets.append(OwnFleet())
        return self.fleets[-1]

    def calls(
        self,
        tool: str = "a",
        session: str = "1",
        *,
        within_s: float | None = None,
        is_modern: bool = False,
        answerer: Answering | None = None,
    ) -> list[CallEnd]:
        gate = self.judged.servers.endpoint("fs")
        told: list[CallEnd] = []
        call = RawCall(tool, b"{}", timeout_s=within_s, client=client(session), answerer=answerer, is_modern=is_modern)
        gate.begin(call, told.append)
        return told

    async def ended(self, told: list[CallEnd]) -> CallEnd:
        await self.judged.until(lambda: bool(told))
        [end] = told
        return end

    async def refused(self, told: list[CallEnd]) -> ProtocolFault:
        end = await self.ended(told)
        assert end.delivery is Delivery.NOT_SENT
        return end

    async def answered(self, told: list[CallEnd]) -> None:
        """The call has its result."""
        assert isinstance(await self.ended(told), WireResult)

    async def begun(self, told: list[CallEnd]) -> OwnFleet:
        await turns()
        assert told == []
        return self.fleets[-1]

    async def runs_for(self, told: list[CallEnd], endpoint: ToldEndpoint) -> ToldEndpoint:
        """The call waits for its session's own server, and is answered once that runs."""
        (await self.begun(told)).runs(endpoint)
        await self.answered(told)
        return endpoint


def client(session: str = "1") -> Client:
    return Client("ada", f"token a/{session}")


@asynccontextmanager
async def lab(judged: ToldEndpoint) -> AsyncIterator[Lab]:
    async with bench() as at:
        made = Lab(at)
        await at.runs(judged)
        yield made
        if judged.config.scope is ServerScope.SESSION:
            assert judged.begun == [], "a call reached the deck's own server, which all sessions share"
        await made.sessions.close()
        assert all(fleet.torn_down for fleet in made.fleets)


def own(**tools: str) -> ToldEndpoint:
    return ToldEndpoint(ROW, **tools)


def shared(era: str = "2025-11-25", **tools: str) -> ToldEndpoint:
    made = ToldEndpoint(SHARED, **(tools or {"a": "one"}))
    made.card = msgspec.structs.replace(made.card, era=era)  # type: ignore[type-var]
    return made


async def test_a_call_waits_for_its_sessions_own_server_and_is_answered_by_it() -> None:
    """A session's first call would fail, or two sessions would share what one of them has open."""
    async with lab(own(a="one")) as at:
        mine = await at.runs_for(at.calls(), own(a="one"))
        theirs = await at.runs_for(at.calls(session="2"), own(a="one"))
        await at.answered(at.calls())
        assert (len(mine.begun), len(theirs.begun), len(at.fleets)) == (2, 1, 2)


@pytest.mark.parametrize("tools", [{"a": "evil"}, {"b": "one"}, {}], ids=["otherwise", "renamed", "not at all"])
async def test_a_definition_other_than_the_judged_one_is_not_called(tools: dict[str, str]) -> None:
    """A server would show its reviewed face where it is judged, and another one in each session."""
    async with lab(own(a="one")) as at:
        told = at.calls()
        (await at.begun(told)).runs(mine := own(**tools))
        fault = await at.refused(told)
        assert (fault.code, mine.begun) == ("tool_held", [])
        assert "defines the tool 'a' otherwise than what was approved" in fault.message


@pytest.mark.parametrize("changes", ["own", "judged"])
async def test_what_either_server_changes_after_it_was_called_is_compared_again(changes: str) -> None:
    """The first good call would open the gate for whatever the server defines later."""
    async with lab(own(a="one", b="two")) as at:
        mine = await at.runs_for(at.calls(), own(a="one", b="two"))
        if changes == "own":
            mine.lists(a="evil", b="two")
        else:
            await at.judged.lists(a="new", b="two")
            await at.judged.approve(tool_key("a"))
        fault = await at.refused(at.calls())
        assert fault.code == "tool_held"
        await at.answered(at.calls("b"))
        assert [call.tool for call in mine.begun] == ["a", "b"]


async def test_what_is_held_of_the_row_starts_no_server_of_a_session() -> None:
    """What nobody approved would be started by whoever calls it."""
    async with lab(own(a="one")) as at:
        await at.judged.lists(a="evil")
        assert (await at.refused(at.calls())).code == "tool_held"
        assert at.fleets == []


@pytest.mark.parametrize("phase", [EndpointPhase.FAULTED, EndpointPhase.CONNECTING])
async def test_a_server_of_a_session_that_does_not_come_is_said(phase: EndpointPhase) -> None:
    """A client would wait for ever, or be told that all sessions lack a server which only its own does."""
    async with lab(own(a="one")) as at:
        told = at.calls(within_s=0.05 if phase is EndpointPhase.CONNECTING else None)
        if phase is EndpointPhase.FAULTED:
            failed = own(a="one")
            failed.phase = phase
            (await at.begun(told)).runs(failed)
        fault = await at.refused(told)
        assert fault.code == "not_connected"
        assert "fs of this session is" in fault.message


# What clients want beyond a call


class WishedEndpoint(ToldEndpoint):
    """One that keeps what clients wish of it."""

    def __init__(self, links: str = "") -> None:
        super().__init__(ROW, capabilities=b'{"tools":{},"resources":{"subscribe":true}}', a="one")
        self.have(Listing.RESOURCES, {"uri": "x:1", "name": "it"})
        self.wished: list[tuple[str, ...]] = []
        self._links = links

    def has_linked(self, uri: str) -> bool:
        """See `LiveEndpoint`."""
        return uri == self._links

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `LiveEndpoint`."""
        self.wished.append((client.key, "unsubscribe", uri))

    def set_level(self, client: Client, level: str) -> None:
        """See `LiveEndpoint`."""
        self.wished.append((client.key, "level", level))

    def leave(self, client: Client) -> None:
        """See `LiveEndpoint`."""
        self.wished.append((client.key, "leave"))

    def tell(self, method: str, params: bytes = b"{}") -> None:
        """See `LiveEndpoint`."""
        self.wished.append((method,))


async def test_what_a_client_wishes_is_wished_of_its_sessions_own_server() -> None:
    """It would be told of changes for ever, or hear nothing; another session's server would be silenced for it."""
    judged = WishedEndpoint()
    async with lab(judged) as at:
        gate = at.judged.servers.endpoint("fs")
        me, other = Client("ada", "token a/1"), Client("ada", "token a/2")
        gate.set_level(me, "debug")
        told: list[CallEnd] = []
        asked = RawRequest("resources/subscribe", b'{"uri":"x:1"}', client=me)
        gate.forward(asked, told.append)
        (await at.begun(told)).runs(mine := WishedEndpoint(links="y:1"))
        await at.answered(told)
        assert [each.method for each in mine.forwarded] == ["resources/subscribe"]
        assert (gate.has_linked("y:1"), gate.has_linked("y:2")) == (True, False)
        gate.unsubscribe(me, "x:1")
        gate.unsubscribe(other, "x:1")
        gate.set_level(me, "error")
        gate.tell("notifications/roots/list_changed")
        gate.leave(other)
        gate.leave(me)
        assert mine.wished == [
            (me.key, "level", "debug"),
            (me.key, "unsubscribe", "x:1"),
            (me.key, "level", "error"),
            ("notifications/roots/list_changed",),
            (me.key, "leave"),
        ]
        assert len(at.fleets) == 1, "a wish started a server"
        assert judged.wished == []
        assert judged.forwarded == []


async def test_a_stream_of_changes_is_served_by_its_clients_own_server() -> None:
    """Each stream that a client opens would start one more server, which sees none of its changes."""
    async with lab(WishedEndpoint()) as at:
        gate = at.judged.servers.endpoint("fs")
        mine = WishedEndpoint()
        await at.runs_for(at.calls(), mine)
        heard: list[CallEnd] = []
        stream = Client("ada", "token a/1", part="stream 7")
        gate.forward(RawRequest("resources/subscribe", b'{"uri":"x:1"}', client=stream), heard.append)
        await at.answered(heard)
        assert [each.client.address for each in mine.forwarded] == ["token a/1 stream 7"]
        assert len(at.fleets) == 1


# A server that asks


async def test_a_server_that_asks_serves_the_session_that_it_asked_and_each_other_has_its_own() -> None:
    """One client's long call would hold up all others, or a session lose what its server has in memory."""
    judged = shared()
    async with lab(judged) as at:
        for session in "12":
            await at.answered(at.calls(session=session))
        assert (len(judged.begun), at.fleets) == (2, [])
        at.judged.fleet.queue("fs").note_question(client("1"))
        other = at.calls(session="2")
        assert [queue.load for _, queue in at.sessions.queues()] == [(1, 0)], "it waits for no other session's calls"
        mine = await at.runs_for(other, shared())
        await at.answered(at.calls(session="1"))
        assert (len(judged.begun), len(mine.begun), len(at.fleets)) == (3, 1, 1)


async def test_who_gets_no_server_of_its_own_shares_the_one_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seventeenth session of a client could not call a server at all that it could call before it asked."""
    monkeypatch.setattr(session_servers, "MAX_EACH", 1)
    judged = shared()
    async with lab(judged) as at:
        at.judged.fleet.queue("fs").note_question(client("1"))
        (await at.begun(at.calls(session="2"))).runs(shared())
        await at.answered(at.calls(session="3"))
        assert (len(judged.begun), len(at.fleets)) == (1, 1)


@pytest.mark.parametrize("tools", [{"a": "evil"}, None], ids=["otherwise", "failed"])
async def test_a_server_of_a_session_that_is_of_no_use_is_not_called(tools: dict[str, str] | None) -> None:
    """A server that may run only once could not be called any more from the moment on that it asked."""
    judged = shared()
    async with lab(judged) as at:
        at.judged.fleet.queue("fs").note_question(client("1"))
        mine = shared(**(tools or {}))
        if tools is None:
            mine.phase = EndpointPhase.FAULTED
        await at.runs_for(at.calls(session="2"), mine)
        assert (len(judged.begun), mine.begun) == (1, [])


# A server that speaks 2026-07-28, too

LOCKED = -32600
"""The error of a server on a connection of the other era."""


async def test_a_process_that_nobody_called_speaks_the_era_of_the_first_client_that_calls_it() -> None:
    """What a server can in 2026-07-28 alone, as ask several things at once, no client would see."""
    judged = shared()
    judged.refuses_newer = LOCKED
    async with lab(judged) as at:
        first, second = at.calls(is_modern=True), at.calls(session="2", is_modern=True)
        await turns()
        queue = at.judged.fleet.queue("fs")
        assert (queue.prefers_newer, judged.begun) == (True, [])
        newer = shared("2026-07-28")
        at.judged.fleet.coming.clear()
        at.judged.replaces(newer)
        await at.judged.judged()
        for told in (first, second, at.calls(is_modern=True)):
            await at.answered(told)
        assert (len(newer.begun), judged.begun, at.fleets) == (3, [], [])


async def test_clients_of_the_other_era_have_a_process_in_theirs() -> None:
    """A person before an older client could not be asked, by a server that only asks there."""
    newer = shared("2026-07-28")
    async with lab(newer) as at:
        at.judged.fleet.queue("fs").prefers_newer = True
        older = await at.runs_for(at.calls(answerer=Answering()), shared())
        await at.answered(at.calls(session="2"))
        assert (len(older.begun), len(newer.begun), len(at.fleets)) == (1, 1, 1), "who cannot be asked needs none"
        assert [each.config.protocol for each in at.servers] == ["2025-11-25"]


async def test_calls_of_clients_of_the_newer_era_share_a_process_beside_one_that_others_called() -> None:
    """What a process has in memory for its clients would be gone, or those of the newer era lose what it can there."""
    judged = shared()
    judged.refuses_newer = LOCKED
    async with lab(judged) as at:
        await at.answered(at.calls())
        newer = await at.runs_for(at.calls(is_modern=True), shared("2026-07-28"))
        await at.answered(at.calls(session="2", is_modern=True))
        assert (len(newer.begun), len(judged.begun), len(at.fleets)) == (2, 1, 1)
        assert [each.config.protocol for each in at.servers] == ["2026-07-28"]


async def test_a_process_that_lacks_the_newer_era_is_asked_once_and_not_started_again() -> None:
    """Each call would start a process that fails, or write into the server's log."""
    judged = shared()
    async with lab(judged) as at:
        for _ in range(3):
            await at.answered(at.calls(is_modern=True))
        assert (len(judged.begun), judged.asked_era, at.fleets) == (3, 1, [])


async def test_a_remote_server_that_lacks_the_newer_era_is_tried_once_and_bridged() -> None:
    """Each call would connect once more to be refused."""
    judged = shared()
    judged.config = StreamableHttpServerConfig(id="fs", url="http://localhost/mcp", trust=TrustMode.BASELINE)
    async with lab(judged) as at:
        failed = shared()
        failed.phase = EndpointPhase.FAULTED
        await at.runs_for(at.calls(is_modern=True), failed)
        for _ in range(2):
            await at.answered(at.calls(is_modern=True))
        assert (len(judged.begun), judged.asked_era, len(at.fleets)) == (3, 0, 1)


@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
async def test_a_server_of_one_era_by_itself_or_by_its_row_has_no_other(era: str) -> None:
    """A modern server would run twice, or a row's `protocol` hold for some clients alone."""
    judged = shared(era)
    judged.refuses_newer = LOCKED
    if era == "2025-11-25":
        judged.config = SHARED.model_copy(update={"protocol": Revision.R2025_11_25})
    async with lab(judged) as at:
        await at.answered(at.calls(is_modern=True))
        assert (len(judged.begun), at.fleets) == (1, [])


async def test_a_change_that_is_told_in_the_newer_era_alone_reaches_the_decks_own_lists() -> None:
    """Clients would keep an old list: some servers tell of changes in that era only."""
    judged = shared()
    judged.refuses_newer = LOCKED
    again: list[str] = []
    judged.on_list_changed = again.append  # type: ignore[method-assign]
    async with lab(judged) as at:
        await at.ended(at.calls())
        newer = await at.runs_for(at.calls(is_modern=True), shared("2026-07-28"))
        assert again == []
        newer.lists(a="one", b="two")
        newer.lists_version += 1
        at.fleets[-1].tell()
        assert again == ["tools", "prompts", "resources"]


# Servers of clients


OF_CLIENTS = ROW.model_copy(update={"scope": ServerScope.CLIENT})


class UserFleet(OwnFleet):
    """The fleet of one client's server, which may have failed."""

    fault: ProtocolFault | None = None

    def last_fault(self, _: str) -> ProtocolFault | None:
        """How it failed."""
        return self.fault


class UserLab(Lab):
    """A judged server, and one for each client."""

    def __init__(self, at: Bench) -> None:
        super().__init__(at)
        self.of: dict[str, UserFleet] = {}

    def _make(self, user: str) -> Any:
        fleet = self.of[user] = UserFleet()
        self.fleets.append(fleet)
        return fleet

    def calls_as(self, user: str, session: str = "1") -> list[CallEnd]:
        told: list[CallEnd] = []
        client = Client(user, f"token {user}/{session}", user=user)
        self.judged.servers.endpoint("fs").begin(RawCall("a", b"{}", client=client), told.append)
        return told


@asynccontextmanager
async def user_lab() -> AsyncIterator[UserLab]:
    async with bench() as at:
        made = UserLab(at)
        await at.runs(judged := ToldEndpoint(OF_CLIENTS, a="one"))
        yield made
        assert judged.begun == [], "a call reached the server that is listed with the owner's secrets"
        await made.sessions.close()


async def test_no_call_reaches_another_clients_server() -> None:
    """Now and then, with two people at work, one's agent would act as the other."""
    async with user_lab() as at:
        first = {user: at.calls_as(user) for user in ("anna", "Anna", "")}
        await turns()
        servers = {user: ToldEndpoint(OF_CLIENTS, a="one") for user in first}
        for user, server in servers.items():
            at.of[user].runs(server)
        told = [at.calls_as(user, session) for session in "1234" for user in first for _ in range(4)]
        for each in (*first.values(), *told):
            await at.answered(each)
        callers = {user: {call.client.user for call in server.begun} for user, server in servers.items()}
        assert callers == {user: {user} for user in first}
        assert [len(server.begun) for server in servers.values()] == [17, 17, 17]
        assert len(at.fleets) == 3


async def test_a_client_is_told_by_which_command_it_gets_what_it_lacks() -> None:
    """A person would look for why the server of all does not start, or store a secret for somebody else."""
    async with user_lab() as at:
        words = at.judged.servers.endpoint("fs").with_words(ProtocolFault("timeout", "")).server
        for code, own, remedy in (
            ("missing_client_secret", "quarterdeck secret set K", "quarterdeck secret set K --client anna"),
            ("auth_needed", None, f"quarterdeck login {words} --client anna"),
            ("exited", None, f"quarterdeck logs {words} --client anna"),
        ):
            told = at.calls_as("anna")
            await turns()
            fault = ProtocolFault("spawn_failed", "it lacks it", code=code, remedy=own)
            at.of["anna"].fault = fault
            failed = ToldEndpoint(OF_CLIENTS, a="one")
            failed.phase = EndpointPhase.FAULTED
            at.of["anna"].runs(failed)
            found = await at.refused(told)
            assert found.code == ("not_connected" if code == "exited" else code)
            assert str(found.remedy).startswith(remedy)
            assert "fs of this client is not ready: it lacks it" in found.message
            at.sessions.end_failed("fs")
        judged = at.judged.fleet.endpoint("fs")
        judged.phase, judged.fault = EndpointPhase.FAULTED, ProtocolFault("spawn_failed", "all lack it", code="exited")
        assert "--client" not in str((await at.refused(at.calls_as("anna"))).remedy)


async def test_a_server_that_names_its_home_is_called_in_every_home() -> None:
    """All tools of such a server would be held for each client, though nothing of them is another."""
    async with user_lab() as at:
        judged = at.judged.fleet.endpoint("fs")
        judged.home = "/state/servers/1/fs/home"
        await at.judged.lists(a="keeps notes in /state/servers/1/fs/home/notes")
        await at.judged.approve(tool_key("a"))
        for text, code in (
            ("keeps notes in /state/servers/1/fs/clients/anna/home/notes", None),
            ("keeps notes in /state/servers/1/fs/clients/bob/home/notes", "tool_held"),
            ("keeps notes in /state/servers/1/fs/clients/anna/home/others", "tool_held"),
        ):
            told = at.calls_as("anna")
            await turns()
            server = ToldEndpoint(OF_CLIENTS, a=text)
            server.home = "/state/servers/1/fs/clients/anna/home"
            at.of["anna"].runs(server)
            end = await at.ended(told)
            assert (end.code if isinstance(end, ProtocolFault) else None) == code
            at.sessions.end_user("anna")


async def test_a_clients_server_that_asks_is_each_sessions_own_from_then_on() -> None:
    """Nobody could tell which of a person's two windows is asked, and the question would be refused in both."""
    async with user_lab() as at:
        told = at.calls_as("anna")
        await turns()
        first = at.of["anna"]
        first.runs(shared := ToldEndpoint(OF_CLIENTS, a="one"))
        await at.answered(told)
        first.queue("fs").note_question(shared.begun[0].client)
        await at.answered(at.calls_as("anna"))
        told = at.calls_as("anna", "2")
        await turns()
        assert at.of["anna"] is not first
        at.of["anna"].runs(own := ToldEndpoint(OF_CLIENTS, a="one"))
        await at.answered(told)
        assert (len(shared.begun), len(own.begun)) == (2, 1)
        assert [each.client for each in at.sessions.statuses("fs")] == ["anna", "anna"]
        at.sessions.end_user("anna")
        assert at.sessions.statuses("fs") == ()
