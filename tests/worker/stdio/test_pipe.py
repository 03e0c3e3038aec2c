"""A server's pipes: lines in any pieces, floods that starve nobody, servers that do not read."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest

from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.mcp.jsonrpc import LineTooLongError
from quarterdeck_worker.stdio import pipe as pipe_module
from quarterdeck_worker.stdio.pipe import READ_BYTES, READS_A_WAKE, ServerPipe

PATIENCE_S = 10.0


class Server:
    """The server's ends of the pipes, and what came of ours."""

    def __init__(self, max_line_bytes: int = 1_000_000) -> None:
        self.stdin_fd, ours_in = os.pipe()
        ours_out, self.stdout_fd = os.pipe()
        self._fds = {self.stdin_fd, self.stdout_fd, ours_in, ours_out}
        for fd in self._fds:
            os.set_blocking(fd, False)
        self.lines: list[bytes] = []
        self.ends: list[LineTooLongError | None] = []
        self.drained = 0
        self.on_line: Callable[[], None] = lambda: None
        self._moved = asyncio.Event()
        connection: Any = self
        self.pipe = ServerPipe(connection, ours_in, ours_out, max_line_bytes=max_line_bytes)

    def receive(self, line: bytes) -> None:
        self.lines.append(line)
        self._moved.set()
        self.on_line()

    def flush(self) -> None:
        self.drained += 1

    def end(self) -> None:
        self.ends.append(self.pipe.overflow)
        self._moved.set()

    def close(self, fd: int) -> None:
        self._fds.remove(fd)
        os.close(fd)

    def close_all(self) -> None:
        self.pipe.close()
        for fd in self._fds:
            os.close(fd)

    def has_heard(self) -> bytes:
        try:
            return os.read(self.stdin_fd, 1 << 24)
        except BlockingIOError:
            return b""

    async def until(self, lines: int = 0, ends: int = 0) -> None:
        with anyio.fail_after(PATIENCE_S):
            while len(self.lines) < lines or len(self.ends) < ends:
                self._moved.clear()
                await self._moved.wait()


@contextmanager
def server(max_line_bytes: int = 1_000_000) -> Iterator[Server]:
    """A pretend server whose descriptors are released at the end."""
    played = Server(max_line_bytes)
    try:
        yield played
    finally:
        played.close_all()


async def test_lines_arrive_whole_whatever_pieces_they_come_in() -> None:
    """An answer split over two reads would be lost, or two answers in one read."""
    with server() as played:
        os.write(played.stdout_fd, b'{"a":1}\n\n  \n{"b"')
        await played.until(lines=1)
        os.write(played.stdout_fd, b':2}\r\n{"c":3}\n{"d"')
        await played.until(lines=3)
        assert played.lines == [b'{"a":1}', b'{"b":2}\r', b'{"c":3}']
        assert played.ends == []


async def test_what_a_server_wrote_before_it_hung_up_is_read_first() -> None:
    """The answer that a server gave before it died would be lost."""
    with server() as played:
        os.write(played.stdout_fd, b"last\nhalf")
        played.close(played.stdout_fd)
        await played.until(ends=1)
        assert (played.lines, played.ends) == ([b"last"], [None])


async def test_a_line_that_is_too_long_ends_the_pipe_after_the_lines_before_it() -> None:
    """A server could fill our memory with one line."""
    with server(max_line_bytes=10) as played:
        os.write(played.stdout_fd, b"good\n" + b"x" * 11 + b"\nnever\n")
        await played.until(ends=1)
        assert played.lines == [b"good"]
        [error] = played.ends
        assert isinstance(error, LineTooLongError)
        assert error.max_bytes == 10
        await anyio.lowlevel.checkpoint()
        assert played.lines == [b"good"]


async def test_a_flood_leaves_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never stops writing would starve the heartbeats, and be killed for their silence."""
    turns: list[int] = []
    with server(max_line_bytes=READ_BYTES) as played:

        def endless(fd: int, count: int) -> bytes:
            assert count == READ_BYTES
            return b"x" * (READ_BYTES - 1) + b"\n"

        with monkeypatch.context() as patch:
            patch.setattr(pipe_module.os, "read", endless)
            os.write(played.stdout_fd, b"!")
            while len(turns) < 3:
                await anyio.lowlevel.checkpoint()
                turns.append(len(played.lines))
            played.pipe.close()
    assert turns[-1] > 0
    assert all(after - before <= READS_A_WAKE for before, after in pairwise(turns))


async def test_closing_from_inside_a_line_delivers_no_more() -> None:
    """Lines would reach a session that is gone."""
    with server() as played:
        played.on_line = played.pipe.close
        os.write(played.stdout_fd, b"one\ntwo\n")
        await played.until(lines=1)
        assert (played.lines, played.ends) == ([b"one"], [])


async def test_a_line_on_its_own_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call would wait for the loop's next turn."""
    monkeypatch.setattr(pipe_module, "BURST_S", 0.0)
    with server() as played:
        for line in (b"one\n", b"two\n"):
            played.pipe.write(line)
            assert played.has_heard() == line


async def test_lines_that_follow_one_another_closely_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call would overtake another, or cost a write of its own among a hundred."""
    monkeypatch.setattr(pipe_module, "BURST_S", PATIENCE_S)
    with server() as played:
        played.pipe.write(b"one\n")
        played.pipe.write(b"two\n")
        played.pipe.write(b"three\n")
        assert played.has_heard() == b"one\n"
        await anyio.lowlevel.checkpoint()
        assert played.has_heard() == b"two\nthree\n"


async def test_what_waits_for_the_turns_end_is_forgotten_with_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line would be written to a descriptor that is somebody else's by then."""
    monkeypatch.setattr(pipe_module, "BURST_S", PATIENCE_S)
    with server() as played:
        played.pipe.write(b"one\n")
        played.pipe.write(b"two\n")
        played.pipe.stop_writing()
        await anyio.lowlevel.checkpoint()
        assert played.has_heard() == b"one\n"


async def test_what_a_slow_server_does_not_take_is_kept_in_order() -> None:
    """A large argument would arrive with a hole in it."""
    with server() as played:
        large = bytes(range(256)) * 4_096
        played.pipe.write(large)
        played.pipe.write(b"after\n")
        heard = bytearray()
        with anyio.fail_after(PATIENCE_S):
            while len(heard) < len(large) + 6:
                heard += played.has_heard()
                await anyio.lowlevel.checkpoint()
        assert heard == large + b"after\n"
        played.pipe.write(b"again\n")
        await anyio.lowlevel.checkpoint()
        assert played.has_heard() == b"again\n"


async def test_a_server_that_closed_its_stdin_is_written_to_no_more_but_still_heard() -> None:
    """Its death, which explains it, would be hidden behind an error of ours."""
    with server() as played:
        played.close(played.stdin_fd)
        played.pipe.write(b"into the void\n")
        assert played.pipe.refusal()
        played.pipe.write(b"again\n")
        os.write(played.stdout_fd, b"still here\n")
        await played.until(lines=1)


async def test_a_server_that_closes_its_stdin_while_lines_wait_loses_them_quietly() -> None:
    """The loop would spin on a broken pipe."""
    with server() as played:
        played.pipe.write(b"x" * 2_000_000)
        played.close(played.stdin_fd)
        with anyio.fail_after(PATIENCE_S):
            while played.pipe._in >= 0:
                await anyio.lowlevel.checkpoint()
        assert played.pipe.refusal()


async def test_a_closed_pipe_lets_go_of_its_descriptors() -> None:
    """The loop would watch a descriptor that is another's by then."""
    with server() as played:
        played.pipe.write(b"x" * 2_000_000)
        played.pipe.close()
        played.pipe.close()
        played.pipe.write(b"y")
        loop = asyncio.get_running_loop()
        for remove in (loop.remove_reader, loop.remove_writer):
            assert not any(remove(fd) for fd in played._fds)
        assert played.ends == []


async def test_a_server_that_does_not_read_or_hears_nothing_is_sent_no_more_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls to a stuck server would fill the worker's memory, and a caller not know whether to ask again."""
    monkeypatch.setattr(pipe_module, "MAX_UNREAD_BYTES", 1_000)
    with server() as played:
        assert played.pipe.refusal() is None
        played.pipe.write(b"x" * 2_000_000)
        stuck = played.pipe.refusal()
        assert stuck is not None
        assert (stuck.code, stuck.delivery) == ("busy", Delivery.NOT_SENT)
        with anyio.fail_after(PATIENCE_S):
            while played.pipe.refusal():
                played.has_heard()
                await anyio.lowlevel.checkpoint()
    with server() as played:
        played.close(played.stdin_fd)
        played.pipe.write(b"x\n")
        deaf = played.pipe.refusal()
        assert deaf is not None
        assert (deaf.code, deaf.delivery) == ("server_lost", Delivery.NOT_SENT)
