"""How much of each client may be under way: by a table, and in any order beside a count."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.common.in_flight import InFlight, client_with_most


def test_clients_that_fill_a_bound_shut_out_themselves_alone_and_have_room_again() -> None:
    """One client would take all there is, lock out whoever has none, or be shut out for ever."""
    made = InFlight(2, 10)
    assert [made.begin("a") for _ in range(3)] == ["", "", "2 of this client are under way"]
    made.end("a")
    assert made.begin("a") == ""
    made = InFlight(4, 8)
    for client in ("a", "b"):
        assert [made.begin(client) for _ in range(4)] == [""] * 4
    assert made.begin("a") == "4 of this client are under way"
    assert [made.begin("calm") for _ in range(2)] == ["", ""]
    assert made.begin("calm") == "10 of all clients are under way, 2 of them with this token"


def test_a_token_has_one_share_which_its_sessions_share() -> None:
    """One token would lock all others out, or one window of an editor its user's others."""
    made = InFlight(4, 8)
    assert [made.begin(f"greedy/{number}") for number in range(8)] == [""] * 8
    assert [made.begin("calm") for _ in range(4)] == [""] * 4
    assert "with this token" in made.begin("greedy/new")
    assert made.begin("third/1") == ""
    made = InFlight(8, 8)
    assert [made.begin("me/busy") for _ in range(8)] == [""] * 8
    assert [made.begin("me/calm") for _ in range(4)] == [""] * 4
    assert made.begin("me/calm") == "12 of all clients are under way, 12 of them with this token"


def test_who_has_most_is_a_client_of_the_token_that_has_most() -> None:
    """What is forgotten for lack of room would be a calm client's, beside a token with hundreds of sessions."""
    have = {"calm": "1234", **{f"greedy/{number}": "123"[:number] for number in range(1, 4)}}
    assert client_with_most(have) == "greedy/3"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_no_order_of_begins_and_ends_loses_count(steps: list[tuple[str, bool]]) -> None:
    """Places would leak until nobody is let in any more; or the bound be none."""
    made, counts = InFlight(3, 5), Counter[str]()
    for client, is_begin in steps:
        if is_begin:
            refused = made.begin(client)
            assert not refused or counts[client] >= 1
            counts[client] += not refused
        elif counts[client]:
            made.end(client)
            counts[client] -= 1
        assert {name: made.of(name) for name in "abc"} == {name: counts[name] for name in "abc"}
        assert max(counts.values(), default=0) <= 3
        assert counts.total() <= 5 + 3
