"""A test process's connection: whose answer is whose, what is given up, and what is said when nobody is there."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.config.places import short_folder

from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_pytest.activation import RunAddress
from quarterdeck_pytest.client.connection import Connection
from quarterdeck_pytest.client.pending import McpTestError, Pending
from quarterdeck_pytest.messages import (
    LENGTH_BYTES,
    Answer,
    Cancel,
    Failed,
    Hello,
    Look,
    Reply,
    Request,
    Wrong,
    decode_request,
    encode,
    length_of,
)

pytestmark = pytest.mark.process

WAIT_S = 60.0


class PlayedSupervisor:
    """The other end, by hand."""

    def __init__(self, folder: Path) -> None:
        self.address = RunAddress(str(folder), "token")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address.socket)
        self._listener.listen()
        self._end: socket.socket | None = None

    def accept(self) -> Request:
        self._end, _ = self._listener.accept()
        return self.read()

    def read(self) -> Request:
        assert self._end is not None
        head = self._end.recv(LENGTH_BYTES, socket.MSG_WAITALL)
        return decode_request(self._end.recv(length_of(head), socket.MSG_WAITALL))

    def say(self, answer: Answer) -> None:
        assert self._end is not None
        self._end.sendall(encode(answer))

    def close(self) -> None:
        self._listener.close()
        if self._end is not None:
            self._end.close()


@contextmanager
def connected() -> Iterator[tuple[Connection, PlayedSupervisor]]:
    with short_folder() as folder:
        played = PlayedSupervisor(folder)
        connection = Connection(played.address, "gw0")
        try:
            assert played.accept() == Hello("token", "gw0")
            yield connection, played
        finally:
            played.close()
            connection.close()


def look(connection: Connection) -> Pending[bytes]:
    return Pending(connection.send(Look(connection.next_id(), "k")), lambda reply: reply.body)


def test_answers_find_their_requests_in_whatever_order() -> None:
    """A test would be given another thread's result."""
    with connected() as (connection, played):
        first, second, third, fourth = (look(connection) for _ in range(4))
        played.say(Reply(2, b"b"))
        played.say(Reply(1, b"a"))
        played.say(Failed(3, FaultRecord(FaultKind.TIMEOUT, "late")))
        played.say(Wrong(4, "no such server"))
        assert (first.result(WAIT_S), second.result(WAIT_S)) == (b"a", b"b")
        with pytest.raises(ProtocolFault, match="late"):
            third.result(WAIT_S)
        with pytest.raises(McpTestError, match="no such server"):
            fourth.result(WAIT_S)


def test_what_is_given_up_is_cancelled_and_its_late_answer_dropped() -> None:
    """A call that pytest-timeout interrupts would go on at the server, and confuse the next."""
    with connected() as (connection, played):
        pending = look(connection)
        with pytest.raises(TimeoutError):
            pending.result(0.01)
        assert isinstance(played.read(), Look)
        assert played.read() == Cancel(1)
        played.say(Reply(1, b"late"))
        after = look(connection)
        played.say(Reply(2, b"right"))
        assert after.result(WAIT_S) == b"right"


def test_a_coroutine_awaits_it_and_its_cancellation_gives_it_up() -> None:
    """A cancelled task would leave its call behind."""
    with connected() as (connection, played):

        async def work() -> bytes:
            first = look(connection)
            threading.Thread(target=played.say, args=(Reply(1, b"a"),)).start()
            said = await first
            task = asyncio.ensure_future(_awaited(look(connection)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return said

        assert asyncio.run(work()) == b"a"
        assert [played.read() for _ in range(3)][2] == Cancel(2)


async def _awaited(pending: Pending[bytes]) -> bytes:
    return await pending


def test_a_supervisor_that_is_gone_is_one_clear_sentence() -> None:
    """A suite would hang, or show a traceback of ours, when its supervisor was killed."""
    with connected() as (connection, played):
        pending = look(connection)
        played.address.log.write_text("out of memory\n")
        played.close()
        with pytest.raises(McpTestError, match=r"is gone.*\n*out of memory"):
            pending.result(WAIT_S)
        with pytest.raises(McpTestError, match="is gone"):
            look(connection)
    with short_folder() as folder, pytest.raises(McpTestError, match="is gone"):
        Connection(RunAddress(str(folder), "t"), "gw0")
