"""Our side of a worker: every request ends once, news reaches its owner, a loss is told once and says why."""

import asyncio
from dataclasses import dataclass, field

import anyio
import pytest
from support.workers import PATIENCE_S, PlayedWorker, turns

from quarterdeck.fleet import handle as handle_module
from quarterdeck.fleet.handle import WorkerHandle
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.frames import Answer, Call, Failed, List, ListChanged, Log, Lost, Progress, Reply
from quarterdeck_protocol.link import LinkMisuseError, LinkTerms, Overdue, Refusal, Silent, Violated
from quarterdeck_protocol.tools import ProgressNote

pytestmark = pytest.mark.anyio

REFUSED = FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", Delivery.ANSWERED)
EXITED = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3))


@dataclass
class Owner:
    """Hears of a handle; notes all of it in order."""

    heard: list[object] = field(default_factory=list)

    def on_tools_changed(self) -> None:
        """See `Listener`."""
        self.heard.append("tools")

    def on_log(self, line: Log) -> None:
        """See `Listener`."""
        self.heard.append(line)

    def on_lost(self, fault: FaultRecord) -> None:
        """See `Listener`."""
        self.heard.append(fault)

    @property
    def losses(self) -> list[FaultRecord]:
        """The losses that it was told of."""
        return [word for word in self.heard if isinstance(word, FaultRecord)]


class Desk:
    """A handle on a played worker, its owner, and the ends of what was asked."""

    def __init__(self, terms: LinkTerms | None = None, *, is_born: bool = True) -> None:
        self.owner = Owner()
        self.worker = PlayedWorker(terms=terms)
        self.handle: WorkerHandle = self.worker.hired("a", self.owner, is_born=is_born)
        self.ended: dict[int, tuple[Reply, bytes]] = {}
        self.notes: list[ProgressNote] = []

    def call(
        self, timeout_s: float = 30.0, body: bytes = b"{}", *, progress: bool = False
    ) -> tuple[int, Refusal | None]:
        """Ask; the request's id, and why it was not taken."""
        frame = Call(self.handle.next_id(), timeout_s, "echo", progress)

        def on_reply(reply: Reply, answer: bytes) -> None:
            assert frame.request_id not in self.ended, "a request ended twice"
            self.ended[frame.request_id] = reply, answer

        refusal = self.handle.ask(frame, body, on_reply, self.notes.append if progress else None)
        return frame.request_id, refusal

    def fault(self, request_id: int) -> FaultRecord:
        """The fault that a request ended with."""
        reply, _ = self.ended[request_id]
        assert isinstance(reply, Failed)
        return reply.fault


async def greeted(terms: LinkTerms | None = None) -> Desk:
    """A desk whose worker has proved itself."""
    desk = Desk(terms)
    with anyio.fail_after(PATIENCE_S):
        await desk.handle.greeted
    return desk


async def test_requests_end_with_their_own_replies_in_any_order() -> None:
    """One caller would be given another's result."""
    desk = await greeted()
    (first, refusal), (second, _) = desk.call(), desk.call()
    assert refusal is None
    one, _ = await desk.worker.next(Call)
    two, _ = await desk.worker.next(Call)
    desk.worker.fail(two, REFUSED)
    desk.worker.answer(one, b"[1]")
    await turns()
    assert desk.ended == {second: (Failed(second, REFUSED), b""), first: (Answer(first), b"[1]")}
    desk.worker.leaves()


async def test_news_reach_the_owner_in_order() -> None:
    """Changes of tools or log lines would be lost."""
    desk = await greeted()
    desk.worker.says(ListChanged())
    desk.worker.says(Log("info", "", "hm"))
    desk.worker.says(ListChanged())
    await turns()
    assert desk.owner.heard == ["tools", Log("info", "", "hm"), "tools"]
    desk.worker.leaves()


async def test_progress_reaches_who_wants_it_until_the_end() -> None:
    """A client would see another call's progress, or a note after the result."""
    desk = await greeted()
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
    desk.worker.leaves()


async def test_a_cancelled_request_is_called_off_and_ends_in_silence() -> None:
    """A caller that left would be called back, or the server would work on."""
    desk = await greeted()
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
    desk.worker.leaves()


async def test_an_ended_request_cannot_be_cancelled() -> None:
    """The worker would be told to stop what it has finished."""
    desk = await greeted()
    request_id, _ = desk.call()
    request, _ = await desk.worker.next(Call)
    desk.worker.answer(request)
    await turns()
    desk.handle.cancel(request_id)
    await turns()
    assert desk.worker.cancelled.empty()
    desk.worker.leaves()


async def test_a_refused_request_is_forgotten() -> None:
    """A request that never left would be answered by the next loss."""
    desk = Desk(is_born=False)
    request_id, refusal = desk.call()
    assert refusal is Refusal.DEAD
    desk.handle.lose(EXITED)
    assert request_id not in desk.ended
    assert desk.call()[1] is Refusal.DEAD
    desk.worker.leaves()


async def test_a_request_that_breaks_the_links_rules_leaves_nothing_behind() -> None:
    """A bug of ours would be answered later, by somebody else's loss."""
    desk = await greeted()
    with pytest.raises(LinkMisuseError):
        desk.call(timeout_s=0.0)
    desk.handle.lose(EXITED)
    assert desk.ended == {}
    desk.worker.leaves()


async def test_a_lost_server_ends_all_requests_then_tells_the_owner_once() -> None:
    """Callers of a dead server would wait for their deadlines, or its restart would begin twice."""
    desk = await greeted()
    request_id, _ = desk.call()
    await desk.worker.next(Call)
    desk.worker.says(Lost(EXITED))
    await turns()
    assert desk.handle.lost == EXITED
    assert desk.fault(request_id) == FaultRecord(
        FaultKind.TOOL_ERROR, "it exited", "exited", Delivery.UNKNOWN, None, Dossier(exit_status=3)
    )
    desk.worker.dies(0)
    desk.handle.violated("late")
    assert desk.owner.losses == [EXITED]
    assert desk.worker.kills == 0
    desk.worker.leaves()


async def test_what_never_left_our_queue_is_said_to_be_unsent() -> None:
    """A caller would not dare to repeat a call that nobody ever saw."""
    desk = await greeted(LinkTerms(window_units=1))
    desk.worker.to_worker.receive = lambda _: None  # it reads no more, so it gives no credit either
    sent, _ = desk.call()
    waiting, _ = desk.call()
    desk.handle.lose(EXITED)
    assert (desk.fault(sent).delivery, desk.fault(waiting).delivery) == (Delivery.UNKNOWN, Delivery.NOT_SENT)
    desk.worker.leaves()


@pytest.mark.parametrize(
    ("event", "kind", "code", "at_site"),
    [
        (Silent(7.0), FaultKind.TIMEOUT, "worker_unresponsive", FaultKind.TIMEOUT),
        (Overdue(99), FaultKind.TIMEOUT, "worker_unresponsive", FaultKind.TIMEOUT),
        (Violated("it sent nonsense"), FaultKind.TRANSPORT, "protocol_violation", FaultKind.TOOL_ERROR),
    ],
)
async def test_a_worker_that_hangs_or_breaks_the_rules_is_killed_and_lost(
    event: Silent | Overdue | Violated, kind: FaultKind, code: str, at_site: FaultKind
) -> None:
    """A hung worker would hold its callers, a hostile one would go on."""
    desk = await greeted()
    request_id, _ = desk.call()
    await desk.worker.next(Call)
    desk.handle.on_event(event)
    desk.handle.on_event(event)
    assert desk.worker.kills == 1
    [loss] = desk.owner.losses
    assert (loss.kind, loss.code) == (kind, code)
    fault = desk.fault(request_id)
    assert (fault.kind, fault.delivery) == (at_site, Delivery.UNKNOWN)
    await turns()
    assert desk.owner.losses == [loss]
    desk.worker.leaves()


async def test_a_request_that_waited_too_long_in_our_own_queue_costs_no_worker() -> None:
    """A short deadline behind a large call would have a healthy worker killed, with all its other calls."""
    desk = await greeted(LinkTerms(window_units=1))
    first, _ = desk.call()
    waiting, _ = desk.call(timeout_s=0.001)
    request, _ = await desk.worker.next(Call)
    # The deadline passes, then credit comes: the link tells that this one was never sent.
    desk.handle.on_event(Overdue(waiting, was_sent=False))
    fault = desk.fault(waiting)
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TIMEOUT, "busy", Delivery.NOT_SENT)
    assert desk.worker.kills == 0
    assert desk.handle.lost is None
    desk.worker.answer(request)
    await turns()
    assert first in desk.ended
    desk.worker.leaves()


@pytest.mark.parametrize(
    ("returncode", "dossier", "words"),
    [
        (-9, Dossier(signal=9), "was killed by signal 9"),
        (70, Dossier(exit_status=70), "exited with status 70"),
    ],
)
async def test_the_death_of_the_process_says_how(returncode: int, dossier: Dossier, words: str) -> None:
    """A user would not learn what killed a worker."""
    desk = await greeted()
    desk.worker.dies(returncode)
    [loss] = desk.owner.losses
    assert (loss.kind, loss.code, loss.dossier) == (FaultKind.TRANSPORT, "worker_lost", dossier)
    assert words in loss.message
    assert desk.handle.exited.is_set()
    desk.worker.leaves()


async def test_the_last_words_of_a_dead_worker_are_heard_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own dossier, and answers that were given, would be hidden behind the worker's exit."""
    desk = await greeted()
    request_id, _ = desk.call()
    request, _ = await desk.worker.next(Call)
    desk.worker.answer(request, b"[1]")
    desk.worker.says(Lost(EXITED))
    waiting: list[list[bytes]] = []
    monkeypatch.setattr(desk.worker.to_supervisor, "receive", waiting.append)

    def drain() -> None:
        for parts in waiting:
            desk.handle.driver.receive(parts)

    await turns()
    monkeypatch.setattr(desk.worker.to_worker, "drain", drain)
    desk.worker.dies(0)
    assert desk.ended[request_id] == (Answer(request_id), b"[1]")
    assert desk.owner.losses == [EXITED]
    desk.worker.leaves()


async def test_a_worker_that_left_in_good_order_has_a_moment_for_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dossier of its server, still on its way through the socket, would be lost."""
    monkeypatch.setattr(handle_module, "LAST_WORDS_S", 1_000.0)
    desk = await greeted()
    request_id, _ = desk.call()
    await desk.worker.next(Call)
    desk.handle.on_exit(0)
    assert desk.handle.exited.is_set()
    assert desk.owner.losses == []
    desk.worker.says(Lost(EXITED))
    await turns()
    assert desk.owner.losses == [EXITED]
    assert desk.fault(request_id).code == "exited"
    desk.worker.leaves()


async def test_a_worker_that_left_without_a_word_is_lost_after_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server would look ready for ever."""
    monkeypatch.setattr(handle_module, "LAST_WORDS_S", 0.0)
    desk = await greeted()
    desk.worker.dies(0)
    with anyio.fail_after(PATIENCE_S):
        while not desk.owner.losses:
            await turns(1)
    [loss] = desk.owner.losses
    assert (loss.code, loss.dossier) == ("worker_lost", Dossier(exit_status=0))
    desk.worker.leaves()


async def test_a_worker_that_dies_before_it_spoke_ends_the_wait_for_it() -> None:
    """An endpoint would wait for a hello that never comes."""
    desk = Desk(is_born=False)
    assert not desk.handle.greeted.done()
    desk.worker.dies(1)
    with anyio.fail_after(PATIENCE_S):
        await desk.handle.greeted
    assert desk.handle.lost is not None
    desk.worker.leaves()


async def test_dismissing_waits_for_the_workers_own_end_and_tells_nobody() -> None:
    """A closed server would be reported as a crash."""
    desk = await greeted()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(desk.handle.dismiss(PATIENCE_S))
        await turns()
        desk.worker.dies(0)
    assert desk.worker.kills == 0
    assert desk.owner.heard == []
    desk.worker.leaves()


async def test_dismissing_kills_who_does_not_go() -> None:
    """A stuck worker would outlive its endpoint."""
    desk = await greeted()
    await desk.handle.dismiss(0.0)
    assert desk.worker.kills == 1
    assert desk.handle.exited.is_set()
    assert desk.owner.heard == []
    assert desk.handle.driver._timer is None
    desk.worker.leaves()


async def test_dismissing_one_that_we_killed_does_not_wait_politely() -> None:
    """Every hung worker would cost three seconds more."""
    desk = await greeted()
    desk.handle.violated("nonsense")
    with anyio.fail_after(PATIENCE_S):
        await desk.handle.dismiss(10 * PATIENCE_S)
    desk.worker.leaves()


async def test_a_worker_that_survives_its_kill_is_told_and_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing would hang on a process that the kernel cannot end."""
    monkeypatch.setattr(handle_module, "KILL_S", 0.0)
    desk = await greeted()
    desk.handle.kill = lambda: None
    await desk.handle.dismiss(0.0)
    assert "pid 42" in caplog.text
    desk.worker.leaves()


async def test_a_list_request_is_a_request_like_any_other() -> None:
    """Lists would never end when the server is lost."""
    desk = await greeted()
    frame = List(desk.handle.next_id(), 30.0)
    ended: list[Reply] = []
    desk.handle.ask(frame, b"", lambda reply, _: ended.append(reply))
    request, _ = await desk.worker.next(List)
    assert request == frame
    desk.worker.dies()
    assert len(ended) == 1
    desk.worker.leaves()
