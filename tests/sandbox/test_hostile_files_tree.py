"""A directory that a hostile server may write is read without leaving it, waiting on it, or drowning in it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quarterdeck_sandbox.hostile_files import MAX_FILE_BYTES, HostileTree


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[HostileTree]:
    (tmp_path / "home" / "inner").mkdir(parents=True)
    (tmp_path / "home" / "inner" / "file").write_text("inside")
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "file").write_text("outside")
    with HostileTree(tmp_path / "home") as opened:
        yield opened


def test_what_is_there_is_read(tree: HostileTree) -> None:
    """Names, content, and when it was written."""
    assert tree.names("inner") == ["file"]
    assert tree.read("inner", "file") == b"inside"
    assert tree.changed_at("inner", "file") > 0


def test_what_is_not_there_is_nothing(tree: HostileTree) -> None:
    """A cache that was never made is no failure."""
    assert tree.names("none") == []
    assert tree.read("none", "file") is None
    assert tree.read("inner") is None
    assert tree.changed_at("none") == 0


def test_no_link_leads_out(tree: HostileTree, tmp_path: Path) -> None:
    """A link in the cache must not show us, or anybody, a file of the user's."""
    (tmp_path / "home" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "home" / "way").symlink_to(tmp_path / "away")
    assert tree.read("link") is None
    assert tree.read("way", "file") is None
    assert tree.names("way") == []
    assert tree.read("..", "outside") is None
    assert tree.read("../outside") is None


def test_a_pipe_does_not_hold_us(tree: HostileTree, tmp_path: Path) -> None:
    """Nobody ever writes to it."""
    os.mkfifo(tmp_path / "home" / "pipe")
    assert tree.read("pipe") is None


def test_a_file_that_is_too_large_is_as_good_as_none(tree: HostileTree, tmp_path: Path) -> None:
    """A server may have a gigabyte in its manifest."""
    (tmp_path / "home" / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert tree.read("large") is None


def test_a_name_that_no_file_can_have_is_nothing(tree: HostileTree) -> None:
    """Command lines hold what they like."""
    assert tree.read("a\x00b") is None
    assert tree.read("x" * 5_000) is None


def test_nothing_stays_open(tree: HostileTree) -> None:
    """A supervisor that looks at every start runs for months."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        tree.names("inner")
        tree.read("inner", "file")
        tree.read("inner", "none")
        tree.read("inner", "file", "below")
        tree.changed_at("inner")
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before
