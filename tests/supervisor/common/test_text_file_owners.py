"""Who else may change a file that is read as the user's word."""

import os
from pathlib import Path

import pytest
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck.common import text_file
from quarterdeck.common.text_file import TextFileError, other_writer, read_text

is_root = ROOT_ONLY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that only we may write, in a folder that only we may write, below `/tmp`, where all may."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    (folder / "mcp.json").write_text("{}")
    (folder / "mcp.json").chmod(0o644)
    return folder / "mcp.json"


def test_a_file_of_ours_is_ours_wherever_it_lies(path: Path) -> None:
    """Nothing below the shared folder for temporary files could be used."""
    assert other_writer(path) is None
    assert other_writer(path.with_name("missing")) is None


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o777])
def test_a_file_that_everybody_may_write_is_not(path: Path, mode: int) -> None:
    """Another user could have a program started in our name."""
    path.chmod(mode)
    assert other_writer(path) == f"{path} may be changed by other users (mode {mode:04o}): run `chmod go-w {path}`"


def test_a_folder_that_everybody_may_write_is_not_unless_nobody_can_replace_what_is_in_it(path: Path) -> None:
    """Another user could put a file of theirs in the place of ours."""
    path.parent.chmod(0o777)
    assert f"chmod go-w {path.parent}" in str(other_writer(path))
    path.parent.chmod(0o1777)
    assert other_writer(path) is None


def test_the_folder_of_a_link_counts_too(path: Path, tmp_path: Path) -> None:
    """Another user could lead the link elsewhere."""
    (tmp_path / "open").mkdir()
    link = tmp_path / "open" / "link.json"
    link.symlink_to(path)
    assert other_writer(link) is None
    (tmp_path / "open").chmod(0o777)
    assert str(tmp_path / "open") in str(other_writer(link))


def test_a_users_own_group_is_nobody_else_but_roots_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On systems that give each user a group, no file of theirs could be used."""
    path.chmod(0o664)
    status = path.stat()
    monkeypatch.setattr(text_file.os, "geteuid", lambda: status.st_uid or 4242)
    monkeypatch.setattr(text_file.os, "getegid", lambda: status.st_gid)
    assert other_writer(path) is None
    monkeypatch.setattr(text_file.os, "getegid", lambda: status.st_gid + 1)
    assert other_writer(path) is not None
    monkeypatch.setattr(text_file.os, "getegid", lambda: status.st_gid)
    monkeypatch.setattr(text_file.os, "geteuid", lambda: 0)
    assert other_writer(path) is not None


@is_root
def test_root_reads_no_word_of_another_users_and_is_told_how_it_could(path: Path) -> None:
    """Any user whose file root names would have a program run as root."""
    read_text(path, 100, is_own_word=True)
    os.chown(path, 4242, -1)
    assert read_text(path, 100).text == "{}"
    with pytest.raises(TextFileError, match=rf"^is not read as root: .* uid 4242, .* run `chown root {path}`$"):
        read_text(path, 100, is_own_word=True)
    os.chown(path, 0, -1)
    os.chown(path.parent, 4242, -1)
    with pytest.raises(TextFileError, match=rf"chown root {path.parent}`"):
        read_text(path, 100, is_own_word=True)
