"""Taking over the servers of another client."""

import json
from pathlib import Path

import pytest
from support.clients.client_commands import Run, commands, home_of, write

from quarterdeck.config.load.file import load_config_file

SECRET = "ghp_0123456789abcdefghij"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return home_of(tmp_path, monkeypatch)


@pytest.fixture
def run() -> Run:
    return commands()


def ours(home: Path) -> Path:
    return home / ".config" / "quarterdeck" / "mcp.json"


def test_the_servers_of_a_client_are_ours_afterwards(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A user would have to write all of them again, or see a token on the screen."""
    rows = {
        "gh": {"type": "stdio", "command": "npx", "env": {"GITHUB_TOKEN": SECRET}},
        "web": {"url": "https://host/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        "quarterdeck": {"command": "quarterdeck", "args": ["serve"]},
    }
    write(home / ".cursor" / "mcp.json", {"mcpServers": rows})
    assert run("config", "import", "cursor") == 0
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert "gh: env.GITHUB_TOKEN" in err
    assert "web: headers.Authorization" in err
    assert "quarterdeck secret set" in err
    assert "quarterdeck is left out: it is quarterdeck itself" in err
    loaded = load_config_file(ours(home), {"HOME": str(home)})
    assert [server.id for server in loaded.servers] == ["gh", "web"]
    assert loaded.broken == ()
    assert json.loads(ours(home).read_text())["mcpServers"] == {name: rows[name] for name in ("gh", "web")}
    assert ours(home).stat().st_mode & 0o777 == 0o600


def test_what_is_there_already_stays_as_it_is(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings of our own, such as a sandbox, would be lost; or the file's layout."""
    text = '{\n    "native": {},\n    "mcpServers": {\n        "a": {"command": "mine"}\n    }\n}\n'
    write(ours(home), text).chmod(0o644)
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    assert run("config", "import", "cursor", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in report["imported"]] == ["b"]
    assert [each["name"] for each in report["left_out"]] == ["a"]
    assert Path(report["backup"]).read_text() == text
    assert ours(home).stat().st_mode & 0o777 == 0o600
    new = ours(home).read_text()
    assert new.startswith(text[: text.index("\n    }\n}")])
    assert run("config", "import", "cursor", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["changed"], report["backup"], report["diff"]) == (False, None, [])
    assert ours(home).read_text() == new


def test_a_dry_run_and_a_choice(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody could look first, or take one of many."""
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    assert run("config", "import", "cursor", "--dry-run", "--server", "b") == 0
    out = capsys.readouterr().out
    assert '+    "b": {' in out
    assert '"a"' not in out
    assert not ours(home).exists()
    assert run("config", "import", "cursor", "--server", "b", "--to", "here.json") == 0
    assert list(json.loads(Path("here.json").read_text())["mcpServers"]) == ["b"]
    assert run("config", "import", "cursor", "--server", "none") == 3


def test_a_file_of_any_client_is_taken(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Clients that we do not know would be out of reach."""
    write(Path("theirs.json"), '{"servers": {"a": {"command": "x", "env": {"K": "${input:key}"}}}, } // VS Code')
    assert run("config", "import", "theirs.json") == 0
    assert json.loads(ours(home).read_text())["mcpServers"]["a"]["env"] == {"K": "${keyring:key}"}
    assert "quarterdeck secret set key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "arguments", "code", "message"),
    [
        (None, ["cursor"], 3, "no file here"),
        (None, ["none.json"], 3, "neither a client nor a file"),
        ('{"mcpServers": ', ["cursor"], 2, "line 1"),
        ('{"mcpServers": {"a": {"command": "x"}}}', ["cursor", "--to", "broken.json"], 2, "is not changed"),
        ('{"mcpServers": {}}', ["broken.json", "--to", "broken.json"], 2, "line 1"),
    ],
)
def test_what_cannot_be_done_is_said(
    home: Path,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    """A user would not know what to do, or lose the file that could not be read."""
    if content is not None:
        write(home / ".cursor" / "mcp.json", content)
    write(Path("broken.json"), '{"mcpServers": {"a": ')
    assert run("config", "import", *arguments) == code
    assert message in capsys.readouterr().err
    assert Path("broken.json").read_text() == '{"mcpServers": {"a": '


def test_a_file_is_not_imported_into_itself(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be told as nothing to do, and leave the user puzzled."""
    write(ours(home), {"mcpServers": {"a": {"command": "x"}}})
    assert run("config", "import", str(ours(home))) == 2
    assert "into itself" in capsys.readouterr().err


def test_servers_of_other_projects_are_mentioned(home: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A user would think that these were all."""
    projects = {
        "/other": {"mcpServers": {"x": {"command": "y"}}},
        str(Path.cwd()): {"mcpServers": {"a": {"command": "b"}}},
    }
    write(home / ".claude.json", {"projects": projects})
    assert run("config", "import", "claude-code") == 0
    assert "1 more belong to other projects" in capsys.readouterr().err
    assert list(json.loads(ours(home).read_text())["mcpServers"]) == ["a"]
