"""Writing without blocking: pipes, files, readers that are slow or gone."""

import asyncio
import fcntl
import os
import socket
import sys
import termios
import threading
from io import FileIO

import anyio
import pytest
from support.waiting import PATIENCE_S, eventually_async

from quarterdeck.host.journal import Journal
from quarterdeck.host.stdio import sink as sink_module
from quarterdeck.host.stdio.sink import HIGH_WATER_BYTES, PolledSink, ThreadedSink, open_sink

KINDS = pytest.mark.parametrize("kind", [PolledSink, ThreadedSink])


class Told:
    """What a sink has told its owner."""

    def __init__(self):
        self.broken = asyncio.Event()
        self.rooms = 0

    def room(self):
        self.rooms += 1


@pytest.fixture
def told():
    return Told()


def sink_of(file, told, make=open_sink, **options):
    """A sink that writes to `file`, by default the one that fits it."""
    return make(file.fileno(), on_broken=told.broken.set, on_room=told.room, **options)


async def read_all(pipe):
    return await anyio.to_thread.run_sync(pipe.reading.readall)


async def close_and_read_all(sink, pipe):
    """Close a sink while its pipe is read; what came through it."""
    got = []

    async def read():
        got.append(await read_all(pipe))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await sink.close(PATIENCE_S)
            pipe.writing.close()
    return got[0]


@KINDS
async def test_lines_arrive_whole_and_in_order_whatever_their_size(kind, pipe, told):
    """Torn or swapped lines are no protocol."""
    sink = sink_of(pipe.writing, told, kind)
    lines = [b"%d:" % number + b"x" * size + b"\n" for number, size in enumerate([0, 10, 70_000, 3, 3_000_000, 1])]
    for line in lines:
        sink.write(line[:3], memoryview(line)[3:])
    assert await close_and_read_all(sink, pipe) == b"".join(lines)
    assert not told.broken.is_set()


@KINDS
async def test_a_reader_that_is_gone_is_told_once_and_writing_is_harmless(kind, pipe, told):
    """The client was killed."""
    sink = sink_of(pipe.writing, told, kind)
    pipe.reading.close()
    sink.write(b"a\n")
    with anyio.fail_after(PATIENCE_S):
        await told.broken.wait()
        sink.write(b"b\n")
        await sink.close(PATIENCE_S)


async def test_a_line_on_its_own_leaves_at_once(monkeypatch, pipe, told):
    """An answer would wait for the loop's next turn."""
    monkeypatch.setattr(sink_module, "BURST_S", 0.0)
    sink = sink_of(pipe.writing, told)
    for line in (b"one\n", b"two\n"):
        sink.write(line)
        assert pipe.reading.read(100) == line
    await sink.close(PATIENCE_S)


async def test_lines_that_follow_one_another_closely_leave_together(monkeypatch, pipe, told):
    """An answer would cost a write of its own among a hundred."""
    monkeypatch.setattr(sink_module, "BURST_S", 5.0)
    os.set_blocking(pipe.reading.fileno(), False)
    sink = sink_of(pipe.writing, told)
    for line in (b"one\n", b"two\n", b"three\n"):
        sink.write(line)
    assert [pipe.reading.read(100) for _ in range(2)] == [b"one\n", None]
    await sink.close(PATIENCE_S)
    assert pipe.reading.read(100) == b"two\nthree\n"


async def test_a_slow_reader_congests_the_sink_until_it_has_read(pipe, told):
    """Whoever writes must be able to wait, and to hear that it need not."""
    sink = sink_of(pipe.writing, told)
    sink.write(b"x" * HIGH_WATER_BYTES)
    assert not sink.is_congested
    # What the pipe itself took at once is not held.
    sink.write(b"y" * HIGH_WATER_BYTES)
    assert sink.is_congested
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_all, pipe)
            await sink.room()
            assert not sink.is_congested
            assert told.rooms == 1
            await sink.close(PATIENCE_S)
            pipe.writing.close()


async def test_closing_gives_up_on_a_reader_that_never_reads(pipe, told):
    """It must not hold the process."""
    sink = sink_of(pipe.writing, told)
    sink.write(b"x" * (HIGH_WATER_BYTES + 1))
    with anyio.fail_after(PATIENCE_S):
        await sink.close(0.01)
        await sink.room()
    assert os.get_blocking(pipe.writing.fileno())


async def test_a_file_is_written_though_it_cannot_be_polled(tmp_path, told):
    """`serve > answers.jsonl` is how people try it."""
    with FileIO(tmp_path / "out", "wb") as file:
        sink = sink_of(file, told)
        assert isinstance(sink, ThreadedSink)
        for number in range(100):
            sink.write(b"%d\n" % number)
            await asyncio.sleep(0)
        await sink.close(PATIENCE_S)
    assert (tmp_path / "out").read_bytes() == b"".join(b"%d\n" % number for number in range(100))


async def test_a_socket_is_polled_and_left_as_it_was_found(told):
    """Some clients hand a socket over as stdout, and use it afterwards."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sink = sink_of(ours, told)
        assert isinstance(sink, PolledSink)
        sink.write(b"a\n")
        await sink.close(PATIENCE_S)
        assert theirs.recv(10) == b"a\n"
        assert os.get_blocking(ours.fileno())


async def test_the_writing_thread_ends_with_its_sink(tmp_path, told):
    """Each served client would leave one behind."""
    before = set(threading.enumerate())
    with FileIO(tmp_path / "out", "wb") as file:
        sink = sink_of(file, told)
        (thread,) = set(threading.enumerate()) - before
        await sink.close(PATIENCE_S)
        await anyio.to_thread.run_sync(thread.join, PATIENCE_S)
    assert not thread.is_alive()


@KINDS
async def test_what_is_to_follow_a_line_follows_it_when_it_has_left(kind, pipe, told):
    """A request would count as answered whose answer is still held, and be lost with the process."""
    done = []
    sink = sink_of(pipe.writing, told, kind)
    sink.then(lambda: done.append("at once"))
    sink.write(b"x" * 200_000 + b"\n")
    sink.then(lambda: done.append("long"))
    sink.write(b"short\n")
    sink.then(lambda: done.append("short"))
    await asyncio.sleep(0.05)
    assert done == ["at once"]
    await close_and_read_all(sink, pipe)
    assert done == ["at once", "long", "short"]


@KINDS
async def test_what_is_to_follow_a_line_that_never_leaves_does_not_happen(kind, pipe, told):
    """Whoever takes the session over would not know that the answer is still to be given."""
    sink = sink_of(pipe.writing, told, kind)
    sink.write(b"x" * 200_000 + b"\n")
    sink.then(lambda: pytest.fail("it has not left"))
    await sink.close(0.05)
    sink.then(lambda: pytest.fail("nothing leaves any more"))


async def test_a_sink_that_is_given_up_leaves_no_thread_behind(pipe, told):
    """A daemon would gather one for each client whose terminal or pipe is stuck; or write into another client's."""
    before = set(threading.enumerate())
    sink = sink_of(pipe.writing, told, ThreadedSink)
    sink.write(b"x" * 200_000 + b"\n")
    await asyncio.sleep(0.05)
    await sink.close(0.05)
    pipe.writing.close()
    await eventually_async(lambda: set(threading.enumerate()) <= before)
    with anyio.fail_after(PATIENCE_S):
        assert len(await read_all(pipe)) < 200_000


class Noted(Journal):
    """What a journal is told, each with how much its client could have read until then."""

    def __init__(self, reading):
        self.reading, self.read, self.told = reading, 0, []

    def leaving(self, id_json):
        self._note("leaving", id_json)

    def kept(self, id_json):
        self._note("kept", id_json)

    def writing(self, *, is_half):
        self._note("half" if is_half else "whole")

    def _note(self, *what):
        held = int.from_bytes(fcntl.ioctl(self.reading, termios.FIONREAD, bytes(4)), sys.byteorder)
        self.told.append((*what, self.read + held))


def noted_sink(reading, writing):
    journal = Noted(reading)
    return sink_of(writing, Told(), PolledSink, journal=journal), journal


@pytest.mark.parametrize("size", [10, 30_000])
async def test_an_answer_counts_as_written_before_its_client_can_have_it(size, pipe):
    """A daemon that dies right after it has written is the usual case: its reader runs first, and is answered twice."""
    line, sockets = b"x" * size + b"\n", socket.socketpair()
    with sockets[0], sockets[1]:
        for reading, writing in (pipe, sockets):
            sink, journal = noted_sink(reading, writing)
            sink.write(line, answers=b"7")
            assert journal.told == [("leaving", b"7", 0)]
            await sink.close(PATIENCE_S)


async def test_an_answer_that_has_no_room_is_owed_until_it_has(pipe):
    """A client that reads slowly would never get it if the daemon died meanwhile."""
    sink, journal = noted_sink(*pipe)
    full = fcntl.fcntl(pipe.writing, fcntl.F_GETPIPE_SZ)
    pipe.writing.write(b"x" * full)
    sink.write(b"answer\n", answers=b"7")
    assert journal.told == [("leaving", b"7", full), ("kept", b"7", full)]
    journal.read += len(pipe.reading.read(full))
    await sink.close(PATIENCE_S)
    assert journal.told[2:] == [("leaving", b"7", full)]


async def test_of_a_line_that_leaves_in_pieces_only_the_last_one_makes_it_an_answer(pipe):
    """A client whose daemon died in between would wait for the rest for ever, or read the next line as the rest."""
    sink, journal = noted_sink(*pipe)
    os.set_blocking(pipe.reading.fileno(), False)
    line = b"x" * 200_000 + b"\n"
    sink.write(line, answers=b"7")
    with anyio.fail_after(PATIENCE_S):
        while journal.read < len(line):
            await asyncio.sleep(0.001)
            journal.read += len(pipe.reading.read(1_000_000) or b"")
    half, *tried, leaving, whole = journal.told
    assert (half, whole) == (("half", 0), ("whole", len(line)))
    assert leaving[:2] == ("leaving", b"7")
    assert len(line) - 4_096 <= leaving[2] < len(line)
    assert [each[0] for each in tried] == ["leaving", "kept"] * (len(tried) // 2)
    await sink.close(PATIENCE_S)
