"""What a client carries while its call waits, and to which request that is bound."""

from collections.abc import Callable

import msgspec
import pytest

from quarterdeck.host.asks.states import CallKey, State, read_state

KEY = CallKey("door-1", "tools/call s__t", b'{"a":1,"b":[2,1]}')


@pytest.mark.parametrize(
    "other",
    [
        CallKey("door-2", KEY.method, KEY.params),
        CallKey(KEY.client, "tools/call s__u", KEY.params),
        CallKey(KEY.client, KEY.method, b'{"a":1,"b":[1,2]}'),
        CallKey(KEY.client, KEY.method, b'{"a":1}'),
        CallKey("door-1tools/call s", "__t", KEY.params),
        CallKey("", KEY.client + KEY.method, KEY.params),
    ],
)
def test_a_state_is_bound_to_its_client_its_method_and_its_params(other: CallKey) -> None:
    """A client would take up another's call with its answers, or another call of its own."""
    assert other.binding != KEY.binding


def test_the_order_in_which_params_are_said_is_nothing() -> None:
    """A client that writes its request anew could not come again."""
    assert CallKey(KEY.client, KEY.method, b' {"b": [2, 1], "a": 1}').binding == KEY.binding


@pytest.mark.parametrize("params", [b"", b"{", b"\xff", b"[" * 100_000])
def test_params_that_cannot_be_read_are_bound_as_they_are(params: bytes) -> None:
    """A hostile request would raise where a call is parked, or all such be one."""
    binding = CallKey(KEY.client, KEY.method, params).binding
    assert binding == CallKey(KEY.client, KEY.method, params).binding
    assert binding != CallKey(KEY.client, KEY.method, params + b"x").binding


def test_a_method_that_is_no_unicode_is_bound_too() -> None:
    """It would raise."""
    assert CallKey("c", "\ud800", b"{}").binding != CallKey("c", "\ud801", b"{}").binding


@pytest.mark.parametrize("state", [State(7.5), State(7.5, parked=3), State(7.5, inner=""), State(7.5, 0, "theirs")])
def test_a_state_comes_back_as_it_was(state: State) -> None:
    """A parked call would not be found; or a server not get its state, and begin anew."""
    assert read_state(msgspec.msgpack.encode(state)) == state


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: b"\xc1",
        lambda: msgspec.msgpack.encode({"expires_at": 1.0}),
        lambda: msgspec.msgpack.encode(["soon"]),
        lambda: msgspec.msgpack.encode([1.0, "3"]),
        lambda: msgspec.msgpack.encode([1.0, 3, 4]),
    ],
)
def test_what_is_no_state_is_none(make: Callable[[], bytes]) -> None:
    """A client's request would raise in the daemon."""
    assert read_state(make()) is None
