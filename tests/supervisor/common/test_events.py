import asyncio

from quarterdeck.common.events import Bus, ServerChanged


def changes(count: int) -> list[ServerChanged]:
    """Events that can be told apart."""
    return [ServerChanged("d", str(number), "ready", 0) for number in range(count)]


async def test_a_listener_hears_what_is_told_while_it_listens_and_nobody_else_pays() -> None:
    """A page would miss changes, or each call would pay for a face that nobody has open."""
    bus, (before, first, second, after) = Bus(), changes(4)
    assert not bus.is_heard
    bus.tell(before)
    with bus.subscribe() as one, bus.subscribe() as other:
        assert bus.is_heard
        heard = asyncio.create_task(anext(one))
        await asyncio.sleep(0)
        bus.tell(first)
        bus.tell(second)
        assert await heard == first
        assert await anext(one) == second
        assert other.take() == [first, second]
        assert other.take() == []
    assert not bus.is_heard
    bus.tell(after)
    assert one.take() == []


def test_a_listener_that_never_reads_keeps_the_newest_events_and_a_count_of_the_others() -> None:
    """A page that never reads would take all memory, or show the past for ever."""
    bus, told = Bus(), changes(5)
    with bus.subscribe(bound=2) as slow:
        for event in told:
            bus.tell(event)
        assert (slow.take(), slow.dropped) == (told[3:], 3)


async def test_a_listener_that_gave_up_waiting_can_wait_again() -> None:
    """The end of one wait would be taken for the next event, or stop all that is told."""
    bus, (event,) = Bus(), changes(1)
    with bus.subscribe() as one:
        waiting = asyncio.create_task(anext(one))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        bus.tell(event)
        assert await anext(one) == event
