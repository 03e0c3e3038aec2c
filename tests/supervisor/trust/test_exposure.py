"""What programs could write, ever, is known after any restart."""

import os
from pathlib import Path

import pytest

from quarterdeck.config.places.paths import workspace_paths
from quarterdeck.ledger.open import ledger_dir
from quarterdeck.trust.exposure import FILE_NAME, MAX_BYTES, Exposure, read_exposure, record_exposure


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_what_was_recorded_is_known_to_the_next_process_and_what_lies_beside_is_not(
    state: Path, tmp_path: Path
) -> None:
    """A deck of yesterday could have written the configuration of today."""
    assert not read_exposure(state).covers(tmp_path / "w" / "mcp.json")
    record_exposure(state, [tmp_path / "w"])
    record_exposure(state, [tmp_path / "x", tmp_path / "w" / "inner"])
    exposure = read_exposure(state)
    assert [exposure.covers(tmp_path / name) for name in ("w/mcp.json", "x", "w", "wx", "y", ".")] == [
        *[True] * 3,
        *[False] * 3,
    ]


def test_a_place_that_is_named_by_a_link_stays_what_it_was(state: Path, tmp_path: Path) -> None:
    """Who moves the link would have what a server wrote taken for the user's word."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    record_exposure(state, [tmp_path / "link"])
    (tmp_path / "link").unlink()
    assert read_exposure(state).covers(tmp_path / "real" / "mcp.json")


def test_one_place_is_written_down_once(state: Path, tmp_path: Path) -> None:
    """The record would grow with every start, until it cannot be read."""
    for _ in range(3):
        record_exposure(state, [tmp_path / "w", tmp_path / "w" / "inner"])
    assert len((ledger_dir(state) / FILE_NAME).read_text().splitlines()) <= 2


def test_private_homes_count_without_a_record(state: Path) -> None:
    """A configuration that a server put into its own home would be the user's word."""
    for name in ("servers/ab/fs/home/mcp.json", "workspaces/ab/home/.env"):
        assert read_exposure(state).covers(state / name)
    assert not read_exposure(state).covers(state / "mcp.json")


def test_a_workspace_of_a_version_that_kept_no_record_counts(state: Path, tmp_path: Path) -> None:
    """What a deck wrote before an update would be the user's word after it."""
    workspace = tmp_path / "w"
    workspace.mkdir()
    workspace_paths(workspace, state).create()
    exposure = read_exposure(state)
    assert exposure.covers(workspace / "deep" / "mcp.json")
    assert not exposure.covers(tmp_path / "mcp.json")
    assert not exposure.is_recorded
    record_exposure(state, [])
    assert read_exposure(state).is_recorded


def test_a_file_counts_by_where_the_links_to_it_lie(state: Path, tmp_path: Path) -> None:
    """A program could point a link in its folder at a file of its own."""
    (tmp_path / "w").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "mcp.json").touch()
    (tmp_path / "w" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "short.json").symlink_to(tmp_path / "w" / "link" / "mcp.json")
    (tmp_path / "into").symlink_to(tmp_path / "w")
    exposure = Exposure().along_with([tmp_path / "into"])
    assert exposure.covers(tmp_path / "short.json")
    assert exposure.covers(tmp_path / "w" / "link" / "mcp.json")
    assert not exposure.covers(tmp_path / "real" / "mcp.json")


def test_links_without_an_end_count(tmp_path: Path) -> None:
    """A path that nobody can follow would be trusted."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert Exposure().covers(tmp_path / "loop")


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_what_another_user_may_write_counts(tmp_path: Path, mode: int) -> None:
    """Another user of the machine could have a program started in ours."""
    path = tmp_path / "mcp.json"
    path.touch()
    assert not Exposure().covers(path)
    path.chmod(mode)
    assert Exposure().covers(path)


def test_a_record_that_cannot_be_read_makes_everything_count(state: Path, tmp_path: Path) -> None:
    """Whoever spoils the record would have it forgotten."""
    record_exposure(state, [tmp_path / "w"])
    path = ledger_dir(state) / FILE_NAME
    path.write_bytes(b" " * (MAX_BYTES + 1))
    assert read_exposure(state).covers("/anywhere")
    path.unlink()
    path.symlink_to("/dev/null")
    assert read_exposure(state).covers("/anywhere")
    with pytest.raises(OSError, match="symbolic link"):
        record_exposure(state, ["/y"])


def test_a_line_that_was_interrupted_spoils_neither_its_neighbours_nor_the_next(state: Path, tmp_path: Path) -> None:
    """A crash in the middle of a write would make what is written later unreadable."""
    record_exposure(state, [tmp_path / "a"])
    with (ledger_dir(state) / FILE_NAME).open("ab") as file:
        file.write(b'"/tor')
    record_exposure(state, [tmp_path / "b"])
    exposure = read_exposure(state)
    assert exposure.covers(tmp_path / "a" / "f")
    assert exposure.covers(tmp_path / "b" / "f")
    assert not exposure.covers(tmp_path / "c")


def test_a_name_that_is_no_text_is_kept(state: Path, tmp_path: Path) -> None:
    """A folder with such a name could not be a workspace, or not be remembered."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n"))
    record_exposure(state, [odd])
    assert read_exposure(state).covers(odd / "mcp.json")
