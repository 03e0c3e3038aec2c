"""Who may speak at all: the token, the versions, and the patience with those who never greet."""

import pytest

from quarterdeck_protocol.link.events import MAX_REASON_CHARS, Greeted, LinkMisuseError, Side, Silent, Violated
from quarterdeck_protocol.link.frame_bytes import encode
from quarterdeck_protocol.link.frames import Answer, Beat, Call, Cancel, Credit, Frame, Hello, Log, Lost, Open, Welcome
from quarterdeck_protocol.link.session import Link

from .link_ends import FAULT, TOKEN, VERSION, carry, hello, is_dead, make_link, make_pair


def test_a_worker_that_knows_its_token_is_greeted() -> None:
    """Both ends are open after one message each way."""
    supervisor, worker = make_link(Side.SUPERVISOR), make_link(Side.WORKER)
    assert not supervisor.is_open
    assert carry(worker, supervisor) == [Greeted()]
    assert supervisor.is_open
    assert not worker.is_open
    assert carry(supervisor, worker) == [Greeted()]
    assert worker.is_open
    assert carry(worker, supervisor) == []


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (hello(token=b"one time, one worker?"), "a wrong token"),
        (hello(token=TOKEN[:-1]), "a wrong token"),
        (hello(token=b""), "a wrong token"),
        (hello(version="0.2.0"), "it is version 0.2.0 (link 7), we are 0.1.0 (link 7): reinstall, then start again"),
        (hello(link_version=3), "it is version 0.1.0 (link 3)"),
        (hello(version="9" * 100_000), "it is version 9999"),
    ],
)
def test_a_stranger_is_not_greeted(hello: Hello, reason: str) -> None:
    """Only the worker that was spawned for it may speak for a server, and only from the same wheel."""
    supervisor = make_link(Side.SUPERVISOR)
    (event,) = supervisor.receive(encode(hello), 0.0)
    assert isinstance(event, Violated)
    assert reason in event.reason
    assert len(event.reason) <= MAX_REASON_CHARS
    assert is_dead(supervisor)


def test_a_worker_compares_versions_too() -> None:
    """After half an upgrade either end may be the older one."""
    worker = make_link(Side.WORKER)
    (event,) = worker.receive(encode(Welcome("0.2.0")), 0.0)
    assert isinstance(event, Violated)
    assert "it is version 0.2.0" in event.reason
    assert is_dead(worker)


FROM_WORKER = [Beat(), Credit(1), Answer(1), Log("info", ""), Lost(FAULT)]
FROM_SUPERVISOR = [Open(1, 1.0), Call(1, 1.0, "t"), Cancel(1), Beat(), Credit(1)]
EARLY = [*((Side.SUPERVISOR, frame) for frame in FROM_WORKER), *((Side.WORKER, frame) for frame in FROM_SUPERVISOR)]


@pytest.mark.parametrize(("side", "frame"), EARLY, ids=repr)
def test_nothing_comes_before_the_handshake(side: Side, frame: Frame) -> None:
    """A peer without the token gets no state and no memory."""
    link = make_link(side)
    (event,) = link.receive(encode(frame), 0.0)
    assert isinstance(event, Violated)
    assert "before the handshake" in event.reason
    assert is_dead(link)


@pytest.mark.parametrize(("side", "frame"), [(Side.SUPERVISOR, hello()), (Side.WORKER, Welcome(VERSION))])
def test_a_second_handshake_is_a_violation(side: Side, frame: Frame) -> None:
    """A token is good for one time."""
    link = dict(zip((Side.SUPERVISOR, Side.WORKER), make_pair(), strict=True))[side]
    assert link.receive(encode(frame), 1.0) == [Violated("a second handshake")]
    assert is_dead(link)


def test_a_token_must_not_be_guessable() -> None:
    """An empty one would let everybody in."""
    for token in (b"", b"x" * 15):
        with pytest.raises(LinkMisuseError, match="a token of"):
            Link(Side.WORKER, token=token, version=VERSION, now=0.0)


def test_who_never_greets_is_silent_in_the_end() -> None:
    """A worker that hangs before its first word is noticed, and not a moment early."""
    for side in Side:
        link = make_link(side, now=5.0)
        assert link.wake_at == 35.0
        assert link.tick(34.9) == []
        assert link.tick(35.0) == [Silent(30.0)]
        assert is_dead(link, 35.0)
