"""Reading a server's log: its end, its older half, and what comes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import Said
from support.config.places import use_places

from quarterdeck.cli.diagnose import logs
from quarterdeck.cli.diagnose.logs import LogLine, read_lines
from quarterdeck.cli.source import Source
from quarterdeck.config.places.paths import server_paths
from quarterdeck.daemon.start import log_path as daemon_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stderr.log"


def test_the_daemons_log_is_shown_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A person would read JSON, with times of another zone."""
    use_places(monkeypatch, tmp_path)
    fine = {"event": "s is ready", "level": "info", "logger": "quarterdeck.serve", "timestamp": "2026-11-23T04:00:00Z"}
    failed = fine | {"event": "it failed", "level": "error", "exception": "Traceback:\n  here"}
    daemon_log().parent.mkdir()
    daemon_log().write_text(f"{json.dumps(fine)}\n{json.dumps(failed)}\na line of a library\n")
    first, second, *more = said(0, "logs", "--daemon").out.splitlines()
    assert first.endswith("  info    s is ready")
    assert second.endswith("  error   it failed")
    assert more == ["Traceback:", "  here", "a line of a library"]


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


def read(log: Path, count: int) -> list[bytes]:
    return collect(read_lines(log, count))


def collect(lines: Iterator[LogLine]) -> list[bytes]:
    got = []
    try:
        got.extend(line.text for line in lines)
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
    assert read(log, 2) == [b"two", b"three"]
    assert read(log, 0) == []
    assert read(log, 10) == [b"one", b"two", b"three"]


def test_the_older_half_comes_first(log: Path) -> None:
    """Just after the log was rotated, it would look empty."""
    log.with_name("stderr.log.1").write_bytes(b"one\ntwo\n")
    assert read(log, 10) == [b"one", b"two"]
    log.write_bytes(b"three\n")
    assert read(log, 2) == [b"two", b"three"]


def test_a_log_that_begins_to_exist_is_followed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never wrote would be an error, or `logs -f` have to wait for its first words."""
    assert read(log, 10) == []
    assert followed(log, monkeypatch, appended(log, b"first\n")) == [b"first"]


def test_what_is_written_later_is_followed_by_whole_lines(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is being written would be shown in two halves."""
    log.write_bytes(b"one\nhalf")
    steps = [appended(log, b" a line\n"), appended(log, b"three\nfour\n")]
    assert followed(log, monkeypatch, *steps) == [b"one", b"half a line", b"three", b"four"]


def test_rotation_loses_no_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following would stop for ever when the log is full."""
    log.write_bytes(b"one\n")

    def rotate() -> None:
        with log.open("ab") as file:
            file.write(b"two\n")
        log.replace(log.with_name("stderr.log.1"))
        log.write_bytes(b"three\n")

    assert followed(log, monkeypatch, rotate, appended(log, b"four\n")) == [b"one", b"two", b"three", b"four"]


def test_a_line_without_end_comes_in_pieces_with_the_time_of_its_begin(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile server could make us hold its whole log, or have a time of its own shown as ours."""
    monkeypatch.setattr(logs, "MAX_LINE_BYTES", 4)
    log.write_bytes(b"abcdefghij")
    assert read(log, 10) == [b"abcd", b"efgh"]
    monkeypatch.setattr(logs, "MAX_LINE_BYTES", 30)
    line = f"{AT}\t" + "x" * 9
    log.write_text(f"{line}1999-01-01T00:00:00Z\tforged\n")
    assert list(read_lines(log, 10)) == [(AT, b"x" * 9), (AT, b"1999-01-01T00:00:00Z\tforged")]


AT = "2026-01-01T12:00:00Z"


def test_lines_have_their_times_where_they_have_one(log: Path) -> None:
    """A user could not tell the crash of today from last week's; or an older file could not be read."""
    log.with_name("stderr.log.1").write_text("of an older version\n")
    log.write_text(f"{AT}\tone\n{AT}\t2025-01-01T00:00:00Z\ttwo\n")
    assert list(read_lines(log, 10)) == [("", b"of an older version"), (AT, b"one"), (AT, b"2025-01-01T00:00:00Z\ttwo")]


def test_logs_shows_local_times_and_programs_get_them_in_utc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A user would have to know his distance from Greenwich; a script, the zone of the machine."""
    config = tmp_path / "mcp.json"
    config.write_text('{"servers": {"notes": {"command": "notes"}}}')
    use_places(monkeypatch, tmp_path)
    monkeypatch.setenv("TZ", "UTC-02:00")
    time.tzset()
    try:
        path = server_paths(Source((config,)).digest, "notes").log
        path.parent.mkdir(parents=True)
        path.write_text(f"before the update\n{AT}\thello\n")
        assert said(0, "logs", "notes", "-c", config).out.splitlines() == [
            "before the update",
            "2026-01-01 14:00:00  hello",
        ]
        assert [json.loads(line) for line in said(0, "logs", "notes", "-c", config, "--json").out.splitlines()] == [
            {"server": "notes", "at": None, "line": "before the update"},
            {"server": "notes", "at": AT, "line": "hello"},
        ]
    finally:
        monkeypatch.undo()
        time.tzset()
