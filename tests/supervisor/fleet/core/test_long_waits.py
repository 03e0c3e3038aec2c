"""Calls that wait too long for one server: who is counted, when it is news, and in which words."""

from quarterdeck.fleet.core.long_waits import TOLD_AFTER_S, LongWaits

NOW = 100.0
SOON = NOW + TOLD_AFTER_S - 0.1
LATE = NOW + TOLD_AFTER_S


def waits(*calls: str, is_start: bool = False) -> LongWaits[str]:
    """Calls that wait since `NOW`."""
    made: LongWaits[str] = LongWaits()
    for call in calls:
        made.begin(call, NOW, is_start=is_start)
    return made


def test_a_wait_is_told_with_its_reason_once_it_is_long() -> None:
    """A person would see a call hang, and nothing that says why."""
    made = waits("1", "2", "3")
    assert (made.words("x", SOON, 64), made.is_news(SOON)) == ("", False)
    assert made.words("x", NOW + 12.4, 64) == "3 calls wait for `x` since 12 s: it works on 64 calls"
    assert waits("1").words("x", LATE, 1) == "1 call waits for `x` since 5 s: it works on 1 call"


def test_a_wait_for_a_start_is_told_as_one() -> None:
    """A person would look for a busy server where one does not come up."""
    assert waits("1", is_start=True).words("x", LATE, 1) == "1 call waits for `x` since 5 s: it is starting"


def test_a_call_whose_turn_came_and_whose_server_starts_has_waited_all_the_time() -> None:
    """Its wait would begin anew, and never be long."""
    made = waits("1")
    made.begin("1", SOON, is_start=True)
    assert made.words("x", LATE, 0) == "1 call waits for `x` since 5 s: it is starting"


def test_an_episode_is_news_once() -> None:
    """The log would fill with one line each few seconds, or have none of the next time."""
    made = waits("1")
    assert [made.is_news(LATE), made.is_news(LATE + 1)] == [True, False]
    made.pop("1")
    assert (bool(made), made.is_news(LATE + 2), made.words("x", LATE + 2, 0)) == (False, False, "")
    made.begin("2", LATE + 2)
    assert made.is_news(LATE + 2 + TOLD_AFTER_S)
