"""Whose a question is that a server of an older era asks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core.asks import MAX_ASKED, MAX_ASKED_BYTES, MAX_OPEN, Asks, Ended, Refused, UnderWay

ROOTS = "roots/list"
ALL = frozenset({ROOTS, "elicitation/create"})


def of(request_id: int, client: str = "a", askable: frozenset[str] = ALL, part: str = "") -> UnderWay:
    return UnderWay(request_id, client, askable, part)


@pytest.mark.parametrize(
    ("requests", "whose"),
    [
        ([], Refused.NOBODY),
        ([of(1)], 1),
        ([of(1), of(2)], 1),
        ([of(1, "a"), of(2, "b")], Refused.SEVERAL),
        ([of(1, "a"), of(2, "b", frozenset())], Refused.SEVERAL),
        ([of(1, "a", frozenset())], Refused.UNABLE),
        ([of(1, "a", frozenset({"elicitation/create"}))], Refused.UNABLE),
        ([of(1, "a", frozenset()), of(2, "a")], 2),
        ([of(1, part="one"), of(2, part="two")], Refused.SEVERAL),
        ([of(1, part="one"), of(2, part="one")], 1),
    ],
)
def test_a_question_is_of_the_one_client_that_has_a_request_under_way(
    requests: list[UnderWay], whose: int | Refused
) -> None:
    """Another client's user would be asked, or shown what is not theirs."""
    assert Asks().begin(1, ROOTS, requests) == whose


def test_questions_at_once_are_of_different_requests_where_there_are_some() -> None:
    """All would be put to one call, and the other's would look like nobody's."""
    asks = Asks()
    assert [asks.begin(ask_id, ROOTS, [of(1), of(2)]) for ask_id in (1, 2, 3)] == [1, 2, 1]


def test_a_program_that_was_asked_and_does_not_answer_leaves_no_doubt_whose_the_next_question_is() -> None:
    """One that has gone would have every question of the others that share its token refused, for minutes."""
    asks, gone, here = Asks(), of(1, part="gone"), of(2, part="here")
    assert asks.begin(1, ROOTS, [gone]) == 1
    assert asks.begin(2, ROOTS, [gone, here]) == 2
    # Both have one open: it may be a second one of either.
    assert asks.begin(3, ROOTS, [gone, here]) == Refused.SEVERAL
    asks.end(2)
    assert asks.begin(4, ROOTS, [gone, here]) == 2
    assert asks.begin(5, ROOTS, [gone, of(3, "another")]) == Refused.SEVERAL


def test_a_request_is_asked_so_much_at_once_and_so_much_in_its_life() -> None:
    """A server could ask its user a thousand times."""
    asks = Asks()
    whose = [asks.begin(ask_id, ROOTS, [of(1)]) for ask_id in range(MAX_OPEN + 1)]
    assert whose == [1] * MAX_OPEN + [Refused.TOO_MANY]
    for ask_id in range(MAX_OPEN):
        assert asks.end(ask_id)
    whose = []
    for ask_id in range(100, 200):
        whose.append(asks.begin(ask_id, ROOTS, [of(1)]))
        asks.end(ask_id)
    assert whose == [1] * (MAX_ASKED - MAX_OPEN) + [Refused.TOO_MANY] * MAX_OPEN
    assert asks.forget(1) == Ended()
    assert asks.begin(900, ROOTS, [of(1)]) == 1


def test_the_questions_of_a_request_are_bounded_in_bytes_for_its_whole_life() -> None:
    """A conversation of 8 MiB to sample from, asked again and again, would wait in memory for a client that is slow."""
    asks, size = Asks(), MAX_ASKED_BYTES // 4
    whose = []
    for ask_id in range(5):
        whose.append(asks.begin(ask_id, ROOTS, [of(1)], size))
        asks.end(ask_id)
    assert whose == [1, 1, 1, 1, Refused.TOO_LARGE]
    assert asks.begin(9, ROOTS, [of(1)], 0) == 1
    asks.forget(1)
    assert asks.begin(10, ROOTS, [of(1)], size) == 1


def test_questions_end_once_and_with_their_request() -> None:
    """An answer would be sent to a question that is over."""
    asks = Asks()
    for ask_id in (1, 2, 3):
        asks.begin(ask_id, ROOTS, [of(7)])
    assert asks.end(2)
    assert not asks.end(2)
    assert asks.forget(7) == Ended(ended=(1, 3))
    assert not asks.end(1)
    assert asks.forget(7) == Ended()


def test_a_question_ends_with_the_last_request_that_it_may_be_of() -> None:
    """Of two calls of one client that ask, the one that is done would end the other's question."""
    asks = Asks()
    assert asks.begin(1, ROOTS, [of(1), of(2), of(3, askable=frozenset())]) == 1
    assert asks.forget(1) == Ended(moved={1: 2})
    # A request that came later cannot have asked it.
    assert asks.begin(2, ROOTS, [of(2), of(4)]) == 4
    assert asks.forget(2) == Ended(ended=(1,))
    assert not asks.end(1)
    assert asks.end(2)


def test_a_question_moves_to_no_request_that_has_had_as_many_as_one_may() -> None:
    """A server could ask without end, by a new call for each hundred questions."""
    asks = Asks()
    for ask_id in range(MAX_OPEN):
        assert asks.begin(ask_id, ROOTS, [of(2)]) == 2
    assert asks.begin(90, ROOTS, [of(1), of(2)]) == 1
    assert asks.forget(1) == Ended(ended=(90,))


@given(
    st.lists(st.tuples(st.sampled_from(["begin", "end", "forget"]), st.integers(0, 20), st.integers(0, 3)), max_size=60)
)
def test_what_is_open_is_bounded_and_ends_exactly_once(steps: list[tuple[str, int, int]]) -> None:
    """Whatever a server does, each question is open at most once, and put to a request that it may be of."""
    asks, used, alive = Asks(), set[int](), {0, 1, 2, 3}
    is_open, may_be_of = dict[int, int](), dict[int, set[int]]()
    for what, ask_id, request_id in steps:
        match what:
            case "begin" if ask_id not in used and (able := {each for each in alive if each <= request_id}):
                used.add(ask_id)
                whose = asks.begin(ask_id, ROOTS, [of(each) for each in sorted(able)])
                if not isinstance(whose, Refused):
                    is_open[ask_id], may_be_of[ask_id] = whose, able
                    assert whose in able
            case "end":
                assert asks.end(ask_id) == (is_open.pop(ask_id, None) is not None)
            case "forget":
                alive.discard(request_id)
                result = asks.forget(request_id)
                assert {*result.moved, *result.ended} == {key for key, whose in is_open.items() if whose == request_id}
                assert all(whose in may_be_of[key] & alive for key, whose in result.moved.items())
                assert all(may_be_of[key] & alive == set() for key in result.ended if len(is_open) <= MAX_OPEN)
                is_open.update(result.moved)
                for key in result.ended:
                    del is_open[key]
        assert all(list(is_open.values()).count(whose) <= MAX_OPEN for whose in is_open.values())
