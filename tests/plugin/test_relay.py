"""A request's way back: who is asked what, whose answer ends what, and what is made of news."""

from collections.abc import Sequence

from quarterdeck_protocol.offers import Listing, LogLine, ResourceUpdated, ServerNote
from quarterdeck_protocol.questions import CAPABILITY_OF, Question, QuestionEnd, askable
from quarterdeck_protocol.tools import ProgressNote
from quarterdeck_pytest.messages import Asked, Meanwhile, Progressed, Takes
from quarterdeck_pytest.relay import ListChanges, Relay, notification_of

LEGACY, MODERN = "2025-11-25", "2026-07-28"

ROOTS = Question("notes", "roots/list", b"{}")


def test_questions_are_numbered_and_each_ends_once() -> None:
    """An answer would go to another question, or to one that was withdrawn."""
    said: list[Meanwhile] = []
    ends: list[QuestionEnd] = []
    relay = Relay(7, Takes(b'{"roots":{}}'), said.append, lambda: LEGACY)
    withdraw = relay.ask(ROOTS, ends.append)
    relay.ask(ROOTS, ends.append)
    assert said == [Asked(7, 1, "roots/list", b"{}"), Asked(7, 2, "roots/list", b"{}")]
    withdraw()
    first, second = QuestionEnd(b'{"roots":[]}'), QuestionEnd(b'{"roots":[{"uri":"file:///x"}]}')
    relay.answer(1, first)
    relay.answer(2, second)
    relay.answer(2, first)
    assert ends == [second]


def test_what_a_test_does_not_take_is_not_asked_for() -> None:
    """A server would be told of abilities that its caller lacks, and would report to nobody."""
    silent = Relay(1, Takes(), lambda _: None, lambda: MODERN)
    assert (silent.capabilities, silent.on_progress, silent.log_level) == (b"", None, "")
    said: list[Meanwhile] = []
    relay = Relay(2, Takes(b'{"sampling":{}}', progress=True, log_level="info"), said.append, lambda: MODERN)
    assert (relay.capabilities, relay.log_level) == (b'{"sampling":{}}', "info")
    assert relay.on_progress is not None
    relay.on_progress(ProgressNote(1, 2, "half"))
    assert said == [Progressed(2, 1, 2, "half")]


def test_what_an_older_server_asks_comes_to_its_test_though_that_answers_nothing() -> None:
    """Nobody could say what a server asked whose call failed for want of an answer."""
    assert askable(Relay(1, Takes(), lambda _: None, lambda: LEGACY).capabilities) == CAPABILITY_OF.keys()


def test_news_are_the_notifications_that_they_were() -> None:
    """A test would see our own shapes in place of the protocol's."""
    line = LogLine("notes", "info", "app", b'{"n":1}')
    assert notification_of(line) == ("notifications/message", b'{"level":"info","logger":"app","data":{"n":1}}')
    unnamed = LogLine("notes", "error", "", b'"x"')
    assert notification_of(unnamed) == ("notifications/message", b'{"level":"error","data":"x"}')
    note = ServerNote("notes", "notifications/x", b'{"a":1}')
    assert notification_of(note) == ("notifications/x", b'{"a":1}')
    updated = ResourceUpdated("notes", "file:///x", frozenset())
    assert notification_of(updated) == ("notifications/resources/updated", b'{"uri":"file:///x"}')


def test_only_a_list_that_became_another_is_told() -> None:
    """Each look at a server would tell of changes, or its first lists would."""
    lists: dict[Listing, Sequence[object]] = {listing: (listing,) for listing in Listing}
    changes = ListChanges()
    assert changes.notifications(lists.__getitem__) == []
    assert changes.notifications(lists.__getitem__) == []
    lists[Listing.TOOLS] = ()
    lists[Listing.RESOURCES] = lists[Listing.TEMPLATES] = ()
    told = changes.notifications(lists.__getitem__)
    assert told == ["notifications/tools/list_changed", "notifications/resources/list_changed"]
    assert changes.notifications(lists.__getitem__) == []
