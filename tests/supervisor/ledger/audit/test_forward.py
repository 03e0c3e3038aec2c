"""Records reach their target once the target takes them, also through another process; nothing waits for it."""

import json
import os
from pathlib import Path

import pytest
from support.ledger.histories import ZONE, fill, open_ledger, retired

from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.own_keys import AuditTarget
from quarterdeck.ledger.audit.forward import Forwarder
from quarterdeck.ledger.audit.records import Record
from quarterdeck.ledger.open import LedgerWriter, open_recorder
from quarterdeck.ledger.store.lease import DAEMON, Holder
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck.ledger.store.reader import LedgerReader

CALL = CallRow("2026-01-05T00:00:00.000Z", "/m.json", "fs", "read", "ok", seq=99)
TARGET = AuditTarget("udp", "logs.example", 514)


class Memory:
    """A sink that takes so many records, and then none."""

    def __init__(self) -> None:
        self.taken: list[Record] = []
        self.room = 99

    def write(self, record: Record) -> None:
        if self.room == 0:
            raise OSError("it is full")
        self.room -= 1
        self.taken.append(record)

    def close(self) -> None:
        """Nothing is open."""


def forward(state: Path, sink: Memory, room: int = 99) -> list[object]:
    """What a process that looks once sends."""
    sink.taken, sink.room = [], room
    forwarder = Forwarder(state / "ledger", TARGET, sink)
    forwarder.ending.set()
    forwarder.run()
    return [record.members.get("number") or record.members.get("seq") for record in sink.taken]


def test_what_a_target_did_not_take_is_sent_by_the_next_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An audit would lose what came while the syslog was away, or tell all of it twice."""
    fill(tmp_path)
    sink = Memory()
    assert forward(tmp_path, sink) == []
    with open_ledger(tmp_path) as store:
        store.append([retired(ZONE)])
        store.record_calls([CALL] * 3)
    assert forward(tmp_path, sink, room=2) == [21, 3]
    assert [record.getMessage() for record in caplog.records] == ["the audit to logs.example:514 waits: it is full"]
    assert forward(tmp_path, sink) == [4, 5]
    assert forward(tmp_path, sink) == []
    [place] = (tmp_path / "ledger").glob("sent-*.json")
    place.write_text("{")
    assert len(forward(tmp_path, sink)) == 26


def write_own_file(home: Path, audit: object) -> None:
    path = home / "quarterdeck" / "mcp.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {}, "audit": audit}))


async def test_a_process_that_serves_audits_as_the_users_own_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key would be read and do nothing; or with a slip in it calls would be served without an audit."""
    state, target = tmp_path / "state", tmp_path / "audit.jsonl"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write_own_file(tmp_path, {"keep_bytes": "1 MiB", "to": [{"file": str(target)}]})
    holder = Holder(pid=os.getpid(), digest="", command=DAEMON, started_at="")
    for rows in ([], [CallRow(CALL.at, "/m", "fs", "x" * 200_000, "ok")] * 7):
        async with open_recorder(state, holder, must_write=True) as writer:
            assert isinstance(writer, LedgerWriter)
            await writer.append([retired(ZONE)])
            await writer.record_calls(rows)
    with LedgerReader.open(state / "ledger") as reader:
        kept = [row.number for row in reader.calls(after=0)]
    told = [json.loads(line) for line in target.read_text().splitlines()]
    assert [each.get("number") for each in told if each["type"] == "call"] == kept == [2, 3, 4, 5, 6, 7]
    assert [each["missing"] for each in told if each["type"] == "gap"] == [1]
    write_own_file(tmp_path, {"to": [{"file": "audit.jsonl"}]})
    with pytest.raises(ConfigFileError, match="must be an absolute path"):
        async with open_recorder(state, holder, must_write=True):
            pass
