"""Taking servers that we run out of the files of other clients, and the clients whose files are no JSON."""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.command_line import Said

from quarterdeck.cli.configure import clients
from quarterdeck.config.clients.user_file import backups
from quarterdeck.host.http.token_file import load_grants

from .client_commands import write

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
    monkeypatch.setattr(clients, "is_confirmed", lambda question: asked.append(question) or is_yes)
    return asked


def test_what_is_imported_is_taken_out_where_the_user_says_so(home: Path, said: Said) -> None:
    """The client would start every server a second time, unconfined; or lose its comments."""
    path = write(home / ".codex" / "config.toml", CODEX)
    goose = write(home / ".config" / "goose" / "config.yaml", GOOSE)
    out = said.all(0, "config", "import", "--no-seal", "codex", "--take-out")
    assert "-[mcp_servers.docs]" in out
    out += said.all(0, "config", "import", "--no-seal", "goose", "--to", home / "goose.json", "--take-out")
    assert "sk-1234" not in out
    assert path.read_text() == "# mine\n\n# profiles\n[profiles.x]\na = 1\n"
    assert goose.read_text() == "extensions:\n  memory:\n    type: builtin  # ours\n# the end\n"
    assert [copy.read_text() for copy in backups(path)] == [CODEX]
    ours = json.loads((home / ".config" / "quarterdeck" / "mcp.json").read_text())
    assert ours["mcpServers"]["docs"]["command"] == "npx"


@pytest.mark.parametrize("is_yes", [False, True])
def test_a_terminal_is_asked(home: Path, said: Said, monkeypatch: pytest.MonkeyPatch, is_yes: bool) -> None:
    """A file of another program would be changed without a word, or never."""
    path = write(home / ".codex" / "config.toml", CODEX)
    asked = answer(monkeypatch, is_yes=is_yes)
    said(0, "config", "import", "--no-seal", "codex")
    assert asked == ["take docs out of it?"]
    assert ("[mcp_servers.docs]" in path.read_text()) is not is_yes


def test_linking_offers_to_take_out_what_was_imported_before(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Who imported first and links later would have every tool twice; who imported nothing would lose servers."""
    path = write(home / ".codex" / "config.toml", CODEX + '[mcp_servers.other]\ncommand = "y"\n')
    assert "--take-out removes that" in said(0, "config", "import", "--no-seal", "codex", "--server", "docs").err
    asked = answer(monkeypatch, is_yes=True)
    assert "it also starts other itself" in said(0, "link", "--no-seal", "codex").err
    assert asked == ["take docs out of it?"]
    text = path.read_text()
    assert "[mcp_servers.docs]" not in text
    assert all(kept in text for kept in ("# mine", "# profiles", "[mcp_servers.other]", "[mcp_servers.quarterdeck]"))
    said(0, "link", "--no-seal", "codex")
    assert len(asked) == 1


def test_nothing_is_taken_out_without_a_word_from_the_user(home: Path, said: Said) -> None:
    """A script would change another program's file."""
    path = write(home / ".codex" / "config.toml", CODEX)
    for options in ([], ["--json"], ["--dry-run", "--take-out"], ["--dry-run", "--take-out", "--json"]):
        said(0, "config", "import", "--no-seal", "codex", *options)
        assert path.read_text() == CODEX
    [taken] = said.json(0, "config", "import", "--no-seal", "codex", "--json", "--take-out")["taken_out"]
    assert (taken["servers"], taken["changed"]) == (["docs"], True)


def test_a_projects_file_and_another_server_of_the_name_are_left(home: Path, said: Said) -> None:
    """A commit would take servers from a whole team, or one that we do not run be gone."""
    (home / ".roo").mkdir()
    path = write(Path(".roo/mcp.json"), {"mcpServers": {"docs": {"command": "npx"}}})
    before = path.read_text()
    said(0, "config", "import", "--no-seal", "roo", "--take-out")
    assert path.read_text() == before
    path = write(home / ".codex" / "config.toml", CODEX)
    ours = write(home / ".config" / "quarterdeck" / "mcp.json", {"mcpServers": {"docs": {"command": "mine"}}})
    said(0, "link", "--no-seal", "codex", "--take-out")
    assert CODEX in path.read_text()
    said(0, "config", "import", "--no-seal", "codex", "--take-out")
    rows = json.loads(ours.read_text())["mcpServers"]
    assert (rows["docs"], rows["docs-2"]["args"]) == ({"command": "mine"}, ["docs"])
    assert "[mcp_servers.docs]" not in path.read_text()


def shown(path: Path) -> str:
    header = json.loads(path.read_text())["mcpServers"]["quarterdeck"]["headers"]["Authorization"]
    assert isinstance(header, str)
    return header.removeprefix("Bearer ")


@pytest.mark.process
def test_an_address_and_a_token_are_written_where_a_client_takes_them(
    home: Path, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client could reach us over HTTP by hand alone; or the token would be on the screen, or outlive its use."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))

    def states() -> list[tuple[str, str]]:
        now = time.time()
        return [(each.name, each.state(now)) for each in load_grants(tmp_path / "state" / "tokens.json").grants]

    path = write(home / ".cursor" / "mcp.json", "{}")
    said(0, "link", "cursor", "--http", "--dry-run")
    assert (path.read_text(), states()) == ("{}", [])
    out, err = said(0, "link", "cursor", "--http", "--url", "http://127.0.0.1:9000/mcp")
    token = shown(path)
    assert token not in out + err
    assert "token revoke link-cursor" in err
    assert json.loads(path.read_text())["mcpServers"]["quarterdeck"]["url"] == "http://127.0.0.1:9000/mcp"
    said(0, "link", "cursor", "--http", "--url", "http://127.0.0.1:9001/mcp")
    assert (shown(path), states()) == (token, [("link-cursor", "live")])
    write(home / ".mcp.json", "{}")
    err = said(0, "link", "cursor", "--http", "--deck", home).err
    assert shown(path) != token
    assert states() == [("link-cursor", "revoked"), ("link-cursor", "live")]
    assert "nothing listens at http://127.0.0.1:8808/mcp yet" in err

    said(0, "link", "cursor")
    assert json.loads(path.read_text())["mcpServers"]["quarterdeck"]["command"] == "/opt/quarterdeck"
    assert {state for _, state in states()} == {"revoked"}
    said(0, "unlink", "cursor")
    assert path.read_text() == "{}"
    said(0, "link", "cursor", "--http")
    assert "its token is revoked: link-cursor" in said(0, "unlink", "cursor").err
    assert {state for _, state in states()} == {"revoked"}


@pytest.mark.process
def test_a_token_is_not_written_where_others_can_read_it_unless_told(
    home: Path, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
            err = said(2, "link", "cursor", "--http", *extra).err
            assert f"fix: chmod 600 {path}, then link again; or add --allow-readable\n" in err
        assert path.read_text() == "{}"
        assert not load_grants(tmp_path / "state" / "tokens.json").grants
        said(0, "link", "cursor")  # without a token
        err = said(0, "link", "cursor", "--http", "--allow-readable").err
        assert shown(path).startswith("qd_")
        assert f"others can read the token in {path}\n  fix: chmod 600 {path}\n" in err
        path.chmod(0o600)
        said(0, "link", "cursor", "--http", "--url", "http://127.0.0.1:9001/mcp")


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
def test_what_cannot_be_dialled_is_refused(home: Path, said: Said, arguments: list[str], reason: str) -> None:
    """A client would be left with an entry that cannot work."""
    write(home / ".cursor" / "mcp.json", "{}")
    assert reason in said(2, "link", *arguments).err
    assert (home / ".cursor" / "mcp.json").read_text() == "{}"
