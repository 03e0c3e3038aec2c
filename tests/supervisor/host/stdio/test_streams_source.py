"""Reading without blocking: pipes, files, pauses and ends."""

import asyncio
import os
import threading
from io import FileIO

import anyio
import pytest
from support.waiting import PATIENCE_S, eventually_async

from quarterdeck.host.stdio.streams import CHUNK_BYTES, PolledSource, ThreadedSource, open_source

KINDS = pytest.mark.parametrize("kind", [PolledSource, ThreadedSource])


class Taken:
    """What a source has given."""

    def __init__(self):
        self.data = b""
        self.ends = 0
        self.ended = asyncio.Event()
        self.came = asyncio.Event()

    def take(self, data):
        self.data += data
        self.came.set()

    def end(self):
        self.ends += 1
        self.ended.set()


@pytest.fixture
def taken():
    return Taken()


def source_of(file, taken, make=open_source):
    """A source that reads `file`, by default the one that fits it."""
    return make(file.fileno(), taken.take, taken.end)


@KINDS
async def test_everything_is_read_and_then_the_end_told_once(kind, pipe, taken):
    """A lost chunk is a lost request."""
    source = source_of(pipe.reading, taken, kind)
    source.resume()
    data = os.urandom(5 * CHUNK_BYTES + 7)

    def write():
        with open(pipe.writing.fileno(), "wb", closefd=False) as file:
            file.write(data)
        pipe.writing.close()

    with anyio.fail_after(PATIENCE_S):
        await anyio.to_thread.run_sync(write)
        await taken.ended.wait()
    source.close()
    assert (taken.data, taken.ends) == (data, 1)


@KINDS
async def test_nothing_is_read_before_it_is_resumed_nor_after_it_is_closed(kind, pipe, taken):
    """Bytes would come to somebody who is not ready."""
    source = source_of(pipe.reading, taken, kind)
    pipe.writing.write(b"early")
    await asyncio.sleep(0)
    assert taken.data == b""
    source.resume()
    source.resume()
    with anyio.fail_after(PATIENCE_S):
        await taken.came.wait()
    source.close()
    source.close()
    source.resume()
    pipe.writing.close()
    await asyncio.sleep(0)
    assert (taken.data, taken.ends) == (b"early", 0)


async def test_a_paused_pipe_keeps_its_bytes_until_it_is_resumed(pipe, taken):
    """That is how a client is made to wait."""
    source = source_of(pipe.reading, taken)
    source.resume()
    source.pause()
    source.pause()
    pipe.writing.write(b"waits")
    await asyncio.sleep(0)
    assert taken.data == b""
    source.resume()
    with anyio.fail_after(PATIENCE_S):
        await taken.came.wait()
    assert taken.data == b"waits"
    source.close()
    assert os.get_blocking(pipe.reading.fileno())


async def test_a_file_is_read_though_it_cannot_be_polled(tmp_path, taken):
    """`serve < requests.jsonl` is how people try it."""
    (tmp_path / "in").write_bytes(b"line\n" * 100_000)
    with FileIO(tmp_path / "in") as file:
        source = source_of(file, taken)
        assert isinstance(source, ThreadedSource)
        source.resume()
        with anyio.fail_after(PATIENCE_S):
            await taken.ended.wait()
    assert taken.data == b"line\n" * 100_000


async def test_a_descriptor_that_fails_is_at_its_end(tmp_path, taken):
    """There is nothing more to come from it."""
    with FileIO(tmp_path / "out", "wb") as write_only:
        source_of(write_only, taken).resume()
        with anyio.fail_after(PATIENCE_S):
            await taken.ended.wait()
    assert taken.ends == 1


async def test_the_reading_thread_ends_with_its_file(tmp_path, taken):
    """Each served client would leave one behind."""
    (tmp_path / "in").write_bytes(b"")
    before = set(threading.enumerate())
    with FileIO(tmp_path / "in") as file:
        source = source_of(file, taken)
        (thread,) = set(threading.enumerate()) - before
        source.resume()
        await anyio.to_thread.run_sync(thread.join, PATIENCE_S)
        await taken.ended.wait()
    assert not thread.is_alive()


async def test_a_reader_that_is_closed_takes_nothing_from_whoever_reads_next(pipe, taken):
    """After Ctrl-C the next line that is typed would go to the daemon; or, by the same number, another client's."""
    before = threading.active_count()
    source = source_of(pipe.reading, taken, ThreadedSource)
    source.resume()
    await asyncio.sleep(0.05)
    source.close()
    await eventually_async(lambda: threading.active_count() == before)
    pipe.writing.write(b"typed later")
    assert pipe.reading.read(100) == b"typed later"
