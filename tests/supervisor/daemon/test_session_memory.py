"""What a session needs to go on is there however its daemon died."""

import fcntl
import json
import mmap
import os
import sys
import termios
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from quarterdeck.daemon import wait
from quarterdeck.daemon.session_memory import (
    KEPT_BYTES,
    MAX_GREETING_BYTES,
    MAX_ID_BYTES,
    MAX_NOTES_BYTES,
    MAX_UNREAD_BYTES,
    MOVE_AT_BYTES,
    SIZE_BYTES,
    SLOTS,
    NoMemoryError,
    SessionMemory,
    make_memory,
)
from quarterdeck.host.journal import Interrupted, RequestKind
from quarterdeck.host.stdio.serve import answers_if_lost
from quarterdeck_protocol.mcp.jsonrpc import LineBuffer
from quarterdeck_protocol.mcp.server.session import MAX_UNDER_WAY

INFO = b'{"name":"quarterdeck","version":"1"}'

REACHED_BYTES = 704 * 1024
"""How far into a memory a few requests reach."""


def mapped(fd: int) -> SessionMemory:
    memory = SessionMemory.map(fd)
    memory.begin_session()
    return memory


def restored(fd: int) -> Interrupted:
    return SessionMemory.map(fd).begin_session()


def test_a_new_memory_has_nothing_in_it(fd: int) -> None:
    """A new client would be answered questions that it never asked."""
    assert restored(fd) == Interrupted()


def test_the_next_daemon_finds_what_the_dead_one_wrote(fd: int) -> None:
    """A client whose daemon was killed would wait for its answers for ever."""
    memory = mapped(fd)
    memory.greeted(b'{"method":"initialize"}')
    memory.greeted(b'{"method":"notifications/initialized"}')
    memory.took(b"1", RequestKind.CALL, 0)
    memory.took(b'"1"', RequestKind.OTHER, 0)
    memory.took(b"3", RequestKind.MODERN_CALL, 0)
    memory.ended(b"1")
    memory.received(b"whole\nha")
    memory.unread(2)
    memory.received(b"lf")
    memory.writing(is_half=True)

    found = restored(fd)

    assert found.greeting.splitlines() == [b'{"method":"initialize"}', b'{"method":"notifications/initialized"}']
    assert found.under_way == {b'"1"': RequestKind.OTHER, b"3": RequestKind.MODERN_CALL}
    assert (found.unread, found.is_greeted, found.is_half_written) == (b"half", False, True)


def test_a_greeting_that_is_repeated_by_the_next_daemon_is_kept_once(fd: int) -> None:
    """After the second death a session would be greeted twice, and its client get an answer that it never asked for."""
    for _ in range(3):
        memory = mapped(fd)
        memory.greeted(b"hello")
        memory.took(b"1", RequestKind.INITIALIZE, 0)
        memory.ended(b"1")
    found = restored(fd)
    assert (found.greeting, found.is_greeted, found.under_way) == (b"hello\n", True, {})


def test_a_greeting_that_has_its_answer_is_not_under_way_again(fd: int) -> None:
    """A daemon that dies while it repeats the greeting would have the client greeted a second time."""
    memory = mapped(fd)
    memory.greeting_answered()
    memory.took(b"1", RequestKind.INITIALIZE, 0)
    assert restored(fd).under_way == {}


def test_a_greeting_that_is_too_long_is_not_kept_in_part(fd: int) -> None:
    """A session would be restored from half a line."""
    memory = mapped(fd)
    memory.greeted(b"x" * MAX_GREETING_BYTES)
    assert restored(fd).greeting == b""


def test_more_requests_than_there_is_room_for_cost_nothing_but_their_note(fd: int) -> None:
    """A client with very many, or very long, ids under way would end its own session."""
    memory = mapped(fd)
    memory.took(b'"' + b"x" * MAX_ID_BYTES + b'"', RequestKind.CALL, 0)
    for key in range(SLOTS + 1):
        memory.took(str(key).encode(), RequestKind.CALL, 0)
    assert memory.under_way == len(restored(fd).under_way) == SLOTS >= MAX_UNDER_WAY
    for key in range(SLOTS + 1):
        memory.ended(str(key).encode())
    memory.ended(b"never begun")
    memory.took(b"7", RequestKind.CALL, 0)
    assert restored(fd).under_way == {b"7": RequestKind.CALL}


def test_what_is_not_taken_up_does_not_creep_through_the_memory(fd: int) -> None:
    """A client that always has half a line on its way would fill it, and lose that line with its daemon."""
    memory = mapped(fd)
    for number in range(200):
        memory.received(b"x" * MOVE_AT_BYTES + b"\n%d" % number)
        memory.unread(len(str(number)))
    assert restored(fd).unread == b"199"
    assert memory._end < 4 * MOVE_AT_BYTES


def test_what_was_taken_up_is_not_found_behind_what_came_later(fd: int) -> None:
    """The next daemon would carry out a client's requests a second time."""
    memory, old = mapped(fd), b"x" * MOVE_AT_BYTES + b"\n"
    memory.received(old)
    memory.unread(0)
    memory.received(b"new")
    assert restored(fd).unread == b"new"
    memory.unread(0)
    memory.received(old + b"abc")
    memory.unread(3)
    memory.received(b"d")
    new = b"abcd" + b"y" * (len(b"new" + old) - 4)
    memory.received(new[4:])
    assert restored(fd).unread == new


def test_the_memory_of_a_long_line_is_given_back(fd: int) -> None:
    """One request with a file in it would cost its window as much for as long as it is open."""
    memory = mapped(fd)
    for _ in range(8):
        memory.received(b"x" * KEPT_BYTES)
    before = os.fstat(fd).st_blocks
    memory.unread(0)
    assert os.fstat(fd).st_blocks * 512 < before * 512 - 7 * KEPT_BYTES
    memory.received(b"next")
    assert restored(fd).unread == b"next"


def test_a_line_that_is_too_long_to_keep_is_not_kept(fd: int) -> None:
    """It would be written behind the memory's end."""
    memory = mapped(fd)
    memory._bound(0, MAX_UNREAD_BYTES - 1)
    memory.received(b"xx")
    assert memory._end == MAX_UNREAD_BYTES - 1


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only there a memory is nobody's file")


@pytest.mark.parametrize(
    ("head", "size", "words"),
    [
        (b"", 0, "size"),
        (b"", SIZE_BYTES - 1, "size"),
        (b"", SIZE_BYTES + 1, "size"),
        (b"", SIZE_BYTES, "layout"),
        pytest.param(b"qd-mem-4", SIZE_BYTES, "cut", marks=ON_LINUX),
    ],
    ids=["empty", "shorter", "longer", "of another layout", "that can be cut"],
)
def test_a_file_that_is_no_memory_is_refused(tmp_path: Path, head: bytes, size: int, words: str) -> None:
    """Whoever has the other end of one that can be cut would end the daemon: who reads behind the end is killed."""
    with open(tmp_path / "other", "wb+") as file:
        file.write(head)
        file.truncate(size)
        with pytest.raises(NoMemoryError, match=words):
            SessionMemory.map(file.fileno())


def test_any_bytes_in_a_memory_are_read_within_its_bounds(fd: int) -> None:
    """A door's broken memory would end the daemon, and with it everybody's session."""
    os.pwrite(fd, b"\xff" * (1024 * 1024), 8)
    found = restored(fd)
    assert len(found.greeting) == MAX_GREETING_BYTES
    assert found.unread == b""
    assert all(len(key) <= MAX_ID_BYTES for key in found.under_way)


class Requests(RuleBasedStateMachine):
    """Requests come and go; at any moment the daemon may die."""

    def __init__(self) -> None:
        super().__init__()
        self.fd = make_memory(Path("/tmp"))
        self.memory = mapped(self.fd)
        self.known: dict[int, RequestKind] = {}
        self.said = b""
        self.is_greeted = False

    @rule(key=st.integers(0, 20), kind=st.sampled_from(RequestKind))
    def begin(self, key: int, kind: RequestKind) -> None:
        """A request comes; of one with an id that is under way the kind is noted anew."""
        self.memory.took(str(key).encode(), kind, 0)
        self.said = b""
        if key in self.known or not (kind is RequestKind.INITIALIZE and self.is_greeted):
            self.known[key] = kind

    @rule(key=st.integers(0, 20))
    def end(self, key: int) -> None:
        self.memory.ended(str(key).encode())
        self.is_greeted |= self.known.pop(key, None) is RequestKind.INITIALIZE

    @rule()
    def die(self) -> None:
        self.memory = SessionMemory.map(self.fd)
        found = self.memory.begin_session()
        assert found.under_way == {str(key).encode(): kind for key, kind in self.known.items()}
        assert found.unread == self.said
        assert found.is_greeted == self.is_greeted

    @rule(data=st.binary(max_size=3 * MOVE_AT_BYTES))
    def hear(self, data: bytes) -> None:
        self.memory.received(data)
        self.said += data

    @rule(data=st.binary(min_size=1, max_size=MOVE_AT_BYTES))
    def read(self, data: bytes) -> None:
        reading, writing = os.pipe()
        os.write(writing, data)
        assert self.memory.read(reading, 2 * MOVE_AT_BYTES) == data
        os.close(reading)
        os.close(writing)
        self.said += data

    @rule(share=st.floats(0, 1))
    def take_up(self, share: float) -> None:
        left = int(len(self.said) * share)
        self.memory.unread(left)
        self.said = self.said[len(self.said) - left :]

    @invariant()
    def counts(self) -> None:
        assert self.memory.under_way == len(self.known)

    def teardown(self) -> None:
        os.close(self.fd)


TestRequests = Requests.TestCase


def test_notes_are_those_that_were_whole_last(fd: int) -> None:
    """What native tools had running would be forgotten, or told in a mixture of two texts."""
    memory = mapped(fd)
    assert memory.notes() == b""
    for notes in (b"one", b"another", b"", b"x" * MAX_NOTES_BYTES):
        memory.keep_notes(notes)
        assert mapped(fd).notes() == notes
    memory.keep_notes(b"y" * (MAX_NOTES_BYTES + 1))
    assert mapped(fd).notes() == b"x" * MAX_NOTES_BYTES
    memory.took(b"1", RequestKind.CALL, 0)
    memory.received(b"z")
    assert mapped(fd).notes() == b"x" * MAX_NOTES_BYTES
    memory.close()
    memory.keep_notes(b"too late")


def test_what_is_put_back_is_read_again_before_what_was_not_read_yet(fd: int) -> None:
    """The next daemon would answer a client's requests in another order, or begin with half a line."""
    memory = mapped(fd)
    memory.received(b'{"id":1}\n{"id":2}\n{"id"')
    memory.unread(5)
    assert memory.put_back(b'{"id":1}\n{"id":2}\n')
    assert restored(fd).unread == b'{"id":1}\n{"id":2}\n{"id"'


def test_what_there_is_no_room_for_is_not_put_back(fd: int) -> None:
    """It would be cut, or overwrite what was not read yet."""
    memory = mapped(fd)
    memory.received(b"unread")
    assert not memory.put_back(b"x" * MAX_UNREAD_BYTES)
    assert restored(fd).unread == b"unread"


class Watched(mmap.mmap):
    """A memory; `look` is called before and after each write."""

    look: Callable[[], object] = staticmethod(lambda: None)

    def __setitem__(self, where: Any, what: Any) -> None:
        self.look()
        super().__setitem__(where, what)
        self.look()


REQUESTS = [
    json.dumps({"id": number, "pad": "x" * (5_000 if number % 3 else 100)}).encode() + b"\n" for number in range(24)
]
"""Several times as much as is kept before it is moved down."""


def test_at_any_moment_each_request_is_unread_or_under_way(fd: int) -> None:
    """One of which the dead daemon alone knew is never answered, one that is known twice has two answers."""
    data, pipe, lines = Watched(fd, SIZE_BYTES), os.pipe(), LineBuffer(1024 * 1024)
    memory, said, sent, open_ = SessionMemory(data), b"".join(REQUESTS), 0, set[int]()
    memory.begin_session()
    memory.answers_if_lost(answers_if_lost(INFO))
    leaving: set[int] = set()

    def look() -> None:
        in_pipe = int.from_bytes(fcntl.ioctl(pipe[0], termios.FIONREAD, bytes(4)), sys.byteorder)
        found = Counter(after_death(data, said[sent - in_pipe : sent]))
        assert open_ - leaving <= set(found) <= open_
        assert max(found.values(), default=1) == 1

    data.look = look
    for size in (1, *[1_900] * (len(said) // 1_900)):
        os.write(pipe[1], said[sent : sent + size])
        sent += size
        open_ |= set(range(said[:sent].count(b"\n"))) - leaving
        for line in lines.feed(memory.read(pipe[0], 65_536)):
            request = json.loads(line)["id"]
            id_json = b"%d" % request
            memory.took(id_json, RequestKind.CALL, lines.ahead_bytes)
            if request % 2:
                leaving.add(request)
                memory.leaving(id_json)
                open_.remove(request)
                memory.ended(id_json)
        memory.unread(lines.pending_bytes)
    os.close(pipe[0])
    os.close(pipe[1])
    assert sorted(open_) == [number for number in range(len(REQUESTS)) if not number % 2][: len(open_)]
    assert len(open_) > len(REQUESTS) // 3


def after_death(data: mmap.mmap, in_pipe: bytes) -> list[int]:
    fd, (reading, writing) = make_memory(Path("/tmp")), os.pipe()
    os.set_blocking(writing, False)
    os.pwrite(fd, data[:REACHED_BYTES], 0)
    wait.answer_lost(fd, writing)
    os.close(writing)
    memory = SessionMemory.map(fd)
    found = memory.begin_session()
    unread = found.unread + in_pipe
    memory.close()
    os.close(fd)
    with open(reading, "rb") as answers:
        said = [json.loads(line)["id"] for line in (*answers, *unread.split(b"\n")[:-1])]
    return said + [int(id_json) for id_json in found.under_way]


def test_an_answer_that_was_not_written_after_all_is_still_owed(fd: int) -> None:
    """A client that does not read at that moment would never have it."""
    memory = mapped(fd)
    memory.took(b"7", RequestKind.CALL, 0)
    memory.leaving(b"7")
    assert restored(fd).under_way == {}
    memory.kept(b"7")
    assert restored(fd).under_way == {b"7": RequestKind.CALL}
