"""The selector of our event loops, beside the standard library's."""

import socket
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

import pytest

from quarterdeck_protocol.event_loop import EpollSelector

WANTED = [EVENT_READ, EVENT_WRITE, EVENT_READ | EVENT_WRITE]


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("state", ["silent", "written", "closed"])
def test_it_tells_what_the_selector_of_the_standard_library_tells(wanted: int, state: str) -> None:
    """A socket whose bytes or end the loop is not told of would never be read again."""
    ours, theirs = socket.socketpair()
    with ours, theirs, EpollSelector() as fast, DefaultSelector() as usual:
        for selector in (fast, usual):
            selector.register(ours, EVENT_READ, "first")
            selector.modify(ours, wanted, "then")
        if state == "written":
            theirs.send(b"x")
        elif state == "closed":
            theirs.close()
        assert fast.select(0) == usual.select(0)
        assert fast.get_key(ours) == usual.get_key(ours.fileno())
        assert fast.get_map().get(ours.fileno()) == usual.get_map().get(ours.fileno())
        # As the event loop of Python 3.13 asks, which would register it again.
        assert fast.get_map().get(ours) == usual.get_map().get(ours)
        assert list(fast.get_map()) == list(usual.get_map())


def test_it_waits_for_as_long_as_it_is_told_and_knows_nothing_of_what_was_closed() -> None:
    """A timer that rings early would make the loop spin; a closed socket's number is soon another one's."""
    ours, theirs = socket.socketpair()
    with theirs, EpollSelector() as selector:
        selector.register(ours, EVENT_READ)
        with pytest.raises(KeyError):
            selector.register(ours, EVENT_READ)
        assert selector.select(0.0005) == []
        ours.close()
        selector.unregister(ours)
        assert not selector.get_map()
        with pytest.raises(KeyError):
            selector.get_key(theirs)
