"""How much room a tree takes, whatever is in it."""

import os
from pathlib import Path

import pytest

from quarterdeck_sandbox.hostile_files import temporary_folder
from quarterdeck_sandbox.policy.limits import DiskUse
from quarterdeck_sandbox.run.disk_use import HELD_LEVELS, disk_use, measure_disk_use

LEVELS = 1200  # deeper than Python recurses, than there are descriptors, and than a path is long


def deep(folder: Path, levels: int = LEVELS, mode: int = 0o700) -> None:
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deep", mode, dir_fd=fd)
        below = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def taken(*paths: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in paths)


def test_a_tree_takes_what_is_in_it(tmp_path: Path) -> None:
    """A user would decide by a wrong number."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 5000)
    found = measure_disk_use(tmp_path)
    assert found.size_bytes == taken(tmp_path, *tmp_path.rglob("*"))
    assert found.size_bytes >= 105_000
    assert found.files == 5
    assert found.is_whole
    assert measure_disk_use(tmp_path / "a" / "file") == DiskUse(taken(tmp_path / "a" / "file"), 1)
    assert measure_disk_use(tmp_path / "none") == DiskUse()


def test_holes_and_second_names_count_nothing_at_any_depth(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "big").write_bytes(b"x" * 300_000)
    os.link(deep / "big", tmp_path / "again")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    below = disk_use([str(tmp_path)])
    assert below == DiskUse(taken(tmp_path / "a", deep, deep / "big", tmp_path / "sparse"), 4)
    assert measure_disk_use(tmp_path) == below + DiskUse(taken(tmp_path), 1)


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """All of the user's home would be counted, or the walk never end."""
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "out").symlink_to(tmp_path / "large")
    (tmp_path / "tree" / "round").symlink_to(".")
    (tmp_path / "tree" / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "tree" / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "large")
    assert measure_disk_use(tmp_path / "tree").files == 5
    assert measure_disk_use(tmp_path / "tree").size_bytes < 100_000
    assert measure_disk_use(tmp_path / "link").size_bytes < 100_000
    assert disk_use([str(tmp_path / "tree")]).files == 4
    assert disk_use([str(tmp_path / "link"), str(tmp_path / "gone")]) == DiskUse(is_whole=False)


@pytest.mark.process
def test_any_depth_is_walked_and_a_walk_ends_in_time() -> None:
    before = len(os.listdir("/dev/fd"))
    with temporary_folder("quarterdeck-test-") as base:  # pytest cannot remove what is so deep
        folder = Path(base, "folder")
        folder.mkdir()
        deep(folder)
        (folder / "file").touch()
        (folder / "z").mkdir()
        (folder / "z" / "file").touch()
        found = measure_disk_use(folder)
        assert disk_use([base]).files == LEVELS + 4
        assert disk_use([base], within_s=-1.0) == DiskUse(is_whole=False)
    assert found.files == LEVELS + 4
    assert found.is_whole
    assert len(os.listdir("/dev/fd")) == before


def test_a_walk_has_bounds_and_says_so(tmp_path: Path) -> None:
    """A server that makes files without end would keep the command busy for ever."""
    for number in range(20):
        (tmp_path / str(number)).touch()
    found = measure_disk_use(tmp_path, most_entries=10)
    assert not found.is_whole
    assert found.files == 11


def test_a_directory_that_cannot_be_entered_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content would be taken for nothing."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    enter = os.open

    def refuse(name: object, *arguments: object, **options: object) -> int:
        if name == "a":
            raise PermissionError(13, "Permission denied")
        return enter(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    found = measure_disk_use(tmp_path)
    assert found.files == 4
    assert not found.is_whole


@pytest.mark.parametrize("levels", [2, HELD_LEVELS + 2])
def test_a_tree_that_is_moved_meanwhile_hides_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    """A server would move folders about to write without a limit; or the way back up lead into the user's files."""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    last = folder.joinpath("tree", *("inner",) * levels)
    (last / "last").mkdir(parents=True)
    (elsewhere / "users").mkdir(parents=True)
    for name in ("x", "y"):
        (folder / name / name).mkdir(parents=True)
        (folder / name / name / "file").touch()
    enter = os.open

    def move(name: object, *arguments: object, **options: object) -> int:
        fd = enter(name, *arguments, **options)  # type: ignore[arg-type]
        if name == "last":
            last.rename(elsewhere / "moved")
        return fd

    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(os, "open", move)
    found = measure_disk_use(folder)
    assert len(os.listdir("/dev/fd")) == before
    assert found.files == 1 + 2 + levels + 2 * 3
    assert found.is_whole == (levels < HELD_LEVELS)
