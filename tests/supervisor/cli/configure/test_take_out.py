"""Taking servers that we run out of the files of other clients, and the clients whose files are no JSON."""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from quarterdeck.cli.configure import take_out
from quarterdeck.config.clients.user_file import backups
from quarterdeck.host.http.token_file import load_grants

from .client_commands import Run, write

CODEX = """# mine
[mcp_servers.docs]
command = "npx"  # fast
args = ["docs"]
env = { API_KEY = "sk-12345678901234567890" }

# profiles
[profiles.x]
a = 1
"""

GOOSE = """extensions:
  memory:
    type: builtin  # ours
  docs:
    type: stdio
    cmd: npx
    args: [docs]
# the end
"""


def answer(monkeypatch: pytest.MonkeyPatch, *, is_yes: bool) -> list[str]:
    """A person at a terminal; the questions that were asked."""
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(take_out, "is_confirmed", lambda question: asked.append(question) or is_yes)
    return asked


def test_what_is_imported_is_taken_out_where_the_user_says_so(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client would start every server a second time, unconfined; or lose its comments."""
    path = write(home / ".codex" / "config.toml", CODEX)
    goose = write(home / ".config" / "goose" / "config.yaml", GOOSE)
    assert run("config", "import", "codex", "--take-out") == 0
    assert run("config", "import", "goose", "--to", home / "goose.json", "--take-out") == 0
    out, _ = capsys.readouterr()
    assert "-[mcp_servers.docs]" in out
    assert "sk-1234" not in out
    assert path.read_text() == "# mine\n\n# profiles\n[profiles.x]\na = 1\n"
    assert goose.read_text() == "extensions:\n  memory:\n    type: builtin  # ours\n# the end\n"
    assert [copy.read_text() for copy in backups(path)] == [CODEX]
    ours = json.loads((home / ".config" / "quarterdeck" / "mcp.json").read_text())
    assert ours["mcpServers"]["docs"]["command"] == "npx"


@pytest.mark.parametrize("is_yes", [False, True])
def test_a_terminal_is_asked(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch, is_yes: bool) -> None:
    """A file of another program would be changed without a word, or never."""
    path = write(home / ".codex" / "config.toml", CODEX)
    asked = answer(monkeypatch, is_yes=is_yes)
    assert run("config", "import", "codex") == 0
    assert asked == ["take docs out of it?"]
    assert ("[mcp_servers.docs]" in path.read_text()) is not is_yes


def test_linking_offers_to_take_out_what_was_imported_before(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who imported first and links later would have every tool twice; who imported nothing would lose servers."""
    path = write(home / ".codex" / "config.toml", CODEX + '[mcp_servers.other]\ncommand = "y"\n')
    assert run("config", "import", "codex", "--server", "docs") == 0
    assert "--take-out removes that" in capsys.readouterr().err
    asked = answer(monkeypatch, is_yes=True)
    assert run("link", "codex") == 0
    assert "it also starts other itself" in capsys.readouterr().err
    assert asked == ["take docs out of it?"]
    text = path.read_text()
    assert "[mcp_servers.docs]" not in text
    assert all(kept in text for kept in ("# mine", "# profiles", "[mcp_servers.other]", "[mcp_servers.quarterdeck]"))
    assert run("link", "codex") == 0
    assert len(asked) == 1


def test_nothing_is_taken_out_without_a_word_from_the_user(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script would change another program's file."""
    path = write(home / ".codex" / "config.toml", CODEX)
    for options in ([], ["--json"], ["--dry-run", "--take-out"], ["--dry-run", "--take-out", "--json"]):
        assert run("config", "import", "codex", *options) == 0
        assert path.read_text() == CODEX
    capsys.readouterr()
    assert run("config", "import", "codex", "--json", "--take-out") == 0
    [taken] = json.loads(capsys.readouterr().out)["taken_out"]
    assert (taken["servers"], taken["changed"]) == (["docs"], True)


def test_a_projects_file_and_another_server_of_the_name_are_left(home: Path, run: Run) -> None:
    """A commit would take servers from a whole team, or one that we do not run be gone."""
    (home / ".roo").mkdir()
    path = write(Path(".roo/mcp.json"), {"mcpServers": {"docs": {"command": "npx"}}})
    before = path.read_text()
    assert run("config", "import", "roo", "--take-out") == 0
    assert path.read_text() == before
    path = write(home / ".codex" / "config.toml", CODEX)
    ours = write(home / ".config" / "quarterdeck" / "mcp.json", {"mcpServers": {"docs": {"command": "mine"}}})
    assert run("link", "codex", "--take-out") == 0
    assert CODEX in path.read_text()
    assert run("config", "import", "codex", "--take-out") == 0
    rows = json.loads(ours.read_text())["mcpServers"]
    assert (rows["docs"], rows["docs-2"]["args"]) == ({"command": "mine"}, ["docs"])
    assert "[mcp_servers.docs]" not in path.read_text()


def shown(path: Path) -> str:
    """The token in Cursor's file."""
    header = json.loads(path.read_text())["mcpServers"]["quarterdeck"]["headers"]["Authorization"]
    assert isinstance(header, str)
    return header.removeprefix("Bearer ")


@pytest.mark.process
def test_an_address_and_a_token_are_written_where_a_client_takes_them(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client could reach us over HTTP by hand alone; or the token would be on the screen, or outlive its use."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))

    def states() -> list[tuple[str, str]]:
        now = time.time()
        return [(each.name, each.state(now)) for each in load_grants(tmp_path / "state" / "tokens.json").grants]

    path = write(home / ".cursor" / "mcp.json", "{}")
    assert run("link", "cursor", "--http", "--dry-run") == 0
    assert (path.read_text(), states()) == ("{}", [])
    assert run("link", "cursor", "--http", "--url", "http://127.0.0.1:9000/mcp") == 0
    token = shown(path)
    out, err = capsys.readouterr()
    assert token not in out + err
    assert "token revoke link-cursor" in err
    assert json.loads(path.read_text())["mcpServers"]["quarterdeck"]["url"] == "http://127.0.0.1:9000/mcp"
    assert run("link", "cursor", "--http", "--url", "http://127.0.0.1:9001/mcp") == 0
    assert (shown(path), states()) == (token, [("link-cursor", "live")])
    write(home / ".mcp.json", "{}")
    assert run("link", "cursor", "--http", "--deck", f"{home}") == 0
    assert shown(path) != token
    assert states() == [("link-cursor", "revoked"), ("link-cursor", "live")]
    assert "nothing listens at http://127.0.0.1:8808/mcp yet" in capsys.readouterr().err

    assert run("link", "cursor") == 0
    assert json.loads(path.read_text())["mcpServers"]["quarterdeck"]["command"] == "/opt/quarterdeck"
    assert {state for _, state in states()} == {"revoked"}
    assert run("unlink", "cursor") == 0
    assert path.read_text() == "{}"
    assert run("link", "cursor", "--http") == 0
    assert run("unlink", "cursor") == 0
    assert "its token is revoked: link-cursor" in capsys.readouterr().err
    assert {state for _, state in states()} == {"revoked"}


@pytest.mark.process
def test_a_token_is_not_written_where_others_can_read_it_unless_told(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine could call the user's servers; or a file that is meant so could never be linked."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    with TemporaryDirectory(dir="/tmp") as open_home:  # pytest's own folders let nobody else in
        Path(open_home).chmod(0o755)
        monkeypatch.setenv("HOME", open_home)
        path = write(Path(open_home) / ".cursor" / "mcp.json", "{}")
        path.parent.chmod(0o755)
        path.chmod(0o644)
        for extra in ((), ("--dry-run",)):
            assert run("link", "cursor", "--http", *extra) == 2
            assert f"fix: chmod 600 {path}, then link again; or add --allow-readable\n" in capsys.readouterr().err
        assert path.read_text() == "{}"
        assert not load_grants(tmp_path / "state" / "tokens.json").grants
        assert run("link", "cursor") == 0  # without a token
        assert run("link", "cursor", "--http", "--allow-readable") == 0
        assert shown(path).startswith("qd_")
        assert f"others can read the token in {path}\n  fix: chmod 600 {path}\n" in capsys.readouterr().err
        path.chmod(0o600)
        assert run("link", "cursor", "--http", "--url", "http://127.0.0.1:9001/mcp") == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["claude-desktop", "--http", "--create"], "takes no address"),
        (["cursor", "--url", "http://h/mcp"], "--url and --deck need --http"),
        (["cursor", "--http", "--url", "ftp://h"], "not the URL"),
        (["cursor", "--http", "--url", "http://h:x/"], "not the URL"),
        (["cursor", "--http", "--profile", "read-only"], "a deck of the daemon is served"),
    ],
)
def test_what_cannot_be_dialled_is_refused(
    home: Path, run: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    """A client would be left with an entry that cannot work."""
    write(home / ".cursor" / "mcp.json", "{}")
    assert run("link", *arguments) == 2
    assert reason in capsys.readouterr().err
    assert (home / ".cursor" / "mcp.json").read_text() == "{}"
