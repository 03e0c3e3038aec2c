"""What a session needs to go on is there however its daemon died."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from quarterdeck.daemon.session_memory import (
    MAX_GREETING_BYTES,
    MAX_ID_BYTES,
    SIZE_BYTES,
    SLOTS,
    NoMemoryError,
    SessionMemory,
    make_memory,
)
from quarterdeck.host.raw_calls import RequestKind


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """The descriptor of an empty memory."""
    made = make_memory(tmp_path)
    yield made
    os.close(made)


def mapped(fd: int) -> SessionMemory:
    """The memory, taken over by a daemon."""
    memory = SessionMemory.map(fd)
    memory.begin_session()
    return memory


def test_a_new_memory_has_nothing_in_it(fd: int) -> None:
    """A new client would be answered questions that it never asked."""
    assert SessionMemory.map(fd).begin_session() == (b"", {}, False, False)


def test_the_next_daemon_finds_what_the_dead_one_wrote(fd: int) -> None:
    """A client whose daemon was killed would wait for its answers for ever."""
    memory = mapped(fd)
    memory.greeted(b'{"method":"initialize"}')
    memory.greeted(b'{"method":"notifications/initialized"}')
    memory.began(1, b"1", RequestKind.CALL)
    memory.began("two", b'"two"', RequestKind.OTHER)
    memory.began(3, b"3", RequestKind.MODERN_CALL)
    memory.ended(1)
    memory.reading(is_half=True)
    memory.writing(is_half=True)

    greeting, under_way, is_half_read, is_half_written = SessionMemory.map(fd).begin_session()

    assert greeting.splitlines() == [b'{"method":"initialize"}', b'{"method":"notifications/initialized"}']
    assert under_way == {b'"two"': RequestKind.OTHER, b"3": RequestKind.MODERN_CALL}
    assert (is_half_read, is_half_written) == (True, True)


def test_what_is_answered_once_is_not_answered_by_the_third_daemon(fd: int) -> None:
    """A client would get two answers to one question, the second one to a new question with the same id."""
    mapped(fd).began(1, b"1", RequestKind.CALL)
    SessionMemory.map(fd).begin_session()
    assert SessionMemory.map(fd).begin_session() == (b"", {}, False, False)


def test_a_greeting_that_is_too_long_is_not_kept_in_part(fd: int) -> None:
    """A session would be restored from half a line."""
    memory = mapped(fd)
    memory.greeted(b"x" * MAX_GREETING_BYTES)
    assert SessionMemory.map(fd).begin_session()[0] == b""


def test_more_requests_than_there_is_room_for_cost_nothing_but_their_note(fd: int) -> None:
    """A client with very many, or very long, ids under way would end its own session."""
    memory = mapped(fd)
    memory.began("long", b'"' + b"x" * MAX_ID_BYTES + b'"', RequestKind.CALL)
    for key in range(SLOTS + 1):
        memory.began(key, str(key).encode(), RequestKind.CALL)
    assert memory.under_way == SLOTS
    for key in range(SLOTS + 1):
        memory.ended(key)
    memory.ended("never begun")
    memory.began(7, b"7", RequestKind.CALL)
    assert SessionMemory.map(fd).begin_session()[1] == {b"7": RequestKind.CALL}


@pytest.mark.parametrize("size", [0, SIZE_BYTES - 1, SIZE_BYTES + 1])
def test_what_is_not_of_its_size_is_no_memory(tmp_path: Path, size: int) -> None:
    """Reading beyond the end of a mapped file ends the process."""
    with open(tmp_path / "other", "wb+") as file:
        file.truncate(size)
        with pytest.raises(NoMemoryError, match="size"):
            SessionMemory.map(file.fileno())


def test_what_has_another_layout_is_no_memory(tmp_path: Path) -> None:
    """A door of another version would have its bytes taken for requests."""
    with open(tmp_path / "other", "wb+") as file:
        file.truncate(SIZE_BYTES)
        with pytest.raises(NoMemoryError, match="layout"):
            SessionMemory.map(file.fileno())


def test_any_bytes_in_a_memory_are_read_within_its_bounds(fd: int) -> None:
    """A door's broken memory would end the daemon, and with it everybody's session."""
    os.pwrite(fd, b"\xff" * (SIZE_BYTES - 8), 8)
    greeting, under_way, _, _ = SessionMemory.map(fd).begin_session()
    assert len(greeting) == MAX_GREETING_BYTES
    assert all(len(key) <= MAX_ID_BYTES for key in under_way)


class Requests(RuleBasedStateMachine):
    """Requests come and go; at any moment the daemon may die."""

    def __init__(self) -> None:
        super().__init__()
        self.fd = make_memory(Path("/tmp"))
        self.memory = mapped(self.fd)
        self.known: dict[int, RequestKind] = {}

    @rule(key=st.integers(0, 20), kind=st.sampled_from(RequestKind))
    def begin(self, key: int, kind: RequestKind) -> None:
        """A request comes; one with an id that is under way is not noted again."""
        self.memory.began(key, str(key).encode(), kind)
        self.known.setdefault(key, kind)

    @rule(key=st.integers(0, 20))
    def end(self, key: int) -> None:
        """It is answered."""
        self.memory.ended(key)
        self.known.pop(key, None)

    @rule()
    def die(self) -> None:
        """The daemon dies, and the next one takes over."""
        self.memory = SessionMemory.map(self.fd)
        assert self.memory.begin_session()[1] == {str(key).encode(): kind for key, kind in self.known.items()}
        self.known = {}

    @invariant()
    def counts(self) -> None:
        """What is under way is what was begun and not ended."""
        assert self.memory.under_way == len(self.known)

    def teardown(self) -> None:
        """Give the file back."""
        os.close(self.fd)


TestRequests = Requests.TestCase
