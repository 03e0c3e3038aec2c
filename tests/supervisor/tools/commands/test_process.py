"""`process`: what a model is told of its background commands."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.processes.identities import give_to_commands
from support.processes.leftovers import running_with
from support.tools.file_tools import outcome_of
from support.waiting import POLL_S, eventually_async

from quarterdeck.tools.card_types import DeckContext
from quarterdeck.tools.commands.process import bg_process_tool, process_tool
from quarterdeck.tools.context import ContextId, ToolContext
from quarterdeck.tools.results import TextContentBlock
from quarterdeck.tools.spec import DefinedTool
from quarterdeck_protocol.tools import CancelToken

from .command_sessions import Session, session

pytestmark = pytest.mark.process

PROCESS = process_tool()


async def process(ctx: ToolContext, action: str, **given: object) -> Any:
    outcome = await outcome_of(PROCESS, ctx, action=action, **given)
    assert not outcome.is_error, outcome.output
    return outcome.output


async def refusal(ctx: ToolContext, **given: object) -> str:
    outcome = await outcome_of(PROCESS, ctx, **given)
    assert outcome.is_error
    assert isinstance(outcome.output, str)
    return outcome.output


async def finished(ctx: ToolContext, name: str) -> dict[str, Any]:
    while True:
        rows = {row["id"]: row for row in (await process(ctx, "list"))["jobs"]}
        if rows[name]["state"] == "finished":
            return rows[name]  # type: ignore[no-any-return]
        await anyio.sleep(POLL_S)


async def test_a_job_is_started_listed_polled_and_stopped(tmp_path: Path) -> None:
    """A model could not work with a server."""
    async with session(tmp_path) as s:
        started = await process(s.ctx, "start", command="echo up; exec sleep 4601.5")
        note = started.pop("note")
        assert ("job-1" in note, f"{s.workspace}/.indusvx-bg/job-1.out" in note) == (True, True)
        assert started.pop("pid") > 0
        assert started == {
            "action": "start",
            "id": "job-1",
            "command": "echo up; exec sleep 4601.5",
            "status": "running",
        }
        [row] = (await process(s.ctx, "list"))["jobs"]
        assert (row["id"], row["state"], row["status"]) == ("job-1", "running", "running")
        assert isinstance(row["ageMs"], int)
        await eventually_async(lambda: (s.workspace / ".indusvx-bg" / "job-1.out").read_text() == "up\n")
        polled = await process(s.ctx, "poll", id="job-1")
        assert (polled["stdout"], polled["stderr"], polled["hadNewOutput"]) == ("up\n", "", True)
        assert (polled["state"], polled["exitCode"], polled["exitSignal"]) == ("running", None, None)
        again = await process(s.ctx, "poll", id="job-1")
        assert (again["stdout"], again["hadNewOutput"]) == ("", False)
        stopped = await process(s.ctx, "stop", id="job-1")
        assert (stopped["wasRunning"], stopped["finalStatus"]) == (True, "signalled (SIGTERM)")
        assert not running_with("4601.5")
        assert "no processes" in await refusal(s.ctx, action="poll", id="job-1")


async def test_how_a_job_ended_is_told(tmp_path: Path) -> None:
    """A failed build would look like a good one."""
    async with session(tmp_path) as s:
        await process(s.ctx, "start", command="echo bad >&2; exit 4")
        await process(s.ctx, "start", command="kill -KILL $$")
        assert (await finished(s.ctx, "job-1"))["status"] == "exited (code 4)"
        assert (await finished(s.ctx, "job-2"))["status"] == "signalled (SIGKILL)"
        first = await process(s.ctx, "poll", id="job-1")
        assert (first["state"], first["exitCode"], first["stderr"]) == ("finished", 4, "bad\n")
        second = await process(s.ctx, "poll", id="job-2")
        assert (second["exitCode"], second["exitSignal"]) == (None, "SIGKILL")
        stopped = await process(s.ctx, "stop", id="job-1")
        assert (stopped["wasRunning"], stopped["finalStatus"]) == (False, "exited (code 4)")


async def test_what_is_missing_or_unknown_is_said(tmp_path: Path) -> None:
    """A model could not mend its call."""
    async with session(tmp_path) as s:
        for command in (None, "", "  "):
            given = {} if command is None else {"command": command}
            assert "needs a command" in await refusal(s.ctx, action="start", **given)
        assert "needs an id" in await refusal(s.ctx, action="stop")
        await process(s.ctx, "start", command="true")
        assert "'job-9'. The processes of this session are job-1." in await refusal(s.ctx, action="poll", id="job-9")
        assert "expected one of" in await refusal(s.ctx, action="restart")
        assert "NUL" in await refusal(s.ctx, action="start", command="a\0b")


async def test_two_sessions_do_not_see_each_others_jobs(tmp_path: Path) -> None:
    """One client could read and stop what another runs."""
    async with session(tmp_path) as s:
        other = replace(s.ctx, context_id=ContextId())
        await process(s.ctx, "start", command="exec sleep 4602.5")
        assert (await process(other, "list")) == {"jobs": []}
        assert "no processes" in await refusal(other, action="stop", id="job-1")
        assert len((await process(s.ctx.with_cancel(CancelToken()), "list"))["jobs"]) == 1
    assert not running_with("4602.5")
    assert list(s.workspace.iterdir()) == []


def build(s: Session) -> DefinedTool:
    return bg_process_tool(DeckContext(str(s.workspace)))


async def said(card: DefinedTool, s: Session, *, is_error: bool = False, **given: object) -> str:
    result = await card.run(given, s.ctx)
    [block] = result.content
    assert isinstance(block, TextContentBlock)
    assert result.is_error is is_error, block.text
    return block.text


async def said_at_last(card: DefinedTool, s: Session, is_so: Callable[[str], bool], **given: object) -> None:
    while True:
        if is_so(await said(card, s, **given)):
            return
        await anyio.sleep(POLL_S)


async def test_a_process_is_started_polled_listed_and_stopped(tmp_path: Path) -> None:
    """A model could not work with a server."""
    async with session(tmp_path) as s:
        card = build(s)
        assert await said(card, s, action="list") == "There are no background processes."
        text = await said(card, s, action="start", command="echo up; echo oops >&2; exec sleep 4701.5")
        assert text.startswith("Started bg-1 (pid ")
        assert '{"action": "poll", "id": "bg-1"}' in text
        expected = "Process bg-1 — running\n--- stdout ---\nup\n--- stderr ---\noops"
        await said_at_last(card, s, lambda text: text == expected, action="poll", id="bg-1")
        assert await said(card, s, action="poll", id="bg-1") == expected
        assert await said(card, s, action="poll", id="bg-1", sinceLast=True) == (
            "Process bg-1 — running\nNo new output since the last poll."
        )
        assert await said(card, s, action="list") == "bg-1 [running] echo up; echo oops >&2; exec sleep 4701.5"
        assert await said(card, s, action="stop", id="bg-1") == (
            "Stopped bg-1 — signalled (SIGTERM), with all that it had started."
        )
        assert not running_with("4701.5")
        assert "had ended before" in await said(card, s, action="stop", id="bg-1")
        assert (await said(card, s, action="poll", id="bg-1")).startswith("Process bg-1 — signalled (SIGTERM)\n")


async def test_only_new_lines_are_shown_to_whoever_asks_for_them(tmp_path: Path) -> None:
    """A line that came in two pieces would be two, or a log be shown again at every poll."""
    async with session(tmp_path) as s:
        os.mkfifo(s.workspace / "go")
        give_to_commands(s.workspace / "go")
        card = build(s)
        await said(card, s, action="start", command="echo one; printf par; read _ <go; printf 'tial\\n'; exit 2")
        await eventually_async(lambda: (s.workspace / ".indusvx-bg" / "bg-1.out").read_text() == "one\npar")
        assert "--- stdout ---\none\npar" in await said(card, s, action="poll", id="bg-1", sinceLast=True)
        await asyncio.to_thread((s.workspace / "go").write_text, "\n")
        await said_at_last(card, s, lambda text: "[running]" not in text, action="list")
        text = await said(card, s, action="poll", id="bg-1", sinceLast=True)
        assert text == "Process bg-1 — exited (code 2)\n--- stdout ---\npartial"
        text = await said(card, s, action="poll", id="bg-1")
        assert text == "Process bg-1 — exited (code 2)\n--- stdout ---\none\npartial"
