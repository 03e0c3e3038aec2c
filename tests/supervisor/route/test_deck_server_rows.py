"""The servers of a deck: one for each row, which stays while its row does."""

from collections.abc import Callable

from support.fleet.memory_fleet import FakeFleet
from support.trust.approvals import Bench, ToldEndpoint, row, stdio

from quarterdeck.route.deck_server import DeckServers
from quarterdeck_protocol.offers import News, ServerNote
from quarterdeck_protocol.tools import CallEnd, Client, RawCall


async def test_there_is_a_server_for_each_row_in_their_order_whether_its_server_runs_or_not(at: Bench) -> None:
    """A server that is held would not be there to be approved."""
    await at.approvals.set_rows([row(stdio("b")), row(stdio("a"))])
    at.replaces(ToldEndpoint(stdio("not-configured"), x="one"))
    assert [server.config.id for server in at.servers.endpoints()] == ["b", "a"]
    assert at.servers.endpoint("not-configured") is None


async def test_a_server_stays_while_its_configuration_does(at: Bench) -> None:
    """Calls that wait would be lost when another server's row changes; or go by rules of before."""
    await at.approvals.set_rows([row(stdio("a")), row(stdio("b"))])
    a, b = at.servers.endpoints()
    await at.approvals.set_rows([row(stdio("b")), row(stdio("a", command="another"))])
    assert at.servers.endpoint("b") is b
    assert at.servers.endpoint("a") is not a
    assert [server.config.id for server in at.servers.endpoints()] == ["b", "a"]
    await at.approvals.set_rows([row(stdio("b"))])
    assert (at.servers.endpoint("a"), at.servers.endpoints()) == (None, (b,))


async def test_how_a_call_ends_is_noted_with_its_scope_and_server(at: Bench) -> None:
    """The record would not say which server's call it was."""
    notes: list[tuple[object, ...]] = []
    servers = DeckServers(at.fleet, at.approvals, at.sessions, lambda *note: notes.append(note))
    await at.runs(ToldEndpoint(stdio("fs"), a="one"))
    server = servers.endpoint("fs")
    ends: list[CallEnd] = []
    server.begin(RawCall("a", b"{}"), ends.append)
    await at.until(lambda: bool(ends))
    [(scope, server_id, tool, took_s, end, client, _)] = notes
    assert (scope, server_id, tool, end, client) == (at.approvals.rows[0].scope, "fs", "a", ends[0], Client())
    assert isinstance(took_s, float)


class Telling(FakeFleet):
    """A fleet that says something."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks: list[Callable[[News], None]] = []

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """See `LiveFleet`."""
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)


async def test_what_servers_say_is_heard_of_all_and_no_more_when_nobody_listens(at: Bench) -> None:
    """News of servers of a single session would be lost; or a client that left be told for ever."""
    fleet, others, told = Telling(), Telling(), list[News]()
    servers = DeckServers(fleet, at.approvals, others)  # type: ignore[arg-type]
    unwatch = servers.watch_news(told.append)
    notes = [ServerNote("a", "x", b""), ServerNote("b", "x", b"")]
    for each, note in zip((fleet, others), notes, strict=True):
        each.callbacks[0](note)
    assert told == notes
    unwatch()
    assert (fleet.callbacks, others.callbacks) == ([], [])
