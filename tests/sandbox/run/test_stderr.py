"""A server's stderr: kept within bounds, without secrets, with its end for the dossier."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sandbox.machine_facts import FULL_DEVICE_ONLY

from quarterdeck_sandbox.run import stderr as stderr_module
from quarterdeck_sandbox.run.stderr import TAIL_BYTES, Redactor, StderrKeeper, split_time

SECRET = "hunter2-is-long"
NOON = 1767268800.75
AT = "2026-01-01T12:00:00Z"


def keeper(log: Path | None = None, *secrets: str) -> StderrKeeper:
    return StderrKeeper(str(log) if log is not None else "", Redactor(secrets), lambda: NOON)


def stamped(*lines: str) -> bytes:
    return "".join(f"{AT}\t{line}\n" for line in lines).encode()


@pytest.mark.parametrize(
    ("secrets", "text", "clean"),
    [
        ((), "anything", "anything"),
        ((SECRET,), f"a {SECRET} b {SECRET}", "a [redacted] b [redacted]"),
        (("abcdef", "abcdefgh"), "xabcdefghx", "x[redacted]x"),
        (("sh", ""), "a sh word", "a sh word"),
        (("a.c*ef(", "[x]yz\\"), "a.c*ef( abcdef [x]yz\\", "[redacted] abcdef [redacted]"),
        (("gehäuse",), "das gehäuse", "das [redacted]"),
    ],
)
def test_secrets_are_blotted_out_wherever_they_stand_whole(secrets: tuple[str, ...], text: str, clean: str) -> None:
    """A key of the user's would be shown in logs and faults."""
    assert Redactor(secrets).clean(text.encode()) == clean.encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "err.log"


def test_lines_reach_the_log_and_the_tail(log: Path) -> None:
    """A user could not see why a server died."""
    kept = keeper(log)
    kept.feed(b"one\ntw")
    assert log.read_bytes() == stamped("one")
    assert kept.tail == "one\ntw"
    kept.feed(b"o\n")
    kept.close()
    kept.close()
    assert log.read_bytes() == stamped("one", "two")


@pytest.mark.parametrize(
    ("fed", "lines"),
    [
        ([b"Segmentation fau"], ["Segmentation fau"]),
        ([b"x" * (TAIL_BYTES + 1), b"y\nnext\n"], ["x" * (TAIL_BYTES + 1) + "y", "next"]),
    ],
    ids=["without a newline", "in pieces"],
)
def test_a_line_is_kept_whole_with_one_time(fed: list[bytes], lines: list[str], log: Path) -> None:
    """The last words of a crash, often cut short, would be lost; or a long line have times in its middle."""
    kept = keeper(log)
    for piece in fed:
        kept.feed(piece)
    kept.close()
    assert log.read_bytes() == stamped(*lines)
    assert kept.tail.endswith(lines[-1] + "\n")


@pytest.mark.parametrize(
    ("fed", "tail"),
    [(b"hm\n", "hm\n"), (b"\xff\xfe caf\xe9\n", "\ufffd\ufffd caf\ufffd\n")],
    ids=["words", "no text"],
)
def test_without_a_path_there_is_a_tail_only_of_whatever_bytes(fed: bytes, tail: str) -> None:
    """An embedded use would need a file; or a server with another encoding crash its worker."""
    kept = keeper()
    kept.feed(fed)
    assert kept.tail == tail
    kept.close()


@given(st.integers(1, 40))
def test_a_secret_split_over_reads_is_found(piece: int) -> None:
    """A pipe that cuts at the wrong place would show a key."""
    kept = keeper(None, SECRET)
    text = f"before {SECRET} after\n".encode() * 3
    for start in range(0, len(text), piece):
        kept.feed(text[start : start + piece])
        assert SECRET not in kept.tail
    kept.close()
    assert kept.tail == "before [redacted] after\n" * 3


def test_the_tail_is_bounded_and_ends_with_the_last_word() -> None:
    """A talkative server would fill our memory, or its last words be cut."""
    kept = keeper()
    for _ in range(300):
        kept.feed(b"x" * 999 + b"\n")
    kept.feed(b"the end")
    assert len(kept.tail) <= TAIL_BYTES
    assert kept.tail.endswith("\nthe end")


def test_the_tail_begins_with_a_whole_line() -> None:
    """A dossier would begin with half a word, or half a character."""
    kept = keeper()
    kept.feed("ein langes Gehäuse\n".encode() * 3_000)
    assert kept.tail.startswith("ein langes")


def test_a_line_without_end_is_kept_within_bounds() -> None:
    """A server that never writes a newline would fill our memory."""
    kept = keeper()
    for _ in range(100):
        kept.feed(b"x" * 10_000)
        assert len(kept._partial) <= TAIL_BYTES + 10_000
    assert len(kept.tail) == TAIL_BYTES


def test_the_log_is_ours_alone_and_is_appended_to(log: Path) -> None:
    """Other users could read it, or every restart would hide the crash before."""
    for word in (b"first\n", b"second\n"):
        kept = keeper(log)
        kept.feed(word)
        kept.close()
    assert log.read_bytes() == stamped("first", "second")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_that_grows_too_large_becomes_the_one_older_file(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood on stderr would fill the disk."""
    monkeypatch.setattr(stderr_module, "LOG_BYTES", 1_000)
    kept = keeper(log)
    for number in range(100):
        kept.feed(b"%03d " % number + b"x" * 95 + b"\n")
    kept.close()
    older = log.with_name("err.log.1")
    assert sorted(os.listdir(log.parent)) == ["err.log", "err.log.1"]
    assert log.stat().st_size + older.stat().st_size <= 2 * 1_100
    assert (older.read_bytes() + log.read_bytes()).endswith(b"099 " + b"x" * 95 + b"\n")
    assert older.stat().st_mode & 0o777 == 0o600


def test_a_log_that_was_large_before_is_turned_over_too(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts would let the file grow without bound."""
    monkeypatch.setattr(stderr_module, "LOG_BYTES", 40)
    log.write_bytes(b"x" * 49 + b"\n")
    kept = keeper(log)
    kept.feed(b"new\n")
    kept.feed(b"newer\n")
    kept.close()
    assert log.read_bytes() == stamped("newer")


def test_one_huge_write_costs_no_more_than_the_bound(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read of a flood would pass the bound."""
    monkeypatch.setattr(stderr_module, "LOG_BYTES", 1_000)
    kept = keeper(log)
    kept.feed(b"x" * 50_000 + b"\n")
    kept.close()
    assert log.with_name("err.log.1").stat().st_size == 1_000


def test_each_line_of_the_log_has_its_time_and_the_tail_has_none(log: Path) -> None:
    """A user could not tell the crash of today from last week's; or a dossier would be half times."""
    seconds = iter((NOON, NOON + 60))
    kept = StderrKeeper(str(log), Redactor(()), seconds.__next__)
    kept.feed(b"one\n\nthr")
    kept.feed(b"ee\n")
    kept.close()
    assert [split_time(line) for line in log.read_bytes().splitlines()] == [
        (AT, b"one"),
        (AT, b""),
        ("2026-01-01T12:01:00Z", b"three"),
    ]
    assert kept.tail == "one\n\nthree\n"


def test_a_line_of_an_older_log_is_read_without_time() -> None:
    """What was written before an update could not be read any more."""
    assert split_time(b"2026-01-01 a server's own time") == ("", b"2026-01-01 a server's own time")


@pytest.mark.parametrize("bound", [4 * 1024 * 1024, TAIL_BYTES])
def test_a_server_cannot_write_a_time_itself(log: Path, monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    """A server could say that it wrote something at another time than it did."""
    monkeypatch.setattr(stderr_module, "LOG_BYTES", bound)
    log.write_bytes(b"torn by a kill")
    forged = b"1999-01-01T00:00:00Z\t"
    kept = keeper(log)
    kept.feed(forged + b"one\n" + forged + b"x" * (TAIL_BYTES + 1))
    kept.feed(forged * (TAIL_BYTES // len(forged) + 1))
    kept.close()
    files = [path.read_bytes() for path in (log.with_name("err.log.1"), log) if path.exists()]
    times = {split_time(line)[0] for file in files for line in file.splitlines()}
    assert times <= {"", AT}
    assert all(file.endswith(b"\n") for file in files if file)


def test_a_link_in_the_logs_place_is_not_followed(tmp_path: Path) -> None:
    """Whoever can write to the directory could have us append to any file of the user's."""
    target = tmp_path / "precious"
    target.write_text("untouched")
    (tmp_path / "err.log").symlink_to(target)
    with pytest.raises(OSError):
        keeper(tmp_path / "err.log")
    assert target.read_text() == "untouched"


@FULL_DEVICE_ONLY
def test_a_full_disk_costs_the_log_and_not_the_server() -> None:
    """A disk that runs full would end every talkative server, with a fault that hides why."""
    kept = StderrKeeper("/dev/full", Redactor(()))
    kept.feed(b"hm\n")
    assert kept.tail == "hm\n"
    kept.feed(b"again")
    kept.close()
