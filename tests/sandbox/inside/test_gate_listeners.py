"""Listening sockets that are opened on one side and accepted on at the other."""

import array
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from quarterdeck_sandbox.inside import gate
from quarterdeck_sandbox.inside.gate import open_listeners


@contextmanager
def received(count: int, control: socket.socket) -> Iterator[list[socket.socket]]:
    """The next `count` sockets that came over `control`."""
    with ExitStack() as cleanup:
        fds = array.array("i")
        while len(fds) < count:
            _, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(1024), socket.MSG_CMSG_CLOEXEC)
            for _, _, content in ancillary:
                fds.frombytes(content)
        yield [cleanup.enter_context(socket.socket(fileno=fd)) for fd in fds]


def test_whoever_holds_the_listeners_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of the list could not be reached, or another one would answer in its place."""
    monkeypatch.setattr(gate, "LISTENERS_BATCH", 2)
    ours, theirs = socket.socketpair()
    pairs = [("127.64.0.1", 0), ("127.64.0.2", 0), ("127.64.0.1", 0)]
    with ours, theirs:
        open_listeners(theirs, pairs)
        with received(len(pairs), ours) as opened:
            assert [one.getsockname()[0] for one in opened] == [address for address, _ in pairs]
            for one in opened:
                with socket.create_connection(one.getsockname(), 5):
                    one.accept()[0].close()


def test_an_address_that_is_taken_is_named() -> None:
    """A server would start without a host that its receipt promises."""
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.64.0.9", 0)) as taken:
        pair = taken.getsockname()
        with pytest.raises(OSError, match=rf"cannot listen on {pair[0]}:{pair[1]}: Address already in use"):
            open_listeners(theirs, [pair])
