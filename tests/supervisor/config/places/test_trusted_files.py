"""Which files are the user's word."""

import os
from pathlib import Path

import pytest
from support.config.places import write_config

from quarterdeck.config.places import runtime_directory
from quarterdeck.config.places.paths import UnsafePathError
from quarterdeck.config.places.runtime_directory import RuntimeDirectory, announced_files
from quarterdeck.config.places.trusted_files import LOCKS, never_written, trusted_files, with_announced
from quarterdeck.config.settings import Settings
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox.view.own_code import own_code


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


def of(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", **more}


def test_the_users_own_places_are_among_them_whether_there_is_a_file_or_not(home: Path, tmp_path: Path) -> None:
    """A file that appears there would be believed at the next start."""
    found = trusted_files(cwd=tmp_path, environ=of(home))
    assert str(home / ".config/indusvx/mcp.json") in found
    assert str(home / ".indusvx/agent/mcp.json") in found
    assert str(tmp_path / ".mcp.json") not in found
    moved = trusted_files(cwd=tmp_path, environ=of(home, XDG_CONFIG_HOME=str(tmp_path / "x")))
    assert str(tmp_path / "x/indusvx/mcp.json") in moved


def test_files_that_are_named_anywhere_are_among_them(home: Path, tmp_path: Path) -> None:
    """What the user named by a variable, or beside a lock, would be open."""
    (tmp_path / "deck.lock").write_text("x")
    environ = of(home, QUARTERDECK_CONFIG=f"{tmp_path}/a.json{os.pathsep}{tmp_path}/b.json")
    found = trusted_files([tmp_path / "c.json"], cwd=tmp_path, environ=environ)
    assert {f"{tmp_path}/{name}" for name in ("a.json", "b.json", "c.json", "deck.lock")} <= set(found)
    assert f"{tmp_path}/lock.ignore" not in found
    (tmp_path / "lock.ignore").write_text("x")
    assert f"{tmp_path}/lock.ignore" in trusted_files(cwd=tmp_path, environ=environ)


def test_the_usual_state_directory_is_among_them_where_another_is_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger or a token that was planted there would be believed at the next start that names none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    usual = tmp_path / "state" / "quarterdeck"
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "other"))
    assert str(usual) not in trusted_files(cwd=tmp_path, environ=of(home))
    usual.mkdir(parents=True)
    assert str(usual) in trusted_files(cwd=tmp_path, environ=of(home))
    # The one in use is not shown at all, and what servers may write lies in it.
    monkeypatch.delenv("QUARTERDECK_STATE_DIR")
    assert str(usual) not in trusted_files(cwd=tmp_path, environ=of(home))


def test_other_clients_files_are_among_them(home: Path, tmp_path: Path) -> None:
    """A command would have another client start whatever it likes, or us import it."""
    found = trusted_files(cwd=tmp_path, environ=of(home))
    assert {str(home / ".cursor/mcp.json"), str(home / ".claude.json")} <= set(found)


def test_programs_that_nothing_confines_are_among_them(tmp_path: Path, home: Path) -> None:
    """A confined command would put another program in the place of one that runs as the user."""
    (tmp_path / "server.py").write_text("")
    (tmp_path / "run").write_text("")
    rows = [
        StdioServerConfig(
            id="a", command="./run", args=("server.py",), cwd=str(tmp_path), sandbox={"preset": "trusted"}
        ),
        StdioServerConfig(id="b", command="/bin/sh", args=(f"{tmp_path}/run",)),
    ]
    found = trusted_files((), rows[:1], cwd=home, environ=of(home))
    assert {f"{tmp_path}/run", f"{tmp_path}/server.py"} <= set(found)
    assert "/bin/sh" not in trusted_files((), rows[1:], cwd=home, environ=of(home))


@pytest.mark.parametrize("where", ["the row's PATH", "our PATH"])
def test_a_program_that_nothing_confines_is_found_by_its_name(tmp_path: Path, home: Path, where: str) -> None:
    """A confined command would put another program in `~/.local/bin`, and the next start would run it as the user."""
    (tmp_path / "tool").write_text("")
    (tmp_path / "tool").chmod(0o755)
    env = {"PATH": str(tmp_path)} if where == "the row's PATH" else {}
    row = StdioServerConfig(id="a", command="tool", env=env, sandbox={"preset": "trusted"})
    environ = of(home) if env else of(home, PATH=str(tmp_path))
    assert f"{tmp_path}/tool" in trusted_files((), [row], cwd=home, environ=environ)


def test_no_tool_of_ours_writes_the_users_word_or_our_code(tmp_path: Path) -> None:
    """In a workspace that holds our environment, `write` would change what runs at the next command."""
    config = tmp_path / "mcp.json"
    config.write_text("{}")
    with RuntimeDirectory.create("a" * 12) as directory:
        directory.announce([config], "1.0")
        assert set(never_written(lambda: ["/x"])) >= {"/x", str(config), *own_code()}


def test_what_a_configuration_refers_to_is_the_users_word_too(home: Path, tmp_path: Path) -> None:
    """`PYTHONPATH` in an env file is code; and it counts before the file is there."""
    config = tmp_path / "mcp.json"
    rows = {
        "a": {"command": "/bin/true", "envFile": "a.env"},
        "b": {"command": "/bin/true", "env": {"X": "${file:secret}"}},
    }
    write_config(config, **rows)
    settings = Settings.load([config], of(home))
    assert {f"{tmp_path}/{name}" for name in ("mcp.json", "a.env", "secret")} <= set(settings.trusted)


def test_the_configuration_of_everybody_who_serves_is_among_them(tmp_path: Path) -> None:
    """A server of one deck would write the configuration of another."""
    config = tmp_path / "mcp.json"
    config.write_text("{}")
    with RuntimeDirectory.create("a" * 12) as directory:
        directory.announce([config], "1.0")
        assert set(with_announced(["/x"])) >= {"/x", str(config)}
    assert str(config) not in with_announced(["/x"])


def test_what_the_configuration_of_any_running_process_refers_to_is_among_them(home: Path, tmp_path: Path) -> None:
    """A server of one deck would change another's env file, secret, lock, or what the lock leaves out."""
    config = tmp_path / "mcp.json"
    rows = {"a": {"command": "/bin/true", "envFile": "a.env", "env": {"X": "${file:secret}"}}}
    write_config(config, **rows)
    for name in LOCKS:
        (tmp_path / name).touch()
    settings = Settings.load([config], of(home))
    trusted = trusted_files(map(Path, settings.trusted), cwd=tmp_path, environ=of(home))
    theirs = {f"{tmp_path}/{name}" for name in ("mcp.json", "a.env", "secret", *LOCKS)}
    with RuntimeDirectory.create("a" * 12) as directory:
        directory.announce_trusted(trusted)
        assert theirs <= set(with_announced([]))
        directory.announce_trusted(["/later"])
        assert {*theirs, "/later"} <= set(with_announced([]))
    assert theirs.isdisjoint(with_announced([]))


def test_a_path_of_any_bytes_is_announced(tmp_path: Path) -> None:
    """A deck with such a file could not start, or would leave it to others."""
    odd = f"{tmp_path}/\udcff\n"
    with RuntimeDirectory.create("a" * 12) as directory:
        directory.announce_trusted([odd])
        assert odd in with_announced([])


def test_more_than_others_read_is_not_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes would read a part, and let their programs change the rest."""
    monkeypatch.setattr(runtime_directory, "MAX_TRUSTED_BYTES", 8)
    with RuntimeDirectory.create("0123456789ab", tmp_path / "run") as directory:
        directory.announce_trusted(["/short"])
        with pytest.raises(UnsafePathError, match="name fewer files"):
            directory.announce_trusted(["/other"])
        assert announced_files(tmp_path / "run") == ("/short",)
