"""How many bytes are held for each of several clients."""

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.host.held_bytes import UNCOUNTED_BYTES, HeldBytes

MIB = 1024 * 1024


def test_a_client_holds_what_it_may_and_one_thing_that_is_larger() -> None:
    """A client that reads nothing would fill the memory; or a large file could never be read."""
    held = HeldBytes(4 * MIB, 100 * MIB)
    assert [held.begin("a", 2 * MIB) for _ in range(2)] == ["", ""]
    assert held.begin("a", MIB) == "4,194,304 bytes of this client are held, of 4,194,304"
    assert held.begin("b", 60 * MIB) == ""
    held.end("a", 2 * MIB)
    assert held.begin("a", MIB) == ""
    assert held.begin("a", UNCOUNTED_BYTES) == ""


def test_at_the_bound_of_all_who_holds_less_than_a_share_is_let_in() -> None:
    """One client that reads nothing would cost all others their answers."""
    held = HeldBytes(10 * MIB, 12 * MIB)
    assert held.begin("a", 10 * MIB) == ""
    assert held.begin("b", 5 * MIB) == ""
    assert "of all clients" in held.begin("b", 3 * MIB)
    assert "of all clients" in held.begin("d", 5 * MIB)
    assert held.begin("c", 3 * MIB) == ""


def test_a_token_that_holds_all_through_many_sessions_costs_nobody_else_an_answer() -> None:
    """A token could open as many sessions as it likes, each with a share of the memory."""
    held = HeldBytes(10 * MIB, 12 * MIB)
    assert [held.begin(f"greedy/{number}", MIB) for number in range(12)] == [""] * 12
    assert held.begin("calm/1", 6 * MIB) == ""
    assert "of all clients" in held.begin("greedy/new", MIB)


@given(st.lists(st.tuples(st.sampled_from(["a/1", "a/2", "b"]), st.integers(0, 3 * MIB)), max_size=40))
def test_nothing_is_left_when_all_was_let_go(asked: list[tuple[str, int]]) -> None:
    """Clients would be refused for what they read long ago."""
    held = HeldBytes(2 * MIB, 4 * MIB)
    taken = [(client, size) for client, size in asked if not held.begin(client, size)]
    assert held.total == sum(size for _, size in taken if size > UNCOUNTED_BYTES)
    for client, size in taken:
        held.end(client, size)
    assert held.total == 0
    assert held.begin("a", 4 * MIB) == ""
