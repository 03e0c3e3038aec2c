"""Reading without blocking: pipes, files, pauses and ends."""

import asyncio
import os
import threading

import anyio
import pytest
from support.waiting import PATIENCE_S, eventually_async

from quarterdeck.host.stdio.streams import CHUNK_BYTES, PolledSource, ThreadedSource, open_source

KINDS = pytest.mark.parametrize("kind", [PolledSource, ThreadedSource])


def raw(path, mode):
    return open(path, mode, buffering=0)


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


@KINDS
async def test_everything_is_read_and_then_the_end_told_once(kind):
    """A lost chunk is a lost request."""
    reading, writing = os.pipe()
    taken = Taken()
    source = kind(reading, taken.take, taken.end)
    source.resume()
    data = os.urandom(5 * CHUNK_BYTES + 7)

    def write():
        with os.fdopen(writing, "wb") as file:
            file.write(data)

    with anyio.fail_after(PATIENCE_S):
        await anyio.to_thread.run_sync(write)
        await taken.ended.wait()
    source.close()
    assert (taken.data, taken.ends) == (data, 1)
    os.close(reading)


@KINDS
async def test_nothing_is_read_before_it_is_resumed_nor_after_it_is_closed(kind):
    """Bytes would come to somebody who is not ready."""
    reading, writing = os.pipe()
    taken = Taken()
    source = kind(reading, taken.take, taken.end)
    os.write(writing, b"early")
    await asyncio.sleep(0)
    assert taken.data == b""
    source.resume()
    source.resume()
    with anyio.fail_after(PATIENCE_S):
        await taken.came.wait()
    source.close()
    source.close()
    source.resume()
    os.close(writing)
    await asyncio.sleep(0)
    assert (taken.data, taken.ends) == (b"early", 0)
    os.close(reading)


async def test_a_paused_pipe_keeps_its_bytes_until_it_is_resumed():
    """That is how a client is made to wait."""
    reading, writing = os.pipe()
    taken = Taken()
    source = open_source(reading, taken.take, taken.end)
    source.resume()
    source.pause()
    source.pause()
    os.write(writing, b"waits")
    await asyncio.sleep(0)
    assert taken.data == b""
    source.resume()
    with anyio.fail_after(PATIENCE_S):
        await taken.came.wait()
    assert taken.data == b"waits"
    source.close()
    assert os.get_blocking(reading)
    os.close(reading)
    os.close(writing)


async def test_a_file_is_read_though_it_cannot_be_polled(tmp_path):
    """`serve < requests.jsonl` is how people try it."""
    (tmp_path / "in").write_bytes(b"line\n" * 100_000)
    taken = Taken()
    with raw(tmp_path / "in", "rb") as file:
        source = open_source(file.fileno(), taken.take, taken.end)
        assert isinstance(source, ThreadedSource)
        source.resume()
        with anyio.fail_after(PATIENCE_S):
            await taken.ended.wait()
    assert taken.data == b"line\n" * 100_000


async def test_a_descriptor_that_fails_is_at_its_end(tmp_path):
    """There is nothing more to come from it."""
    taken = Taken()
    with raw(tmp_path / "out", "wb") as write_only:
        source = open_source(write_only.fileno(), taken.take, taken.end)
        source.resume()
        with anyio.fail_after(PATIENCE_S):
            await taken.ended.wait()
    assert taken.ends == 1


async def test_the_reading_thread_ends_with_its_file(tmp_path):
    """Each served client would leave one behind."""
    (tmp_path / "in").write_bytes(b"")
    taken, before = Taken(), set(threading.enumerate())
    with raw(tmp_path / "in", "rb") as file:
        source = open_source(file.fileno(), taken.take, taken.end)
        (thread,) = set(threading.enumerate()) - before
        source.resume()
        await anyio.to_thread.run_sync(thread.join, PATIENCE_S)
        await taken.ended.wait()
    assert not thread.is_alive()


async def test_a_reader_that_is_closed_takes_nothing_from_whoever_reads_next():
    """After Ctrl-C the next line that is typed would go to the daemon; or, by the same number, another client's."""
    reading, writing = os.pipe()
    before = threading.active_count()
    taken = Taken()
    source = ThreadedSource(reading, taken.take, taken.end)
    source.resume()
    await asyncio.sleep(0.05)
    source.close()
    await eventually_async(lambda: threading.active_count() == before)
    os.write(writing, b"typed later")
    assert os.read(reading, 100) == b"typed later"
    os.close(reading)
    os.close(writing)
