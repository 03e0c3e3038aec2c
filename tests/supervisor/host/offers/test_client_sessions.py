"""Who is live, and hears of changes."""

from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from support.tools.tool_boxes import LiveBox, answer
from support.waiting import PATIENCE_S

from quarterdeck.host.offers import client_sessions, content
from quarterdeck.host.offers.client_sessions import Sessions
from quarterdeck.host.offers.content import KnownTools

pytestmark = pytest.mark.anyio


class FakeConnection:
    """What ends with a client."""

    def __init__(self):
        self.exit_stack = AsyncExitStack()


class FakeSession:
    """Counts what it was told; one that hangs is told for ever."""

    def __init__(self, connection, *, hangs=False):
        self._connection = connection
        self._hangs = hangs
        self.told = 0
        self.was_told = anyio.Event()

    async def send_tool_list_changed(self):
        """Count."""
        if self._hangs:
            await anyio.sleep_forever()
        self.told += 1
        self.was_told.set()


@asynccontextmanager
async def telling(live, box):
    """Changes of the box are told to those that are live, until the block ends."""
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.tell_changes, box)
            await anyio.wait_all_tasks_blocked()
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def quick(monkeypatch):
    """Deadlines of a test."""
    monkeypatch.setattr(content, "DEBOUNCE_S", 0.01)
    monkeypatch.setattr(client_sessions, "TELL_S", 0.01)


async def test_one_client_that_hangs_keeps_no_other_waiting(quick):
    """A laptop that sleeps must not make the deck stale for all."""
    box, live = LiveBox(), Sessions(KnownTools(is_awaited=True))
    good = FakeSession(FakeConnection())
    live.admit(FakeSession(FakeConnection(), hangs=True))
    live.admit(good)
    async with telling(live, box):
        for expected in (1, 2):
            box.graft(f"s__{expected}")
            await good.was_told.wait()
            good.was_told = anyio.Event()
            assert good.told == expected
    assert box.watchers == 0


async def test_a_connection_is_told_once_however_often_it_was_admitted_and_never_after_its_end(quick):
    """A client that repeats itself hears no echo, and a dead one costs nothing."""
    box, live = LiveBox(), Sessions(KnownTools(is_awaited=True))
    connection, other = FakeConnection(), FakeSession(FakeConnection())
    first, second = FakeSession(connection), FakeSession(connection)
    for session in (first, second, other):
        live.admit(session)
    async with telling(live, box):
        box.graft("s__a")
        await second.was_told.wait()
        await connection.exit_stack.aclose()
        await other.was_told.wait()
        other.was_told = anyio.Event()
        box.graft("s__b")
        await other.was_told.wait()
    assert (first.told, second.told, other.told) == (0, 1, 2)


async def test_the_first_change_is_told_at_once_and_those_that_follow_together(monkeypatch):
    """Whoever waits for the first tools of a start would wait longer, and a starting fleet would flood its clients."""
    monkeypatch.setattr(content, "DEBOUNCE_S", 3600)
    box, live, client = LiveBox(), Sessions(KnownTools(is_awaited=True)), FakeSession(FakeConnection())
    live.admit(client)
    async with telling(live, box):
        box.graft("a__t")
        await client.was_told.wait()
        for server in "bcd":
            box.graft(f"{server}__t")
            await anyio.wait_all_tasks_blocked()
        assert client.told == 1


async def test_tools_that_are_the_same_again_are_no_news(quick):
    """Each restart of a server would have every client ask for the list, and reload what it made of it."""
    box, live, client = LiveBox(), Sessions(KnownTools(is_awaited=True)), FakeSession(FakeConnection())
    box.graft("a__t")
    live.admit(client)
    async with telling(live, box):
        box.graft("a__t")  # another object of the same definition
        box.tell()
        await anyio.wait_all_tasks_blocked()
        assert client.told == 0
        box.graft("a__t", answer({}), name="t", inputSchema={"type": "object", "title": "other"})
        await client.was_told.wait()
    assert client.told == 1


async def test_a_client_that_listed_in_between_hears_that_the_tools_are_as_before(monkeypatch):
    """It would keep a tool that was there for a moment."""
    monkeypatch.setattr(content, "DEBOUNCE_S", 0.01)
    box, live, client = LiveBox(), Sessions(KnownTools(is_awaited=True)), FakeSession(FakeConnection())
    box.graft("a__t")
    live.admit(client)
    async with telling(live, box):
        live.listed((*box.descriptors(), *box.descriptors()))
        box.tell()
        await client.was_told.wait()


async def test_nothing_is_told_before_a_first_list_and_then_what_has_come_since(quick):
    """Each server of a fleet that starts would have every client ask for a list that is not asked for yet."""
    box, live, client = LiveBox(), Sessions(KnownTools()), FakeSession(FakeConnection())
    live.admit(client)
    async with telling(live, box):
        for server in "abc":
            box.graft(f"{server}__t")
            await anyio.wait_all_tasks_blocked()
        live.listed(box.descriptors())
        box.tell()
        await anyio.wait_all_tasks_blocked()
        assert client.told == 0
        box.graft("late__t")
        await client.was_told.wait()
    assert client.told == 1


async def test_what_came_between_a_first_list_and_its_news_is_told(quick):
    """A tool would never be seen: it was grafted when the list had been read, and before anybody heard of it."""
    box, live, client = LiveBox(), Sessions(KnownTools()), FakeSession(FakeConnection())
    live.admit(client)
    async with telling(live, box):
        live.listed(box.descriptors())
        box.graft("a__t")
        await client.was_told.wait()


async def test_who_asks_to_be_told_is_told_without_a_list(quick):
    """A client that subscribes, and lists when it hears of something, would wait for ever."""
    known = KnownTools()
    box, live, client = LiveBox(), Sessions(known), FakeSession(FakeConnection())
    live.admit(client)
    async with telling(live, box):
        known.awaited()
        box.graft("a__t")
        await client.was_told.wait()
