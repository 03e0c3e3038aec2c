"""Reading a server's log: its end, its older half, and what comes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quarterdeck.cli import logs
from quarterdeck.cli.logs import read_lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stderr.log"


def followed(log: Path, monkeypatch: pytest.MonkeyPatch, *steps: object) -> list[bytes]:
    """What is read while `steps` happen, one each time that the reader would sleep; then the reader is interrupted."""
    pending = list(steps)

    def sleep(_: float) -> None:
        if not pending:
            raise KeyboardInterrupt
        step = pending.pop(0)
        assert callable(step)
        step()

    monkeypatch.setattr(logs.time, "sleep", sleep)
    return collect(read_lines(log, 10, follow=True))


def collect(lines: Iterator[bytes]) -> list[bytes]:
    got = []
    try:
        got.extend(lines)
    except KeyboardInterrupt:
        pass
    return got


def appended(log: Path, data: bytes) -> object:
    def append() -> None:
        with log.open("ab") as file:
            file.write(data)

    return append


def test_the_last_lines_are_read(log: Path) -> None:
    """A long log would bury its end."""
    log.write_bytes(b"one\ntwo\nthree\n")
    assert list(read_lines(log, 2)) == [b"two", b"three"]
    assert list(read_lines(log, 0)) == []
    assert list(read_lines(log, 10)) == [b"one", b"two", b"three"]


def test_the_older_half_comes_first(log: Path) -> None:
    """Just after the log was rotated, it would look empty."""
    log.with_name("stderr.log.1").write_bytes(b"one\ntwo\n")
    assert list(read_lines(log, 10)) == [b"one", b"two"]
    log.write_bytes(b"three\n")
    assert list(read_lines(log, 2)) == [b"two", b"three"]


def test_a_log_that_does_not_exist_has_no_lines(log: Path) -> None:
    """A server that never wrote would be an error."""
    assert list(read_lines(log, 10)) == []


def test_what_is_written_later_is_followed_by_whole_lines(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is being written would be shown in two halves."""
    log.write_bytes(b"one\nhalf")
    steps = [appended(log, b" a line\n"), appended(log, b"three\nfour\n")]
    assert followed(log, monkeypatch, *steps) == [b"one", b"half a line", b"three", b"four"]


def test_a_log_that_begins_to_exist_is_followed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`logs -f` would have to be started after the server's first words."""
    assert followed(log, monkeypatch, appended(log, b"first\n")) == [b"first"]


def test_rotation_loses_no_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following would stop for ever when the log is full."""
    log.write_bytes(b"one\n")

    def rotate() -> None:
        with log.open("ab") as file:
            file.write(b"two\n")
        log.replace(log.with_name("stderr.log.1"))
        log.write_bytes(b"three\n")

    assert followed(log, monkeypatch, rotate, appended(log, b"four\n")) == [b"one", b"two", b"three", b"four"]


def test_a_line_without_end_comes_in_pieces(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile server could make us hold its whole log in memory, or see nothing of it."""
    monkeypatch.setattr(logs, "MAX_LINE_BYTES", 4)
    log.write_bytes(b"abcdefghij")
    assert list(read_lines(log, 10)) == [b"abcd", b"efgh"]
