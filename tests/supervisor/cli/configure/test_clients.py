"""Putting quarterdeck into other programs' files, taking it out, and taking over their servers."""

import json
import os
from pathlib import Path

import pytest
from support.command_line import Said
from support.seals import sealed

from quarterdeck.cli.configure.client_tokens import tokens_path
from quarterdeck.common.words import size
from quarterdeck.config.load.file import load_config_file
from quarterdeck.config.places.paths import seals_dir
from quarterdeck.host.http.token_file import load_grants
from quarterdeck.seals.store import SealStore

from .client_commands import write

SECRET = "ghp_0123456789abcdefghij"


def row(path: Path, section: str = "mcpServers", name: str = "quarterdeck") -> object:
    return json.loads(path.read_text())[section][name]


def test_several_clients_are_linked_and_unlinked_again(home: Path, said: Said) -> None:
    """A user would have to edit three files by hand, or find them changed after trying us."""
    desktop = write(home / ".config" / "Claude" / "claude_desktop_config.json", {"theme": "dark"})
    cursor = write(home / ".cursor" / "mcp.json", {"mcpServers": {"x": {"command": "y", "env": {"TOKEN": "hunter2x"}}}})
    code = write(home / ".config" / "Code" / "User" / "mcp.json", '{\n\t// mine\n\t"servers": {},\n}\n')
    before = {path: path.read_bytes() for path in (desktop, cursor, code)}
    clients = ["claude-desktop", "cursor", "vscode"]
    out, err = said(0, "link", *clients)
    assert '+    "quarterdeck": {' in out
    assert "hunter2x" not in out
    assert err.count("itself, unconfined") == 1
    assert "it also starts x itself, unconfined: take them over with quarterdeck config import cursor" in err
    assert row(desktop) == {"command": "/opt/quarterdeck", "args": ["serve"]}
    assert row(cursor) == {"type": "stdio", "command": "/opt/quarterdeck", "args": ["serve"]}
    assert "// mine" in code.read_text()
    assert said(0, "link", *clients).out.count("nothing to do") == 3
    assert len(os.listdir(cursor.parent)) == 2
    said(0, "unlink", *clients)
    assert {path: path.read_bytes() for path in before} == before
    said(0, "unlink", *clients)


def test_what_serve_is_to_serve_is_named_absolutely(home: Path, said: Said) -> None:
    """The client starts us somewhere else, where no such file is."""
    (home / ".claude").mkdir()
    write(Path("my.json"), {"mcpServers": {}})
    Path("allowed").mkdir()
    options = ["--config", "my.json", "--profile", "survey", "--workspace", ".", "--allow-dir", "allowed"]
    said(0, "link", "claude-code", "--name", "deck", *options, "--tools", "read")
    here = str(Path.cwd())
    assert row(home / ".claude.json", name="deck") == {
        "type": "stdio",
        "command": "/opt/quarterdeck",
        "args": [
            *("serve", "--config", f"{here}/my.json", "--profile", "workspace", "--workspace", here),
            *("--allow-dir", f"{here}/allowed", "--tools", "read"),
        ],
    }
    said(0, "unlink", "claude-code", "--name", "deck")
    assert json.loads((home / ".claude.json").read_text()) == {"mcpServers": {}}


@pytest.mark.process
def test_a_client_is_linked_with_a_part_of_what_is_offered(home: Path, said: Said) -> None:
    """A user would have to edit the client's file by hand; or the client would show a server that does not start."""
    (home / ".cursor").mkdir()
    own = home / ".config" / "quarterdeck" / "mcp.json"
    write(own, {"mcpServers": {"fs": {"command": "fs"}}, "groups": {"review": {"servers": ["fs"]}}})
    path = home / ".cursor" / "mcp.json"
    said(0, "link", "cursor", "--group", "review", "--search")
    assert row(path) == {
        "type": "stdio",
        "command": "/opt/quarterdeck",
        "args": ["serve", "--group", "review", "--search"],
    }
    assert "there is no group 'reveiw': did you mean 'review'?" in said(2, "link", "cursor", "--group", "reveiw").err

    def tokens() -> "list[tuple[tuple[str, ...], bool]]":
        return [(each.groups, each.search) for each in load_grants(tokens_path()).grants if not each.revoked_at]

    said(0, "link", "cursor", "--group", "review", "--search", "--http")
    shown = row(path)
    assert tokens() == [(("review",), True)]
    said(0, "link", "cursor", "--group", "review", "--search", "--http")
    assert row(path) == shown
    said(0, "link", "cursor", "--http")
    assert tokens() == [((), False)]


def test_a_dry_run_and_a_file_that_cannot_be_used_change_nothing(home: Path, said: Said) -> None:
    """Nobody could look first, or a user be left with half of what was asked for."""
    path = write(home / ".cursor" / "mcp.json", "{}")
    [report] = said.json(0, "link", "cursor", "--dry-run", "--json")
    assert report["path"] == str(path)
    assert not report["changed"]
    assert report["backup"] is None
    assert any("/opt/quarterdeck" in line for line in report["diff"])
    assert os.listdir(path.parent) == ["mcp.json"]
    assert path.read_text() == "{}"
    cursor = write(home / ".cursor" / "mcp.json", "{}")
    broken = write(home / ".claude.json", '{"mcpServers": {')
    assert str(broken) in said(2, "link", "cursor", "claude-code").err
    assert (cursor.read_text(), broken.read_text()) == ("{}", '{"mcpServers": {')


def test_a_client_that_is_not_installed_is_told(home: Path, said: Said) -> None:
    """A file would be made that nobody reads, and the user wait for tools."""
    assert "is not installed" in said(3, "link", "windsurf").err
    assert os.listdir(home) == []
    said(0, "link", "windsurf", "--create")
    made = home / ".codeium" / "windsurf" / "mcp_config.json"
    assert row(made) == {"command": "/opt/quarterdeck", "args": ["serve"]}
    assert made.stat().st_mode & 0o777 == 0o600
    assert "nothing to do" in said(0, "unlink", "cursor").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["emacs"], "the clients are claude-desktop"),
        (["cursor", "--config", "none.json"], "is not a file"),
        (["cursor", "--profile", "all", "--workspace", "none"], "none"),
        (["claude-desktop", "--profile", "all"], "add --workspace"),
    ],
)
def test_what_serve_would_refuse_is_refused_now(home: Path, said: Said, arguments: list[str], message: str) -> None:
    """The client would show a server that does not start, and not why."""
    (home / ".cursor").mkdir()
    (home / ".config" / "Claude").mkdir(parents=True)
    assert message in said(2, "link", *arguments).err
    assert os.listdir(home / ".cursor") == []


def test_a_client_that_will_find_no_tools_is_warned_of(home: Path, said: Said) -> None:
    """A user would look for the mistake in the client."""
    (home / ".cursor").mkdir()
    err = said(0, "link", "cursor").err
    assert "nothing is configured" in err
    assert "  fix: " in err
    assert "nothing is configured" not in said(0, "link", "cursor", "--profile", "all", "--workspace", ".").err


def ours(home: Path) -> Path:
    return home / ".config" / "quarterdeck" / "mcp.json"


def test_the_servers_of_a_client_are_ours_afterwards(home: Path, said: Said) -> None:
    """A user would have to write all of them again, or see a token on the screen."""
    rows = {
        "gh": {"type": "stdio", "command": "npx", "env": {"GITHUB_TOKEN": SECRET}},
        "web": {"url": "https://host/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        "quarterdeck": {"command": "quarterdeck", "args": ["serve"]},
    }
    write(home / ".cursor" / "mcp.json", {"mcpServers": rows})
    out, err = said(0, "config", "import", "--no-seal", "cursor")
    assert SECRET not in out + err
    assert "gh: env.GITHUB_TOKEN" in err
    assert "web: headers.Authorization" in err
    assert "quarterdeck secret set" in err
    assert "quarterdeck is left out: it is quarterdeck itself" in err
    assert f"itself, unconfined; --take-out removes that from {home}/.cursor/mcp.json" in err
    loaded = load_config_file(ours(home), {"HOME": str(home)})
    assert [server.id for server in loaded.servers] == ["gh", "web"]
    assert loaded.broken == ()
    assert json.loads(ours(home).read_text())["mcpServers"] == {name: rows[name] for name in ("gh", "web")}
    assert ours(home).stat().st_mode & 0o777 == 0o600


def test_each_package_of_what_is_imported_is_told_with_its_size(
    home: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would not know what the first client will be served from, nor which package could not be had."""
    monkeypatch.setattr("quarterdeck.seals.store.sync_file_system", lambda _: None)
    seal = sealed(SealStore(seals_dir()))
    (seals_dir() / ".making").rmdir()
    (seals_dir() / ".making").touch()  # nothing more can be installed
    rows = {name: {"command": "npx", "args": [name]} for name in ("server", "other")}
    write(home / ".cursor" / "mcp.json", {"mcpServers": rows})
    err = said(0, "config", "import", "cursor").err
    assert f"sealed {seal.title} for server: 0 packages, {size(seal.manifest.size)}\n" in err
    assert "other is not sealed: " in err


def test_what_is_there_already_stays_as_it_is(home: Path, said: Said) -> None:
    """Settings of our own, such as a sandbox, would be lost; or the file's layout."""
    text = '{\n    "native": {},\n    "mcpServers": {\n        "a": {"command": "mine"}\n    }\n}\n'
    write(ours(home), text).chmod(0o644)
    rows = {"a": {"command": "mine", "env": {"A": "1"}}, "b": {"command": "y"}}
    write(home / ".cursor" / "mcp.json", {"mcpServers": rows})
    report = said.json(0, "config", "import", "--no-seal", "cursor", "--json")
    assert [each["id"] for each in report["imported"]] == ["b"]
    assert [each["name"] for each in report["left_out"]] == ["a"]
    assert Path(report["backup"]).read_text() == text
    assert ours(home).stat().st_mode & 0o777 == 0o600
    new = ours(home).read_text()
    assert new.startswith(text[: text.index("\n    }\n}")])
    report = said.json(0, "config", "import", "--no-seal", "cursor", "--json")
    assert (report["changed"], report["backup"], report["diff"]) == (False, None, [])
    assert ours(home).read_text() == new


def test_a_dry_run_and_a_choice(home: Path, said: Said) -> None:
    """Nobody could look first, or take one of many."""
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    out = said(0, "config", "import", "--no-seal", "cursor", "--dry-run", "--server", "b").out
    assert '+    "b": {' in out
    assert '"a"' not in out
    assert not ours(home).exists()
    said(0, "config", "import", "--no-seal", "cursor", "--server", "b", "--to", "here.json")
    assert list(json.loads(Path("here.json").read_text())["mcpServers"]) == ["b"]
    said(3, "config", "import", "--no-seal", "cursor", "--server", "none")


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
    home: Path, said: Said, content: str | None, arguments: list[str], code: int, message: str
) -> None:
    """A user would not know what to do, or lose the file that could not be read."""
    if content is not None:
        write(home / ".cursor" / "mcp.json", content)
    write(Path("broken.json"), '{"mcpServers": {"a": ')
    assert message in said(code, "config", "import", *arguments).err
    assert Path("broken.json").read_text() == '{"mcpServers": {"a": '


def test_a_file_is_not_imported_into_itself(home: Path, said: Said) -> None:
    """It would be told as nothing to do, and leave the user puzzled."""
    write(ours(home), {"mcpServers": {"a": {"command": "x"}}})
    assert "into itself" in said(2, "config", "import", str(ours(home))).err


def test_servers_of_other_projects_are_mentioned(home: Path, said: Said) -> None:
    """A user would think that these were all."""
    projects = {
        "/other": {"mcpServers": {"x": {"command": "y"}}},
        str(Path.cwd()): {"mcpServers": {"a": {"command": "b"}}},
    }
    write(home / ".claude.json", {"projects": projects})
    assert "1 more belong to other projects" in said(0, "config", "import", "claude-code").err
    assert list(json.loads(ours(home).read_text())["mcpServers"]) == ["a"]
