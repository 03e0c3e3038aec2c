"""Servers of single sessions: who has which, how many, and when each ends; with fleets that start nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import until

from quarterdeck.fleet import session_servers
from quarterdeck.fleet.session_servers import SessionServer, SessionServers
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

    async def begin_start(self, config: BridgeConfig) -> None:
        """See `ServerFleetImpl`."""
        self.started += [each.id for each in config.servers]

    async def tear_down(self) -> None:
        """See `ServerFleetImpl`."""
        self.has_ended = True

    def status_of(self, _: str) -> None:
        """It has none."""

    def endpoint(self, _: str) -> None:
        """It has none."""

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
