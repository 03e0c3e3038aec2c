"""What is on disk is shown first, and goes only when that is wanted."""

import os
import sys
from pathlib import Path

import pytest
from support.command_line import Said
from support.seals import sealed

from quarterdeck.cli.configure import purge
from quarterdeck.config.places.paths import configuration_digest, make_private_dir, seals_dir, server_paths
from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.ledger.store.lease import Holder, take_lease
from quarterdeck.seals.store import SealStore

from .client_commands import write


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory with the servers `fs` of two configurations, a workspace and a ledger in it."""
    base = tmp_path.resolve()
    state = make_private_dir(base / "state")
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    monkeypatch.setenv("QUARTERDECK_DATA_DIR", str(state.parent / "data"))
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(base / "run"))
    monkeypatch.delenv("QUARTERDECK_CONFIG", raising=False)
    monkeypatch.setattr(purge, "runtime_roots", lambda: (base / "run",))
    monkeypatch.chdir(tmp_path)
    for name in ("one.json", "two.json"):
        write(base / name, {"mcpServers": {}})
        home = server_paths(digest(base / name), "fs", state).create().home
        (home / "file").write_bytes(b"x" * 100_000)
    (state / "workspaces" / "0123456789ab" / "home").mkdir(parents=True)
    make_private_dir(state / "ledger")
    (state / "token").touch()
    return state


def digest(path: Path) -> str:
    return configuration_digest([path])


def left(state: Path) -> set[str]:
    return {name for name in ("one", "two") if (state / "servers" / digest(state.parent / f"{name}.json")).exists()} | {
        path.name
        for path in (state / "workspaces", state / "ledger", state / "token")
        if path.exists() and any_in(path)
    }


def any_in(path: Path) -> bool:
    return path.is_file() or path.name == "ledger" or any(path.iterdir())


ALL = {"one", "two", "workspaces", "ledger", "token"}


def test_what_is_there_is_shown_and_removed_only_when_something_is_named(state: Path, said: Said) -> None:
    """Looking would remove things, or a script not know what was removed."""
    out, err = said(0, "purge")
    assert [line.split()[1:4] for line in out.splitlines()[1:]] == [
        ["KiB", "server", "fs"],
        ["KiB", "server", "fs"],
        ["KiB", "workspace", "0123456789ab"],
        ["KiB", "record", "ledger"],
        ["B", "record", "token"],
    ]
    assert "--all" in err
    assert left(state) == ALL
    [report] = said.json(0, "purge", "fs", "-c", "one.json", "--json", "--yes")
    assert report["size_bytes"] >= 100_000
    assert report["removed"]
    assert report["is_whole"]
    assert report["configuration"] == digest(state.parent / "one.json")
    assert not any(each["removed"] for each in said.json(0, "purge", "--json"))


def test_a_server_is_removed_of_one_configuration_or_of_all(state: Path, said: Said) -> None:
    """The home of another server with the same name would go, or stay for ever."""
    said(0, "purge", "fs", "-c", "one.json", "--yes")
    assert left(state) == ALL - {"one"}
    said(0, "purge", "fs", "--yes")
    assert left(state) == ALL - {"one", "two"}
    said(3, "purge", "fs", "--yes")


@pytest.mark.process
def test_all_keeps_the_records_and_says_so(state: Path, said: Said) -> None:
    """What was approved would be forgotten with the caches."""
    out, err = said(0, "purge", "--all", "--yes")
    assert "removed 3, " in out
    assert "KiB" in out.splitlines()[-1] or " B" in out.splitlines()[-1]
    assert "kept: ledger, token" in err
    assert left(state) == {"ledger", "token"}
    said(0, "purge", "--all", "--ledger", "--yes")
    assert left(state) == set()
    assert state.is_dir()
    said(0, "purge", "--all", "--yes")


@pytest.mark.process
def test_sealed_packages_are_shown_and_go_with_all_that_is_not_running(state: Path, said: Said) -> None:
    """Gigabytes would be on the disk that nothing names, or a running server would lose its code."""
    sealed(SealStore(seals_dir()))
    [row] = [each for each in said.json(0, "purge", "--json") if each["kind"] == "seals"]
    assert (row["path"], row["used_by"]) == (str(seals_dir()), None)
    with RuntimeDirectory.create(digest(state.parent / "one.json"), state.parent / "run"):
        assert f"{seals_dir()} is left" in said(1, "purge", "--all", "--yes").err
    said(0, "purge", "--all", "--yes")
    assert not seals_dir().exists()


def test_what_is_running_stays(state: Path, said: Said) -> None:
    """A running server would lose its home under its feet."""
    with RuntimeDirectory.create(digest(state.parent / "one.json"), state.parent / "run"):
        assert "it is running: stop it first" in said(1, "purge", "--all", "--ledger", "--yes").err
        assert left(state) == {"one", "ledger", "token"}
        said(1, "purge", "fs", "--yes")
    said(0, "purge", "fs", "--yes")


def test_what_a_deck_of_the_daemon_uses_stays(state: Path, said: Said) -> None:
    """A server that many projects share, or one of a daemon with another runtime directory, would lose its home."""
    elsewhere = state.parent / "elsewhere"
    with RuntimeDirectory.create("0" * 12, elsewhere) as deck:
        deck.announce_homes([digest(state.parent / "one.json")])
        holder = Holder(pid=os.getpid(), digest="", runtime_directory=str(elsewhere / "qd-of-the-daemon"))
        with take_lease(state / "ledger", holder):
            said(1, "purge", "--all", "--yes")
    assert left(state) == {"one", "ledger", "token"}


def test_of_several_files_the_servers_of_each_are_removed(state: Path, said: Said) -> None:
    """Who names the files as `serve` was given them would be told that there is nothing."""
    together = server_paths(configuration_digest([Path("one.json"), Path("two.json")]), "old", state).create().home
    said(0, "purge", "--all", "-c", "one.json", "-c", "two.json", "--yes")
    assert left(state) == ALL - {"one", "two"}
    assert not together.exists()


def test_who_writes_the_ledger_is_running_wherever_its_sockets_are(state: Path, said: Said) -> None:
    """A serve that was started with another runtime directory would lose its servers' homes, and its ledger."""
    with take_lease(state / "ledger", Holder(pid=os.getpid(), digest=digest(state.parent / "one.json"))):
        said(1, "purge", "--all", "--ledger", "--yes")
    assert left(state) == {"one", "ledger", "token"}


def test_a_server_that_starts_while_we_ask_stays(state: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person may think for minutes before they answer."""
    started: list[RuntimeDirectory] = []

    def answer(*_: object, **__: object) -> bool:
        started.append(RuntimeDirectory.create(digest(state.parent / "one.json"), state.parent / "run"))
        return True

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", answer)
    said(1, "purge", "--all")
    started[0].close()
    assert left(state) == {"one", "ledger", "token"}


def test_nobody_is_asked_where_nobody_is(state: Path, said: Said) -> None:
    """A script would hang, or remove what nobody agreed to."""
    assert "--yes" in said(2, "purge", "--all").err
    said(2, "purge", "fs", "--json")
    assert left(state) == ALL


@pytest.mark.parametrize("arguments", [["fs", "--all"], ["--ledger"], ["--all", "--ledger", "-c", "one.json"]])
def test_contradictions_are_refused(state: Path, said: Said, arguments: list[str]) -> None:
    """Of two meanings the worse could be taken."""
    said(2, "purge", *arguments, "--yes")
    assert left(state) == ALL


def test_a_state_directory_of_others_is_refused(state: Path, said: Said) -> None:
    """Another user could have put links there."""
    state.chmod(0o777)
    assert "chmod 700" in said(2, "purge", "--all", "--yes").err
    state.chmod(0o700)
    assert left(state) == ALL
