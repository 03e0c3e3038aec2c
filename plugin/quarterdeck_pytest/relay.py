"""One request's way back to its test, and the conversion of notifications. Pure.

The run's supervisor has a relay for each request of another process; a server that is an object has them in the test's
own process.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.offers import ListAnnounced, Listing, LogLine, News, ServerNote
from quarterdeck_protocol.questions import CAPABILITY_OF, Question, QuestionEnd
from quarterdeck_protocol.tools import ProgressNote
from quarterdeck_pytest.messages import Asked, Meanwhile, Progressed, Takes

_ANYTHING: Final = msgspec.json.encode({capability: {} for capability in CAPABILITY_OF.values()})


class Relay:
    """The `Answerer` of a request: passes on what comes before its end, and brings answers back.

    A server's question goes to its test even without an answer there: it refuses, and can report the question.
    """

    bridges = True

    def __init__(self, number: int, takes: Takes, say: Callable[[Meanwhile], None], era: Callable[[], str]) -> None:
        """`era` returns the server's at the time of the request; empty before the handshake."""
        self._number = number
        self._takes = takes
        self._say = say
        self._era = era
        self._open: dict[int, Callable[[QuestionEnd], None]] = {}
        self._asked = 0

    @property
    def capabilities(self) -> bytes:
        """See `Answerer`: a server of 2026-07-28 needs the test's capabilities, a legacy one asks anyway."""
        return self._takes.capabilities if is_modern(self._era()) else _ANYTHING

    @property
    def on_progress(self) -> Callable[[ProgressNote], None] | None:
        """Receiver of progress notes, if its test wants them."""
        return self._report if self._takes.progress else None

    @property
    def log_level(self) -> str:
        """See `RawCall`."""
        return self._takes.log_level

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        self._asked += 1
        number = self._asked
        self._open[number] = answer
        self._say(Asked(self._number, number, question.method, question.params))
        return lambda: (self._open.pop(number, None), None)[1]

    def answer(self, question: int, end: QuestionEnd) -> None:
        """End a question; harmless when it is no longer open."""
        if (answer := self._open.pop(question, None)) is not None:
            answer(end)

    def _report(self, note: ProgressNote) -> None:
        self._say(Progressed(self._number, note.progress, note.total, note.message))


def notification_of(news: News) -> tuple[str, bytes]:
    """Return the method and the params of a notification, without members that are not kept."""
    match news:
        case LogLine(level=level, logger=logger, data=data):
            named = {"logger": logger} if logger else {}
            line = {"level": level, **named, "data": msgspec.Raw(data)}
            return "notifications/message", msgspec.json.encode(line)
        case ServerNote(method=method, params=params):
            return method, params
        case ListAnnounced():
            return news.method, b"{}"
        case _:
            return "notifications/resources/updated", msgspec.json.encode({"uri": news.uri})


class ListChanges:
    """Detects changed lists of a server: the fleet keeps the server's own notifications of that to itself."""

    def __init__(self) -> None:
        self._seen: dict[Listing, Sequence[object]] = {}

    def notifications(self, look: Callable[[Listing], Sequence[object]]) -> list[str]:
        """Return the methods of the notifications for the changes since the last look.

        `look` returns the present list, the same tuple until it changes.
        """
        seen, self._seen = self._seen, {listing: look(listing) for listing in Listing}
        changed = [listing for listing in seen if self._seen[listing] is not seen[listing]]
        kinds = dict.fromkeys(listing.method.partition("/")[0] for listing in changed)
        return [f"notifications/{kind}/list_changed" for kind in kinds]
