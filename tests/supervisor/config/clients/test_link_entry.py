"""Putting us into a client's file and taking us out again, worked out before anything is written."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quarterdeck.config.clients.link_entry import LinkError, plan_link, plan_unlink
from quarterdeck.config.clients.locations import Spot
from quarterdeck.config.clients.table import CLIENTS
from quarterdeck.config.clients.user_file import write_user_file

CODE = next(client for client in CLIENTS if client.name == "claude-code")
ENTRY = {"command": "/bin/quarterdeck", "args": ["serve"]}
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def spot(path: Path) -> Spot:
    return Spot(CODE, path, ("mcpServers",))


@pytest.mark.parametrize(
    "text", ['{"a": 1}', "{\n}", '{"mcpServers": { }}', '{\r\n "mcpServers": {"x": {"command": "y"}}}']
)
def test_unlinking_gives_back_the_very_file(tmp_path: Path, text: str) -> None:
    """A file under version control would differ for ever."""
    path = tmp_path / "f"
    path.write_bytes(text.encode())
    plan = plan_link(spot(path), "quarterdeck", ENTRY)
    assert plan.is_needed
    write_user_file(plan.file, plan.text, NOW)
    assert json.loads(path.read_text())["mcpServers"]["quarterdeck"] == ENTRY
    assert plan_unlink(spot(path), "quarterdeck").text == text


def test_what_was_changed_since_is_kept_when_unlinking(tmp_path: Path) -> None:
    """Going back to the copy would undo the work of weeks."""
    path = tmp_path / "f"
    path.write_text('{"a": 1}')
    plan = plan_link(spot(path), "quarterdeck", ENTRY)
    write_user_file(plan.file, plan.text, NOW)
    path.write_text(path.read_text().replace('"a": 1', '"a": 2'))
    assert json.loads(plan_unlink(spot(path), "quarterdeck").text) == {"a": 2, "mcpServers": {}}


def test_linking_twice_changes_nothing(tmp_path: Path) -> None:
    """Each run would leave another copy of the file."""
    path = tmp_path / "f"
    path.write_text(json.dumps({"mcpServers": {"quarterdeck": ENTRY}}))
    plan = plan_link(spot(path), "quarterdeck", ENTRY)
    assert not plan.is_needed
    assert plan.diff() == []
    assert not plan_unlink(spot(path), "another").is_needed


def test_our_own_entry_is_brought_up_to_date(tmp_path: Path) -> None:
    """After a move of the program the client could not be linked again."""
    path = tmp_path / "f"
    path.write_text(json.dumps({"mcpServers": {"quarterdeck": {"command": "/old/quarterdeck", "args": ["serve"]}}}))
    assert json.loads(plan_link(spot(path), "quarterdeck", ENTRY).text) == {"mcpServers": {"quarterdeck": ENTRY}}


def test_somebody_elses_entry_is_left(tmp_path: Path) -> None:
    """A server of the user's that happens to be called so would be gone."""
    path = tmp_path / "f"
    path.write_text(json.dumps({"mcpServers": {"quarterdeck": {"command": "other"}}}))
    with pytest.raises(LinkError, match="another server called 'quarterdeck'"):
        plan_link(spot(path), "quarterdeck", ENTRY)
    with pytest.raises(LinkError, match="is not quarterdeck"):
        plan_unlink(spot(path), "quarterdeck")


def test_a_second_entry_of_ours_is_told(tmp_path: Path) -> None:
    """Every tool would be there twice, and nobody know why."""
    path = tmp_path / "f"
    path.write_text(json.dumps({"mcpServers": {"qd": ENTRY, "x": {"command": "y"}, "odd": 1}}))
    assert plan_link(spot(path), "quarterdeck", ENTRY).others == ("qd",)


@pytest.mark.parametrize(
    "text", ['{"a": ', "[]", '{"mcpServers": []}', '{"a": 1} // x', '{"mcpServers": {}, "mcpServers": {}}']
)
def test_a_file_that_is_not_understood_is_never_touched(tmp_path: Path, text: str) -> None:
    """All settings of the client would be lost to a typing error in them."""
    path = tmp_path / "f"
    path.write_text(text)
    with pytest.raises(LinkError, match=str(path)):
        plan_link(spot(path), "quarterdeck", ENTRY)
    assert path.read_text() == text


def test_a_missing_file_is_made(tmp_path: Path) -> None:
    """A client that was just installed could not be linked."""
    plan = plan_link(spot(tmp_path / "f"), "quarterdeck", ENTRY)
    assert json.loads(plan.text) == {"mcpServers": {"quarterdeck": ENTRY}}
