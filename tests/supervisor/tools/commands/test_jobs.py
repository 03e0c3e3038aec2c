"""Background commands: seen while they run, ended with all that they started, and their files."""

import os
from pathlib import Path

import anyio
import pytest
from support.processes.leftovers import running_with
from support.waiting import eventually_async

from quarterdeck.tools.commands import jobs
from quarterdeck.tools.commands.jobs import MAX_REMEMBERED, MAX_RUNNING, JobError, JobTable, adopt, end_jobs
from quarterdeck.tools.context import ContextId, OnOutput, Stream
from quarterdeck_protocol.tools import CancelToken

from .command_sessions import session
from .shells import PlayedProcess, PlayedShell

pytestmark = pytest.mark.process


async def test_what_a_job_writes_is_in_its_files_while_the_session_lasts(tmp_path: Path) -> None:
    """What the buffer has dropped could not be looked up."""
    async with session(tmp_path) as s:
        table = JobTable("job", f"{s.workspace}/.indusvx-bg")
        job = await table.start(s.shell, "seq 5000; exec sleep 4401.5")
        out = s.workspace / ".indusvx-bg" / "job-1.out"
        expected = "".join(f"{number}\n" for number in range(1, 5001))
        await eventually_async(lambda: out.read_text() == expected)
        assert job.lines[Stream.STDOUT].all_lines().missed == 3_000
        await table.aclose()
        assert not running_with("4401.5")
        assert not out.parent.exists()


async def test_a_planted_link_costs_the_files_and_nothing_else(tmp_path: Path) -> None:
    """A command could have its successor write outside of the workspace, or keep it from starting."""
    outside = tmp_path / "outside"
    outside.mkdir()
    async with session(tmp_path) as s:
        await s.shell.exec(f"ln -s {outside} .indusvx-bg")
        table = JobTable("job", f"{s.workspace}/.indusvx-bg")
        job = await table.start(s.shell, "echo still")
        await eventually_async(lambda: not job.is_running)
        assert job.lines[Stream.STDOUT].all_lines().lines == ("still",)
        assert job.captures == {}
        assert ".indusvx-bg" in job.no_captures
        await table.aclose()
    assert os.listdir(outside) == []


async def test_the_end_of_a_context_ends_its_jobs_and_no_others(tmp_path: Path) -> None:
    """A session would leave processes and files behind, or end those of its neighbour."""
    shell, mine, other = PlayedShell(), ContextId(), ContextId()
    tables = [JobTable(name, str(tmp_path / name)) for name in ("job", "bg", "else")]
    for table, owner in zip(tables, (mine, mine, other), strict=True):
        adopt(table, owner)
        adopt(table, owner)
        await table.start(shell, "serve")
    await end_jobs(mine)
    assert [table.jobs[0].is_running for table in tables] == [False, False, True]
    assert os.listdir(tmp_path) == ["else"]
    with pytest.raises(JobError, match="the session has ended"):
        await tables[0].start(shell, "serve")
    await end_jobs(mine)
    await end_jobs(other)
    assert os.listdir(tmp_path) == []


async def test_so_many_may_run_and_no_more(tmp_path: Path) -> None:
    """A model in a loop would start processes until the machine stands still."""
    shell, table = PlayedShell(), JobTable("job", str(tmp_path / "captures"))
    async with anyio.create_task_group() as tasks:
        for _ in range(MAX_RUNNING):
            tasks.start_soon(table.start, shell, "serve")
    with pytest.raises(JobError, match="stop one first"):
        await table.start(shell, "serve")
    shell.started[0].end(0, None)
    await table.start(shell, "serve")
    await table.aclose()


async def test_the_oldest_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    """The table of a long session would grow without end, or forget what still runs."""
    shell, table = PlayedShell(), JobTable("job", str(tmp_path / "captures"))
    await table.start(shell, "serve")
    for _ in range(MAX_REMEMBERED + 5):
        await table.start(shell, "build")
        shell.started[-1].end(0, None)
    assert len(table.jobs) == MAX_REMEMBERED
    assert [table.jobs[0].id, table.jobs[-1].id] == ["job-1", f"job-{MAX_REMEMBERED + 6}"]
    await table.aclose()


async def test_jobs_that_said_much_are_forgotten_earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred builds that each kept megabytes would take our memory."""
    monkeypatch.setattr(jobs, "MAX_KEPT_BYTES", 1_000)
    shell, table = PlayedShell(), JobTable("job", str(tmp_path / "captures"))
    for _ in range(3):
        await table.start(shell, "build")
        process = shell.started[-1]
        assert process.on_output is not None
        process.on_output(Stream.STDOUT, b"x" * 800)
        process.end(0, None)
    assert [job.id for job in table.jobs] == ["job-3"]
    await table.aclose()


async def test_what_cannot_be_started_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    """A failed start would count as running, and leave its files."""
    shell, table = PlayedShell(), JobTable("job", str(tmp_path / "captures"))
    shell.problem = "no sandbox: do this"
    with pytest.raises(JobError, match="no sandbox: do this"):
        await table.start(shell, "serve")
    assert table.jobs == ()
    shell.problem = ""
    assert (await table.start(shell, "serve")).id == "job-2"
    await table.aclose()
    assert os.listdir(tmp_path) == []


async def test_a_start_that_the_end_of_the_session_overtakes_is_stopped(tmp_path: Path) -> None:
    """A process could slip through the end of its session."""
    shell, table = PlayedShell(), JobTable("job", str(tmp_path / "captures"))
    reached, go_on = anyio.Event(), anyio.Event()
    spawn = shell.spawn

    async def late(command: str, *, on_output: OnOutput | None = None) -> PlayedProcess:
        reached.set()
        await go_on.wait()
        return await spawn(command, on_output=on_output)

    shell.spawn = late  # type: ignore[method-assign,assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(table.start, shell, "serve")
        await reached.wait()
        await table.aclose()
        go_on.set()
    assert shell.started[0].graces
    await table.aclose()


async def test_a_job_whose_call_was_cancelled_while_it_started_is_ended(tmp_path: Path) -> None:
    """Nobody would be told its id, and it would run until the session ends."""
    cancel, table, shell = CancelToken(), JobTable("job", str(tmp_path / "captures")), PlayedShell()
    cancel.cancel()
    with pytest.raises(JobError, match="cancelled"):
        await table.start(shell, "serve", cancel)
    assert len(shell.started[0].graces) == 1
    assert table.jobs == ()
    await table.aclose()
