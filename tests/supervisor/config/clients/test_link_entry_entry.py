"""The entry starts this very program, from anywhere."""

import sys
from pathlib import Path

import pytest

from quarterdeck.config.clients.link_entry import is_passing, make_entry, own_command
from quarterdeck.config.clients.locations import Spot, Surroundings
from quarterdeck.config.clients.table import CLIENTS, System

VSCODE = next(client for client in CLIENTS if client.name == "vscode")
DESKTOP = next(client for client in CLIENTS if client.name == "claude-desktop")
HERE = Surroundings(Path("/home/me"), Path("/work"), {}, System.LINUX, (), "Ubuntu")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter without our script beside it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    return tmp_path


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_script_that_runs_is_the_one_that_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would start another version, or none: it has neither our PATH nor our directory."""
    script, beside, on_path = (program(bare / name / "quarterdeck") for name in ("bin", "venv", "path"))
    monkeypatch.chdir(bare)
    assert own_command("bin/quarterdeck", str(on_path.parent)) == (str(script),)
    assert own_command("/x/__main__.py", str(on_path.parent)) == (str(beside),)
    beside.unlink()
    assert own_command("/x/__main__.py", str(on_path.parent)) == (str(on_path),)
    assert own_command("/x/__main__.py", "/nowhere") == (sys.executable, "-m", "quarterdeck.cli")


def test_a_link_to_the_script_is_kept(bare: Path) -> None:
    """After an upgrade the client would look for a version that is gone."""
    script, link = program(bare / "venv-1" / "quarterdeck"), bare / "bin" / "quarterdeck"
    link.parent.mkdir()
    link.symlink_to(script)
    assert own_command(str(link), "/nowhere") == (str(link),)


def test_a_program_in_a_cache_is_told() -> None:
    """It works today and is gone next week."""
    assert is_passing(("/home/me/.cache/uv/archive-v0/x/bin/quarterdeck",))
    assert not is_passing(("/home/me/.local/bin/quarterdeck",))


def test_each_client_gets_the_row_that_it_understands() -> None:
    """VS Code asks for a type; others know none."""
    arguments = ["--config", "/a b.json"]
    row = {"command": "/q", "args": ["serve", *arguments]}
    assert make_entry(Spot(DESKTOP, Path("f"), ()), HERE, ["/q"], arguments, {}) == row
    assert make_entry(Spot(VSCODE, Path("f"), ()), HERE, ["/q"], arguments, {}) == {"type": "stdio"} | row


def test_our_directories_go_along() -> None:
    """The serve of the client would keep its state elsewhere than the commands look."""
    environ = {"QUARTERDECK_STATE_DIR": "/s", "QUARTERDECK_LOG_LEVEL": "debug", "TOKEN": "x"}
    entry = make_entry(Spot(DESKTOP, Path("f"), ()), HERE, ["/py", "-m", "quarterdeck.cli"], [], environ)
    assert entry == {
        "command": "/py",
        "args": ["-m", "quarterdeck.cli", "serve"],
        "env": {"QUARTERDECK_STATE_DIR": "/s"},
    }
    across = make_entry(Spot(DESKTOP, Path("f"), (), is_across=True), HERE, ["/q"], [], environ)
    assert across == {
        "command": "wsl.exe",
        "args": ["--distribution", "Ubuntu", "--exec", "env", "QUARTERDECK_STATE_DIR=/s", "/q", "serve"],
    }
