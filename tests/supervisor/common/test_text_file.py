"""Files that a user named are read without waiting, in bounds, as text."""

import os
from pathlib import Path

import pytest

from quarterdeck.common.text_file import TextFileError, read_text


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


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    """A FIFO or a device would hang the program or feed it for ever."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(TextFileError, match=r"^is not a regular file$"):
            read_text(path, 100)


def test_refusing_a_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """A supervisor that reloads a bad file for days would run out of descriptors."""
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
