"""The one question about what servers need: after an import, before a client's file is changed, and of `allow`."""

import errno
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from support.command_line import Said
from support.config.places import use_places

from quarterdeck.cli.configure import clients

from .client_commands import write

CLIENT = ".config/Claude/claude_desktop_config.json"


def own_rows(home: Path) -> dict[str, dict[str, object]]:
    """The rows of the user's own file."""
    rows: dict[str, dict[str, object]] = json.loads((home / ".config/quarterdeck/mcp.json").read_text())["mcpServers"]
    return rows


@pytest.fixture
def client(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client with a server for notes, one that makes its folder, one without needs, and one that is broken."""
    use_places(monkeypatch, home.parent)
    (home / "notes").mkdir()
    (home / ".ssh").mkdir()
    (home / ".ssh/id").touch()
    rows = {
        "notes": {"command": "/bin/cat", "args": [f"{home}/notes"]},
        "papers": {"command": "/bin/cat", "args": ["--storage-path", f"{home}/papers/new"]},
        "plain": {"command": "/bin/cat"},
        "keys": {"command": "/bin/cat", "args": [f"{home}/.ssh/id"]},
        "broken": {"command": "/nowhere/server"},
    }
    return write(home / CLIENT, {"mcpServers": rows})


def at_terminal(monkeypatch: pytest.MonkeyPatch, answers: Sequence[str]) -> list[str]:
    """A person who gives these answers; the questions that were asked."""
    asked: list[str] = []
    left = list(answers)

    def prompt(question: str, **more: object) -> object:
        asked.append(question)
        read = more["value_proc"]
        assert callable(read)
        return read(left.pop(0) or more["default"])

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", prompt)
    monkeypatch.setattr(clients, "is_confirmed", lambda question: asked.append(question) or False)
    return asked


def test_an_import_gives_what_its_rows_name_after_one_yes(home: Path, client: Path, said: Said) -> None:
    """Three of five imported servers would not start, until `allow` was found, three times."""
    out = said.all(0, "config", "import", "claude-desktop", "--no-seal", "--yes")
    rows = own_rows(home)
    assert rows["notes"]["sandbox"] == {"read": [f"{home}/notes"]}
    assert rows["papers"]["sandbox"] == {"write": [f"{home}/papers/new"]}
    assert (home / "papers/new").is_dir()
    assert [name for name in rows if "sandbox" in rows[name]] == ["notes", "papers"]
    assert "argument 1 " in out
    assert "argument 2 (--storage-path)" in out
    assert "plain" not in out.partition("SERVER")[2].partition("given")[0], "what needs nothing is not in the table"
    assert out.index("broken: it cannot be started") < out.index("--take-out removes"), "said before the offer"
    assert '"grants": ["ssh-agent"]' in out, "a key is told, and not offered"
    again = said.all(0, "config", "import", "claude-desktop", "--no-seal", "--yes")
    assert "SERVER" not in again


def test_nothing_is_given_unasked(home: Path, client: Path, said: Said) -> None:
    """A script that imports would hand out folders; or fail, where it did not before."""
    out = said.all(0, "config", "import", "claude-desktop", "--no-seal")
    assert "quarterdeck allow --all" in out
    assert not any("sandbox" in row for row in own_rows(home).values())
    assert not (home / "papers").exists()
    found = json.loads(said(0, "config", "import", "claude-desktop", "--no-seal", "--json").out)
    notes = next(each for each in found["needs"] if each["server"] == "notes")
    assert [(need["value"], need["given"]) for need in notes["needs"]] == [(f"{home}/notes", False)]
    said.all(2, "allow", "--all")
    said.all(0, "allow", "--all", "--dry-run")
    assert not (home / "papers").exists()


def test_row_by_row_a_folder_can_be_written_or_left_out(
    home: Path, client: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person could only take all or nothing."""
    said(0, "config", "import", "claude-desktop", "--no-seal")
    asked = at_terminal(monkeypatch, ["each", "write", "no"])
    said.all(0, "allow", "--all")
    assert len(asked) == 3
    assert own_rows(home)["notes"]["sandbox"] == {"write": [f"{home}/notes"]}
    assert "sandbox" not in own_rows(home)["papers"]
    at_terminal(monkeypatch, ["each", ""])
    said.all(0, "allow", "papers")
    assert own_rows(home)["papers"]["sandbox"] == {"write": [f"{home}/papers/new"]}


def test_link_tells_what_cannot_work_before_it_offers_to_take_servers_out(
    home: Path, client: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would lose servers that worked, for ones that do not."""
    said(0, "config", "import", "claude-desktop", "--no-seal")
    asked = at_terminal(monkeypatch, ["no"])
    out = said.all(0, "link", "claude-desktop", "--no-seal")
    assert "broken: it cannot be started" in out
    assert [question.partition("?")[0].partition(" ")[0] for question in asked] == ["give", "take"]
    assert not any("sandbox" in row for row in own_rows(home).values())


def test_a_folder_that_cannot_be_made_leaves_the_row_as_it_was(
    home: Path, client: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row would name a folder that is not there, and its server be refused."""
    said(0, "config", "import", "claude-desktop", "--no-seal")
    make = os.mkdir

    def mkdir(path: str, *more: object) -> None:
        if path == f"{home}/papers/new":
            raise OSError(errno.ENOSPC, "No space left on device")
        make(path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "mkdir", mkdir)
    out = said.all(2, "allow", "--all", "--yes")
    assert "papers is given nothing" in out
    assert "No space left on device" in out
    assert not (home / "papers").exists(), "what was made for it is removed again"
    assert "sandbox" not in own_rows(home)["papers"]
    assert own_rows(home)["notes"]["sandbox"] == {"read": [f"{home}/notes"]}


def test_what_cannot_be_given_ends_as_an_error(home: Path, client: Path, said: Said) -> None:
    """A script would take a refusal for success: `config check` advises `allow`."""
    said(0, "config", "import", "claude-desktop", "--no-seal", "--server", "keys", "--server", "plain")
    assert "nothing can be given" in said.all(2, "allow", "--all", "--yes")
    assert "either one server" in said.all(2, "allow")
    assert "either one server" in said.all(2, "allow", "plain", "--all")
    assert "plain has all" in said.all(0, "allow", "plain")
    assert said.all(2, "allow", "keys", "--yes").count(".ssh/id") > 0


@pytest.mark.process
def test_a_remote_server_that_is_away_is_named_before_the_offer(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A row would leave its client, where the user would have seen it fail, for a server that nobody can reach."""
    use_places(monkeypatch, home.parent)
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and takes no connection
        ports = {"there": there.getsockname()[1], "away": bound.getsockname()[1]}
        rows = {name: {"url": f"http://127.0.0.1:{port}/mcp"} for name, port in ports.items()}
        write(home / CLIENT, {"mcpServers": rows})
        out = said.all(0, "config", "import", "claude-desktop")
    told = f"away: 127.0.0.1 cannot be reached at port {ports['away']}: Connection refused"
    assert out.index(told) < out.index("--take-out removes")
    assert "there: " not in out


def test_hosts_are_added_to_a_list_and_to_no_network_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A server with the whole internet would lose it for one host; or a row get a list that cannot be read."""
    use_places(monkeypatch, home.parent)
    networks = {"listed": ["a.example:1"], "alone": "none", "open": "internet"}
    rows = {name: {"command": "/bin/cat", "sandbox": {"network": network}} for name, network in networks.items()}
    write(home / ".config/quarterdeck/mcp.json", {"mcpServers": rows})
    said.all(0, "allow", "listed", "--host", "b.example", "--host", "a.example:1", "--yes")
    said.all(0, "allow", "alone", "--host", "b.example:2", "--yes")
    assert "reaches every host" in said.all(2, "allow", "open", "--host", "b.example", "--yes")
    assert "may reach that already" in said.all(2, "allow", "listed", "--host", "b.example:80", "--yes")
    assert "has no port" in said.all(2, "allow", "listed", "--host", "nas:", "--yes")
    given = {name: row["sandbox"] for name, row in own_rows(home).items()}
    assert given == {
        "listed": {"network": ["a.example:1", "b.example:443", "b.example:80"]},
        "alone": {"network": ["b.example:2"]},
        "open": {"network": "internet"},
    }
