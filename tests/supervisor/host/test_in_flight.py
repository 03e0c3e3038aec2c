"""How much of each client may be under way: by a table, and in any order beside a count."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.host.in_flight import InFlight


def test_a_client_meets_its_own_bound_and_has_room_again_when_one_ends() -> None:
    """One client would take all there is; or be shut out for ever after a flood."""
    made = InFlight(2, 10)
    assert [made.begin("a") for _ in range(3)] == ["", "", "2 of this client are under way"]
    made.end("a")
    assert made.begin("a") == ""


def test_clients_that_fill_the_bound_of_all_shut_out_themselves_alone() -> None:
    """A flood through many sessions would lock out whoever has none."""
    made = InFlight(4, 8)
    for client in ("a", "b"):
        assert [made.begin(client) for _ in range(4)] == [""] * 4
    assert made.begin("a") == "4 of this client are under way"
    assert [made.begin("calm") for _ in range(3)] == ["", "", "10 of all clients are under way"]


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
