"""ripgrep as a command of the session: what is run, and how it may end."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.processes.leftovers import running_with
from support.tools.contexts import inert_context
from support.tools.file_tools import context_in
from support.tools.searches import PlayedShell, session_in, with_shell
from support.waiting import eventually_async

from quarterdeck.tools.context import ExecResult, OnOutput, OutsideRootsError, Stream
from quarterdeck.tools.search import ripgrep
from quarterdeck.tools.search.ripgrep import (
    Ending,
    NotRun,
    Searched,
    SearchTarget,
    find_target,
    run_ripgrep,
    what_is_missing,
    with_progress,
)
from quarterdeck_protocol.tools import CancelToken, ProgressNote

SEARCH = ("--line-number",), "a pattern"


def nothing(_: bytes) -> bool:
    return False


async def played(tmp_path: Path, play: Callable[[OnOutput, CancelToken], ExecResult]) -> Searched | NotRun:
    """How a search ends whose command plays this."""
    return await run_ripgrep(with_shell(tmp_path, PlayedShell(play)), "/place", nothing, *SEARCH)


def raising(error: BaseException) -> Callable[..., Any]:
    def play(*_: object) -> ExecResult:
        raise error

    return play


async def test_a_missing_ripgrep_is_told_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would not know what to install."""
    monkeypatch.setattr(ripgrep, "ripgrep_path", lambda: None)
    ended = await played(tmp_path, raising(AssertionError("nothing is run")))
    assert isinstance(ended, NotRun)
    assert "pip install 'quarterdeck[native]'" in ended.reason


async def test_pattern_and_place_are_never_taken_for_options(tmp_path: Path) -> None:
    """A pattern such as `--pre=sh` would run programs."""
    shell = PlayedShell(lambda *_: ExecResult("", "", 1))
    await run_ripgrep(with_shell(tmp_path, shell), "--files", nothing, (), "--pre=$(id)")
    [command], [environment] = shell.commands, shell.environments
    assert command.endswith('-e "$QUARTERDECK_PATTERN" -- "$QUARTERDECK_PLACE"')
    assert "--no-config" in command
    assert sorted(environment.values()) == ["--files", "--pre=$(id)"]


@pytest.mark.parametrize(
    ("result", "ending", "failed"),
    [
        (ExecResult("", "", 0), Ending.COMPLETE, False),
        (ExecResult("", "", 1), Ending.COMPLETE, False),
        (ExecResult("", "", 2), Ending.COMPLETE, True),
        (ExecResult("", "", None, signal=6), Ending.KILLED, False),
        (ExecResult("", "", 0, limit="output_bytes"), Ending.KILLED, False),
    ],
)
async def test_a_search_ends_as_ripgrep_does(tmp_path: Path, result: ExecResult, ending: Ending, failed: bool) -> None:
    """A search that was cut short would look like a whole one."""
    ended = await played(tmp_path, lambda *_: result)
    assert isinstance(ended, Searched)
    assert (ended.ending, ended.failed) == (ending, failed)


async def test_a_shell_that_refuses_says_why(tmp_path: Path) -> None:
    """A model would be told nothing that it can act on."""
    assert await played(tmp_path, raising(OSError("commands are not allowed"))) == NotRun("commands are not allowed")
    ended = await run_ripgrep(inert_context(), "/place", nothing, *SEARCH)
    assert isinstance(ended, NotRun)
    assert "no commands" in ended.reason


@pytest.mark.parametrize("code", [126, 127])
async def test_a_program_that_commands_cannot_see_is_told(tmp_path: Path, code: int) -> None:
    """An invisible program would look like a wrong pattern."""

    def play(write: OnOutput, _: CancelToken) -> ExecResult:
        write(Stream.STDERR, b"sh: rg: not found\n")
        return ExecResult("", "", code)

    ended = await played(tmp_path, play)
    assert isinstance(ended, NotRun)
    assert "hidden" in ended.reason
    assert "not found" in ended.reason


async def test_enough_stops_the_command(tmp_path: Path) -> None:
    """A search for a common word would read the whole disk for ten lines."""
    taken = []

    def play(write: OnOutput, cancel: CancelToken) -> ExecResult:
        write(Stream.STDOUT, b"one")
        write(Stream.STDOUT, b"two")
        assert cancel.cancelled
        raise OSError("cancelled")

    def take(data: bytes) -> bool:
        taken.append(data)
        return True

    ended = await run_ripgrep(with_shell(tmp_path, PlayedShell(play)), "/place", take, *SEARCH)
    assert isinstance(ended, Searched)
    assert ended.ending is Ending.ENOUGH
    assert taken == [b"one"]


@pytest.mark.process
async def test_a_cancelled_call_stops_the_command(tmp_path: Path) -> None:
    """A user who stops a search would not stop what it runs."""
    workspace = tmp_path / "w"
    workspace.mkdir()
    os.mkfifo(workspace / "pipe-7151")  # named as the place, it is waited for
    (workspace / "pipe-7151").chmod(0o666)
    async with session_in(workspace, tmp_path / "s") as ctx:
        place = str(workspace / "pipe-7151")
        token = CancelToken()
        running = asyncio.ensure_future(run_ripgrep(ctx.with_cancel(token), place, nothing, ("--line-number",), "x"))
        await eventually_async(lambda: running_with("pipe-7151"))
        token.cancel()
        ended = await running
        assert isinstance(ended, Searched)
        assert ended.ending is Ending.CANCELLED
        running = asyncio.ensure_future(run_ripgrep(ctx, place, nothing, ("--line-number",), "x"))
        await eventually_async(lambda: running_with("pipe-7151"))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not running_with("pipe-7151")


async def test_progress_is_told_while_work_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would give up a long search that it hears nothing of."""
    monkeypatch.setattr(ripgrep, "TELL_S", 0.01)
    heard = anyio.Event()
    notes: list[ProgressNote] = []

    def report(note: ProgressNote) -> None:
        notes.append(note)
        if len(notes) == 2:
            heard.set()

    ctx = with_shell(tmp_path, PlayedShell(raising(AssertionError())))
    ctx = ctx.with_cancel(CancelToken(), report)

    async def work() -> str:
        await heard.wait()
        return "done"

    assert await with_progress(ctx, lambda: "3 files so far", work()) == "done"
    assert notes[0].message == "3 files so far"
    assert notes[1].progress > notes[0].progress


async def test_searches_of_one_session_take_turns_and_another_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks for a hundred searches would start a hundred sandboxes."""
    monkeypatch.setattr(ripgrep, "AT_A_TIME", 2)
    go = anyio.Event()

    class WaitingShell(PlayedShell):
        async def exec(self, command: str, **given: Any) -> ExecResult:
            self.commands.append(command)
            await go.wait()
            return ExecResult("", "", 1)

    shell = WaitingShell(lambda *_: ExecResult("", "", 1))
    busy = with_shell(tmp_path, shell)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run_ripgrep, busy, "/place", nothing, *SEARCH)
        await eventually_async(lambda: len(shell.commands) >= 2)
        assert isinstance(await played(tmp_path, lambda *_: ExecResult("", "", 1)), Searched)
        assert len(shell.commands) == 2
        with monkeypatch.context() as patch:
            patch.setattr(ripgrep, "DEADLINE_S", 0.01)
            ended = await run_ripgrep(busy, "/place", nothing, *SEARCH)
        assert isinstance(ended, NotRun)
        assert "fewer at a time" in ended.reason
        go.set()
    assert len(shell.commands) == 3


@pytest.mark.parametrize(
    ("cwd", "path", "shown"),
    [
        ("/w", b"/w/a/b", "a/b"),
        ("/w", b"/w", "/w"),
        ("/w", b"/w/", "."),
        ("/w", b"/wide/a", "/wide/a"),
        ("/", b"/a", "a"),
        ("/w", b"/w/caf\xe9\n", "caf\\udce9\\n"),
    ],
)
def test_paths_are_shown_so_that_other_tools_take_them(cwd: str, path: bytes, shown: str) -> None:
    """A model could not read the file that it has found."""
    assert SearchTarget("x", "/w", is_directory=True, cwd=cwd).show(path) == shown


def real_place(path: Path) -> str:
    return str(path.resolve())


async def test_a_place_is_where_its_path_leads(tmp_path: Path) -> None:
    """What is found through a link would be named by a path that the tools refuse."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("")
    (tmp_path / "link").symlink_to("a")
    ctx = context_in(tmp_path)
    real = real_place(tmp_path)
    assert await find_target(ctx, "link/f") == SearchTarget("link/f", f"{real}/a/f", is_directory=False, cwd=real)
    assert await find_target(ctx, None) == SearchTarget("the working directory", real, is_directory=True, cwd=real)
    (tmp_path / "out").symlink_to("..")
    for path in ("..", "out"):
        with pytest.raises(OutsideRootsError):
            await find_target(ctx, path)
    with pytest.raises(FileNotFoundError):
        await find_target(ctx, "nowhere")


@pytest.mark.parametrize(
    ("ending", "unreadable", "complaint", "said"),
    [
        (Ending.COMPLETE, 0, "", []),
        (Ending.ENOUGH, 0, "", []),
        (Ending.DEADLINE, 0, "", ["stopped after 60 s"]),
        (Ending.KILLED, 0, "", ["a limit or a fault of its own"]),
        (Ending.KILLED, 0, "first\nended: too much\n", ["ended: too much"]),
        (Ending.DEADLINE, 1, "", ["stopped after", "1 path could not be read"]),
        (Ending.COMPLETE, 1200, "", ["1,200 paths could not be read"]),
    ],
)
def test_what_may_have_been_missed_is_said(ending: Ending, unreadable: int, complaint: str, said: list[str]) -> None:
    """A model would take a part for the whole."""
    lines = what_is_missing(Searched(ending, unreadable, "", complaint, failed=False))
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))
