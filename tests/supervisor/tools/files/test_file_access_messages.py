"""How the file tools put names, sizes and failures in words."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.context import BackendUnavailableError, OutsideRootsError
from quarterdeck.tools.files.file_access import count, explain, size, spell


@given(st.text(st.characters(codec=None)))
def test_every_name_stays_on_its_line_and_can_be_sent(name: str) -> None:
    """A file name with a line feed would forge a row of a listing, half a surrogate pair would break the wire."""
    shown = spell(name)
    assert len(shown.splitlines()) <= 1
    assert shown.encode().decode() == shown


def test_an_ordinary_name_is_shown_as_it_is() -> None:
    """A model would not find its files again."""
    assert spell("src/ünï code (1).py") == "src/ünï code (1).py"
    assert spell("a\nb\udcff\x1b") == "a\\nb\\udcff\\x1b"


def test_a_name_cannot_be_turned_around() -> None:
    """A program with an override in its name would be shown as a picture to whoever allows the call."""
    assert spell("a\u202egpj.exe\u2066") == "a\\u202egpj.exe\\u2066"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB (1,024 bytes)"),
        (5 * 1024 * 1024, "5.0 MiB (5,242,880 bytes)"),
        (3 * 1024**4, "3.0 TiB (3,298,534,883,328 bytes)"),
        (2 * 1024**6, "2097152.0 TiB (2,305,843,009,213,693,952 bytes)"),
    ],
)
def test_a_size_is_exact_and_readable(number: int, said: str) -> None:
    """A model would count digits."""
    assert size(number) == said


def test_a_number_agrees_with_its_noun() -> None:
    """Messages would read as if nobody had looked at them."""
    assert [count(1, "line"), count(2_000, "line")] == ["1 line", "2,000 lines"]
    assert count(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), "a b does not exist. Look for it with ls or find."),
        (IsADirectoryError(), "a b is a directory, not a file. Use ls to see what is in it."),
        (NotADirectoryError(), "a b: a part of this path is not a directory."),
        (PermissionError(errno.EACCES, "Permission denied", "a b"), "a b: permission denied."),
        (OSError(errno.ENOSPC, "No space left on device"), "a b: no space left on device."),
        (OSError("odd"), "a b: odd."),
        (OSError(), "a b: OSError."),
        (ValueError("embedded null byte"), "a b cannot be a path: embedded null byte."),
        (OutsideRootsError(errno.EACCES, "`a b` is outside.", "a b"), "`a b` is outside."),
        (BackendUnavailableError("this context has no files"), "this context has no files"),
    ],
)
def test_a_failure_names_the_path_and_says_what_helps(error: OSError | ValueError, said: str) -> None:
    """A model would read an errno and try the same again."""
    assert explain(error, "a b") == said
