"""What a server says unasked, bounded before it is passed on: progress, log lines, changes of its tools.  Pure."""

import json
from collections.abc import Callable
from typing import Final

from quarterdeck_protocol.link.credit import TokenBucket
from quarterdeck_protocol.link.frames import ListChanged, Log, Progress

MAX_LOG_CHARS: Final = 8_192
"""A log line's data beyond it is cut; logs are for people."""

MAX_NOTE_CHARS: Final = 1_000
"""A progress message beyond it is cut."""

BURST: Final = 2_000
"""Notes passed on at once before the rate counts."""

RATE_PER_S: Final = 500.0
"""Notes a second that a client or a terminal can still follow."""


class Notifier:
    """Passes news to the link within a budget; changes of the tool list always pass, but only as a mark."""

    def __init__(self, post: Callable[[Progress | Log | ListChanged], bool], clock: Callable[[], float]) -> None:
        self._post = post
        self._clock = clock
        self._budget = TokenBucket(BURST, RATE_PER_S, clock())
        self._change_told = False

    def progress(self, request_id: int, progress: float, total: float | None, message: str | None) -> None:
        """Tell how far a call is."""
        if not self._budget.take(1, self._clock()):
            text = message[:MAX_NOTE_CHARS] if message is not None else None
            self._post(Progress(request_id, progress, total, text))

    def log(self, level: str, logger: str | None, data: str) -> None:
        """Pass a log line on."""
        if not self._budget.take(1, self._clock()):
            self._post(Log(level[:32], (logger or "")[:MAX_NOTE_CHARS], data[:MAX_LOG_CHARS]))

    def tools_changed(self) -> None:
        """Say once that the tools changed; the next list resets it, so a storm of these costs one frame."""
        if not self._change_told:
            self._change_told = True
            self._post(ListChanged())

    def listing(self) -> None:
        """A list is about to be asked: later changes are news again."""
        self._change_told = False


def log_text(data: object) -> str:
    """A log line's data as one line of text."""
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
