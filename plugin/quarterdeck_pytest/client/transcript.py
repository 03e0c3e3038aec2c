"""The last messages between one test and one server, in both directions, bounded."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.questions import QuestionEnd
from quarterdeck_protocol.tools import ProgressNote

from .notifications import Notification

MESSAGES: Final = 20  # kept at most
MESSAGE_CHARS: Final = 2000  # of each
NOTIFICATIONS: Final = 3  # of one kind shown in a row: a server's log must not displace the test's requests
_HEAD_BYTES: Final = MESSAGE_CHARS * 4  # of a message, which are enough for as many characters


class _Line(NamedTuple):
    """A message; `place` is the number of notifications before it."""

    place: int
    text: str


class Transcript:
    """The messages, the oldest first."""

    def __init__(self, place: Callable[[], int] = lambda: 0) -> None:
        """`place` returns the number of notifications so far."""
        self._place: Final = place
        self._lines: deque[_Line] = deque(maxlen=MESSAGES)
        self._noted = 0

    def last(self, told: Iterable[tuple[int, Notification]] = ()) -> tuple[tuple[str, ...], int]:
        """Return the last messages, and how many earlier ones are left out.

        `told` are the kept notifications, each with its place among all that came.
        """
        lines = [*_merged(self._lines, told)]
        shown = lines[-MESSAGES:]
        return tuple(shown), self._noted - len(self._lines) + len(lines) - len(shown)

    def note_request(self, method: str, params: str) -> None:
        """Note a request."""
        self._note("->", f"{method} {params}".rstrip())

    def note_asked(self, method: str, params: bytes) -> None:
        """Note a question of the server's."""
        self._note("<-", f"{method} {_text(params)}")

    def note_answer(self, method: str, end: QuestionEnd) -> None:
        """Note the answer to a question."""
        answer = f"error {end.code}: {end.message}" if end.code else _text(end.result)
        self._note("->", f"to {method}: {answer}")

    def note_progress(self, note: ProgressNote) -> None:
        """Note progress."""
        of = f" of {note.total:g}" if note.total is not None else ""
        self._note("<-", f"progress {note.progress:g}{of} {note.message or ''}".rstrip())

    def note_end(self, end: object) -> None:
        """Note a request's end: a result, other values, or an exception."""
        match end:
            case RemoteCallResult():
                self._note("<-", _text(end.body), len(end.body))
            case ProtocolFault():
                what = " ".join(dict.fromkeys((end.kind, end.code or end.kind)))
                self._note("<-", f"no result: {what} ({end.delivery}): {end.message}")
            case BaseException():
                self._note("<-", f"no result: {type(end).__name__} {end}".rstrip())
            case list():
                self._note("<-", f"{len(end)} items")
            case _:
                pass

    def _note(self, arrow: str, text: str, size: int = 0) -> None:
        self._noted += 1
        self._lines.append(_Line(self._place(), f"{arrow} {_cut(text, size)}"))


def _merged(lines: Iterable[_Line], told: Iterable[tuple[int, Notification]]) -> Iterator[str]:
    """Yield the messages with the notifications between them, as they came."""
    waiting = deque(told)
    for line in (*lines, None):
        group = []
        while waiting and (line is None or waiting[0][0] < line.place):
            group.append(waiting.popleft()[1])
        yield from _group(group)
        if line is not None:
            yield line.text


def _group(told: list[Notification]) -> Iterator[str]:
    """Yield consecutive notifications: of each kind the last ones, and how many there were."""
    kinds = dict.fromkeys(each.method for each in told)
    for method in kinds:
        of_kind = [each for each in told if each.method == method]
        if more := len(of_kind[:-NOTIFICATIONS]):
            yield f"<- {method}, {more} times, then"
        for each in of_kind[-NOTIFICATIONS:]:
            yield f"<- {method} {_cut(_text(msgspec.json.encode(each.params)) if each.params else '')}".rstrip()


def _text(body: bytes) -> str:
    return body[:_HEAD_BYTES].decode("utf-8", "replace")


def _cut(text: str, size: int = 0) -> str:
    if len(text) <= MESSAGE_CHARS:
        return text
    return f"{text[:MESSAGE_CHARS]} ... ({max(size, len(text)):,} characters)"
