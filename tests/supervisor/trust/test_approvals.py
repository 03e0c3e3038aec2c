"""Which servers may be started, what they offer before and after they were asked, and what a person decides of it."""

import asyncio
import logging
from pathlib import Path

import pytest
from support.trust import approvals

from quarterdeck.config.load.origin import Standing
from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Authority, Enrolled, Retired, Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import native_document
from quarterdeck.trust.judge.server_rows import NativeRow
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.configs import StdioServerConfig, TrustMode
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Preset


async def test_the_process_of_a_row_that_is_held_is_not_judged_any_more() -> None:
    """A changed command would be called until its old process has ended, or its list be approved by the wrong row."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one"))
        await at.approvals.set_rows([approvals.row(approvals.stdio(command="evil"))])
        await at.judged()
        assert at.approvals.launch_fault("fs") is not None
        assert (at.offered(), at.can_call("a"), at.approvals.startable) == ([], False, ())
        await at.approvals.set_rows([approvals.row(approvals.stdio())])
        await at.judged()
        assert at.offered() == [("a", "one")]


async def test_what_is_blocked_is_not_offered_any_more_when_the_decision_returns(
    review_gate: approvals.ReviewGate,
) -> None:
    """`quarterdeck trust block` would report success, and the next call would still get through."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one", b="two"))
        review_gate.clear()
        told: list[list[tuple[str, str]]] = []
        at.approvals.watch(lambda: told.append(at.offered()))
        await at.approvals.decide([Decision(str(approvals.FILE), "fs", approvals.tool_key("a"))])
        assert told[0] == [("b", "two")]
        assert (at.can_call("a"), at.can_call("b")) == (False, True)
        verdict = at.approvals.verdict("fs")
        assert verdict is not None
        refused = verdict.refusal("a")
        assert refused is not None
        assert "blocked" in refused.message
        review_gate.set()


async def test_a_decision_that_cannot_be_recorded_does_not_count() -> None:
    """After a restart the tool would be held again, and nobody would know why."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one"))
        await at.lists(a="two")
        at.recorder.is_full = True
        with pytest.raises(LedgerWriteError):
            await at.approve(approvals.tool_key("a"))
        assert at.held() == {"a": "changed"}
        assert not at.can_call("a")


async def test_closing_waits_for_what_is_judged_even_for_a_row_that_is_gone(review_gate: approvals.ReviewGate) -> None:
    """The ledger would be closed under a record that is being made."""
    at = approvals.Bench()
    at.approvals.start()
    await at.approvals.set_rows([approvals.row(approvals.stdio()), approvals.row(approvals.stdio("other"))])
    review_gate.clear()
    at.replaces(approvals.ToldEndpoint(approvals.stdio(), a="one"))
    at.replaces(approvals.ToldEndpoint(approvals.stdio("other"), b="two"))
    await at.until(lambda: review_gate.started == 2)
    await at.approvals.set_rows([approvals.row(approvals.stdio("other"))])
    closing = asyncio.create_task(at.approvals.close())
    await asyncio.sleep(0)
    assert not closing.done()
    review_gate.set()
    await closing
    assert at.entry("other").items[approvals.tool_key("b")].by is Authority.BASELINE
    assert approvals.tool_key("a") not in at.entry("fs").items
    count = len(at.recorder.events)
    at.fleet.by_id["other"].lists(c="late")
    at.fleet.tell()
    await asyncio.sleep(0)
    assert len(at.recorder.events) == count


async def restarted(recorder: approvals.MemoryRecorder) -> approvals.MemoryRecorder:
    return approvals.MemoryRecorder(recorder.book, recorder.documents)


async def test_the_next_start_offers_what_was_approved_last_under_the_same_keys() -> None:
    """Every start would take the tools away until the slowest server is up, or enroll them anew."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one", b="two"))
        await at.lists(a="one", b="evil")
        keys = dict(at.entry().live)
    async with approvals.bench(await restarted(at.recorder)) as at:
        await at.approvals.set_rows([approvals.row(approvals.stdio())])
        endpoint = approvals.ToldEndpoint(approvals.stdio(), a="one", b="evil")
        endpoint.phase = EndpointPhase.CONNECTING
        at.replaces(endpoint)
        assert at.approvals.is_provisional("fs")
        assert (at.offered(), at.can_call("a")) == ([("a", "one")], False)
        assert at.approvals.held_counts == {"fs": {Subject.TOOL: 1}}
        verdict = at.approvals.verdict("fs")
        assert verdict is not None
        refused = verdict.refusal("b")
        assert refused is not None
        assert "quarterdeck trust approve fs b" in str(refused.remedy)
        assert verdict.refusal("a") is verdict.refusal("stranger") is None
        endpoint.phase = EndpointPhase.READY
        at.fleet.tell()
        await at.judged()
        assert at.held() == {"b": "changed"}
        assert at.can_call("a")
        assert not [event for event in at.recorder.events if isinstance(event, Enrolled | Retired)]
        assert at.entry().live == keys


async def test_held_instructions_hold_everything_over_a_restart_and_are_counted() -> None:
    """The tools would be back until the server has connected, or the client be told that all is well."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one", b="two", instructions="nice"))
        at.replaces(approvals.ToldEndpoint(approvals.stdio(), a="one", b="two", instructions="evil"))
        await at.judged()
    async with approvals.bench(await restarted(at.recorder)) as at:
        await at.approvals.set_rows([approvals.row(approvals.stdio())])
        assert at.approvals.offer("fs").tools == ()
        assert at.approvals.held_counts == {"fs": {Subject.TOOL: 2}}


@pytest.mark.parametrize("key", [approvals.tool_key("a"), approvals.INSTRUCTIONS])
async def test_what_is_blocked_leaves_the_offer_of_the_last_time_too(key: ItemKey) -> None:
    """A tool that is blocked while its server starts would be listed until it is up."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one", instructions="nice"))
    async with approvals.bench(await restarted(at.recorder)) as at:
        await at.approvals.set_rows([approvals.row(approvals.stdio())])
        endpoint = approvals.ToldEndpoint(approvals.stdio(), a="one", instructions="nice")
        endpoint.phase = EndpointPhase.CONNECTING
        at.replaces(endpoint)
        assert at.offered() == [("a", "one")]
        await at.approvals.decide([Decision(str(approvals.FILE), "fs", key)])
        assert at.offered() == []
        await at.approvals.set_rows([approvals.row(approvals.stdio())])
        assert at.offered() == []
    async with approvals.bench(await restarted(at.recorder)) as at:
        await at.approvals.set_rows([approvals.row(approvals.stdio())])
        assert at.approvals.offer("fs").tools == ()


async def test_a_server_that_is_judged_while_the_last_offer_is_read_keeps_the_verdict() -> None:
    """What it changed would be listed, and called, under the approval of the old form."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one", instructions="nice"))
        at.replaces(approvals.ToldEndpoint(approvals.stdio(), a="one", instructions="evil"))
        await at.judged()
    async with approvals.bench(await restarted(at.recorder)) as at:
        await at.approvals.set_rows([approvals.row(approvals.stdio())])
        endpoint = approvals.ToldEndpoint(approvals.stdio(), a="evil", instructions="evil")
        endpoint.phase = EndpointPhase.CONNECTING
        at.replaces(endpoint)
        await at.approvals.decide(
            [Decision(str(approvals.FILE), "fs", approvals.INSTRUCTIONS, at.item(approvals.INSTRUCTIONS).seen)]
        )
        at.recorder.slow = approvals.definition_hash("a", "one")
        enlisting = asyncio.create_task(at.approvals.set_rows([approvals.row(approvals.stdio())]))
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
    evil, other = approvals.stdio(trust=TrustMode.OPEN), approvals.stdio(command="other", trust=TrustMode.OPEN)
    async with approvals.bench() as at:
        await at.approvals.set_rows([approvals.row(evil, standing=Standing.PROJECT)])
        assert (at.approvals.startable, at.approvals.held_launches) == ((), ("fs",))
        launch = approvals.row(evil, standing=Standing.PROJECT).launch
        await at.approvals.decide([Decision(str(approvals.FILE), "fs", approvals.LAUNCH, launch.hash, launch.body)])
        await at.approvals.set_rows([approvals.row(evil, standing=Standing.PROJECT)])
        assert at.approvals.startable == (evil,)
        await at.approvals.set_rows([approvals.row(other, standing=Standing.PROJECT)])
        assert at.approvals.startable == ()


async def test_what_comes_while_a_serve_runs_and_asks_for_more_waits_and_says_how_it_starts() -> None:
    """An edit would start a program outside of any sandbox within a second."""
    trusted = StdioServerConfig(id="fs", command="run", sandbox=SandboxPolicy(preset=Preset.TRUSTED))
    async with approvals.bench() as at:
        await at.approvals.set_rows([approvals.row(trusted)], is_live=True)
        assert at.approvals.startable == ()
        fault = at.approvals.launch_fault("fs")
        assert fault is not None
        assert "it asks for more than before (preset, network, minimum" in fault.message
        assert f"`quarterdeck trust approve fs --all -c {approvals.FILE}`" in str(fault.remedy)
        launch = approvals.row(trusted).launch
        await at.approvals.decide([Decision(str(approvals.FILE), "fs", approvals.LAUNCH, launch.hash)])
        await at.approvals.set_rows([approvals.row(trusted)], is_live=True)
        assert at.approvals.startable == (trusted,)


async def test_what_a_person_started_stays_when_it_could_not_be_recorded() -> None:
    """On a full disk, any decision would stop the servers that run."""
    trusted = StdioServerConfig(id="fs", command="run", sandbox=SandboxPolicy(preset=Preset.TRUSTED))
    recorder = approvals.MemoryRecorder()
    recorder.is_full = True
    async with approvals.bench(recorder) as at:
        await at.approvals.set_rows([approvals.row(trusted)])
        await at.approvals.set_rows([approvals.row(trusted)], is_live=True)
        assert at.approvals.startable == (trusted,)


def native(exposed: str = "", **settings: object) -> NativeRow:
    said = NativeSettings.model_validate(settings)
    return NativeRow(said, str(approvals.FILE), native_document(said), exposed, ("-c", str(approvals.FILE)))


async def test_native_tools_keep_what_was_approved_while_more_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """`bash` could write itself the network, or every run end with the default that is wider than what was chosen."""
    caplog.set_level(logging.WARNING, "quarterdeck.trust.held")
    none, full = native(sandbox={"network": "none"}), native(sandbox={"network": "full"})
    async with approvals.bench() as at:
        assert await at.approvals.approved_native(native(), is_live=False) == native().settings
        assert at.recorder.events == [], "nobody said anything"
        assert await at.approvals.approved_native(none, is_live=False) == none.settings
        for _ in range(2):
            assert await at.approvals.approved_native(full, is_live=True) == none.settings
        exposed = native("/w/mcp.json", sandbox={"network": "full"})
        assert await at.approvals.approved_native(exposed, is_live=False) == none.settings
        assert "/w/mcp.json lies where" in caplog.messages[1]
        assert len(caplog.messages) == 2, "each is said once"
        assert f"`quarterdeck trust approve native.tools --all -c {approvals.FILE}`" in caplog.messages[0]
        await at.approvals.decide([Decision(str(approvals.FILE), "native.tools", approvals.LAUNCH, full.launch.hash)])
        assert await at.approvals.approved_native(exposed, is_live=True) == full.settings


async def test_a_row_that_moves_to_another_file_or_is_gone_leaves_nothing_live() -> None:
    """`quarterdeck ledger show` would name tools that nobody offers."""
    async with approvals.bench() as at:
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one"))
        assert at.entry().live
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one"), path=Path("/nonexistent/other.json"))
        assert not at.entry().live
        assert at.entry(path=Path("/nonexistent/other.json")).live
        await at.approvals.set_rows([])
        assert not at.entry(path=Path("/nonexistent/other.json")).live
        assert at.offered() == []


async def test_a_watcher_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """One broken client would keep all others from hearing that a tool is held."""
    told: list[str] = []

    def fails() -> None:
        raise LookupError("a bad client")

    async with approvals.bench() as at:
        at.approvals.watch(fails)
        unwatch = at.approvals.watch(lambda: told.append("told"))
        await at.runs(approvals.ToldEndpoint(approvals.stdio(), a="one"))
        assert told
        assert "a watcher of what is offered failed" in caplog.text
        unwatch()
        unwatch()
        told.clear()
        await at.lists(a="two")
        assert told == []


async def test_of_a_stranger_nothing_is_known_and_nothing_forbidden() -> None:
    """A name that no server has would be refused as held."""
    async with approvals.bench() as at:
        assert at.approvals.offer("nobody").tools == ()
        assert at.approvals.verdict("nobody") is None
        assert at.approvals.launch_fault("nobody") is None
        assert at.approvals.is_judged("nobody")


async def test_a_server_is_known_once_it_was_listed_whatever_was_decided_of_it() -> None:
    """The first list would wait for a server of which nothing is approved, each time; or not for a new one."""
    async with approvals.bench() as at:
        config = approvals.stdio(trust=TrustMode.STRICT)
        await at.approvals.set_rows([approvals.row(config)])
        assert not at.approvals.was_listed("fs")
        at.replaces(approvals.ToldEndpoint(config, a="one"))
        await at.judged()
        assert (at.offered(), at.approvals.was_listed("fs"), at.approvals.was_listed("other")) == ([], True, False)
