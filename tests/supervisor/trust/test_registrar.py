"""What servers offer is judged, recorded, and only then there; whatever happens meanwhile."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registering import (
    FILE,
    INSTRUCTIONS,
    LAUNCH,
    Bench,
    MemoryRecorder,
    ToldEndpoint,
    bench,
    definition_hash,
    row,
    stdio,
    tool_key,
)
from support.workers import PATIENCE_S, turns

from quarterdeck.config.origin import Standing
from quarterdeck.ledger.book import ItemKey
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events import Approved, Ended, Enrolled, Retired, Voice
from quarterdeck.trust import registrar as module
from quarterdeck.trust.decisions import Decision, StaleDecisionError
from quarterdeck_protocol.configs import TrustMode
from quarterdeck_protocol.phases import EndpointPhase

pytestmark = pytest.mark.anyio


class ReviewGate(threading.Event):
    """While it is cleared, lists are being looked through; `started` says of how many that began."""

    started = 0


@pytest.fixture
def review_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReviewGate]:
    """Open at first; see the class."""
    gate = ReviewGate()
    gate.set()
    review = module.review_documents

    def reviewed(*arguments: Any) -> Any:
        gate.started += 1
        assert gate.wait(PATIENCE_S)
        return review(*arguments)

    monkeypatch.setattr(module, "review_documents", reviewed)
    yield gate
    assert gate.is_set(), "a thread is left waiting"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be recorded is tried again at once."""
    monkeypatch.setattr(module, "RETRY_S", 0.0)


async def test_first_sight_is_offered_and_each_later_change_is_held_until_it_is_approved() -> None:
    """A rug pull would reach the model, or its approval would bring back the old text."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one", b="two"))
        assert at.offered() == [("a", "one"), ("b", "two")]
        await at.lists(a="evil", b="two", c="three")
        assert at.offered() == [("b", "two")]
        assert at.held() == {"a": "changed", "c": "new"}
        assert (at.can_call("a"), at.can_call("b"), at.can_call("c")) == (False, True, False)
        await at.approve(tool_key("a"))
        assert at.offered() == [("a", "evil"), ("b", "two")]
        await at.lists(a="evil", b="two")
        assert at.held() == {}


async def test_a_change_that_is_taken_back_needs_no_approval() -> None:
    """A server that repaired itself would stay held."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        await at.lists(a="evil")
        assert not at.can_call("a")
        await at.lists(a="one")
        assert at.offered() == [("a", "one")]
        assert at.can_call("a")


async def test_instructions_hold_all_tools_with_them() -> None:
    """Changed instructions would rule the model through tools that are approved."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one", instructions="be nice"))
        at.replaces(ToldEndpoint(stdio(), a="one", instructions="be evil"))
        await at.judged()
        assert at.offered() == []
        assert at.held() == {"": "changed", "a": "under_instructions"}
        assert at.registrar.held_counts == {"fs": 1}
        await at.approve(INSTRUCTIONS)
        assert at.offered() == [("a", "one")]


async def test_nothing_is_offered_before_what_admits_it_is_recorded() -> None:
    """A crash would leave a tool in use that nobody's record admits."""
    async with bench() as at:
        await at.registrar.enlist([row(stdio())])
        at.recorder.may_write.clear()
        at.replaces(ToldEndpoint(stdio(), a="one"))
        await at.until(lambda: at.recorder.writing > 0)
        assert (at.offered(), at.can_call("a"), at.registrar.is_judged("fs")) == ([], False, False)
        at.recorder.may_write.set()
        await at.judged()
        assert at.can_call("a")
        assert at.item(tool_key("a")).by is Voice.BASELINE


async def test_a_list_that_changes_while_it_is_judged_is_judged_again() -> None:
    """The verdict on the old list would let the new one in."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        at.recorder.may_write.clear()
        at.fleet.by_id["fs"].lists(a="one", b="new")
        at.fleet.tell()
        await at.until(lambda: at.recorder.writing > 0)
        at.fleet.by_id["fs"].lists(a="evil")
        at.fleet.tell()
        at.recorder.may_write.set()
        await at.judged()
        assert at.offered() == []
        assert at.held() == {"a": "changed"}


async def test_an_endpoint_that_is_replaced_while_it_is_judged_admits_nothing_of_its_successor() -> None:
    """A restarted server would be called by what was found of its forerunner."""
    async with bench() as at:
        await at.registrar.enlist([row(stdio())])
        at.recorder.may_write.clear()
        at.replaces(ToldEndpoint(stdio(), a="one"))
        await at.until(lambda: at.recorder.writing > 0)
        successor = ToldEndpoint(stdio(), a="evil")
        at.replaces(successor)
        at.recorder.may_write.set()
        await at.judged()
        assert not at.can_call("a")
        assert successor.begun == []
        assert at.held() == {"a": "changed"}


async def test_an_old_rows_work_does_not_write_the_new_rows_offer(review_gate: ReviewGate) -> None:
    """A row that was made strict would offer what its open forerunner let in."""
    open_row, strict = stdio(trust=TrustMode.OPEN), stdio(trust=TrustMode.STRICT)
    async with bench() as at:
        await at.registrar.enlist([row(open_row)])
        review_gate.clear()
        at.replaces(ToldEndpoint(open_row, a="one"))
        await at.until(lambda: review_gate.started == 1)
        await at.registrar.decide([Decision(str(FILE), "fs", LAUNCH, row(strict).launch.hash, row(strict).launch.body)])
        await at.registrar.enlist([row(strict)])
        at.replaces(ToldEndpoint(strict, a="one"))
        review_gate.set()
        await at.judged()
        assert at.held() == {"": "new", "a": "new"}
        assert not at.can_call("a")
        assert not [event for event in at.recorder.events if isinstance(event, Approved) and event.name == "a"]


async def test_the_process_of_a_row_that_is_held_is_not_judged_any_more() -> None:
    """A changed command would be called until its old process has ended, or its list be approved by the wrong row."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        await at.registrar.enlist([row(stdio(command="evil"))])
        await at.judged()
        assert at.registrar.launch_fault("fs") is not None
        assert (at.offered(), at.can_call("a"), at.registrar.startable) == ([], False, ())
        await at.registrar.enlist([row(stdio())])
        await at.judged()
        assert at.offered() == [("a", "one")]


async def test_a_block_that_is_recorded_while_a_list_is_judged_holds(review_gate: ReviewGate) -> None:
    """A person's last word would be lost to a list that was being judged when it was spoken."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        review_gate.clear()
        at.fleet.by_id["fs"].lists(a="one", b="new")
        at.fleet.tell()
        await at.until(lambda: review_gate.started == 2)
        at.recorder.may_write.clear()
        deciding = asyncio.create_task(at.registrar.decide([Decision(str(FILE), "fs", tool_key("a"))]))
        await at.until(lambda: at.recorder.writing > 0)
        review_gate.set()
        await turns(200)  # the list is looked through, and would be judged by the book without the block
        at.recorder.may_write.set()
        await deciding
        assert not at.can_call("a")
        await at.judged()
        assert at.held() == {"a": "blocked", "b": "new"}
        assert (at.offered(), at.can_call("a")) == ([], False)


async def test_what_is_blocked_is_not_offered_any_more_when_the_decision_returns(
    review_gate: ReviewGate,
) -> None:
    """`quarterdeck trust block` would report success, and the next call would still get through."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one", b="two"))
        review_gate.clear()
        told: list[list[tuple[str, str]]] = []
        at.registrar.watch(lambda: told.append(at.offered()))
        await at.registrar.decide([Decision(str(FILE), "fs", tool_key("a"))])
        assert told[0] == [("b", "two")]
        assert (at.can_call("a"), at.can_call("b")) == (False, True)
        refused = at.registrar.refusal("fs", "a")
        assert refused is not None
        assert "blocked" in refused.message
        review_gate.set()


async def test_a_form_that_is_not_offered_any_more_cannot_be_approved() -> None:
    """A person would approve what they looked at, and get what came after."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        await at.lists(a="two")
        seen = at.item(tool_key("a")).seen
        await at.lists(a="evil")
        before = list(at.recorder.events)
        with pytest.raises(StaleDecisionError, match="quarterdeck trust diff fs"):
            await at.registrar.decide(
                [Decision(str(FILE), "fs", tool_key("b")), Decision(str(FILE), "fs", tool_key("a"), seen)]
            )
        assert at.recorder.events == before
        assert at.held() == {"a": "changed"}


async def test_a_decision_that_cannot_be_recorded_does_not_count() -> None:
    """After a restart the tool would be held again, and nobody would know why."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        await at.lists(a="two")
        at.recorder.is_full = True
        with pytest.raises(LedgerWriteError):
            await at.approve(tool_key("a"))
        assert at.held() == {"a": "changed"}
        assert not at.can_call("a")


async def test_on_a_full_disk_what_was_approved_stays_and_the_rest_is_held_and_said_once(
    soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk would take every tool away, let unrecorded ones in, or fill the log as well."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(trust=TrustMode.OPEN), a="one", b="two"))
        at.recorder.is_full = True
        at.fleet.by_id["fs"].lists(a="one", b="changed", c="new")
        with caplog.at_level(logging.INFO, "quarterdeck.trust"):
            at.fleet.tell()
            await at.until(lambda: at.held() == {"b": "changed", "c": "new"})
            assert at.offered() == [("a", "one")]
            tries = at.recorder.refused
            await at.until(lambda: at.recorder.refused > tries + 2)
            assert len([message for message in caplog.messages if "not recorded" in message]) == 1
            at.recorder.is_full = False
            await at.until(lambda: at.held() == {})
        assert at.offered() == [("a", "one"), ("b", "changed"), ("c", "new")]
        assert caplog.messages[-1] == "what fs offers is recorded again"


async def test_instructions_that_could_not_be_recorded_hold_the_approved_tools_with_them() -> None:
    """On a full disk, tools would be shown below instructions that no record admits."""
    config = stdio(trust=TrustMode.OPEN)
    async with bench() as at:
        await at.runs(ToldEndpoint(config, a="one", instructions="nice"))
        at.recorder.is_full = True
        at.replaces(ToldEndpoint(config, a="one", instructions="evil"))
        await at.until(lambda: bool(at.held()))
        assert at.held() == {"": "changed", "a": "under_instructions"}
        assert at.offered() == []


async def test_closing_waits_for_what_is_judged_even_for_a_row_that_is_gone(review_gate: ReviewGate) -> None:
    """The ledger would be closed under a record that is being made."""
    at = Bench()
    at.registrar.start()
    await at.registrar.enlist([row(stdio()), row(stdio("other"))])
    review_gate.clear()
    at.replaces(ToldEndpoint(stdio(), a="one"))
    at.replaces(ToldEndpoint(stdio("other"), b="two"))
    await at.until(lambda: review_gate.started == 2)
    await at.registrar.enlist([row(stdio("other"))])
    closing = asyncio.create_task(at.registrar.close())
    await asyncio.sleep(0)
    assert not closing.done()
    review_gate.set()
    await closing
    assert at.entry("other").items[tool_key("b")].by is Voice.BASELINE
    assert tool_key("a") not in at.entry("fs").items
    count = len(at.recorder.events)
    at.fleet.by_id["other"].lists(c="late")
    at.fleet.tell()
    await asyncio.sleep(0)
    assert len(at.recorder.events) == count


async def test_a_failure_to_judge_leaves_the_offer_and_is_tried_again(
    soon: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in a rule of the scan would let a change in, or hold it for ever."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        review, failures = module.review_documents, [ValueError("a rule failed")]

        def fails_once(*arguments: Any) -> Any:
            if failures:
                raise failures.pop()
            return review(*arguments)

        monkeypatch.setattr(module, "review_documents", fails_once)
        at.fleet.by_id["fs"].lists(a="one", b="new")
        at.fleet.tell()
        await at.until(lambda: at.held() == {"b": "new"})
        assert at.offered() == [("a", "one")]
        assert "what fs offers could not be judged" in caplog.text


async def restarted(recorder: MemoryRecorder) -> MemoryRecorder:
    """The ledger as the next process finds it."""
    return MemoryRecorder(recorder.book, recorder.documents)


async def test_the_next_start_offers_what_was_approved_last_under_the_same_keys() -> None:
    """Every start would take the tools away until the slowest server is up, or enroll them anew."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one", b="two"))
        await at.lists(a="one", b="evil")
        keys = dict(at.entry().live)
    async with bench(await restarted(at.recorder)) as at:
        await at.registrar.enlist([row(stdio())])
        endpoint = ToldEndpoint(stdio(), a="one", b="evil")
        endpoint.phase = EndpointPhase.CONNECTING
        at.replaces(endpoint)
        assert at.registrar.is_provisional("fs")
        assert (at.offered(), at.can_call("a")) == ([("a", "one")], False)
        assert at.registrar.held_counts == {"fs": 1}
        refused = at.registrar.refusal("fs", "b")
        assert refused is not None
        assert "quarterdeck trust approve fs b" in refused.message
        assert at.registrar.refusal("fs", "a") is at.registrar.refusal("fs", "stranger") is None
        endpoint.phase = EndpointPhase.READY
        at.fleet.tell()
        await at.judged()
        assert at.held() == {"b": "changed"}
        assert at.can_call("a")
        assert not [event for event in at.recorder.events if isinstance(event, Enrolled | Retired)]
        assert at.entry().live == keys


async def test_held_instructions_hold_everything_over_a_restart_and_are_counted() -> None:
    """The tools would be back until the server has connected, or the client be told that all is well."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one", b="two", instructions="nice"))
        at.replaces(ToldEndpoint(stdio(), a="one", b="two", instructions="evil"))
        await at.judged()
    async with bench(await restarted(at.recorder)) as at:
        await at.registrar.enlist([row(stdio())])
        assert at.registrar.offer("fs").tools == ()
        assert at.registrar.held_counts == {"fs": 2}


@pytest.mark.parametrize("key", [tool_key("a"), INSTRUCTIONS])
async def test_what_is_blocked_leaves_the_offer_of_the_last_time_too(key: ItemKey) -> None:
    """A tool that is blocked while its server starts would be listed until it is up."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one", instructions="nice"))
    async with bench(await restarted(at.recorder)) as at:
        await at.registrar.enlist([row(stdio())])
        endpoint = ToldEndpoint(stdio(), a="one", instructions="nice")
        endpoint.phase = EndpointPhase.CONNECTING
        at.replaces(endpoint)
        assert at.offered() == [("a", "one")]
        await at.registrar.decide([Decision(str(FILE), "fs", key)])
        assert at.offered() == []
        await at.registrar.enlist([row(stdio())])
        assert at.offered() == []
    async with bench(await restarted(at.recorder)) as at:
        await at.registrar.enlist([row(stdio())])
        assert at.registrar.offer("fs").tools == ()


async def test_a_server_that_is_judged_while_the_last_offer_is_read_keeps_the_verdict() -> None:
    """What it changed would be listed, and called, under the approval of the old form."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one", instructions="nice"))
        at.replaces(ToldEndpoint(stdio(), a="one", instructions="evil"))
        await at.judged()
    async with bench(await restarted(at.recorder)) as at:
        await at.registrar.enlist([row(stdio())])
        endpoint = ToldEndpoint(stdio(), a="evil", instructions="evil")
        endpoint.phase = EndpointPhase.CONNECTING
        at.replaces(endpoint)
        await at.registrar.decide([Decision(str(FILE), "fs", INSTRUCTIONS, at.item(INSTRUCTIONS).seen)])
        at.recorder.slow = definition_hash("a", "one")
        enlisting = asyncio.create_task(at.registrar.enlist([row(stdio())]))
        await at.until(lambda: at.recorder.reading > 0)
        endpoint.phase = EndpointPhase.READY
        at.fleet.tell()
        await at.judged()
        assert at.held() == {"a": "changed"}
        at.recorder.may_read.set()
        await enlisting
        assert (at.offered(), at.can_call("a"), at.held()) == ([], False, {"a": "changed"})


async def test_rows_of_a_project_wait_for_a_person_whatever_their_mode_and_again_after_each_change() -> None:
    """A cloned repository would start commands."""
    evil, other = stdio(trust=TrustMode.OPEN), stdio(command="other", trust=TrustMode.OPEN)
    async with bench() as at:
        await at.registrar.enlist([row(evil, standing=Standing.PROJECT)])
        assert (at.registrar.startable, at.registrar.held_launches) == ((), ("fs",))
        launch = row(evil, standing=Standing.PROJECT).launch
        await at.registrar.decide([Decision(str(FILE), "fs", LAUNCH, launch.hash, launch.body)])
        await at.registrar.enlist([row(evil, standing=Standing.PROJECT)])
        assert at.registrar.startable == (evil,)
        await at.registrar.enlist([row(other, standing=Standing.PROJECT)])
        assert at.registrar.startable == ()


async def test_a_row_that_moves_to_another_file_or_is_gone_leaves_nothing_live() -> None:
    """`quarterdeck ledger show` would name tools that nobody offers."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        assert at.entry().live
        await at.runs(ToldEndpoint(stdio(), a="one"), path=Path("/nonexistent/other.json"))
        assert not at.entry().live
        assert at.entry(path=Path("/nonexistent/other.json")).live
        await at.registrar.enlist([])
        assert not at.entry(path=Path("/nonexistent/other.json")).live
        assert at.offered() == []


async def test_a_watcher_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """One broken client would keep all others from hearing that a tool is held."""
    told: list[str] = []

    def fails() -> None:
        raise LookupError("a bad client")

    async with bench() as at:
        at.registrar.watch(fails)
        unwatch = at.registrar.watch(lambda: told.append("told"))
        await at.runs(ToldEndpoint(stdio(), a="one"))
        assert told
        assert "a watcher of what is offered failed" in caplog.text
        unwatch()
        unwatch()
        told.clear()
        await at.lists(a="two")
        assert told == []


async def test_every_start_and_its_end_are_told_once() -> None:
    """The ledger would not say which process had offered what."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        await at.lists(a="one", b="two")
        began = [event for event in at.recorder.events if event.__class__.__name__ == "Began"]
        assert len(began) == 1
        assert at.entry().life == began[0]
    ended = [event for event in at.recorder.events if isinstance(event, Ended)]
    assert [event.code for event in ended] == ["closed"]


async def test_of_a_stranger_nothing_is_known_and_nothing_forbidden() -> None:
    """A name that no server has would be refused as held."""
    async with bench() as at:
        assert at.registrar.offer("nobody").tools == ()
        assert at.registrar.refusal("nobody", "x") is None
        assert at.registrar.launch_fault("nobody") is None
        assert at.registrar.is_judged("nobody")
        assert not at.registrar.admits("nobody", "x", ToldEndpoint(stdio("nobody"), x="y"))  # type: ignore[arg-type]


async def test_the_hash_of_a_definition_is_that_of_the_whole_of_it() -> None:
    """An approval would name something else than what the client is shown."""
    async with bench() as at:
        await at.runs(ToldEndpoint(stdio(), a="one"))
        assert at.item(tool_key("a")).approved == definition_hash("a", "one")
        live = list(at.entry().live.values())
        assert [(tool.tool, tool.definition) for tool in live] == [("a", definition_hash("a", "one"))]
