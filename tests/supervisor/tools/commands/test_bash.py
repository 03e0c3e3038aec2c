"""`bash`, with real commands that behave as badly as they can."""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes.identities import give_to_commands
from support.processes.leftovers import running_with
from support.sandbox.machine_facts import ROOT_ONLY
from support.tools.file_tools import Answer, call, outcome_of
from support.waiting import eventually_async

from quarterdeck.tools.commands import bash as module
from quarterdeck.tools.commands.bash import MAX_TIMEOUT_MS, bash_tool
from quarterdeck.tools.commands.output import Excerpt
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.runner import OverflowFiles
from quarterdeck_protocol.tools import CancelToken, ProgressNote, ToolCall

from .command_sessions import is_run, lay_out, session

pytestmark = pytest.mark.process

BASH = bash_tool()


async def bash(ctx: ToolContext, command: str, cancel: CancelToken | None = None, **given: object) -> Answer:
    return await call(BASH, ctx, cancel, command=command, **given)


def last_line(answer: Answer) -> str:
    return answer.text.splitlines()[-1]


async def test_both_streams_and_the_status_are_told(tmp_path: Path) -> None:
    """A model could not tell what a command said, whether it worked, or a crash from an exit."""
    async with session(tmp_path) as s:
        done = await bash(s.ctx, "echo out; echo err >&2", timeoutMs=59_999.5)
        assert done == Answer("stdout:\nout\n\nstderr:\nerr\n\nstatus: exited with code 0", is_error=False)
        failed = await bash(s.ctx, "printf 'no newline'; exit 3")
        assert failed == Answer("stdout:\nno newline\n\nstatus: exited with code 3", is_error=True)
        silent = await bash(s.ctx, "true", timeoutMs=10 * MAX_TIMEOUT_MS)  # of which ten minutes count
        assert silent == Answer("No output.\n\nstatus: exited with code 0", is_error=False)
        killed = await bash(s.ctx, "kill -KILL $$")
        assert killed.is_error
        told = "status: ended by signal SIGKILL, or exited with code 137, which looks the same"
        assert last_line(killed) == told
        waiting = await bash(s.ctx, "read answer || echo nobody answered; cat")
        assert ("nobody answered" in waiting.text, waiting.is_error) == (True, False)


async def test_a_limit_is_named(tmp_path: Path) -> None:
    """A model would look for a bug in its program."""
    async with session(tmp_path, limits={"wall_s": 0.2}) as s:
        done = await bash(s.ctx, "echo before; sleep 60")
        assert "before" in done.text
        assert "limit wall_s" in last_line(done)
        assert done.is_error


async def test_what_was_written_before_the_deadline_is_told(tmp_path: Path) -> None:
    """The output that says why it hangs would be lost, and what it started live on."""
    async with session(tmp_path) as s:
        command = "echo waiting for the lock; trap '' TERM; setsid sleep 4501.5 & sleep 4501.5; sleep 4501.5"
        done = await bash(s.ctx, command, timeoutMs=300)
        assert done.is_error
        assert "waiting for the lock" in done.text
        assert last_line(done) == (
            "status: still running after 0.3 s, so it was ended with all that it had started; "
            "its output until then is above"
        )
        assert not running_with("4501.5")


async def test_a_long_report_is_cut_and_kept_whole_in_a_file(tmp_path: Path) -> None:
    """A model's context would be filled by one command, or the middle of its output be lost."""
    async with session(tmp_path) as s:
        folder = tmp_path / "outputs"
        folder.mkdir()
        ctx = replace(s.ctx, overflow=OverflowFiles(folder))
        done = await bash(ctx, "seq 100000")
        assert len(done.text) < 70_000
        assert done.text.endswith("100000\n\nstatus: exited with code 0")
        [kept] = folder.iterdir()
        assert str(kept) in done.text
        assert "\n50000\n" in kept.read_text()


async def test_a_directory_can_be_named_and_not_left(tmp_path: Path) -> None:
    """A command would run where the session may not be."""
    async with session(tmp_path) as s:
        (s.workspace / "sub").mkdir()
        (s.workspace / "out").symlink_to("/etc")
        give_to_commands(s.workspace / "sub")
        assert f"{s.workspace}/sub\n" in (await bash(s.ctx, "pwd -P", cwd="sub")).text
        assert f"{s.workspace}/sub\n" in (await bash(s.ctx, "pwd -P", cwd=f"{s.workspace}/sub")).text
        for path in ("..", "/etc", "out", "sub/../../state"):
            refused = await bash(s.ctx, "pwd", cwd=path)
            assert refused.is_error
            assert str(s.workspace) in refused.text
        for path in ("missing", "missing/below", "sub\0"):
            assert (await bash(s.ctx, "pwd", cwd=path)).is_error


async def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    """A model could not mend its call."""
    async with session(tmp_path) as s:
        for command in ("", " \n\t", "a\0b", "a\ud800", "x" * 200_000):
            done = await bash(s.ctx, command)
            assert done.is_error
            assert "status" not in done.text
            assert len(done.text) < 1_000


async def test_a_cancelled_call_ends_its_command_and_tells_what_it_wrote(tmp_path: Path) -> None:
    """A user who stops an agent would not stop what it started."""
    async with session(tmp_path) as s:
        token = CancelToken()
        calling = asyncio.ensure_future(bash(s.ctx, "echo begun; trap '' TERM; sleep 4503.5; sleep 4503.5", token))
        # What is cancelled while it is being started is not read: its last step may come after the program's first.
        await eventually_async(lambda: s.shell.running and is_run("sleep 4503.5"))
        token.cancel()
        done = await calling
        assert done.is_error
        assert "begun" in done.text
        assert last_line(done) == "status: cancelled, and ended with all that it had started"
        assert not running_with("4503.5")


async def test_progress_tells_the_last_line_as_it_comes(tmp_path: Path) -> None:
    """A client that waits for a long build would see nothing of it."""
    notes: list[ProgressNote] = []
    async with session(tmp_path) as s:
        os.mkfifo(s.workspace / "go")
        give_to_commands(s.workspace / "go")
        call_ = ToolCall("1", "bash", {"command": "echo one; echo two; read _ <go; printf %0300d 7"}, notes.append)
        calling = asyncio.ensure_future(BASH.invoke(call_, s.ctx.with_cancel(CancelToken(), call_.report)))
        await eventually_async(lambda: notes and notes[-1].message == "two")
        assert notes[-1].progress == 8
        await asyncio.to_thread((s.workspace / "go").write_text, "\n")
        assert not (await calling).is_error
    assert all(len(note.message or "") <= 201 for note in notes)


async def test_notes_of_a_flood_are_few_and_none_comes_after_its_end(tmp_path: Path) -> None:
    """A command that floods would flood the client, too; or it get notes of a call that it has an answer to."""
    notes: list[ProgressNote] = []
    async with session(tmp_path) as s:
        call_ = ToolCall("1", "bash", {"command": "yes", "timeoutMs": 500}, notes.append)
        await BASH.invoke(call_, s.ctx.with_cancel(CancelToken(), call_.report))
        told = len(notes)
        await asyncio.sleep(2 * module.NOTE_S)
    assert len(notes) == told
    # The rest of the call, on a slow machine, may last; a flood without a bound has thousands.
    assert 1 <= len(notes) <= 50
    assert [note.progress for note in notes] == sorted(note.progress for note in notes)


@ROOT_ONLY
async def test_in_a_workspace_of_roots_commands_run_as_root_without_capabilities(tmp_path: Path) -> None:
    """In a container, where everything is root's, no command would run, or none that root has installed for itself."""
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    (own / "tool").write_text("#!/bin/sh\nid -u; grep CapEff /proc/self/status\n")
    (own / "tool").chmod(0o700)
    bench = lay_out(tmp_path, {"PATH": f"{own}:/usr/bin:/bin"})
    os.chown(bench.workspace, 0, 0)
    async with session(tmp_path, bench) as s:
        outcome = await outcome_of(BASH, s.ctx, command="tool; echo x >made")
        assert not outcome.is_error, outcome
        assert "0\nCapEff:\t0000000000000000" in str(outcome.output)
    assert (tmp_path / "workspace" / "made").stat().st_uid == 0


async def test_a_long_report_is_put_together_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes that are no text would hold up every other client for a tenth of a second and more."""
    threads = set[int]()
    text = Excerpt.text

    def noted(excerpt: Excerpt) -> str:
        threads.add(threading.get_ident())
        return text(excerpt)

    monkeypatch.setattr(Excerpt, "text", noted)
    async with session(tmp_path) as s:
        done = await bash(s.ctx, "head -c 1000000 /dev/urandom; echo; echo last")
    assert done.text.endswith("last\n\nstatus: exited with code 0")
    assert threads - {threading.get_ident()} == threads
