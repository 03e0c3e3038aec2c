"""`quarterdeck allow`: following a remedy ends in a server that runs, not in one that is held."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.config.places import write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked, serving
from support.processes.programs import SERVERS, server_argv
from support.serves.shared_serve import open_folder
from support.waiting import eventually

from quarterdeck.config.places.paths import state_dir
from quarterdeck_protocol.faults import NOTHING_TO_ADD


@pytest.fixture
def folder(own_directories: Path) -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def fault(config: Path) -> dict[str, object]:
    """Why the one server is not up; empty once it is, and while it connects."""
    [server] = quarterdeck_json_forked("ps", "-c", str(config))["servers"]
    return dict(server["fault"] or {}, phase=server["phase"])


def test_a_serve_that_runs_starts_the_server_with_what_its_remedy_gave_it(folder: Path) -> None:
    """A user who does what a message says would be told to do something else."""
    program, *args = server_argv("echo")
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"echo": {"command": program, "args": args}}}, indent=2))
    with serving(config, is_forked=True) as client:
        client.initialize()
        eventually(lambda: fault(config).get("code") == "sandbox_refused", DEADLINE_S, "its program is hidden")
        remedy = str(fault(config)["remedy"])
        assert remedy.startswith(f"quarterdeck allow echo -c {config} ")
        words = shlex.split(remedy.partition(" gives it")[0])[1:]
        asked = quarterdeck_forked(*words)
        assert asked.returncode == 2, "confirmation needed, and there is no terminal"
        assert "sandbox" not in config.read_text()
        shown = quarterdeck_forked(*words, "--dry-run")
        assert shown.returncode == 0
        assert str(SERVERS) in shown.stdout or str(SERVERS.parent.parent) in shown.stdout
        assert "sandbox" not in config.read_text()
        done = quarterdeck_forked(*words, "--read", str(SERVERS), "--yes")
        assert done.returncode == 0, done.stderr
        eventually(lambda: fault(config)["phase"] == "ready", DEADLINE_S, "it runs")
    assert json.loads(config.read_text())["mcpServers"]["echo"]["sandbox"] == {"read": [str(SERVERS)]}
    again = quarterdeck_forked("allow", "echo", "-c", str(config), "--read", str(SERVERS), "--yes")
    assert (again.returncode, "has that access already" in again.stdout) == (0, True)


def test_an_import_with_one_yes_ends_with_a_server_that_works(folder: Path) -> None:
    """A person would import servers, see none of their tools, and take the wall down."""
    program, *args = server_argv("echo")
    config, store = folder / "mcp.json", folder / "store"
    row = {"command": program, "args": args, "env": {"STORE_DIR": str(store)}}
    theirs = write_config(folder / "theirs.json", echo=row)
    done = quarterdeck_forked("config", "import", str(theirs), "--to", str(config), "--yes")
    assert done.returncode == 0, done.stderr
    assert "variable STORE_DIR" in done.stdout
    assert store.is_dir()
    called = quarterdeck_forked("call", "-c", str(config), "echo__echo", json.dumps({"text": "it works"}))
    assert (called.returncode, "it works" in called.stdout) == (0, True), called.stderr


def test_a_row_with_anything_else_that_waits_is_not_approved_beside(folder: Path) -> None:
    """Who gives a folder would approve a command that somebody else has written meanwhile."""
    program, *args = server_argv("echo")
    row = {"command": program, "args": args, "sandbox": {"read": [str(SERVERS)]}}
    config = folder / "mcp.json"
    write_config(config, echo=row)
    assert quarterdeck_forked("tools", "-c", str(config)).returncode == 0
    write_config(config, echo={**row, "args": [*args, "--evil"]})
    before = config.read_text()
    refused = quarterdeck_forked("allow", "echo", "-c", str(config), "--read", str(folder), "--yes")
    assert refused.returncode == 2
    assert f"quarterdeck trust approve echo --all -c {config}" in refused.stderr
    assert config.read_text() == before


def test_a_projects_file_and_what_may_never_be_given_stay_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloned repository would be given the user's files, or a server our own state."""
    program, *args = server_argv("echo")
    document = json.dumps({"mcpServers": {"echo": {"command": program, "args": args}}})
    for name in ("home", "project"):
        (folder / name).mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    project, named = folder / "project" / ".mcp.json", folder / "mcp.json"
    for path in (project, named):
        path.write_text(document)
    of_project = quarterdeck_forked("allow", "echo", "--yes", cwd=project.parent)
    assert (of_project.returncode, "project's file" in of_project.stderr) == (2, True), of_project.stderr
    os.makedirs(state_dir(), exist_ok=True)
    ours = quarterdeck_forked("allow", "echo", "-c", str(named), "--write", str(state_dir()), "--yes")
    assert (ours.returncode, "quarterdeck's own" in ours.stderr) == (2, True), ours.stderr
    assert project.read_text() == named.read_text() == document


def test_what_no_hint_may_give_is_refused_alike_by_a_start_a_check_and_allow(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`config check` would advise `allow`, which does nothing and ends with exit code 0."""
    home = folder / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    config = write_config(folder / "mcp.json", files={"command": "cat", "args": [str(home)]})
    whom = ("-c", str(config))
    checked = quarterdeck_forked("config", "check", *whom, "--json")
    assert checked.returncode == 2
    [refused] = json.loads(checked.stdout)["refused"]
    assert NOTHING_TO_ADD in refused["why"]
    assert "allow" not in refused["fix"]
    allowed = quarterdeck_forked("allow", "files", *whom, "--yes")
    assert allowed.returncode == 2
    assert f"{home} is not offered: " in allowed.stderr
    assert "sandbox" not in config.read_text()
