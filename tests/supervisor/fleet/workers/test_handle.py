"""Our side of a worker: every request ends once, news reaches its owner."""

import pytest
from support.waiting import turns

from quarterdeck_protocol.link.events import LinkMisuseError, Refusal
from quarterdeck_protocol.link.frames import (
    Answer,
    Asked,
    AskEnded,
    Call,
    Failed,
    ListChanged,
    Log,
    Note,
    Progress,
    Updated,
)
from quarterdeck_protocol.tools import ProgressNote

from .handles import EXITED, REFUSED, Desk


async def test_requests_end_with_their_own_replies_in_any_order(desk: Desk) -> None:
    """One caller would be given another's result."""
    (first, refusal), (second, _) = desk.call(), desk.call()
    assert refusal is None
    one, _ = await desk.worker.next(Call)
    two, _ = await desk.worker.next(Call)
    desk.worker.fail(two, REFUSED)
    desk.worker.answer(one, b"[1]")
    await turns()
    assert desk.ended == {second: (Failed(second, REFUSED), b""), first: (Answer(first), b"[1]")}


async def test_news_reach_the_owner_in_order(desk: Desk) -> None:
    """Changes of tools or log lines would be lost."""
    desk.worker.says(ListChanged())
    desk.worker.says(Log("info", ""), b'"hm"')
    desk.worker.says(Note("notifications/x"), b"{}")
    desk.worker.says(Updated("file:///a"))
    desk.worker.says(Asked(1, "roots/list"), b"{}")
    desk.worker.says(AskEnded(1))
    desk.worker.says(ListChanged("prompts"))
    await turns()
    assert desk.owner.heard == [
        "tools",
        (Log("info", ""), b'"hm"'),
        (Note("notifications/x"), b"{}"),
        (Updated("file:///a"), b""),
        (Asked(1, "roots/list"), b"{}"),
        AskEnded(1),
        "prompts",
    ]


async def test_progress_reaches_who_wants_it_until_the_end(desk: Desk) -> None:
    """A client would see another call's progress, or a note after the result."""
    first, _ = desk.call(progress=True)
    second, _ = desk.call()
    one, _ = await desk.worker.next(Call)
    two, _ = await desk.worker.next(Call)
    desk.worker.says(Progress(first, 1.0, 2.0, "half"))
    desk.worker.says(Progress(second, 9.0))
    desk.worker.answer(one)
    desk.worker.says(Progress(first, 2.0, 2.0))
    await turns()
    assert desk.notes == [ProgressNote(1.0, 2.0, "half")]
    desk.worker.answer(two)


async def test_a_cancelled_request_is_called_off_and_ends_in_silence(desk: Desk) -> None:
    """A caller that left would be called back, or the server would work on."""
    request_id, _ = desk.call()
    request, _ = await desk.worker.next(Call)
    desk.handle.cancel(request_id, "enough")
    desk.handle.cancel(request_id, "again")
    cancel = await desk.worker.next_cancel()
    assert (cancel.request_id, cancel.reason) == (request_id, "enough")
    desk.worker.fail(request, REFUSED)
    await turns()
    assert desk.ended == {}
    assert desk.worker.cancelled.empty()


async def test_an_ended_request_cannot_be_cancelled(desk: Desk) -> None:
    """The worker would be told to stop what it has finished."""
    request_id, _ = desk.call()
    request, _ = await desk.worker.next(Call)
    desk.worker.answer(request)
    await turns()
    desk.handle.cancel(request_id)
    await turns()
    assert desk.worker.cancelled.empty()


async def test_a_refused_request_is_forgotten() -> None:
    """A request that never left would be answered by the next loss."""
    desk = Desk(is_born=False)
    request_id, refusal = desk.call()
    assert refusal is Refusal.DEAD
    desk.handle.lose(EXITED)
    assert request_id not in desk.ended
    assert desk.call()[1] is Refusal.DEAD
    desk.worker.leaves()


async def test_a_request_that_breaks_the_links_rules_leaves_nothing_behind(desk: Desk) -> None:
    """A bug of ours would be answered later, by somebody else's loss."""
    with pytest.raises(LinkMisuseError):
        desk.call(timeout_s=0.0)
    desk.handle.lose(EXITED)
    assert desk.ended == {}
