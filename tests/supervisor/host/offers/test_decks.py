"""Which deck a request is answered from, and when each ends."""

import asyncio
import logging
from contextlib import asynccontextmanager

import anyio
import pytest
from support.tools.native_decks import DeckMaker
from support.tools.tool_boxes import LiveBox
from support.waiting import eventually_async, turns

from quarterdeck.host.offers import decks as module
from quarterdeck.host.offers.decks import Decks
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolOutcome


async def call(box, name, value=None):
    return await box.runner.run(ToolCall("1", name, value), CancelToken())


@pytest.fixture
def maker():
    return DeckMaker()


@pytest.fixture
async def lend(maker):
    """Makes decks beside a server's tool `s__t`, which are closed by the end of the test."""
    live, made = LiveBox(), []
    live.graft("s__t")

    def make(open_deck=maker.open, **options):
        made.append(Decks(live, open_deck, **options))
        return made[-1]

    yield make
    for decks in made:
        await decks.close()


@pytest.fixture
def decks(lend):
    return lend()


@asynccontextmanager
async def open_after(gate, maker):
    await gate.wait()
    async with maker.open() as deck:
        yield deck


async def use(decks, *clients, is_bound=False):
    for client in clients:
        async with decks.borrow(client, is_bound=is_bound):
            pass


def names(box):
    return [descriptor.name for descriptor in box.descriptors()]


async def test_a_client_keeps_its_deck_and_shares_it_with_nobody(decks, maker):
    """One client's todo list would be another's, or a server that nobody uses natively make directories."""
    assert maker.opened == []
    for client, before in (("a", []), ("a", [1]), ("b", []), ("a", [1, 2])):
        async with decks.borrow(client, is_bound=True) as box:
            assert (await call(box, "note", len(before) + 1)).output == before
    assert len(maker.opened) == 2
    assert maker.closed == []
    await decks.close()
    assert sorted(maker.closed) == [0, 1]


async def test_requests_that_come_at_once_open_one_deck(decks, maker):
    """A client that lists and calls at the same time would have two."""
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use, decks, "a")
    assert len(maker.opened) == 1


async def test_a_bound_deck_ends_when_its_connection_does(lend, maker):
    """Background processes of clients that left would run on."""
    decks = lend(idle_s=0)
    await use(decks, "a", is_bound=True)
    await asyncio.sleep(0)
    assert maker.closed == []
    decks.end("a")
    decks.end("a")
    decks.end("nobody")
    await eventually_async(lambda: maker.closed == [0])
    await use(decks, "a", is_bound=True)
    assert len(maker.opened) == 2


async def test_a_deck_without_a_connection_ends_when_idle_and_never_during_a_call(lend, maker):
    """A long build would be killed under its client, or decks would pile up."""
    gate = anyio.Event()

    async def wait(call, cancel):
        await gate.wait()
        return ToolOutcome(call.id, "done")

    maker.prepare = lambda deck: deck.box.native("wait", wait)
    decks = lend(idle_s=0)

    async def build():
        async with decks.borrow("a", is_bound=False) as box:
            assert (await call(box, "wait")).output == "done"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(build)
        await eventually_async(lambda: maker.opened)
        await use(decks, "a")
        await turns(10)
        assert maker.closed == []
        gate.set()
    await eventually_async(lambda: maker.closed == [0])


async def test_a_client_that_comes_back_in_time_finds_its_deck(lend, maker):
    """A todo list would be gone between two requests."""
    decks = lend(idle_s=3600)
    await use(decks, "a", "a", "a")
    assert len(maker.opened) == 1
    await decks.close()
    assert maker.closed == [0]


async def test_of_too_many_clients_the_one_idle_longest_makes_room(lend, maker, monkeypatch):
    """Any caller could have us open decks without end."""
    monkeypatch.setattr(module, "MAX_NAMED", 2)
    decks = lend(idle_s=3600)
    await use(decks, "a", "b", "a")
    await use(decks, "bound", is_bound=True)
    await use(decks, "c")
    await eventually_async(lambda: maker.closed == [1])


async def test_a_client_with_ever_new_names_ends_no_deck_that_others_come_back_to(lend, maker, monkeypatch):
    """Their background processes would end with it."""
    monkeypatch.setattr(module, "MAX_NAMED", 3)
    decks = lend(idle_s=3600)
    await use(decks, "calm", "calm", *range(8))
    await eventually_async(lambda: maker.closed == [1, 2, 3, 4, 5, 6])
    await use(decks, "calm")
    assert len(maker.opened) == 9


async def test_when_all_are_at_work_one_more_client_is_told_to_wait(decks, maker, monkeypatch):
    """It would get nothing, or take another one's deck away in the middle of a call."""
    monkeypatch.setattr(module, "MAX_NAMED", 1)
    async with decks.borrow("a", is_bound=False), decks.borrow("b", is_bound=False) as box:
        assert names(box) == ["s__t"]
        refused = await call(box, "note")
    assert refused.is_error
    assert "try again" in refused.output
    assert len(maker.opened) == 1


async def test_a_deck_that_cannot_be_opened_says_why_and_the_rest_goes_on(decks, maker, caplog):
    """One missing directory would take every server's tools away; and it may come back."""

    def fail(deck):
        raise OSError("the workspace is gone")

    maker.prepare = fail
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            async with decks.borrow("a", is_bound=True) as box:
                assert names(box) == ["s__t"]
                assert box.problem == "the workspace is gone"
                refused = await call(box, "read")
    assert refused.is_error
    assert refused.output == "read was not run: there are no native tools: the workspace is gone"
    assert len(caplog.records) == 1
    maker.prepare = lambda deck: None
    async with decks.borrow("a", is_bound=True) as box:
        assert names(box) == ["note", "s__t"]


async def test_a_deck_that_takes_too_long_to_open_is_not_waited_for(lend, maker, monkeypatch):
    """A directory on a dead network disk would hang every request."""
    monkeypatch.setattr(module, "OPEN_S", 0.01)
    gate = anyio.Event()
    decks = lend(lambda: open_after(gate, maker))
    async with decks.borrow("a", is_bound=True) as box:
        assert "did not start" in box.problem
    gate.set()
    await decks.close()
    assert maker.closed == [0]


async def test_a_request_that_is_given_up_leaves_the_deck_to_the_others(lend, maker):
    """One client's impatience would end the opening for all of its requests."""
    gate = anyio.Event()
    decks = lend(lambda: open_after(gate, maker))

    async def listed():
        async with decks.borrow("a", is_bound=True) as box:
            return names(box)

    first, second = asyncio.create_task(listed()), asyncio.create_task(listed())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    gate.set()
    assert await second == ["note", "s__t"]
    assert len(maker.opened) == 1


async def test_the_end_waits_for_every_deck_and_opens_no_other(decks, maker):
    """A host would end with processes still being stopped."""
    gate = anyio.Event()
    maker.at_the_end = gate.wait
    await use(decks, "a", is_bound=True)
    closing = asyncio.create_task(decks.close())
    await turns(5)
    assert not closing.done()
    gate.set()
    await closing
    assert maker.closed == [0]
    async with decks.borrow("b", is_bound=True) as box:
        assert "shutting down" in box.problem
    assert len(maker.opened) == 1


async def test_a_deck_that_does_not_end_is_given_up(decks, maker, monkeypatch, caplog):
    """The whole host would hang on one client's deck."""
    monkeypatch.setattr(module, "CLOSE_S", 0.01)
    maker.at_the_end = anyio.sleep_forever
    await use(decks, "a", is_bound=True)
    with caplog.at_level(logging.ERROR):
        await decks.close()
    assert "did not end within" in caplog.text


async def test_a_deck_that_fails_at_its_end_is_logged_and_the_others_end(decks, maker, caplog):
    """A full disk at the end would hide behind silence, or stop the rest."""

    async def fail():
        raise OSError("disk full")

    maker.at_the_end = fail
    await use(decks, *"ab", is_bound=True)
    with caplog.at_level(logging.ERROR):
        await decks.close()
    assert caplog.text.count("did not shut down cleanly") == 2


async def test_a_client_may_be_shown_the_grafted_tools_under_other_names(decks):
    """Names that fit its client would be for those without native tools only."""
    shown = LiveBox()
    shown.graft("s__as_shown")
    for client, beside, expected in (("a", shown, "s__as_shown"), ("b", None, "s__t")):
        async with decks.borrow(client, is_bound=True, live=beside) as box:
            assert names(box) == ["note", expected]
    await decks.close()
    async with decks.borrow("late", is_bound=True, live=shown) as box:
        assert names(box) == ["s__as_shown"]
