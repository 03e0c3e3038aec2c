"""Watchers: a change reaches those alone whom it concerns."""

import logging

import pytest

from quarterdeck.common.watchers import Watchers


@pytest.fixture
def made() -> Watchers:
    return Watchers("something", logging.getLogger("quarterdeck.test"))


def test_each_is_told_of_what_it_watches(made: Watchers) -> None:
    """Who waits for one server would look up at every event of all others."""
    heard: list[str] = []
    made.watch(lambda: heard.append("any"))
    made.watch_each(lambda server: heard.append(f"each: {server}"))
    made.watch_one("fs", lambda: heard.append("fs"))
    made.tell("fs")
    made.tell("git")
    assert heard == ["each: fs", "fs", "any", "each: git", "any"]


def test_who_unregistered_is_told_nothing(made: Watchers) -> None:
    """A client that left would be told of changes."""
    heard: list[str] = []
    forgets = [
        made.watch(lambda: heard.append("any")),
        made.watch_each(heard.append),
        made.watch_one("fs", lambda: heard.append("one")),
    ]
    stays = made.watch_one("fs", lambda: heard.append("stays"))
    for forget in (*forgets, *forgets):
        forget()
    made.tell("fs")
    stays()
    made.tell("fs")
    assert heard == ["stays"]


def test_who_watches_again_is_told_again(made: Watchers) -> None:
    """A call that waits for a server a second time would wait for ever."""
    heard: list[str] = []
    first = made.watch_one("fs", lambda: heard.append("first"))
    first()
    made.watch_one("fs", lambda: heard.append("second"))
    first()
    made.tell("fs")
    assert heard == ["second"]


def test_one_that_fails_holds_up_no_other(made: Watchers, caplog: pytest.LogCaptureFixture) -> None:
    """One client's broken notice would keep all others from their tools."""
    heard: list[str] = []
    made.watch_each(lambda _: 1 // 0)
    made.watch(lambda: heard.append("told"))
    made.tell("fs")
    assert heard == ["told"]
    assert "a watcher of something failed" in caplog.text


def test_one_may_unregister_while_it_is_told(made: Watchers) -> None:
    """Who waits for a change once would break the telling of it."""
    heard: list[str] = []
    forget = made.watch(lambda: (heard.append("once"), forget())[0])
    made.tell("fs")
    made.tell("fs")
    assert heard == ["once"]
