"""A real syslog takes what we send: rsyslog, where it is installed."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.waiting import eventually

from quarterdeck.config.load.own_keys import AuditTarget
from quarterdeck.ledger.audit.records import Record, record_of_call
from quarterdeck.ledger.audit.sinks import SyslogSink
from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.store.queries import CallRow

RSYSLOG = shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin")

CONFIGURATION = """
module(load="imtcp") module(load="imudp") module(load="imuxsock" SysSock.Use="off")
template(name="parsed" type="list") {{
    property(name="pri") constant(value=" ") property(name="app-name") constant(value=" ") property(name="msgid")
    constant(value=" ") property(name="msg") constant(value="\\n")
}}
ruleset(name="all") {{ action(type="omfile" file="{folder}/taken" template="parsed") }}
input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="all")
input(type="imudp" address="127.0.0.1" port="{port}" ruleset="all")
input(type="imuxsock" socket="{folder}/log" ruleset="all" useSpecialParser="off")
"""


@contextmanager
def rsyslog(folder: Path, port: int) -> Iterator[Path]:
    """Yield the file with what it took: priority, application, message id and text of each message."""
    (folder / "conf").write_text(CONFIGURATION.format(folder=folder, port=port))
    arguments = ["-n", "-iNONE", "-f", str(folder / "conf")]
    with subprocess.Popen([str(RSYSLOG), *arguments], cwd=folder) as process:
        try:
            eventually((folder / "log").exists)
            yield folder / "taken"
        finally:
            process.terminate()


def record(number: int, kind: str) -> Record:
    call = CallRow("2026-01-05T00:00:00.000Z", "/m", "fs", f"ä|=\n{kind}", "ok", number=number)
    return record_of_call(call, Head())


@pytest.mark.nightly
@pytest.mark.skipif(RSYSLOG is None, reason="no rsyslog is installed")
def test_rsyslog_takes_each_message_apart_as_it_was_meant(tmp_path: Path) -> None:
    """A log server would file our records under no program, or glue two of them together."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with rsyslog(tmp_path, port) as taken:
        for kind, address in (("udp", "127.0.0.1"), ("tcp", "127.0.0.1"), ("unix", str(tmp_path / "log"))):
            sink = SyslogSink(AuditTarget(kind, address, 0 if kind == "unix" else port))  # type: ignore[arg-type]
            for number in (1, 2):
                sink.write(record(number, kind))
            sink.close()
        eventually(lambda: taken.exists() and len(taken.read_text().splitlines()) == 6)
        lines = [line.split(" ", 3) for line in taken.read_text().splitlines()]
    assert {tuple(line[:3]) for line in lines} == {("110", "quarterdeck", "call-ok")}
    found = sorted((json.loads(line[3])["tool"], json.loads(line[3])["number"]) for line in lines)
    assert found == [(f"ä|=\n{kind}", number) for kind in ("tcp", "udp", "unix") for number in (1, 2)]
