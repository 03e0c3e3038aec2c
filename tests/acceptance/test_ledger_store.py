"""A writer that is killed at any moment, again and again, on one ledger that lives through it all."""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from support.ledger.ledgers import digest_of
from support.processes.commands import DEADLINE_S
from support.processes.line_child import LineChild

from quarterdeck.ledger.events.events import Approved, Enrolled
from quarterdeck.ledger.store.database import read_head
from quarterdeck.ledger.store.lease import Holder, take_lease
from quarterdeck.ledger.store.queries import Selection
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.ledger.store.store import LedgerStore

KILLS: Final = 60

CHILD: Final = Path(__file__).with_name("killed_ledger_writer.py")


@pytest.mark.nightly
def test_a_writer_killed_at_any_moment_loses_nothing_that_it_said_it_had(tmp_path: Path) -> None:
    """A crash would cost decisions that a person was told are recorded, or shut the ledger for good."""
    directory = tmp_path / "ledger"
    chance = random.Random(11)
    acknowledged = 0
    with LineChild([sys.executable, str(CHILD), str(directory)], deadline_s=DEADLINE_S) as writers:
        for turn in range(KILLS):
            said = killed_writer(writers, turn, chance.expovariate(1 / 0.03))
            acknowledged = max(acknowledged, said)
            require_all_of(directory, acknowledged)
    with take_lease(directory, Holder(pid=1, digest="")), LedgerStore.open(directory) as store:
        assert store.verify().is_intact
        assert read_head(directory, 0) == store.head
        assert store.book.last_seq == store.head.count
    assert acknowledged > KILLS


def killed_writer(writers: LineChild, seed: int, after_s: float) -> int:
    """Have one more write, and kill it so long after it has opened, or sooner; the last number that it said."""
    writers.write(f"{seed}\n".encode())
    said, pid = [], 0
    while not pid or (seed % 10 and not said):
        match writers.read_line().split():
            case [b"pid", number]:
                pid = int(number)
            case [number]:
                said.append(int(number))
            case ended:
                raise AssertionError((ended, writers.stderr_text()))
    time.sleep(after_s)  # the moment of the kill is what is tried
    os.kill(pid, signal.SIGKILL)
    while len(words := writers.read_line().split()) == 1:
        said.append(int(words[0]))
    assert words == [b"ended", b"9"], writers.stderr_text()
    return max(said, default=0)


def require_all_of(directory: Path, acknowledged: int) -> None:
    """That what is there is whole, and as much as was said."""
    head = read_head(directory, 0) if directory.exists() else None
    if head is None:
        assert acknowledged == 0
        return
    with LedgerReader.open(directory) as reader:
        found = reader.verify()
        assert found.is_intact, found
        assert acknowledged <= found.tip.count
        assert acknowledged <= head.count  # each one that was said was an approval, and the head is after it
        assert head.count <= found.tip.count
        require_whole_appends(reader)


def require_whole_appends(reader: LedgerReader) -> None:
    """That each pair of events is there whole, and each document that an event names."""
    last = None
    for stored in reader.events():
        event = stored.event
        if isinstance(event, Approved):
            assert isinstance(last, Enrolled)
            assert last.tool == event.name
        last = event
    for stored in reader.events(Selection(kinds=["approve"])):
        assert isinstance(stored.event, Approved)
        document = reader.document(stored.event.hash)
        assert document is not None
        text = f"document {stored.event.name.removeprefix('tool_')}"
        assert (document.startswith(text.encode()), stored.event.hash) == (True, digest_of(text))
