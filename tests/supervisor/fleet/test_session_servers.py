"""Servers of single sessions: who has which, how many, and when each ends; with fleets that start nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import until

from quarterdeck.fleet import session_servers
from quarterdeck.fleet.core import wakefulness
from quarterdeck.fleet.session_servers import SessionServer, SessionServers, session_of_user
from quarterdeck_protocol.configs import BridgeConfig, ServerScope, StdioServerConfig
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.offers import LogLine, News, ResourceUpdated, ServerNote
from quarterdeck_protocol.tools import Client


class PlayedFleet:
    """A fleet that starts nothing, and knows that it was told to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.listeners: list[Callable[[News], None]] = []
        self.has_ended = False
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def begin_start(self, config: BridgeConfig) -> None:
        """See `ServerFleetImpl`."""
        self.started += [each.id for each in config.servers]

    async def tear_down(self) -> None:
        """See `ServerFleetImpl`."""
        await self.may_end.wait()
        self.has_ended = True

    def status_of(self, _: str) -> None:
        """It has none."""

    def endpoint(self, _: str) -> None:
        """It has none."""

    def is_coming(self, _: str) -> bool:
        """It starts nothing."""
        return False

    def watch_each(self, _: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def say(self, news: News) -> None:
        for callback in tuple(self.listeners):
            callback(news)


def row(id_: str = "s", command: str = "x") -> StdioServerConfig:
    return StdioServerConfig(id=id_, command=command, scope=ServerScope.SESSION)


def client(session: str = "1", who: str = "token a") -> Client:
    return Client("ada", f"{who}/{session}" if session else who)


class Lab:
    """Servers of sessions, and the fleets that were made for them."""

    def __init__(self, **options: Any) -> None:
        self.fleets: list[PlayedFleet] = []
        self.servers = SessionServers(self._make, **options)

    def _make(self) -> Any:
        self.fleets.append(PlayedFleet())
        return self.fleets[-1]

    @property
    def ended(self) -> list[bool]:
        return [fleet.has_ended for fleet in self.fleets]


async def test_each_session_has_its_own_until_it_ends() -> None:
    """One client would see the pages that another has open; or every session leave a process behind."""
    lab = Lab()
    one, two = client("1"), client("2")
    for each in (one, two):
        lab.servers.opened(each.key)
    first = lab.servers.get(row(), one)
    assert lab.servers.get(row(), one) is first
    assert lab.servers.get(row(), two) is not first
    assert lab.servers.queue("s", one.key) is not lab.servers.queue("s", two.key)
    assert (lab.servers.of(one.key), [each.client for each in lab.servers.statuses("s")]) == (("s",), ["ada", "ada"])
    lab.servers.ended(one.key)
    await until(lambda: lab.ended == [True, False])
    assert [fleet.started for fleet in lab.fleets] == [["s"], ["s"]]
    await lab.servers.close()
    assert lab.ended == [True, True]
    late = lab.servers.get(row(), one)
    assert late.code == "shutting_down"


async def test_who_would_have_too_many_is_told_which_bound_it_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that opens sessions without end would start processes without end."""
    monkeypatch.setattr(session_servers, "MAX_EACH", 2)
    monkeypatch.setattr(session_servers, "MAX_TOGETHER", 3)
    lab = Lab()
    assert all(isinstance(lab.servers.get(row(), client(each)), SessionServer) for each in "12")
    own = lab.servers.get(row(), client("3"))
    assert (own.code, own.delivery) == ("busy", "not_sent")
    assert "2 servers run for sessions of this client" in own.message
    assert isinstance(lab.servers.get(row(), client("1", "token b")), SessionServer)
    other = lab.servers.get(row(), client("1", "token c"))
    assert "3 servers run for sessions of this deck" in other.message
    lab.servers.ended(client("1").key)
    assert isinstance(lab.servers.get(row(), client("3")), SessionServer)
    await lab.servers.close()


async def test_what_a_row_became_ends_what_it_was() -> None:
    """A session would go on with a server that was taken out, or is blocked."""
    lab = Lab()
    for each in (row("a"), row("b"), row("c")):
        lab.servers.get(each, client())
    lab.servers.reconfigure([row("a"), row("b", "other")])
    await until(lambda: lab.ended == [False, True, True])
    lab.servers.end_all_of("a")
    await until(lambda: lab.ended[0])
    assert isinstance(lab.servers.get(row("a"), client()), SessionServer)
    await lab.servers.close()


async def test_a_client_without_sessions_keeps_its_own_while_it_calls() -> None:
    """It would have another server at each call, or one for good."""
    lab = Lab(idle_s=0.05)
    bound, free = client(), client("")
    lab.servers.opened(bound.key)
    for each in (bound, free):
        lab.servers.get(row(), each)
    queue = lab.servers.queue("s", free.key)

    class Call:
        def start(self) -> None:
            pass

        def fail(self, _: ProtocolFault) -> None:
            pass

    call = Call()
    assert queue.add(free.key, call, 1, asyncio.get_running_loop().time() + 60) is None
    await asyncio.sleep(0.15)
    assert lab.ended == [False, False]
    queue.leave(call)
    await until(lambda: lab.ended == [False, True])
    await lab.servers.close()


async def test_what_a_sessions_server_says_to_everybody_is_for_its_session_alone() -> None:
    """Every session would read in its log what another one's server does, or its own server's log end with us."""
    lab, heard = Lab(), list[News]()
    unwatch = lab.servers.watch_news(heard.append)
    for session in "12":
        lab.servers.get(row(), client(session))
        lab.fleets[-1].say(LogLine("s", "info", "", b"1"))
        lab.fleets[-1].say(ServerNote("s", "notifications/x", b"{}"))
    mine, theirs = (frozenset({client(session).key}) for session in "12")
    assert [each.clients for each in heard] == [mine, mine, theirs, theirs]
    updated = ResourceUpdated("s", "f:x", frozenset({"who subscribed it"}))
    lab.fleets[0].say(updated)
    unwatch()
    lab.fleets[0].say(updated)
    assert heard[4:] == [updated]
    await lab.servers.close()


async def test_nothing_is_told_of_a_server_whose_session_has_ended() -> None:
    """What it says while it is stopped would be told in the name of whoever has its key next."""
    lab, heard = Lab(), list[News]()
    lab.servers.watch_news(heard.append)
    lab.servers.get(row(), client())
    lab.servers.ended(client().key)
    lab.fleets[0].say(LogLine("s", "info", "", b"1"))
    await lab.servers.close()
    lab.fleets[0].say(LogLine("s", "info", "", b"1"))
    assert heard == []
    assert lab.fleets[0].listeners == []


def shared_row(**fields: Any) -> StdioServerConfig:
    return StdioServerConfig(id="s", command="x", scope=ServerScope.CLIENT, **fields)


def session_of(user: str, session: str = "1") -> Client:
    return Client(user, f"token {user}/{session}", user=user)


class UserLab(Lab):
    """Servers of clients: who has which, and the state of their secrets."""

    def __init__(self, **options: Any) -> None:
        self.marks: dict[str, int] = {}
        self.users: list[str] = []
        super().__init__(mark_of=lambda _, user: self.marks.get(user, 0), look_s=0.01, **options)

    def _make(self, user: str = "-") -> Any:
        self.users.append(user)
        return super()._make()

    def get(self, client: Client, **fields: Any) -> Any:
        return self.servers.get(shared_row(**fields), client, session_of_user(client))

    def asks(self, client: Client) -> None:
        """It has made a call of its server."""
        queue = self.servers.queue("s", session_of_user(client))
        queue.ask(client.key, (call := object()))
        queue.end(call)


async def test_all_sessions_of_a_client_share_a_server_that_no_other_client_has() -> None:
    """One person's process would be called by another; or a team of ten start a process for each window."""
    lab, heard = UserLab(), list[News]()
    lab.servers.watch_news(heard.append)
    one, two, bob = session_of("anna", "1"), session_of("anna", "2"), session_of("bob")
    for each in (one, two, bob):
        lab.servers.opened(each.key)
        lab.asks(each)
    assert lab.get(one) is lab.get(two) is not lab.get(bob)
    assert lab.users == ["anna", "bob"]
    assert [each.client for each in lab.servers.statuses("s")] == ["anna", "bob"]
    assert lab.servers.of(two.key) == ("s",)
    lab.fleets[0].say(LogLine("s", "info", "", b"1"))
    assert heard[0].clients >= {one.key, two.key}
    assert bob.key not in heard[0].clients
    lab.servers.ended(one.key)
    assert lab.ended == [False, False]
    lab.servers.end_user("anna")
    await until(lambda: lab.ended == [True, False])
    assert lab.get(two).client.user == "anna"
    await lab.servers.close()


async def test_a_secret_that_changes_ends_the_process_of_its_client_alone() -> None:
    """A secret that was taken back would be used on; or one that was set disturb the whole team."""
    lab = UserLab()
    clients = [session_of("anna"), session_of("bob")]
    for each in clients:
        lab.servers.opened(each.key)
        lab.asks(each)
        lab.get(each)
    await until(lambda: lab.fleets[1].started == ["s"])
    lab.fleets[0].may_end.clear()
    lab.marks["anna"] = 1
    await until(lambda: lab.servers.of(clients[0].key) == ())
    lab.get(clients[0])
    await asyncio.sleep(0.05)
    assert [fleet.started for fleet in lab.fleets] == [["s"], ["s"], []], "two processes had one home"
    lab.fleets[0].may_end.set()
    await until(lambda: lab.fleets[2].started == ["s"])
    assert lab.ended == [True, False, False]
    await lab.servers.close()


async def test_a_clients_server_sleeps_when_nothing_of_its_client_needs_it() -> None:
    """A process would be left for everybody who ever called; or end between two calls of an open window."""
    lab = UserLab()
    anna, bob = session_of("anna"), session_of("bob")
    for each in (anna, bob):
        lab.servers.opened(each.key)
        lab.asks(each)
        lab.get(each).used_at -= wakefulness.GRACE_S
    lab.servers.ended(anna.key)
    await until(lambda: lab.ended == [True, False])
    await lab.servers.close()
    lab = UserLab()
    lab.servers.opened(anna.key)
    lab.asks(anna)
    lab.get(anna, idle_stop_s=0.01)
    await until(lambda: lab.ended == [True])
    await lab.servers.close()


async def test_so_many_clients_have_a_server_of_one_row_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred tokens would start two hundred processes of each row."""
    monkeypatch.setattr(session_servers, "MAX_CLIENTS", 1)
    monkeypatch.setattr(session_servers, "MAX_TOGETHER", 1)
    lab = UserLab()
    assert isinstance(lab.get(session_of("anna")), SessionServer)
    refused = lab.get(session_of("bob"))
    assert (refused.code, "1 clients have it already" in refused.message) == ("busy", True)
    more = [lab.servers.get(shared_row(), session_of("anna", each), f"anna's {each}") for each in "12"]
    assert isinstance(more[0], SessionServer)
    assert (more[1].code, "servers run for sessions of this deck" in more[1].message) == ("busy", True)
    await lab.servers.close()
