"""A user's file is replaced whole or not at all, and stays the user's."""

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.sandbox.machine_facts import LINUX_ONLY, ROOT_ONLY

from quarterdeck.config.clients import user_file
from quarterdeck.config.clients.user_file import (
    UserFileError,
    backups,
    opens_to_others,
    read_user_file,
    write_user_file,
)

NOW = datetime(2026, 11, 22, 7, 30, 15, 123456, UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text("old")
    return path


def test_a_file_is_replaced_and_its_old_self_is_kept_privately(path: Path, tmp_path: Path) -> None:
    """A user could not go back, or others could read tokens in the copy."""
    path.write_bytes(b"\xef\xbb\xbfold\r\n")
    path.chmod(0o644)
    backup = write_user_file(read_user_file(path), "new\r\n", NOW)
    assert backup == tmp_path / "mcp.json.quarterdeck-20261122T073015.123456Z.bak"
    assert backup.read_bytes() == b"\xef\xbb\xbfold\r\n"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert path.read_bytes() == b"\xef\xbb\xbfnew\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert sorted(os.listdir(tmp_path)) == [path.name, backup.name]
    assert backups(path) == [backup]


@pytest.mark.parametrize(
    ("file", "folders", "is_open"),
    [
        (0o600, [0o755, 0o755], False),
        (0o644, [0o755, 0o755], True),
        (0o644, [0o700, 0o755], False),
        (0o644, [0o755, 0o700], False),
        (0o644, [0o750, 0o755], True),
        (0o604, [0o750, 0o755], False),
        (0o640, [0o750, 0o755], True),
        (0o640, [0o700, 0o755], False),
        (0o640, [0o701, 0o755], True),
        (0o604, [0o701, 0o755], True),
        (0o622, [0o755, 0o755], False),
    ],
)
def test_a_file_is_open_to_others_where_they_reach_and_read_it(file: int, folders: list[int], is_open: bool) -> None:
    """A token would be written where other users read it, or be refused in a home that nobody else can enter."""
    assert opens_to_others(file, folders) is is_open


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    """A file under a dotfiles manager would fall out of it, or a token get into its repository."""
    home, dotfiles = tmp_path / "home", tmp_path / "dotfiles"
    home.mkdir()
    dotfiles.mkdir()
    (dotfiles / "real").write_text("old")
    (home / "mcp.json").symlink_to("../dotfiles/real")
    backup = write_user_file(read_user_file(home / "mcp.json"), "new", NOW)
    assert (home / "mcp.json").is_symlink()
    assert (dotfiles / "real").read_text() == "new"
    assert backup is not None
    assert backup.parent == home
    assert os.listdir(dotfiles) == ["real"]


@ROOT_ONLY
def test_the_owner_stays_the_owner(path: Path) -> None:
    """Run with sudo once, a client could no longer write its own configuration."""
    os.chown(path, 4711, 4712)
    backup = write_user_file(read_user_file(path), "new", NOW)
    assert backup is not None
    for each in (path, backup):
        assert (each.stat().st_uid, each.stat().st_gid) == (4711, 4712)


def test_a_private_file_is_never_anybody_elses(tmp_path: Path) -> None:
    """Imported tokens would be readable by all users of the machine."""
    path = tmp_path / "sub" / "mcp.json"
    assert write_user_file(read_user_file(path), "new", NOW, is_private=True) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    write_user_file(read_user_file(path), "newer", NOW, is_private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_changed_meanwhile_is_left(path: Path, tmp_path: Path) -> None:
    """What a running client wrote in between would be lost."""
    file = read_user_file(path)
    path.write_text("written by the client")
    with pytest.raises(UserFileError, match="changed by another program"):
        write_user_file(file, "new", NOW)
    path.unlink()
    with pytest.raises(UserFileError, match="is gone"):
        write_user_file(file, "new", NOW)
    none = read_user_file(path)
    path.write_text("made by the client")
    with pytest.raises(UserFileError, match="changed by another program"):
        write_user_file(none, "new", NOW)
    assert os.listdir(tmp_path) == ["mcp.json"]
    assert path.read_text() == "made by the client"


def test_a_read_only_file_is_left(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a configuration manager has locked would be replaced behind its back."""
    file = read_user_file(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserFileError, match="read-only"):
        write_user_file(file, "new", NOW)
    assert os.listdir(tmp_path) == ["mcp.json"]


def test_a_failed_write_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk would leave half a file."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(user_file, "replace_entry", fail)
    with pytest.raises(UserFileError, match="No space left"):
        write_user_file(read_user_file(path), "new", NOW)
    assert path.read_text() == "old"


def test_what_is_no_text_file_is_refused_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO would hang the command, and binary data come back changed."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * 11)
    monkeypatch.setattr(user_file, "MAX_BYTES", 10)
    reasons = {
        "fifo": "not a regular file",
        ".": "not a regular file",
        "binary": "not UTF-8",
        "large": "larger than 10",
    }
    for name, message in reasons.items():
        with pytest.raises(UserFileError, match=message):
            read_user_file(tmp_path / name)


@LINUX_ONLY
def test_attributes_stay(path: Path) -> None:
    """An access list would be gone, and with it somebody's access."""
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("this file system keeps no attributes")
    write_user_file(read_user_file(path), "new", NOW)
    assert os.getxattr(path, "user.note") == b"mine"
