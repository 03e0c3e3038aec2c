"""Putting quarterdeck into other programs' files, and taking it out."""

import json
import os
from pathlib import Path

import pytest
from support.clients.client_commands import Run, commands, home_of, write

from quarterdeck.config.clients import link_entry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(link_entry, "own_command", lambda: ("/opt/quarterdeck",))
    return home_of(tmp_path, monkeypatch)


@pytest.fixture
def run() -> Run:
    return commands()


def row(path: Path, section: str = "mcpServers", name: str = "quarterdeck") -> object:
    return json.loads(path.read_text())[section][name]


def test_several_clients_are_linked_and_unlinked_again(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user would have to edit three files by hand, or find them changed after trying us."""
    desktop = write(home / ".config" / "Claude" / "claude_desktop_config.json", {"theme": "dark"})
    cursor = write(home / ".cursor" / "mcp.json", {"mcpServers": {"x": {"command": "y", "env": {"TOKEN": "hunter2x"}}}})
    code = write(home / ".config" / "Code" / "User" / "mcp.json", '{\n\t// mine\n\t"servers": {},\n}\n')
    before = {path: path.read_bytes() for path in (desktop, cursor, code)}
    clients = ["claude-desktop", "cursor", "vscode"]
    assert run("link", *clients) == 0
    out = capsys.readouterr().out
    assert '+    "quarterdeck": {' in out
    assert "hunter2x" not in out
    assert row(desktop) == {"command": "/opt/quarterdeck", "args": ["serve"]}
    assert row(cursor) == {"type": "stdio", "command": "/opt/quarterdeck", "args": ["serve"]}
    assert "// mine" in code.read_text()
    assert run("link", *clients) == 0
    assert capsys.readouterr().out.count("nothing to do") == 3
    assert len(os.listdir(cursor.parent)) == 2
    assert run("unlink", *clients) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert run("unlink", *clients) == 0


def test_what_serve_is_to_serve_is_named_absolutely(home: Path, run: Run) -> None:
    """The client starts us somewhere else, where no such file is."""
    (home / ".claude").mkdir()
    write(Path("my.json"), {"mcpServers": {}})
    Path("allowed").mkdir()
    options = ["--config", "my.json", "--profile", "survey", "--workspace", ".", "--allow-dir", "allowed"]
    assert run("link", "claude-code", "--name", "deck", *options, "--tools", "read") == 0
    here = str(Path.cwd())
    assert row(home / ".claude.json", name="deck") == {
        "type": "stdio",
        "command": "/opt/quarterdeck",
        "args": [
            *("serve", "--config", f"{here}/my.json", "--profile", "workspace", "--workspace", here),
            *("--allow-dir", f"{here}/allowed", "--tools", "read"),
        ],
    }
    assert run("unlink", "claude-code", "--name", "deck") == 0
    assert json.loads((home / ".claude.json").read_text()) == {"mcpServers": {}}


def test_a_dry_run_shows_all_and_changes_nothing(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody could look first."""
    path = write(home / ".cursor" / "mcp.json", "{}")
    assert run("link", "cursor", "--dry-run", "--json") == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["path"] == str(path)
    assert not report["changed"]
    assert report["backup"] is None
    assert any("/opt/quarterdeck" in line for line in report["diff"])
    assert os.listdir(path.parent) == ["mcp.json"]
    assert path.read_text() == "{}"


def test_programs_are_told_in_json(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A script could not tell what was changed, nor find the copy."""
    path = write(home / ".cursor" / "mcp.json", "{}")
    assert run("link", "cursor", "--json") == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["client"] == "cursor"
    assert report["changed"]
    assert Path(report["backup"]).read_text() == "{}"
    assert run("unlink", "cursor", "--json") == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["changed"]
    assert path.read_text() == "{}"


def test_a_client_that_is_not_installed_is_told(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A file would be made that nobody reads, and the user wait for tools."""
    assert run("link", "windsurf") == 3
    assert "is not installed" in capsys.readouterr().err
    assert os.listdir(home) == []
    assert run("link", "windsurf", "--create") == 0
    made = home / ".codeium" / "windsurf" / "mcp_config.json"
    assert row(made) == {"command": "/opt/quarterdeck", "args": ["serve"]}
    assert made.stat().st_mode & 0o777 == 0o600
    assert run("unlink", "cursor") == 0
    assert "nothing to do" in capsys.readouterr().out


def test_one_file_that_cannot_be_used_leaves_all_as_they_are(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user would be left with half of what was asked for, or with a broken file that is now empty."""
    cursor = write(home / ".cursor" / "mcp.json", "{}")
    broken = write(home / ".claude.json", '{"mcpServers": {')
    assert run("link", "cursor", "claude-code") == 2
    assert str(broken) in capsys.readouterr().err
    assert (cursor.read_text(), broken.read_text()) == ("{}", '{"mcpServers": {')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["emacs"], "the clients are claude-desktop"),
        (["cursor", "--config", "none.json"], "is not a file"),
        (["cursor", "--profile", "all", "--workspace", "none"], "none"),
        (["claude-desktop", "--profile", "all"], "add --workspace"),
    ],
)
def test_what_serve_would_refuse_is_refused_now(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """The client would show a server that does not start, and not why."""
    (home / ".cursor").mkdir()
    (home / ".config" / "Claude").mkdir(parents=True)
    assert run("link", *arguments) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(home / ".cursor") == []


def test_a_second_entry_of_ours_is_told(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Every tool would be there twice."""
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"old": {"command": "quarterdeck", "args": ["serve"]}}})
    assert run("link", "cursor") == 0
    assert "'old' too" in capsys.readouterr().err


def test_from_inside_wsl_the_client_on_windows_is_linked(
    home: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows cannot start a program of Linux by its path."""
    windows = tmp_path / "windows"
    path = write(windows / "AppData" / "Roaming" / "Claude" / "claude_desktop_config.json", "{}")
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu")
    monkeypatch.setenv("USERPROFILE", str(windows))
    assert run("link", "claude-desktop") == 0
    assert row(path) == {
        "command": "wsl.exe",
        "args": ["--distribution", "Ubuntu", "--exec", "/opt/quarterdeck", "serve"],
    }
    assert run("unlink", "claude-desktop") == 0
    assert path.read_text() == "{}"


def test_a_client_that_will_find_no_tools_is_warned_of(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user would look for the mistake in the client."""
    (home / ".cursor").mkdir()
    assert run("link", "cursor") == 0
    err = capsys.readouterr().err
    assert "nothing is configured" in err
    assert "  fix: " in err
    assert run("link", "cursor", "--profile", "all", "--workspace", ".") == 0
    assert "nothing is configured" not in capsys.readouterr().err
