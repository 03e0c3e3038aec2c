"""Files that a user named are read without waiting, in bounds, as text."""

import os
from pathlib import Path

import pytest
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck.common import text_file
from quarterdeck.common.text_file import TextFileError, other_writer, read_text


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    """A file saved by a Windows editor would be no JSON."""
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfabc")
    assert read_text(tmp_path / "f", 10).text == "abc"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfea\0", "line 1, column 1: not UTF-8 text"),
        (b"ab\ncd\xff", "line 2, column 3: not UTF-8 text"),
        (b"\xef\xbb\xbfa\xc3", "line 1, column 2: not UTF-8 text"),
        ("ä\n".encode() + b"\xe4", "line 2, column 1: not UTF-8 text"),
        (b"x" * 101, "is larger than 100 bytes"),
    ],
)
def test_bad_content_is_refused_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    """A user would not find the one byte in another encoding."""
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(TextFileError) as caught:
        read_text(tmp_path / "f", 100)
    assert str(caught.value) == message


def test_what_is_no_file_is_refused_without_waiting_or_keeping_a_descriptor(tmp_path: Path) -> None:
    """A FIFO would hang the program, or a bad file that is reloaded use up the descriptors."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(TextFileError, match=r"^is not a regular file$"):
            read_text(path, 100)
    before = len(os.listdir("/dev/fd"))
    for path in (tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(TextFileError):
            read_text(path, 100)
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5000, "missing"])
def test_an_impossible_path_is_one_kind_of_error(tmp_path: Path, name: str) -> None:
    """A path out of a configuration could end the program with a traceback."""
    with pytest.raises(TextFileError, match=r"^cannot be read: "):
        read_text(tmp_path / name, 100)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o601])
def test_a_secret_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """A token would be readable by everybody on the machine, and nobody would say so."""
    (tmp_path / "f").write_text("s")
    (tmp_path / "f").chmod(mode)
    with pytest.raises(TextFileError, match="chmod 600"):
        read_text(tmp_path / "f", 100, private=True)


def test_a_secret_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else could choose the token that we send."""
    (tmp_path / "f").write_text("s")
    (tmp_path / "f").chmod(0o600)
    assert read_text(tmp_path / "f", 100, private=True).text == "s"
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(TextFileError, match=r"^belongs to another user$"):
        read_text(tmp_path / "f", 100, private=True)


def test_a_file_counts_by_where_it_really_is(tmp_path: Path) -> None:
    """A link would lead out of the directory that a file has to be in."""
    (tmp_path / "f").write_text("abc")
    (tmp_path / "link").symlink_to("f")
    seen: list[str] = []

    def note(place: str) -> bool:
        seen.append(place)
        return False

    with pytest.raises(TextFileError, match="lies outside of the project"):
        read_text(tmp_path / "link", 10, within=note)
    assert seen == [str((tmp_path / "f").resolve())]
    assert read_text(tmp_path / "link", 10, within=lambda _: True).text == "abc"


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
