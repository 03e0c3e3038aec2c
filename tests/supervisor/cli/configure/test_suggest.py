"""`suggest`: a table from the ledger, and the same way to a grant as `allow`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Said
from support.config.places import use_places
from support.ledger.histories import open_ledger

from quarterdeck.cli.configure import suggest
from quarterdeck.config.places.paths import state_dir
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck.trust.configured_servers import USER_SCOPE

from .client_commands import write

ROW = {"command": "/bin/cat"}


@pytest.fixture
def file(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file with two servers; one of them was denied a note twice, and a key."""
    use_places(monkeypatch, home.parent)
    (home / ".ssh").mkdir()
    for name in (".ssh/id", "a.md", "b.md"):
        (home / name).touch()
    calls = [("fs", "1", "a.md"), ("fs", "2", "a.md"), ("fs", "3", ".ssh/id"), ("other", "4", "b.md")]
    with open_ledger(state_dir()) as store:
        store.record_calls(
            [
                CallRow(
                    f"2026-01-0{at}", USER_SCOPE, server, "get", "error", denied=f"read {home}/{name}", program="ed"
                )
                for server, at, name in calls
            ]
        )
    return write(home / ".config/quarterdeck/mcp.json", {"mcpServers": {"fs": ROW, "other": ROW}})


def rows(file: Path) -> object:
    return json.loads(file.read_text())["mcpServers"]


def test_what_a_server_was_denied_is_shown_and_given_to_it_alone_after_a_yes(
    home: Path, file: Path, said: Said
) -> None:
    """A person would have to find the path in a log; or another server would be given it, or a key."""
    [found] = said.json(0, "suggest", "fs", "--json")
    assert {name: found[name] for name in ("key", "path", "count", "tools", "first", "last")} == {
        "key": "read",
        "path": f"{home}/a.md",
        "count": 2,
        "tools": ["get"],
        "first": "2026-01-01",
        "last": "2026-01-02",
    }
    told = said.all(0, "suggest", "fs")
    assert f"{home}/.ssh/id is not proposed" in told
    assert "quarterdeck suggest fs --apply" in told
    said.all(2, "suggest", "fs", "--apply")  # nobody is there to answer
    assert rows(file) == {"fs": ROW, "other": ROW}
    said.all(0, "suggest", "fs", "--apply", "--yes")
    assert rows(file) == {"fs": {**ROW, "sandbox": {"read": [f"{home}/a.md"]}}, "other": ROW}
    assert "no call of fs was denied" in said.all(0, "suggest", "fs")


def test_what_nothing_needs_is_taken_away_after_a_yes_and_no_more(home: Path, file: Path, said: Said) -> None:
    """Grants would pile up; or one would go that the server needs."""
    (home / "docs/sub").mkdir(parents=True)
    (home / ".gitconfig").touch()
    sandbox = {"read": ["~/docs", "~/gone", "~/docs/sub", "~/a.md"], "grants": ["git-config"], "network": "none"}
    row = {"command": "/bin/cat", "args": [f"{home}/a.md"], "sandbox": sandbox}
    write(file, {"mcpServers": {"fs": row, "other": ROW}})
    found = said.json(0, "suggest", "fs", "--shrink", "--json", "--days", "36500")
    assert [(each["value"], each["is_unused"]) for each in found] == [
        ("~/docs", False),
        ("~/gone", True),
        ("~/docs/sub", True),
        ("~/a.md", False),
        ("git-config", False),
    ]
    assert found[0]["use"] == "not known: 3 calls in 36500 days, and no record of what they opened"
    said.all(2, "suggest", "fs", "--shrink", "--apply")  # nobody is there to answer
    assert rows(file) == {"fs": row, "other": ROW}
    said.all(0, "suggest", "fs", "--shrink", "--apply", "--yes")
    assert rows(file) == {"fs": {**row, "sandbox": {**sandbox, "read": ["~/docs", "~/a.md"]}}, "other": ROW}
    again = said.all(0, "suggest", "fs", "--shrink", "--apply", "--yes")
    assert "taken away" not in again
    assert "grants no paths" in said.all(0, "suggest", "other", "--shrink")


def test_a_path_that_is_replaced_while_the_question_waits_is_not_given(
    home: Path, file: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's link would have something else given than what was shown."""

    def replaced(then: Callable[..., object]) -> Callable[..., object]:
        def choose(*words: object) -> object:
            (home / "a.md").unlink()
            (home / "a.md").symlink_to(home / "b.md")
            return then(*words)

        return choose

    monkeypatch.setattr(suggest, "defaults", replaced(suggest.defaults))
    told = said.all(2, "suggest", "fs", "--apply", "--yes")
    assert f"{home}/a.md led to {home}/a.md when it was shown, and leads to {home}/b.md now: nothing is given" in told
    assert rows(file) == {"fs": ROW, "other": ROW}
