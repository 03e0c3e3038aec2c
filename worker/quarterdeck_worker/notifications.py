"""What a server says unasked, bounded before it is passed on: progress, log lines, changes, questions.  Pure."""

from collections.abc import Callable
from typing import Final, Protocol, assert_never

import msgspec

from quarterdeck_protocol.limits import TokenBucket
from quarterdeck_protocol.link.frames import (
    Asked,
    AskEnded,
    Hinted,
    ListChanged,
    Listening,
    ListKind,
    Log,
    News,
    Note,
    Progress,
    Quarantined,
    Updated,
)
from quarterdeck_protocol.mcp.client import events
from quarterdeck_sandbox import Caught

MAX_LOG_BYTES: Final = 64 * 1024  # a log line's data beyond it becomes a text, cut; logs are for people
CUT_CHARS: Final = 8_192  # of such a text
MAX_NOTE_CHARS: Final = 1_000  # a progress message beyond it is cut
BURST: Final = 2_000  # notes passed on at once before the rate counts
RATE_PER_S: Final = 500.0  # notes a second that a client or a terminal can still follow
ASK_BURST: Final = 200  # questions passed on at once
ASKS_PER_S: Final = 20.0  # beyond that: each costs a way to the supervisor and back, whoever refuses it
NOTE_BYTES: Final = 8 * 1024  # a note counts as one more for each of these


class Post(Protocol):
    """The signature of `Link.post`."""

    def __call__(self, frame: News, body: bytes = b"") -> bool:
        """Send it; False when it was dropped."""


class Notifier:
    """Passes notifications on within a budget, questions within another; changes of a list always, as a mark."""

    def __init__(self, post: Post, clock: Callable[[], float]) -> None:
        self._post = post
        self._clock = clock
        self._budget = TokenBucket(BURST, RATE_PER_S, clock())
        self._asks = TokenBucket(ASK_BURST, ASKS_PER_S, clock())
        self._changes_told: set[str] = set()

    def progress(self, request_id: int, progress: float, total: float | None, message: str | None) -> None:
        """Tell how far a call is."""
        if self._may_tell(0):
            text = message[:MAX_NOTE_CHARS] if message is not None else None
            self._post(Progress(request_id, progress, total, text))

    def said(self, note: events.Said) -> None:
        """Pass on what the server said unasked, as its connection read it."""
        match note:
            case events.Logged(level, logger, data):
                self.log(level, logger, data)
            case events.Changed(kinds):
                for kind in kinds:
                    self.changed(kind)
            case events.Updated(uri):
                if self._may_tell(0):
                    self._post(Updated(uri))
            case events.Noted(method, params):
                if self._may_tell(len(params)):
                    self._post(Note(method), params)
            case _:
                assert_never(note)

    def log(self, level: str, logger: str | None, data: bytes) -> None:
        """Pass a log line on; `data` is JSON."""
        if self._may_tell(len(data)):
            self._post(Log(level[:32], (logger or "")[:MAX_NOTE_CHARS]), _cut(data))

    def listening(self, count: int) -> None:
        """Say that the server tells of so many resources from now on."""
        self._post(Listening(count))

    def changed(self, kind: str) -> None:
        """Say once that a list changed; the next list of this kind resets it, so a storm of these costs one frame."""
        if kind not in self._changes_told and (mark := _MARKS.get(kind)) is not None:
            self._changes_told.add(kind)
            self._post(mark)

    def listing(self, kind: ListKind) -> None:
        """A list is about to be asked: later changes of it are news again."""
        self._changes_told.discard(kind)

    def asked(self, ask_id: int, method: str, params: bytes) -> bool:
        """Pass on what the server asks; False when that cannot be, or is too much."""
        return not self._asks.take(1, self._clock()) and self._post(Asked(ask_id, method), params)

    def quarantined(self, caught: Caught) -> None:
        """Report a quarantined file to the supervisor, and to clients as a log line."""
        self._post(Quarantined(caught.path, caught.kept, caught.why))
        self.log("warning", "quarterdeck", msgspec.json.encode(caught.told))

    def hinted(self, hint: str) -> None:
        """Report a hint for the server's user."""
        if self._may_tell(len(hint)):
            self._post(Hinted(hint))

    def ask_ended(self, ask_id: int) -> None:
        """Say that a question needs no answer any more."""
        self._post(AskEnded(ask_id))

    def _may_tell(self, size: int) -> bool:
        return not self._budget.take(1 + size // NOTE_BYTES, self._clock())


_MARKS: Final = {
    "tools": ListChanged("tools"),
    "prompts": ListChanged("prompts"),
    "resources": ListChanged("resources"),
}


def _cut(data: bytes) -> bytes:
    if len(data) <= MAX_LOG_BYTES:
        return data
    return msgspec.json.encode(data[: 4 * CUT_CHARS].decode(errors="replace")[:CUT_CHARS])
