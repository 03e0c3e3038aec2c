"""Putting us into a client's file and taking us out again, worked out before anything is written."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.config.places import write_config

from quarterdeck.config.clients.client_locations import ClientLocation, UserDirectories
from quarterdeck.config.clients.known_clients import CLIENTS, System
from quarterdeck.config.clients.link_entry import (
    MAX_LINE,
    LinkError,
    is_own,
    is_temporary,
    make_entry,
    own_command,
    plan_link,
    plan_unlink,
    show_change,
)
from quarterdeck.config.clients.row_conversion import UnsupportedRowError, convert_row
from quarterdeck.config.clients.user_file import write_user_file

CODE = next(client for client in CLIENTS if client.name == "claude-code")
ENTRY = {"command": "/bin/quarterdeck", "args": ["serve"]}
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def location(path: Path) -> ClientLocation:
    return ClientLocation(CODE, path, ("mcpServers",))


@pytest.mark.parametrize(
    "text", ['{"a": 1}', "{\n}", '{"mcpServers": { }}', '{\r\n "mcpServers": {"x": {"command": "y"}}}']
)
def test_unlinking_gives_back_the_very_file(tmp_path: Path, text: str) -> None:
    """A file under version control would differ for ever."""
    path = tmp_path / "f"
    path.write_bytes(text.encode())
    plan = plan_link(location(path), "quarterdeck", ENTRY)
    assert plan.is_needed
    write_user_file(plan.file, plan.text, NOW)
    assert json.loads(path.read_text())["mcpServers"]["quarterdeck"] == ENTRY
    assert plan_unlink(location(path), "quarterdeck").text == text


def test_what_was_changed_since_is_kept_when_unlinking(tmp_path: Path) -> None:
    """Going back to the copy would undo the work of weeks."""
    path = tmp_path / "f"
    path.write_text('{"a": 1}')
    plan = plan_link(location(path), "quarterdeck", ENTRY)
    write_user_file(plan.file, plan.text, NOW)
    path.write_text(path.read_text().replace('"a": 1', '"a": 2'))
    assert json.loads(plan_unlink(location(path), "quarterdeck").text) == {"a": 2, "mcpServers": {}}


def test_an_entry_that_is_right_already_is_left_however_it_is_laid_out(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('{"mcpServers": {"quarterdeck":{"args":["serve"],  "command":"/bin/quarterdeck"}}}')
    plan = plan_link(location(path), "quarterdeck", ENTRY)
    assert (plan.is_needed, plan.diff()) == (False, [])
    assert not plan_unlink(location(path), "another").is_needed


def test_somebody_elses_entry_is_left(tmp_path: Path) -> None:
    """A server of the user's that happens to be called so would be gone."""
    path = tmp_path / "f"
    write_config(path, quarterdeck={"command": "other"})
    with pytest.raises(LinkError, match="another server called 'quarterdeck'"):
        plan_link(location(path), "quarterdeck", ENTRY)
    with pytest.raises(LinkError, match="is not quarterdeck"):
        plan_unlink(location(path), "quarterdeck")


def test_a_second_entry_of_ours_is_told(tmp_path: Path) -> None:
    """Every tool would be there twice, and nobody know why."""
    path = tmp_path / "f"
    write_config(path, qd=ENTRY, x={"command": "y"}, odd=1)
    assert plan_link(location(path), "quarterdeck", ENTRY).others == ("qd",)


@pytest.mark.parametrize(
    "text", ['{"a": ', "[]", '{"mcpServers": []}', '{"a": 1} // x', '{"mcpServers": {}, "mcpServers": {}}']
)
def test_a_file_that_is_not_understood_is_never_touched(tmp_path: Path, text: str) -> None:
    """All settings of the client would be lost to a typing error in them."""
    path = tmp_path / "f"
    path.write_text(text)
    with pytest.raises(LinkError, match=str(path)):
        plan_link(location(path), "quarterdeck", ENTRY)
    assert path.read_text() == text


def test_a_missing_file_is_made(tmp_path: Path) -> None:
    """A client that was just installed could not be linked."""
    plan = plan_link(location(tmp_path / "f"), "quarterdeck", ENTRY)
    assert json.loads(plan.text) == {"mcpServers": {"quarterdeck": ENTRY}}


DESKTOP = next(client for client in CLIENTS if client.name == "claude-desktop")
HERE = UserDirectories(Path("/home/me"), Path("/work"), {}, System.LINUX, (), "Ubuntu")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    assert is_temporary(("/home/me/.cache/uv/archive-v0/x/bin/quarterdeck",))
    assert not is_temporary(("/home/me/.local/bin/quarterdeck",))


def test_our_directories_go_along() -> None:
    """The serve of the client would keep its state elsewhere than the commands look."""
    environ = {
        "QUARTERDECK_STATE_DIR": "/s",
        "QUARTERDECK_DATA_DIR": "/d",
        "QUARTERDECK_LOG_LEVEL": "debug",
        "TOKEN": "x",
    }
    entry = make_entry(ClientLocation(DESKTOP, Path("f"), ()), HERE, ["/py", "-m", "quarterdeck.cli"], [], environ)
    assert entry == {
        "command": "/py",
        "args": ["-m", "quarterdeck.cli", "serve"],
        "env": {"QUARTERDECK_STATE_DIR": "/s", "QUARTERDECK_DATA_DIR": "/d"},
    }
    kept = ("QUARTERDECK_STATE_DIR=/s", "QUARTERDECK_DATA_DIR=/d")
    across = make_entry(ClientLocation(DESKTOP, Path("f"), (), is_across=True), HERE, ["/q"], [], environ)
    assert across == {
        "command": "wsl.exe",
        "args": ["--distribution", "Ubuntu", "--exec", "env", *kept, "/q", "serve"],
    }


def lines(count: int, value: str = "x") -> str:
    return json.dumps({f"k{number}": value for number in range(count)}, indent=1)


def test_a_change_is_one_hunk_with_its_place() -> None:
    """A user would have to find an entry in a file of thousands of lines."""
    old = lines(1000)
    new = old.replace('"k500": "x"', '"k500": "y"')
    assert show_change("f", old, new) == [
        "--- f",
        "+++ f",
        "@@ -500,5 +500,5 @@",
        '  "k498": "x",',
        '  "k499": "x",',
        '- "k500": "x",',
        '+ "k500": "y",',
        '  "k501": "x",',
        '  "k502": "x",',
    ]


def test_a_file_on_one_long_line_is_shown_as_if_it_were_laid_out() -> None:
    """All of a client's state would fill the screen, and the change could not be found."""
    old = json.dumps({"a": "x" * MAX_LINE, "b": {}})
    new = json.dumps({"a": "x" * MAX_LINE, "b": {"n": 1}})
    shown = show_change("f", old, new)
    assert shown[-5:] == ['-  "b": {}', '+  "b": {', '+    "n": 1', "+  }", " }"]


def test_secrets_beside_the_change_are_hidden() -> None:
    """The neighbour's token would be on the screen."""
    old = '{\n  "env": {\n    "TOKEN": "hunter2-hunter2"\n  }\n}'
    shown = show_change("f", old, old.replace('"\n  }', '",\n    "A": "b"\n  }'))
    assert "hunter2" not in "\n".join(shown)
    assert any(line.startswith("+") for line in shown[3:])


@pytest.mark.parametrize(
    "row",
    [
        {"command": "/usr/bin/quarterdeck", "args": ["serve"]},
        {"command": "quarterdeck", "args": ["serve", "--config", "x"]},
        {"command": "/usr/bin/python3", "args": ["-m", "quarterdeck.cli", "serve"]},
        {"command": "wsl.exe", "args": ["--exec", "/home/me/.local/bin/quarterdeck", "serve"]},
        {"command": "wsl.exe", "args": ["--exec", "env", "A=b", "/bin/quarterdeck", "serve"]},
        {"command": "uvx", "args": ["quarterdeck", "serve"]},
        {"command": "C:\\bin\\quarterdeck.exe", "args": ["serve"]},
    ],
)
def test_we_are_recognised_however_we_are_started(row: dict[str, object]) -> None:
    """Quarterdeck would start itself, which starts itself, without end."""
    assert is_own(row)
    with pytest.raises(UnsupportedRowError, match="quarterdeck itself"):
        convert_row(row)


@pytest.mark.parametrize(
    "row",
    [
        {"command": "npx", "args": ["serve", "quarterdeck"]},
        {"command": "quarterdeck", "args": ["sandbox", "run"]},
        {"command": "quarterdeck"},
        {"command": 1, "args": "serve"},
        {"url": "http://quarterdeck/serve"},
    ],
)
def test_others_are_not_taken_for_us(row: dict[str, object]) -> None:
    """A server would silently not be imported, or be removed by unlink."""
    assert not is_own(row)
