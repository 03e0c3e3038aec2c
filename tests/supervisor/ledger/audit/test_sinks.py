"""A sink takes a record whole, or says that it did not; whatever the disk or the peer does."""

import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from quarterdeck.config.load.own_keys import AuditTarget
from quarterdeck.ledger.audit import sinks
from quarterdeck.ledger.audit.records import Record, as_json, record_of_call
from quarterdeck.ledger.audit.sinks import FileSink, SyslogSink
from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.store.queries import CallRow


def record(number: int, tool: str = "read") -> Record:
    return record_of_call(CallRow("2026-01-05T00:00:00.000Z", "/m", "fs", tool, "ok", number=number), Head())


LINE = len(as_json(record(1))) + 1


def file_sink(path: Path, lines: int = 10, files: int = 3) -> FileSink:
    return FileSink(AuditTarget("file", str(path), max_bytes=lines * LINE, files=files))


def test_a_file_is_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    """An audit would fill the disk, or lose a record at each turn."""
    path = tmp_path / "new" / "audit.jsonl"
    for number in range(1, 8):
        file_sink(path, lines=2).write(record(number))
    found = {each.name: each.read_text().splitlines() for each in path.parent.iterdir()}
    kept = {"audit.jsonl": [7], "audit.jsonl.1": [5, 6], "audit.jsonl.2": [3, 4]}
    assert found == {name: [as_json(record(number)) for number in numbers] for name, numbers in kept.items()}
    assert path.stat().st_mode & 0o777 == 0o600
    file_sink(path, lines=1, files=1).write(record(8))
    assert path.read_text() == as_json(record(8)) + "\n"
    path.rename(tmp_path / "moved")  # as logrotate does
    file_sink(path).write(record(9))
    assert path.read_text() == as_json(record(9)) + "\n"


def test_a_full_disk_leaves_no_half_a_line(tmp_path: Path) -> None:
    """What reads the file would stumble over it, and the record be lost with the next one glued to it."""
    path = tmp_path / "audit.jsonl"
    sink = file_sink(path)
    sink.write(record(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LINE + 10, before[1]))
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                sink.write(record(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    sink.write(record(2))
    assert path.read_text().splitlines() == [as_json(record(1)), as_json(record(2))]
    with pytest.raises(OSError, match="No space"):
        file_sink(Path("/dev/full")).write(record(1))


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Whoever may write beside the file would have records written into any file of the user's."""
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        file_sink(tmp_path / "audit.jsonl").write(record(1))
    assert not (tmp_path / "other").exists()


@pytest.mark.process
def test_each_kind_of_syslog_gets_each_message_whole(tmp_path: Path) -> None:
    """A receiver would take two messages for one, or half of one."""
    message = f"<110>1 2026-01-05T00:00:00.000Z {socket.gethostname()} quarterdeck {os.getpid()} call-ok - "
    sent = [message + as_json(record(number)) for number in (1, 2)]
    path = str(tmp_path / "log")
    with ExitStack() as stack:
        for family, kind, address, target in (
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0), "udp"),
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), "tcp"),
            (socket.AF_UNIX, socket.SOCK_DGRAM, f"{path}.1", "unix"),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"{path}.2", "unix"),
        ):
            server = stack.enter_context(socket.socket(family, kind))
            server.settimeout(30)
            server.bind(address)
            if kind == socket.SOCK_STREAM:
                server.listen()
            host, port = server.getsockname() if target != "unix" else (address, 0)
            sink = SyslogSink(AuditTarget(target, str(host), port))  # type: ignore[arg-type]
            stack.callback(sink.close)
            for number in (1, 2):
                sink.write(record(number))
            if kind == socket.SOCK_DGRAM:
                assert [server.recv(65_536).decode() for _ in sent] == sent, target
                continue
            framed = "".join(f"{len(each)} {each}" if target == "tcp" else f"{each}\n" for each in sent)
            taken = stack.enter_context(server.accept()[0])
            assert taken.recv(len(framed), socket.MSG_WAITALL).decode() == framed, target
            taken.close()
            with pytest.raises(OSError, match="reset"):
                sink.write(record(3))
            sink.write(record(3))
            assert b'"number":3' in stack.enter_context(server.accept()[0]).recv(65_536)


@pytest.mark.process
@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_syslog_that_blocks_or_is_away_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """The thread would hang for ever, and audit nothing when the syslog works again."""
    monkeypatch.setattr(sinks, "TIMEOUT_S", 0.05)
    path = tmp_path / "log"
    sink = SyslogSink(AuditTarget("unix", str(path)))
    with pytest.raises(FileNotFoundError):
        sink.write(record(1))
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(str(path))
        if kind == socket.SOCK_STREAM:
            server.listen()
        with pytest.raises(TimeoutError):
            while True:
                sink.write(record(1))
        sink.close()
