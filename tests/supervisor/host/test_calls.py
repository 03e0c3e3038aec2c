"""What every carrier needs of calls: notes that a slow client loses, and how a request ends with serving."""

from contextlib import AsyncExitStack

import anyio
import pytest
from support.tools.offer_fleet import Pending
from support.waiting import PATIENCE_S

from quarterdeck.host.calls import PROGRESS_BACKLOG, Drain, alone, end_of, relay_notes
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.tools import ProgressNote

pytestmark = pytest.mark.anyio


async def test_a_slow_client_loses_notes_and_holds_up_nobody():
    """It would fill our memory, or slow the tool down."""
    told, may_tell = [], anyio.Event()

    async def tell(note):
        await may_tell.wait()
        told.append(note.progress)

    with anyio.fail_after(PATIENCE_S):
        async with AsyncExitStack() as stack:
            report = await relay_notes(stack, tell)
            for number in range(PROGRESS_BACKLOG * 3):
                report(ProgressNote(number))
            may_tell.set()
    assert told == list(range(len(told)))
    assert 1 <= len(told) <= PROGRESS_BACKLOG + 1


async def test_a_call_that_serving_outlasts_not_is_given_up_and_says_so():
    """Its client would wait for an answer that nobody gives, or the server work on for nobody."""
    drain, running = Drain(), Pending("tools/call")

    async def end():
        await anyio.wait_all_tasks_blocked()
        drain.ending.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        found = await end_of(lambda _: running, drain)
    assert isinstance(found, ProtocolFault)
    assert (found.code, running.cancelled) == ("shutting_down", ["tools/call"])
    drain.closing.cancel()
    refused = await end_of(lambda _: running, drain)
    assert isinstance(refused, ProtocolFault)
    assert (refused.code, refused.delivery) == ("shutting_down", Delivery.NOT_SENT)


def test_an_exception_alone_in_its_groups_is_taken_out():
    """A group says nothing to a person."""
    error, other = ValueError("a"), ValueError("b")
    assert alone(ExceptionGroup("g", [ExceptionGroup("h", [error])])) is error
    group = ExceptionGroup("g", [error, other])
    assert alone(group) is group
