"""Whose results are kept, how many, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.host.budget import kept_results
from quarterdeck.host.budget.kept_results import KEPT_S, MAX_RESULTS, KeptResults


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_results, "MAX_BYTES", 100)
    monkeypatch.setattr(kept_results, "MAX_ALL_BYTES", 250)


def test_a_result_is_its_clients_alone_until_that_leaves() -> None:
    """One client would read what another was answered."""
    results = KeptResults()
    assert results.keep("ada", "u1", b"1", 0)
    assert results.keep("bob", "u2", b"2", 0)
    assert [results.read(who, "u1", 1) for who in ("ada", "bob", "")] == [b"1", None, None]
    results.leave("ada")
    assert (results.read("ada", "u1", 1), results.read("bob", "u2", 1), results.total_bytes) == (None, b"2", 1)


def test_room_is_made_by_whoever_has_most_through_however_many_sessions() -> None:
    """One token with many sessions would push out all that others have not read yet."""
    results = KeptResults()
    results.keep("calm/1", "calm", b"x" * 90, 0)
    for number in range(9):
        results.keep(f"greedy/{number}", f"g{number}", b"x" * 60, 0)
    assert results.read("calm/1", "calm", 1) is not None
    assert [results.read(f"greedy/{number}", f"g{number}", 1) is not None for number in range(9)].count(True) == 2


def test_the_oldest_go_first_when_a_client_has_too_many_or_too_much() -> None:
    """One client's results would take all memory, or push out those of another."""
    results = KeptResults()
    results.keep("bob", "b", b"b", 0)
    for number in range(MAX_RESULTS + 2):
        results.keep("ada", f"a{number}", b"1", 0)
    assert [results.read("ada", f"a{number}", 0) for number in (1, 2)] == [None, b"1"]
    assert results.keep("ada", "large", b"x" * 100, 0)
    assert (results.read("ada", "a33", 0), results.read("ada", "large", 0)) == (None, b"x" * 100)
    assert not results.keep("ada", "too large", b"x" * 101, 0)
    assert (results.read("ada", "large", 0), results.read("bob", "b", 0)) == (b"x" * 100, b"b")


def test_all_clients_together_have_a_bound_and_the_oldest_of_them_goes() -> None:
    """Many clients would take all memory."""
    results = KeptResults()
    for who in "abc":
        results.keep(who, who, b"x" * 100, 0)
    assert [results.read(who, who, 0) is not None for who in "abc"] == [False, True, True]


def test_what_is_old_goes() -> None:
    """Clients without sessions never leave: what they were answered would stay for ever."""
    results = KeptResults()
    results.keep("ada", "u1", b"1", 0)
    results.keep("ada", "u2", b"2", 10)
    assert results.read("ada", "u1", KEPT_S) == b"1"
    assert (results.read("ada", "u1", KEPT_S + 1), results.read("ada", "u2", KEPT_S + 1)) == (None, b"2")
    results.keep("bob", "u3", b"", KEPT_S + 11)
    assert results.total_bytes == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 120), st.booleans())))
def test_the_count_of_bytes_is_that_of_what_can_be_read(steps: list[tuple[str, int, bool]]) -> None:
    """The bound would be met by what is gone, or passed by what is there."""
    results = KeptResults()
    uris = []
    for at, (who, size, leaves) in enumerate(steps):
        if leaves:
            results.leave(who)
        else:
            results.keep(who, str(at), b"x" * size, 0)
            uris.append((who, str(at)))
    held = [(who, len(body)) for who, uri in uris if (body := results.read(who, uri, 0)) is not None]
    assert results.total_bytes == sum(size for _, size in held) <= 250
    assert all(sum(size for owner, size in held if owner == who) <= 100 for who in "abc")
