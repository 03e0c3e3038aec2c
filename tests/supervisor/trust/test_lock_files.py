"""`deck.lock` and `lock.ignore` on the disk."""

import os
import stat
from pathlib import Path

import pytest
from support.ledger.histories import NOW, TOLD

from quarterdeck.ledger.events.chain import Head
from quarterdeck.trust.lock.ignores import Ignores
from quarterdeck.trust.lock.lockfile import lock_of
from quarterdeck.trust.lock_files import LockFileError, MissingLockError, load_ignores, load_lock, save_lock

LOCK = lock_of({"time": [TOLD, NOW]}, Ignores(), Head(3, "ab" * 32))


def test_a_lock_is_a_file_like_others_and_keeps_its_mode(tmp_path: Path) -> None:
    """A colleague's checkout or a build could not read it; or everybody could who should not."""
    path = tmp_path / "deck.lock"
    save_lock(path, LOCK)
    (tmp_path / "other").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)
    path.chmod(0o640)
    save_lock(path, LOCK)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """A lock that several directories share would be torn apart."""
    (tmp_path / "real.lock").touch()
    (tmp_path / "deck.lock").symlink_to("real.lock")
    save_lock(tmp_path / "deck.lock", LOCK)
    assert (tmp_path / "deck.lock").is_symlink()
    assert load_lock(tmp_path / "real.lock") == LOCK


def test_the_ignores_beside_a_lock_are_its_own(tmp_path: Path) -> None:
    """A lock would be judged without what it leaves out."""
    save_lock(tmp_path / "deck.lock", LOCK)
    (tmp_path / "lock.ignore").write_text("time/now /description\n")
    lock = load_lock(tmp_path / "deck.lock")
    assert lock.ignores == Ignores.parse("time/now /description") == load_ignores(tmp_path / "deck.lock")
    named = tmp_path / "other.ignore"
    named.write_text("time instructions\n")
    assert load_lock(tmp_path / "deck.lock", named).ignores == Ignores.parse("time instructions")


def test_no_ignores_are_none_but_named_ones_must_be_there(tmp_path: Path) -> None:
    """A slip in a file's name would judge by other rules than the user's."""
    assert load_ignores(tmp_path / "deck.lock") == Ignores()
    with pytest.raises(LockFileError, match=r"other\.ignore: cannot be read"):
        load_ignores(tmp_path / "deck.lock", tmp_path / "other.ignore")


def test_a_lock_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    """A first lock could not be written, or a missing one would pass for an empty one."""
    with pytest.raises(MissingLockError, match="quarterdeck lock writes it"):
        load_lock(tmp_path / "deck.lock")


@pytest.mark.parametrize(
    ("content", "ignore", "said"),
    [
        (b"{}", b"", "deck.lock: the lock: 'version' is missing"),
        (b"\xff", b"", "deck.lock: line 1, column 1: not UTF-8 text"),
        (None, b"nonsense", "lock.ignore: line 1: write SERVER/TOOL"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path: Path, content: bytes | None, ignore: bytes, said: str) -> None:
    """A user would search both files."""
    save_lock(tmp_path / "deck.lock", LOCK)
    if content is not None:
        (tmp_path / "deck.lock").write_bytes(content)
    (tmp_path / "lock.ignore").write_bytes(ignore)
    with pytest.raises(LockFileError) as raised:
        load_lock(tmp_path / "deck.lock")
    assert said in str(raised.value)


def test_a_pipe_in_a_locks_place_does_not_hold_us(tmp_path: Path) -> None:
    """A stranger's directory could hang the command."""
    os.mkfifo(tmp_path / "deck.lock")
    with pytest.raises(LockFileError, match="not a regular file"):
        load_lock(tmp_path / "deck.lock")


def test_a_lock_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    """A full disk would leave half a lock under version control."""
    with pytest.raises(LockFileError, match="cannot be written"):
        save_lock(tmp_path / "missing" / "deck.lock", LOCK)
    (tmp_path / "directory").mkdir()
    with pytest.raises(LockFileError, match="cannot be written"):
        save_lock(tmp_path / "directory", LOCK)
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]
