"""Handing records over: to the process that writes the ledger, or into the ledger itself once nobody does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.config.places import short_folder

from quarterdeck.config.places.paths import ledger_dir
from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.daemon.control.protocol import Decided, Record, Refused
from quarterdeck.daemon.control.recording import answer_record, hand_over
from quarterdeck.daemon.control.server import answering
from quarterdeck.ledger.errors import LedgerError, LedgerWriteError
from quarterdeck.ledger.events.events import Seen, Subject, hash_of
from quarterdeck.ledger.open import Batch, LedgerWriter, VisitingRecorder, open_recorder
from quarterdeck.ledger.store.lease import Holder
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck.ledger.store.reader import LedgerReader

pytestmark = pytest.mark.process

BODY = b'{"name":"lend"}'
BATCH = Batch(
    events=(Seen(scope="/a", server="s", subject=Subject.TOOL, name="lend \udc80", hash=hash_of(BODY)),),
    documents={hash_of(BODY): BODY},
    calls=(CallRow("2026-01-01T00:00:00.000Z", "/a", "s", "lend", "ok"),),
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def runtime() -> Iterator[RuntimeDirectory]:
    with short_folder() as root, RuntimeDirectory.create("0" * 12, root) as directory:
        yield directory


def holder(directory: RuntimeDirectory | None) -> Holder:
    place = str(directory.path) if directory is not None else ""
    return Holder(pid=1, digest="", command="call", runtime_directory=place)


@asynccontextmanager
async def visiting(
    state: Path, runtime: RuntimeDirectory, take: Callable[[Batch], Awaitable[None]]
) -> AsyncIterator[VisitingRecorder]:
    """A recorder beside the process of that directory, which takes records so."""

    async def answer(request: object) -> Decided | Refused:
        assert isinstance(request, Record)
        return await answer_record(take, request)

    visitors = open_recorder(state, holder(None), must_write=False, hand_over=hand_over)
    async with answering(runtime, answer), visitors as visitor:
        assert isinstance(visitor, VisitingRecorder)
        yield visitor


async def test_the_writer_records_what_a_visitor_hands_over(state: Path, runtime: RuntimeDirectory) -> None:
    """A call beside a daemon would leave no trace, and each definition would be the first one."""
    async with open_recorder(state, holder(runtime), must_write=True) as writer:
        assert isinstance(writer, LedgerWriter)
        async with visiting(state, runtime, writer.take) as visitor:
            await visitor.record(BATCH.events, BATCH.documents)
            await visitor.record_calls(BATCH.calls)
            assert await visitor.document(hash_of(BODY)) == BODY
        assert writer.book.last_seq == visitor.book.last_seq == 1
        assert await writer.document(hash_of(BODY)) == BODY


async def test_a_refused_record_is_not_taken_by_the_visitor_either(state: Path, runtime: RuntimeDirectory) -> None:
    """What the daemon could not record would be approved in the command, and held in the next one."""
    async with open_recorder(state, holder(runtime), must_write=True):

        async def fail(_: Batch) -> None:
            raise LedgerWriteError("the disk is full", "make room")

        async with visiting(state, runtime, fail) as visitor:
            with pytest.raises(LedgerError, match="the disk is full"):
                await visitor.record(BATCH.events, BATCH.documents)
            assert visitor.book.last_seq == 0


def test_a_record_is_written_here_once_no_process_writes_the_ledger(state: Path) -> None:
    """A command that outlives the daemon beside it would lose what it found."""
    hand_over(BATCH)
    with LedgerReader.open(ledger_dir(state)) as reader:
        assert reader.book.last_seq == 1
        assert reader.document(hash_of(BODY)) == BODY
