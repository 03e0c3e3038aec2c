"""A door: what it makes of a daemon that does not take its client, and of words in its environment."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quarterdeck.daemon import door as door_module
from quarterdeck.daemon import start, wait
from quarterdeck.daemon.door import MAX_DEATHS, NotAcceptedError, enter, take_left
from quarterdeck.daemon.messages import END, LOG, REFUSED, ServeRequest, frame
from quarterdeck.daemon.place import daemon_dir
from quarterdeck.daemon.session_memory import SessionMemory, make_memory
from quarterdeck.host.journal import Interrupted, RequestKind

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("places", "signals")]

REQUEST = ServeRequest(cwd="/")


@contextmanager
def listening(answer: Callable[[socket.socket], object]) -> Iterator[list[float]]:
    came: list[float] = []
    directory = daemon_dir()
    directory.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "door.sock"))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                came.append(time.monotonic())
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield came
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def refused(environ: dict[str, str] | None = None, request: ServeRequest = REQUEST) -> NotAcceptedError:
    with pytest.raises(NotAcceptedError) as found:
        enter(request, [], log_level=30, log_is_json=False, environ=environ or {})
    return found.value


def test_a_daemon_that_says_no_is_quoted() -> None:
    """A client would be told that the daemon ended, and look for a reason in the wrong place."""
    with listening(lambda door: door.sendall(frame(REFUSED, "it is full"))) as came:
        assert str(refused()) == "the daemon does not take this client: it is full"
    assert len(came) == 1


def test_a_daemon_that_ends_as_the_door_comes_is_followed_by_the_next() -> None:
    """At `up --replace`, or when the last client leaves, a window that is opened just then would fail."""
    with listening(lambda door: door.recv(1)) as came:
        error = refused()
    assert error.message == "the daemon ended at its start"
    assert "logs --daemon" in error.remedy
    assert len(came) == door_module.MAX_DROPS


def test_a_daemon_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor would show a server that is starting, until somebody looks for the stopped process."""
    monkeypatch.setattr(door_module, "ACCEPT_S", 0.3)

    left = threading.Event()

    def dribble(door: socket.socket) -> None:
        try:
            for _ in range(600):
                door.send(b"L\0\0\0\1x")
                time.sleep(0.1)
        except OSError:
            left.set()

    with listening(dribble):
        error = refused()
    assert left.is_set(), "the door heard it out"
    assert (error.message, "quarterdeck down" in error.remedy) == ("the daemon does not answer", True)


@pytest.mark.parametrize(
    "forged",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(END, "x"),
        frame(END, "-1"),
        frame(END, ""),
        END + b"\xff\xff\xff\xff",
        LOG + b"\x7f\xff\xff\xff" + b"x" * 65536,
    ],
    ids=["http", "word", "negative", "nothing", "huge end", "huge line"],
)
def test_what_listens_there_and_is_no_daemon_is_said_to_be_none(forged: bytes) -> None:
    """A door would end with a traceback, fill its memory, or exit with a code that a stranger chose."""

    def answer(door: socket.socket) -> None:
        try:
            door.sendall(forged)
            door.recv(1 << 20)
        except OSError:
            pass

    with listening(answer):
        error = refused()
    assert error.message == "the daemon cannot be reached: what listens there is no daemon of ours"


@pytest.mark.parametrize(
    "plant",
    [
        Path.touch,
        Path.mkdir,
        lambda path: path.symlink_to("/dev/null"),
        lambda path: path.symlink_to("/nowhere/door.sock"),
    ],
    ids=["file", "directory", "link", "dangling"],
)
def test_what_lies_where_the_socket_should_be_is_no_daemon(
    plant: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leftover would keep every window from being served; or a link lead the client to somebody else's socket."""
    monkeypatch.setattr(start, "_start", stop_here)
    daemon_dir().mkdir(parents=True, mode=0o700)
    path = daemon_dir() / "door.sock"
    plant(path)
    assert "one would be started" in str(refused())


def stop_here(*_: object) -> None:
    raise OSError("one would be started")


def test_what_cannot_be_handed_over_is_said() -> None:
    """A folder with a name that is not UTF-8 would end the door with a traceback."""
    with listening(lambda door: door.recv(1)):
        assert "a path is not UTF-8" in str(refused(request=ServeRequest(cwd="/\udcff")))


@pytest.mark.parametrize("planted", ["", "x", "-1", "0", "99999", str(2**70)])
def test_a_memory_that_somebody_planted_is_not_taken(planted: str) -> None:
    """A client that passes its own variables on would have its server end at its start."""
    with listening(lambda door: door.sendall(frame(REFUSED, "seen"))):
        assert "seen" in str(refused({door_module.MEMORY_VARIABLE: planted, door_module.LIVES_VARIABLE: "soon"}))


def test_a_door_gives_up_when_daemons_keep_dying_and_answers_what_they_left(tmp_path: Path) -> None:
    """It would start one after another for ever; or its client wait for answers that nobody gives."""
    fd = make_memory(tmp_path)
    memory = SessionMemory.map(fd)
    memory.begin_session()
    memory.took(b'"lost"', RequestKind.CALL, 0)
    memory.received(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n{"jsonrpc"')
    lives = " ".join(str(time.monotonic()) for _ in range(MAX_DEATHS))
    source = (
        "import os\nfrom quarterdeck.daemon.door import *\nfrom quarterdeck.daemon.messages import ServeRequest\n"
        "try: enter(ServeRequest(cwd='/'), [], log_level=30, log_is_json=False)\n"
        "except NotAcceptedError as error: print(error, file=__import__('sys').stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, door_module.MEMORY_VARIABLE: str(fd), door_module.LIVES_VARIABLE: lives},
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    os.close(fd)
    assert ended.stderr.strip() == "the daemon died 5 times within 60 s"
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == ["lost", 2]
    assert all("died 5 times" in answer["error"]["message"] for answer in answers)


def test_what_a_daemon_left_is_taken_once_and_handed_to_nobody(tmp_path: Path) -> None:
    """A server would be given the memory of its client's session; or a new client the answers of another."""
    fd = make_memory(tmp_path)
    environ = {door_module.MEMORY_VARIABLE: str(fd), door_module.LIVES_VARIABLE: "1", "PATH": "/bin"}
    memory = SessionMemory.map(fd)
    memory.begin_session()
    memory.took(b"7", RequestKind.CALL, 0)
    memory.keep_notes(b"noted")
    left, notes = take_left(environ) or (Interrupted(), b"")
    assert (list(left.under_way), notes, environ) == ([b"7"], b"noted", {"PATH": "/bin"})
    assert take_left({**environ, door_module.MEMORY_VARIABLE: str(fd)}) is None  # it is closed
    assert take_left({door_module.MEMORY_VARIABLE: str(make_memory(tmp_path))}) is None  # nothing was said in it


def test_deaths_of_long_ago_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is open for weeks would be given up at the fifth upgrade."""
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    assert door_module._count_death({door_module.LIVES_VARIABLE: "1 2 3 4 5 6 7 950"}) == [950.0, 1000.0]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_door_whose_daemon_died_knows_whether_it_was_told_to_end(is_told: bool) -> None:
    """A client that is ending would be given a new daemon; or one that is not be left alone."""
    ours, theirs = socket.socketpair()
    with ours:

        def die() -> None:
            with theirs:
                if is_told:
                    os.kill(os.getpid(), signal.SIGTERM)
                    theirs.recv(1)

        daemon = threading.Timer(0.05, die)
        daemon.start()
        try:
            waiting = wait.Door(ours)
            assert waiting.wait() is None
            assert waiting.was_told is is_told
        finally:
            daemon.join()


def test_a_door_whose_stderr_nobody_reads_still_ends() -> None:
    """A client that does not read it, and waits for our end, would wait for ever."""
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        for _ in range(100):
            wait.say(b"x" * 5000)
    finally:
        os.dup2(kept, 2)
        for fd in (kept, writing):
            os.close(fd)
    with open(reading, "rb") as file:
        assert 0 < len(file.read()) < 500_000


def test_streams_block_again_when_a_daemon_could_not_see_to_that() -> None:
    """A shell whose terminal a killed daemon had read would get errors in place of what is typed."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(reading, False)
        wait.restore([])
        assert not os.get_blocking(reading)
        wait.restore([99_999, reading])
        assert os.get_blocking(reading)
    finally:
        os.close(reading)
        os.close(writing)
