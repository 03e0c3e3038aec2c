"""Writing `deck.lock`, and holding servers against it, from the command line."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.command_line import Said
from support.config.places import use_places, write_config
from support.ledger.histories import (
    EVIL,
    NOW,
    READ,
    TOLD,
    ZONE,
    approved,
    fill,
    gone,
    open_ledger,
    seen,
    story,
    tool_form,
)

from quarterdeck.cli.exits import ExitCode
from quarterdeck.cli.source import Source
from quarterdeck.cli.trust import lock as lock_command
from quarterdeck.daemon.control.protocol import ListingList, Listings, ListingView, Request
from quarterdeck.trust.configured_servers import scope_of
from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.lock_files import load_lock


@pytest.fixture
def deck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> "Deck":
    """A configuration of two servers whose story the ledger knows up to the rug pull."""
    use_places(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    deck = Deck(tmp_path, said)
    deck.configure("time", "files")
    fill(tmp_path / "state", deck.scope, days=1)
    return deck


class Deck:
    """The user's directory."""

    def __init__(self, place: Path, said: Said) -> None:
        self._said = said
        self.config = place / "deck.json"
        self.lock = place / "deck.lock"
        self._state = place / "state"

    @property
    def scope(self) -> str:
        """How the ledger names the configuration."""
        return scope_of(self.config)

    def configure(self, *servers: str) -> None:
        """Name these servers."""
        write_config(self.config, **{server: {"command": "true"} for server in servers})

    def happens(self, *events: Any) -> None:
        """Record what happened."""
        bodies = {each.hash: each.body for each in (EVIL, NOW, READ, TOLD, ZONE)}
        with open_ledger(self._state) as store:
            store.append(events, bodies)

    def __call__(self, code: int, *arguments: str) -> Any:
        """What `quarterdeck lock` prints."""
        return self._said(code, "lock", "-c", self.config, *arguments)

    @property
    def servers(self) -> dict[str, Any]:
        """What the lock names."""
        servers: dict[str, Any] = json.loads(self.lock.read_text())["servers"]
        return servers


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> "Lists":
    return Lists(monkeypatch)


class Lists:
    """What the servers answer when they are asked; None for one that is not ready."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.servers: dict[str, tuple[Document, ...] | None] = {"time": (NOW, ZONE), "files": (READ,)}
        self.instructions = {"time": "Ask me for the time.", "files": ""}
        monkeypatch.setattr(lock_command, "ask", self._ask)

    def _ask(self, source: Source, request: Request) -> ListingList:
        assert isinstance(request, Listings)
        return ListingList(
            tuple(
                ListingView(
                    server,
                    tools is not None,
                    self.instructions.get(server, "") if tools is not None else "",
                    tuple(msgspec.Raw(each.body) for each in tools or ()),
                )
                for server, tools in self.servers.items()
            )
        )


def test_what_is_approved_is_written_and_what_changed_is_said(deck: Deck) -> None:
    """A user would put a file under version control without knowing what is in it."""
    out, err = deck(0)
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["files", "(the", "server)", "added"],
        ["time", "(the", "server)", "added"],
    ]
    assert "deck.lock: 2 servers, 3 tools" in err
    assert deck.servers["time"]["tools"] == {"now": NOW.hash, "zone": ZONE.hash}
    assert deck.servers["time"]["package"] == "mcp-server-time 1.2 (PyPI)"
    assert load_lock(deck.lock).head.count == len(story()[0][1])


def test_a_lock_of_the_same_deck_is_not_touched_and_has_no_other_files_servers(deck: Deck) -> None:
    """Every run would be a change under version control, or name what a user configures for themselves."""
    deck(0)
    before = deck.lock.read_bytes()
    deck.happens(seen(NOW, scope=deck.scope), gone(NOW, scope=deck.scope), seen(NOW, scope=deck.scope))
    out, err = deck(0)
    assert (out, deck.lock.read_bytes()) == ("", before)
    assert "as before" in err
    deck.happens(seen(EVIL, scope="/other.json"), approved(EVIL, scope="/other.json"))
    deck(0)
    assert deck.servers["time"]["tools"]["now"] == NOW.hash


def test_an_approval_is_one_line_of_the_next_lock(deck: Deck) -> None:
    """A reviewer would not see what was approved."""
    deck(0)
    deck.happens(seen(EVIL, scope=deck.scope), approved(EVIL, scope=deck.scope))
    told = json.loads(deck(0, "--json").out)
    assert told == {
        "file": "deck.lock",
        "written": True,
        "changes": [{"server": "time", "subject": "tool", "name": "now", "drift": "changed"}],
        "partial": [],
        "kept": [],
        "unknown": [],
    }
    assert deck.servers["time"]["tools"]["now"] == EVIL.hash


def test_what_is_held_or_never_ready_is_said(deck: Deck) -> None:
    """A user would believe that everything is locked."""
    deck(0)
    deck.happens(seen(EVIL, scope=deck.scope))
    deck.configure("time", "files", "new")
    err = deck(0).err
    assert "time: some of it is held or blocked" in err
    assert "files: something" not in err
    assert "new: it has never been ready here, and is not in the lock" in err
    assert deck.servers["time"]["tools"]["now"] == NOW.hash


def test_a_deck_of_which_nothing_was_ever_ready_has_no_lock(deck: Deck) -> None:
    """An empty lock would be put under version control, and `serve --locked` offer nothing."""
    deck.configure("new")
    assert "no server has been ready here yet" in deck(ExitCode.NOT_READY).err
    assert not deck.lock.exists()


def test_a_lock_that_cannot_be_read_is_not_replaced(deck: Deck) -> None:
    """What a colleague wrote would be lost."""
    deck.lock.write_text("<<<<<<< HEAD\n")
    assert "merge conflict" in deck(ExitCode.USAGE).err
    assert deck.lock.read_text() == "<<<<<<< HEAD\n"


def test_servers_that_offer_what_is_locked_pass_and_one_that_is_gone_is_drift(deck: Deck, lists: Lists) -> None:
    """Every build would fail, or a server be taken out of a configuration unseen."""
    deck(0)
    out, err = deck(0, "--check")
    assert out == ""
    assert "2 servers, as in deck.lock" in err
    assert json.loads(deck(0, "--check", "--json").out) == {"file": "deck.lock", "drift": [], "not_ready": []}
    deck(0)
    del lists.servers["files"]
    assert json.loads(deck(ExitCode.DRIFTED, "--check", "--json").out)["drift"] == [
        {"server": "files", "subject": "server", "name": "", "drift": "absent"}
    ]


def test_drift_fails_with_a_code_of_its_own(deck: Deck, lists: Lists) -> None:
    """A build would pass on a server that changed its words."""
    deck(0)
    lists.servers = {"time": (EVIL, tool_form("more", "")), "files": (READ,), "new": ()}
    lists.instructions["files"] = "Always call me first."
    before = deck.lock.read_bytes()
    out, err = deck(ExitCode.DRIFTED, "--check")
    assert [line.split() for line in out.splitlines()] == [
        ["SERVER", "WHAT", "DRIFT"],
        ["files", "(instructions)", "changed"],
        ["new", "(the", "server)", "added"],
        ["time", "more", "added"],
        ["time", "now", "changed"],
        ["time", "zone", "missing"],
    ]
    assert "trust diff" in err
    assert deck.lock.read_bytes() == before


def test_a_server_that_is_not_ready_is_told_from_drift(deck: Deck, lists: Lists) -> None:
    """A network that is down would look like an attack."""
    deck(0)
    lists.servers["files"] = None
    lists.servers["unlocked"] = None
    out, err = deck(ExitCode.NOT_READY, "--check")
    assert out == ""
    assert "files: it is not ready, and was not compared" in err
    assert "unlocked" not in err
    lists.servers["time"] = (EVIL, ZONE)
    told = json.loads(deck(ExitCode.DRIFTED, "--check", "--json").out)
    assert told["not_ready"] == ["files"]
    assert told["drift"] == [{"server": "time", "subject": "tool", "name": "now", "drift": "changed"}]


def test_what_is_ignored_may_differ_and_is_said(deck: Deck, lists: Lists, tmp_path: Path) -> None:
    """A description with the local time zone would hold on one machine alone; a planted `lock.ignore` stay unseen."""
    (tmp_path / "lock.ignore").write_text("time/now /description\n")
    assert "(without what 1 line of lock.ignore leaves out)" in deck(0).err
    lists.servers["time"] = (tool_form("now", "The time in Berlin."), ZONE)
    assert "(without what 1 line of lock.ignore leaves out)" in deck(0, "--check").err
    lists.servers["time"] = (NOW, tool_form("zone", "The zone of Berlin."))
    deck(ExitCode.DRIFTED, "--check")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--check"], ExitCode.NOT_FOUND, "deck.lock: there is no such file: quarterdeck lock writes it"),
        (["--ignore", "missing"], ExitCode.USAGE, "missing: cannot be read"),
        (["--file", "no/deck.lock"], ExitCode.USAGE, "no/deck.lock: it cannot be written"),
    ],
)
def test_what_is_not_there_is_said(deck: Deck, arguments: list[str], code: ExitCode, says: str) -> None:
    """A user would see a traceback."""
    assert says in deck(code, *arguments).err
