"""Asking a serve that is there, that is not, and that misbehaves."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from quarterdeck.daemon.control import client
from quarterdeck.daemon.control.client import NoAnswerError, NotServingError, TooLargeError, ask
from quarterdeck.daemon.control.protocol import SOCKET_NAME, Call, Ps, Refused, encode

pytestmark = pytest.mark.process


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short: a socket's path is."""
    return tmp_path_factory.mktemp("d")


@contextmanager
def serving(directory: Path, reply: bytes | None) -> Iterator[None]:
    """Something that takes one request and says `reply`; None says nothing until the end."""
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / SOCKET_NAME))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                lines.readline()
                if reply is None:
                    over.wait(10)
                else:
                    connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def test_an_answer_is_given_back(directory: Path) -> None:
    """Nothing else would work."""
    with serving(directory, encode(Refused("busy", "later"))):
        assert ask(directory, Ps()) == Refused("busy", "later")


def test_a_serve_that_is_gone_is_told_from_one_that_does_not_answer(directory: Path) -> None:
    """A command would not fall back to servers of its own, or would call a tool twice."""
    with pytest.raises(NotServingError):
        ask(directory, Ps())
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(directory / SOCKET_NAME))
    with pytest.raises(NotServingError):
        ask(directory, Ps())


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", "ended before"),
        (b'{"type":"servers","servers":[', "ended before"),
        (b"hello\n", "another version"),
        (b'{"type":"news"}\n', "another version"),
    ],
)
def test_a_broken_answer_is_no_answer(directory: Path, reply: bytes, reason: str) -> None:
    """A user would see a traceback."""
    with serving(directory, reply), pytest.raises(NoAnswerError, match=reason):
        ask(directory, Ps())


def test_a_serve_that_hangs_is_not_waited_for(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ps` would hang with a serve that is stopped."""
    monkeypatch.setattr(client, "ANSWER_S", 0.05)
    with serving(directory, None), pytest.raises(NoAnswerError, match="does not answer within"):
        ask(directory, Ps())


def test_what_no_serve_reads_is_not_sent(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would see a broken pipe in place of the limit."""
    monkeypatch.setattr(client, "MAX_REQUEST_BYTES", 100)
    with pytest.raises(TooLargeError, match="at most 100"):
        ask(directory, Call("a__b", msgspec.Raw(b'"' + b"x" * 100 + b'"')))
