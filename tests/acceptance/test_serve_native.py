"""`quarterdeck serve --profile`: how it starts, what it offers, how it ends, and who finds it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.raw_client import RawStdioClient
from support.processes.commands import DEADLINE_S, quarterdeck_forked
from support.processes.leftovers import assert_gone, descendants, no_leftovers, running_with
from support.serves.native_serves import (
    ALL,
    AUTHORING,
    SURVEY,
    forked_serve,
    make_project,
    serve_argv,
    sessions_of,
    text_of,
)
from support.waiting import eventually

from quarterdeck.config.places.paths import workspace_paths


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """A directory of an ordinary user's, whose commands may run; no process of the test is left at the end."""
    with no_leftovers(DEADLINE_S):
        yield make_project(tmp_path / "workspace")


def test_a_profile_alone_needs_no_configuration(workspace: Path) -> None:
    """A user without servers would have to write an empty file, or an agent that may only look could change files."""
    with forked_serve(workspace, "authoring") as client:
        assert client.initialize()["serverInfo"]["name"] == "quarterdeck"
        assert [tool["name"] for tool in client.list_tools()] == AUTHORING
        assert client.call("memory", action="read")["isError"]
        assert client.call("write", path="new.txt", content="x")["isError"]
    assert not (workspace / "new.txt").exists()
    assert sessions_of(workspace_paths(workspace)) == []


@pytest.mark.nightly
def test_a_signal_ends_the_serve_of_a_profile_and_the_command_that_runs(workspace: Path) -> None:
    """A service manager would have to kill it, and the command would run on; or a profile would lack what it names."""
    with RawStdioClient(serve_argv(workspace, "survey"), deadline_s=DEADLINE_S) as client:
        assert client.initialize()["serverInfo"]["name"] == "quarterdeck"
        assert [tool["name"] for tool in client.list_tools()] == SURVEY
        assert client.call("memory", action="read")["isError"]
        assert not client.call("write", path="new.txt", content="x").get("isError")
        client.send("tools/call", {"name": "bash", "arguments": {"command": "trap '' TERM; sleep 4718.25"}})
        eventually(lambda: running_with("sleep 4718.25"), DEADLINE_S)
        client.process.terminate()
        assert client.process.wait(DEADLINE_S) == 0
        assert "Traceback" not in client.stderr_text()
    assert not running_with("sleep 4718.25")
    assert (workspace / "new.txt").read_text() == "x"
    (kept,) = sessions_of(workspace_paths(workspace))
    assert sorted(path.name for path in kept.directory.iterdir()) == ["checkpoints", "lock"]


def test_a_session_ends_with_nothing_left_but_what_can_be_undone(workspace: Path) -> None:
    """Servers that an agent started would hold their ports, and a disk would fill; or an edit could not be undone."""
    paths = workspace_paths(workspace)
    with forked_serve(workspace) as client:
        client.initialize()
        for tool in ("bg-process", "process"):
            started = client.call(tool, action="start", command="echo up; (setsid sleep 4712.25 &); exec sleep 4712.25")
            assert not started.get("isError"), started
        client.call("write", path="README.md", content="overwritten")
        client.call("read", path="README.md")
        client.call("write", path="README.md", content="# Another\n")
        client.call("memory", action="append", content="a note")
        cut = text_of(client.call("bash", command="seq 1 40000"))
        capture = Path(cut.partition("the full text is in ")[2].partition("]")[0])
        assert capture.is_file()
        eventually(lambda: len(running_with("sleep 4712.25")) >= 4, DEADLINE_S)
        below = descendants(client.process.pid)
        (live,) = sessions_of(paths)
        assert live.captures.is_dir()
        client.close_stdin()
        assert client.process.wait(DEADLINE_S) == 0
    assert_gone(below)
    assert not running_with("sleep 4712.25")
    assert not capture.exists()
    (kept,) = sessions_of(paths)
    assert sorted(path.name for path in kept.directory.iterdir()) == ["checkpoints", "lock", "memory.md"]
    assert not (workspace / ".indusvx-bg").exists()


def test_a_killed_serve_leaves_no_command_and_the_next_one_tidies(workspace: Path) -> None:
    """Commands would run on without an owner, and outputs pile up."""
    with forked_serve(workspace) as client:
        client.initialize()
        client.call("bg-process", action="start", command="echo up; exec sleep 4713.25")
        eventually(lambda: running_with("sleep 4713.25"), DEADLINE_S)
        client.call("memory", action="append", content="a note")
        below = descendants(client.process.pid)
        client.process.kill()
        client.process.wait()
    assert_gone(below)
    (left,) = sessions_of(workspace_paths(workspace))
    assert left.captures.is_dir()
    with forked_serve(workspace) as client:
        client.initialize()
        client.list_tools()
        assert not left.captures.exists()
        assert left.memory.read_text() == "a note"


def test_commands_find_the_serve_of_their_workspace(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one command starts no other could stop, or a command that may only look would change files."""
    listing = ("call", "bg-process", '{"action": "list"}')
    with forked_serve(workspace) as client:
        client.initialize()
        assert [tool["name"] for tool in client.list_tools()] == ALL
        start = '{"action": "start", "command": "sleep 4717.25"}'
        assert "bg-1" in quarterdeck_forked("call", "bg-process", start, "--profile", "all", cwd=workspace).stdout
        assert running_with("sleep 4717.25")
        monkeypatch.chdir(workspace)
        assert "bg-1 [running]" in quarterdeck_forked(*listing, "--profile", "all").stdout
        assert "bg-1" not in text_of(client.call("bg-process", action="list"))
        of_its_own = quarterdeck_forked(*listing, "--profile", "all", "--own")
        assert of_its_own.returncode == 0
        assert "bg-1" not in of_its_own.stdout
        assert quarterdeck_forked(*listing, "--profile", "authoring").returncode == 3
        client.close_stdin()
        assert client.process.wait(DEADLINE_S) == 0
    assert not running_with("sleep 4717.25")
