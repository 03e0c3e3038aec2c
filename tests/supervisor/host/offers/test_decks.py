"""Which deck a request is answered from, and when each ends."""

import asyncio
import logging

import anyio
from support.tools.native_decks import DeckMaker, PlayedDeck
from support.tools.tool_boxes import LiveBox
from support.waiting import eventually_async, turns

from quarterdeck.host.offers import decks as module
from quarterdeck.host.offers.decks import Decks
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolOutcome


async def call(box, name, value=None):
    return await box.runner.run(ToolCall("1", name, value), CancelToken())


def decks_of(maker, live=None, **options):
    return Decks(live or LiveBox(), maker.open, **options)


def names(box):
    return [descriptor.name for descriptor in box.descriptors()]


async def test_a_client_keeps_its_deck_and_shares_it_with_nobody():
    """One client's todo list would be another's."""
    maker = DeckMaker()
    decks = decks_of(maker)
    for client, before in (("a", []), ("a", [1]), ("b", []), ("a", [1, 2])):
        async with decks.borrow(client, is_bound=True) as box:
            assert (await call(box, "note", len(before) + 1)).output == before
    assert len(maker.opened) == 2
    assert maker.closed == []
    await decks.close()
    assert sorted(maker.closed) == [0, 1]


async def test_nothing_is_opened_before_it_is_needed():
    """A server that nobody uses natively would make directories."""
    maker = DeckMaker()
    await decks_of(maker).close()
    assert maker.opened == []


async def test_requests_that_come_at_once_open_one_deck():
    """A client that lists and calls at the same time would have two."""
    maker = DeckMaker()
    decks = decks_of(maker)

    async def use():
        async with decks.borrow("a", is_bound=True) as box:
            await call(box, "note")

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use)
    assert len(maker.opened) == 1
    await decks.close()


async def test_a_bound_deck_ends_when_its_connection_does():
    """Background processes of clients that left would run on."""
    maker = DeckMaker()
    decks = decks_of(maker, idle_s=0)
    async with decks.borrow("a", is_bound=True):
        pass
    await asyncio.sleep(0)
    assert maker.closed == []
    decks.end("a")
    decks.end("a")
    decks.end("nobody")
    await eventually_async(lambda: maker.closed == [0])
    async with decks.borrow("a", is_bound=True):
        assert len(maker.opened) == 2
    await decks.close()


async def test_a_deck_without_a_connection_ends_when_idle_and_never_during_a_call():
    """A long build would be killed under its client, or decks would pile up."""
    maker, gate = DeckMaker(), anyio.Event()

    async def wait(call, cancel):
        await gate.wait()
        return ToolOutcome(call.id, "done")

    maker.prepare = lambda deck: deck.box.native("wait", wait)
    decks = decks_of(maker, idle_s=0)

    async def use():
        async with decks.borrow("a", is_bound=False) as box:
            assert (await call(box, "wait")).output == "done"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        await eventually_async(lambda: maker.opened)
        async with decks.borrow("a", is_bound=False):
            pass
        await turns(10)
        assert maker.closed == []
        gate.set()
    await eventually_async(lambda: maker.closed == [0])
    await decks.close()


async def test_a_client_that_comes_back_in_time_finds_its_deck():
    """A todo list would be gone between two requests."""
    maker = DeckMaker()
    decks = decks_of(maker, idle_s=3600)
    for _ in range(3):
        async with decks.borrow("a", is_bound=False):
            pass
    assert len(maker.opened) == 1
    await decks.close()
    assert maker.closed == [0]


async def test_of_too_many_clients_the_one_idle_longest_makes_room(monkeypatch):
    """Any caller could have us open decks without end."""
    monkeypatch.setattr(module, "MAX_NAMED", 2)
    maker = DeckMaker()
    decks = decks_of(maker, idle_s=3600)
    for client in ("a", "b", "a"):
        async with decks.borrow(client, is_bound=False):
            pass
    async with decks.borrow("bound", is_bound=True):
        pass
    async with decks.borrow("c", is_bound=False):
        pass
    await eventually_async(lambda: maker.closed == [1])
    await decks.close()


async def test_a_client_with_ever_new_names_ends_no_deck_that_others_come_back_to(monkeypatch):
    """Their background processes would end with it."""
    monkeypatch.setattr(module, "MAX_NAMED", 3)
    maker = DeckMaker()
    decks = decks_of(maker, idle_s=3600)
    for client in ("calm", "calm", *range(8)):
        async with decks.borrow(client, is_bound=False):
            pass
    await eventually_async(lambda: maker.closed == [1, 2, 3, 4, 5, 6])
    async with decks.borrow("calm", is_bound=False):
        assert len(maker.opened) == 9
    await decks.close()


async def test_when_all_are_at_work_one_more_client_is_told_to_wait(monkeypatch):
    """It would get nothing, or take another one's deck away in the middle of a call."""
    monkeypatch.setattr(module, "MAX_NAMED", 1)
    live = LiveBox()
    live.graft("s__t")
    maker = DeckMaker()
    decks = decks_of(maker, live)
    async with decks.borrow("a", is_bound=False), decks.borrow("b", is_bound=False) as box:
        assert names(box) == ["s__t"]
        refused = await call(box, "note")
    assert refused.is_error
    assert "try again" in refused.output
    assert len(maker.opened) == 1
    await decks.close()


async def test_a_deck_that_cannot_be_opened_says_why_and_the_rest_goes_on(caplog):
    """One missing directory would take every server's tools away; and it may come back."""
    live, maker = LiveBox(), DeckMaker()
    live.graft("s__t")

    def fail(deck: PlayedDeck) -> None:
        raise OSError("the workspace is gone")

    maker.prepare = fail
    decks = decks_of(maker, live)
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
    await decks.close()


async def test_a_deck_that_takes_too_long_to_open_is_not_waited_for(monkeypatch):
    """A directory on a dead network disk would hang every request."""
    monkeypatch.setattr(module, "OPEN_S", 0.01)
    maker, gate = DeckMaker(), anyio.Event()
    decks = Decks(LiveBox(), lambda: _slow(maker, gate))
    async with decks.borrow("a", is_bound=True) as box:
        assert "did not start" in box.problem
    gate.set()
    await decks.close()
    assert maker.closed == [0]


def _slow(maker, gate):
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def open_slowly():
        await gate.wait()
        async with maker.open() as deck:
            yield deck

    return open_slowly()


async def test_a_request_that_is_given_up_leaves_the_deck_to_the_others():
    """One client's impatience would end the opening for all of its requests."""
    maker, gate = DeckMaker(), anyio.Event()
    decks = Decks(LiveBox(), lambda: _slow(maker, gate))

    async def use():
        async with decks.borrow("a", is_bound=True) as box:
            return names(box)

    first, second = asyncio.create_task(use()), asyncio.create_task(use())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    gate.set()
    assert await second == ["note"]
    assert len(maker.opened) == 1
    await decks.close()


async def test_the_end_waits_for_every_deck_and_opens_no_other():
    """A host would end with processes still being stopped."""
    maker, gate = DeckMaker(), anyio.Event()
    maker.at_the_end = gate.wait
    decks = decks_of(maker)
    async with decks.borrow("a", is_bound=True):
        pass
    closing = asyncio.create_task(decks.close())
    await turns(5)
    assert not closing.done()
    gate.set()
    await closing
    assert maker.closed == [0]
    async with decks.borrow("b", is_bound=True) as box:
        assert "shutting down" in box.problem
    assert len(maker.opened) == 1


async def test_a_deck_that_does_not_end_is_given_up(monkeypatch, caplog):
    """The whole host would hang on one client's deck."""
    monkeypatch.setattr(module, "CLOSE_S", 0.01)
    maker = DeckMaker()
    maker.at_the_end = anyio.sleep_forever
    decks = decks_of(maker)
    async with decks.borrow("a", is_bound=True):
        pass
    with caplog.at_level(logging.ERROR):
        await decks.close()
    assert "did not end within" in caplog.text


async def test_a_deck_that_fails_at_its_end_is_logged_and_the_others_end(caplog):
    """A full disk at the end would hide behind silence, or stop the rest."""
    maker = DeckMaker()

    async def fail():
        raise OSError("disk full")

    maker.at_the_end = fail
    decks = decks_of(maker)
    for client in "ab":
        async with decks.borrow(client, is_bound=True):
            pass
    with caplog.at_level(logging.ERROR):
        await decks.close()
    assert caplog.text.count("did not shut down cleanly") == 2


async def test_a_client_may_be_shown_the_grafted_tools_under_other_names():
    """Names that fit its client would be for those without native tools only."""
    maker, live, shown = DeckMaker(), LiveBox(), LiveBox()
    live.graft("s__as_it_is")
    shown.graft("s__as_shown")
    decks = decks_of(maker, live)
    for client, beside, expected in (("a", shown, "s__as_shown"), ("b", None, "s__as_it_is")):
        async with decks.borrow(client, is_bound=True, live=beside) as box:
            assert names(box) == ["note", expected]
    await decks.close()
    async with decks.borrow("late", is_bound=True, live=shown) as box:
        assert names(box) == ["s__as_shown"]
