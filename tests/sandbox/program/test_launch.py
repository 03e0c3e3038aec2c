"""Finding what to execute: as a shell would, on the server's own PATH, with a reason when it cannot be."""

import errno
import os
from pathlib import Path

import pytest

from quarterdeck_sandbox.program.launch import DEFAULT_PATH, LaunchError, LaunchPlan, exec_error, plan_launch


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def refusal(command: str, cwd: Path, path: str = DEFAULT_PATH) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        plan_launch(command, (), {"PATH": path}, str(cwd))
    return caught.value


def test_a_plan_says_all_that_is_to_be_executed(tmp_path: Path) -> None:
    """A server would be started with other arguments, or in another place."""
    tool = program(tmp_path / "bin" / "tool")
    env = {"PATH": str(tool.parent), "X": "1"}
    plan = plan_launch("tool", ["-a", "b c"], env, str(tmp_path))
    assert plan == LaunchPlan(str(tool), ("tool", "-a", "b c"), env, str(tmp_path))


def test_the_first_executable_on_the_path_wins(tmp_path: Path) -> None:
    """A file that is no program would hide the program behind it."""
    program(tmp_path / "a" / "tool", 0o644)
    (tmp_path / "b" / "tool").mkdir(parents=True)
    good = program(tmp_path / "c" / "tool")
    program(tmp_path / "d" / "tool")
    path = os.pathsep.join(str(tmp_path / name) for name in ("missing", "a", "b", "c", "d"))
    assert plan_launch("tool", (), {"PATH": path}, str(tmp_path)).program == str(good)


@pytest.mark.parametrize(
    ("command", "path", "where"),
    [
        ("./tool", "", "work/tool"),
        ("sub/tool", "", "work/sub/tool"),
        ("../tool", "", "tool"),
        ("tool", "sub", "work/sub/tool"),
        ("tool", os.pathsep, "work/tool"),
    ],
)
def test_relative_commands_and_folders_count_from_the_servers_directory(
    command: str, path: str, where: str, tmp_path: Path
) -> None:
    """Our own working directory would decide what runs."""
    cwd = tmp_path / "work"
    cwd.mkdir()
    tool = program(tmp_path / where)
    assert plan_launch(command, (), {"PATH": path or "/nowhere"}, str(cwd)).program == str(tool)


def test_a_full_path_needs_no_search(tmp_path: Path) -> None:
    """A user's exact choice would be looked up somewhere else."""
    tool = program(tmp_path / "tool")
    assert plan_launch(str(tool), (), {}, "/").program == str(tool)


@pytest.mark.parametrize("env", [{}, {"PATH": ""}])
def test_without_a_path_the_usual_places_are_searched(env: dict[str, str]) -> None:
    """A server with an environment of its own would find nothing."""
    assert plan_launch("sh", (), env, "/").program in {f"{folder}/sh" for folder in DEFAULT_PATH.split(":")}


@pytest.mark.parametrize("command", ["no-such-tool", "x" * 300, "./no-such-tool", "/no/such/tool"])
def test_a_missing_command_says_where_it_was_looked_for(command: str, tmp_path: Path) -> None:
    """A user would not know whether to install it or to correct the path."""
    error = refusal(command, tmp_path)
    assert error.code == "command_not_found"
    assert command in str(error)
    if "/" not in command:
        assert DEFAULT_PATH in str(error)


def test_what_is_no_program_says_which_file_it_was(tmp_path: Path) -> None:
    """A user would look for a missing file that is there."""
    plain = program(tmp_path / "bin" / "tool", 0o644)
    for error in (refusal("tool", tmp_path, str(plain.parent)), refusal(str(plain), tmp_path)):
        assert error.code == "not_executable"
        assert str(plain) in str(error)
    assert refusal(str(tmp_path), tmp_path).code == "not_executable"


def test_a_bad_working_directory_is_told_first(tmp_path: Path) -> None:
    """A typing error in `cwd` would look like a missing command."""
    missing, plain = tmp_path / "missing", tmp_path / "file"
    plain.touch()
    assert refusal("no-such-tool", missing).code == "bad_cwd"
    assert "does not exist" in str(refusal("sh", missing))
    assert "not a directory" in str(refusal("sh", plain))


def test_a_working_directory_that_may_not_be_entered_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server would fail with the kernel's bare words."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "may not be entered" in str(refusal("sh", tmp_path))


@pytest.mark.parametrize("command", ["/" + "x" * 300, "./" + "x" * 300])
def test_a_name_that_no_file_can_have_is_a_missing_command(command: str, tmp_path: Path) -> None:
    """A typing error would be told as a failure of ours."""
    assert refusal(command, tmp_path).code == "command_not_found"


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOENT, "command_not_found", "interpreter"),
        (errno.ENOEXEC, "not_executable", "#!"),
        (errno.EACCES, "not_executable", "may not be executed"),
        (errno.E2BIG, "spawn_failed", "too large"),
        (errno.ENOMEM, "spawn_failed", os.strerror(errno.ENOMEM)),
    ],
)
def test_each_way_in_which_exec_fails_is_said_in_words(number: int, code: str, words: str) -> None:
    """A user would be shown a number."""
    error = exec_error(number, LaunchPlan("/bin/tool", ("tool",), {}, "/"))
    assert error.code == code
    assert words in str(error)
    assert "/bin/tool" in str(error)
