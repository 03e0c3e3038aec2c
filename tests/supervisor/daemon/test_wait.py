"""What a waiting door does by itself: hold the daemon's HTTP socket, and answer the requests of a dead daemon."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from support.config.places import short_folder

from quarterdeck.daemon import wait
from quarterdeck.daemon.messages import (
    ACCEPTED,
    END,
    HOLD,
    LOG,
    Ask,
    Handover,
    ServeRequest,
    decode_request,
    encode_request,
    frame,
)
from quarterdeck.daemon.session_memory import SessionMemory
from quarterdeck.host.journal import RequestKind
from quarterdeck.host.stdio.serve import answers_if_lost

pytestmark = pytest.mark.usefixtures("signals")

INFO = b'{"name":"quarterdeck","version":"1"}'


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def served(fd: int) -> SessionMemory:
    memory = SessionMemory.map(fd)
    memory.begin_session()
    memory.answers_if_lost(answers_if_lost(INFO))
    return memory


def test_each_request_of_a_dead_daemon_is_answered_once_in_the_form_of_its_kind(fd: int, pipe: tuple[int, int]) -> None:
    """A client would wait for its answers until another daemon has started, or get each of them twice."""
    memory = served(fd)
    for id_json, kind in ((b"7", RequestKind.CALL), (b'"7"', RequestKind.MODERN_CALL), (b"8", RequestKind.OTHER)):
        memory.took(id_json, kind, 0)
    wait.answer_lost(fd, pipe[1])
    call, modern, other = map(json.loads, os.read(pipe[0], 65536).splitlines())
    assert (call["id"], modern["id"], other["id"]) == (7, "7", 8)
    assert call["result"]["_meta"]["quarterdeck/fault"]["code"] == "daemon_lost"
    assert "resultType" not in call["result"]
    assert modern["result"]["resultType"] == "complete"
    assert other["error"]["code"] == -32603
    assert SessionMemory.map(fd).begin_session().under_way == {}
    wait.answer_lost(fd, pipe[1])
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)


def test_a_half_written_line_is_ended_before_the_first_answer(fd: int, pipe: tuple[int, int]) -> None:
    """The answer would be the rest of a line that is no JSON."""
    memory = served(fd)
    memory.took(b"7", RequestKind.CALL, 0)
    memory.writing(is_half=True)
    wait.answer_lost(fd, pipe[1])
    rest, answer, _ = os.read(pipe[0], 65536).split(b"\n")
    assert (rest, json.loads(answer)["id"]) == (b"", 7)
    assert not SessionMemory.map(fd).begin_session().is_half_written


def test_a_greeting_under_way_is_left_to_the_next_daemon(fd: int, pipe: tuple[int, int]) -> None:
    """A client that was just starting would be told that it cannot be served."""
    memory = served(fd)
    memory.greeted(b'{"id":0,"method":"initialize"}')
    memory.took(b"0", RequestKind.INITIALIZE, 0)
    wait.answer_lost(fd, pipe[1])
    assert list(SessionMemory.map(fd).begin_session().under_way) == [b"0"]


def test_the_answers_of_a_client_that_does_not_read_are_left_to_the_next_daemon(
    fd: int, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its door would hang, and no other daemon be started for it."""
    monkeypatch.setattr(wait, "ANSWER_MS", 1)
    memory = served(fd)
    memory.took(b"7", RequestKind.CALL, 0)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(pipe[1], b"x" * 65536)
    wait.answer_lost(fd, pipe[1])
    left = SessionMemory.map(fd).begin_session()
    assert (list(left.under_way), left.is_half_written) == ([b"7"], False)


def test_a_memory_in_which_no_session_was_served_has_nothing_to_answer(fd: int, pipe: tuple[int, int]) -> None:
    """A door whose daemon died at once would end with an error in place of finding another daemon."""
    SessionMemory.map(fd).begin_session()
    wait.answer_lost(fd, pipe[1])
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)


@pytest.mark.process
def test_a_door_holds_the_last_socket_that_its_daemon_gave_it_until_that_takes_it_back() -> None:
    """Clients over HTTP would be refused while another daemon starts; or wait at a socket that nobody serves."""
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second, theirs:
        port = second.getsockname()[1]
        theirs.sendall(frame(LOG, ""))
        for listener in (first, second):
            socket.send_fds(theirs, [frame(HOLD, "")], [listener.fileno()])
        theirs.sendall(frame(END, "7"))
        first.close()
        second.close()
        door = wait.Door(ours)
        assert door.wait() == 7
        with socket.create_connection(("127.0.0.1", port)):
            pass
        theirs.sendall(frame(HOLD, "") + frame(END, "0"))
        held = door.listener
        door = wait.Door(ours, held)
        assert door.wait() == 0
        assert door.listener == wait.NO_DESCRIPTOR
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(held)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        door.close()


# The next daemon

KEY, NEXT_KEY = "a" * wait.KEY_BYTES, "b" * wait.KEY_BYTES
HANDOVER = Handover(KEY, "1", 7, ServeRequest(cwd="/"), {b"A": b"b"}, log_level=20, log_is_json=False, is_resumed=True)


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a daemon that died, in which the next one has its key already."""
    monkeypatch.delenv(wait.LIVES, raising=False)
    monkeypatch.setattr(wait, "STAGGER_S", 0.0)
    with short_folder() as folder:
        (folder / "key").write_text(NEXT_KEY + "\n")
        yield folder


@pytest.fixture
def door() -> Iterator[wait.Door]:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        yield wait.Door(ours)


def request_of(handover: Handover) -> bytes:
    return handover.key.encode() + encode_request(handover)


@pytest.mark.process
def test_the_first_of_several_doors_comes_back_whole_to_start_the_next_daemon(
    fd: int, directory: Path, door: wait.Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None would start it; or all would import at once, and the daemon come seconds later."""
    request = request_of(HANDOVER)
    assert wait.go_on(door, fd, str(directory), request) is None
    assert [each.name for each in directory.glob("after-*")] == ["after-" + KEY[:16]]
    monkeypatch.setattr(wait, "NEXT_S", 0.1)  # nobody listens there: the next one waits, and then comes back, too
    assert wait.go_on(door, fd, str(directory), request) is None


@pytest.mark.process
@pytest.mark.parametrize("holds", [True, False])
def test_a_door_hands_itself_over_to_the_daemon_that_another_one_started(
    fd: int, directory: Path, door: wait.Door, holds: bool
) -> None:
    """Its client would wait until a whole program has been imported for it, twenty times on one machine."""
    (directory / ("after-" + KEY[:16])).touch()
    came: list[tuple[Handover | Ask, int]] = []
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(directory / "door.sock"))
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as connection:
                data, fds, _, _ = socket.recv_fds(connection, 65536, 8)
                came.append((decode_request(data[4:]), len(fds)))
                for each in fds:
                    os.close(each)
                connection.sendall(frame(ACCEPTED, "1"))
                connection.sendall(frame(END, "7"))

        daemon = threading.Thread(target=serve, daemon=True)
        daemon.start()
        door.listener = os.dup(fd) if holds else wait.NO_DESCRIPTOR
        found = wait.go_on(door, fd, str(directory), request_of(HANDOVER))
        assert found is not None
        daemon.join()
        following, request = found
        assert following.wait() == 7
        following.close()
    told = msgspec.structs.replace(HANDOVER, key=NEXT_KEY, holds_listener=holds)
    assert came == [(told, 5 if holds else 4)]
    assert request == request_of(msgspec.structs.replace(HANDOVER, key=NEXT_KEY)), "the daemon after that has it, too"
    assert len(os.environ[wait.LIVES].split()) == 1
    if holds:
        os.close(following.listener)


def test_a_door_under_which_too_many_daemons_died_comes_back_whole(
    fd: int, directory: Path, door: wait.Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on for ever, and its client never be told why nothing works."""
    monkeypatch.setenv(wait.LIVES, " ".join([str(time.monotonic())] * wait.MAX_DEATHS))
    (directory / ("after-" + KEY[:16])).touch()
    assert wait.go_on(door, fd, str(directory), request_of(HANDOVER)) is None
