"""Saying once what happens again and again."""

from quarterdeck.host.http.listener import AGAIN_S, MAX_KINDS, RepeatedLog


def test_the_first_is_said_and_the_next_only_after_a_while_with_their_number() -> None:
    """A flood would fill the disk with one line, or leave no trace of how large it was."""
    repeats = RepeatedLog()
    assert repeats.admit("a", 0) == 0
    assert [repeats.admit("a", at) for at in (0, 1, AGAIN_S - 1)] == [None] * 3
    assert repeats.admit("b", 1) == 0
    assert repeats.admit("a", AGAIN_S) == 3
    assert repeats.admit("a", AGAIN_S + 1) is None
    assert repeats.admit("a", 2 * AGAIN_S) == 1


def test_only_so_many_kinds_are_told_apart() -> None:
    """A flood of different lines would fill the memory."""
    repeats = RepeatedLog()
    for number in range(10 * MAX_KINDS):
        assert repeats.admit(str(number), number / 1000) == 0
    assert len(repeats._said) == MAX_KINDS
