"""`process`: what a model is told of its background commands."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.benches import session
from support.file_tools import outcome_of
from support.leftovers import POLL_S, eventually_async, running_with

from quarterdeck.tools.commands.process import POLL_BUDGET, process_tool
from quarterdeck.tools.context import ContextId, ToolContext
from quarterdeck_protocol.tools import CancelToken

pytestmark = pytest.mark.anyio

PROCESS = process_tool()


async def process(ctx: ToolContext, action: str, **given: object) -> Any:
    """The value that a successful call gives."""
    outcome = await outcome_of(PROCESS, ctx, action=action, **given)
    assert not outcome.is_error, outcome.output
    return outcome.output


async def refusal(ctx: ToolContext, **given: object) -> str:
    """What a failed call says."""
    outcome = await outcome_of(PROCESS, ctx, **given)
    assert outcome.is_error
    assert isinstance(outcome.output, str)
    return outcome.output


async def finished(ctx: ToolContext, name: str) -> dict[str, Any]:
    """The job's row, once it has ended."""
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


async def test_a_poll_shows_the_end_of_much_output(tmp_path: Path) -> None:
    """A model's context would be filled by one poll, or show the beginning of what is long over."""
    async with session(tmp_path) as s:
        await process(
            s.ctx,
            "start",
            command="yes 'a line of some sixty bytes, so that they pass the budget' | head -1500; echo end",
        )
        await finished(s.ctx, "job-1")
        polled = await process(s.ctx, "poll", id="job-1")
        assert polled["stdout"].endswith("budget\nend\n")
        assert POLL_BUDGET.max_bytes <= len(polled["stdout"]) < POLL_BUDGET.max_bytes + 100
        assert "left out" in polled["stdout"].splitlines()[1]


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
