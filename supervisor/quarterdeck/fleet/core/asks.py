"""Decide whose a legacy server's question is, and how many it may ask. Pure.

Such a question names no request. It can only be for a client with a request in progress; if several clients have one,
it cannot be routed. Of programs that share a token, those with an unanswered question are left out: their requests wait
for that answer, for minutes if the program is gone. A question may belong to any request of its client that was in
progress when it was asked, and ends with the last of them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

MAX_OPEN: Final = 16
"""Questions at once during one request: a person answers them one by one."""

MAX_ASKED: Final = 100
"""During the whole of one request."""

MAX_ASKED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of one request's questions together, each of up to 8 MiB: they wait in memory for their client."""


class Refused(Enum):
    """Why a question is put to no client, in the words that the server is told."""

    NOBODY = "nobody is there to be asked: no request of a client is under way"
    SEVERAL = (
        "several clients have requests in progress, so this question cannot be routed: call again, and each session "
        "has a process of its own"
    )
    UNABLE = "the client whose request is under way cannot be asked this"
    TOO_MANY = "too many questions during one request"
    TOO_LARGE = "the questions during one request are too large together"


class UnderWay(Struct, frozen=True):
    """A request in progress: its client's key, the questions that the client can answer, and, if programs share a
    token, the program (`part`).
    """

    request_id: int
    client: str
    askable: frozenset[str]
    part: str = ""


class Ended(Struct, frozen=True):
    """The effect of a request's end on its questions: some `moved` to another request, the others `ended` with it."""

    moved: dict[int, int] = {}
    ended: tuple[int, ...] = ()


class _Open(Struct):
    """A question without an answer: the request that it is put to, and all requests that it may belong to."""

    request_id: int
    may_be_of: set[int]
    size_bytes: int


class Asks:
    """The questions of one server that have no answer yet, and how many each request has had."""

    def __init__(self) -> None:
        self._questions: dict[int, _Open] = {}
        self._open: Counter[int] = Counter()
        self._asked: Counter[int] = Counter()
        self._asked_bytes: Counter[int] = Counter()

    def begin(self, ask_id: int, method: str, under_way: Iterable[UnderWay], size_bytes: int = 0) -> int | Refused:
        """Return the request that a new question is put to, or why none is. `ask_id` is never used twice, `under_way`
        holds all requests of clients, the oldest first, and `size_bytes` is the size of the params.
        """
        requests = tuple(under_way)
        if not requests:
            return Refused.NOBODY
        if len({each.client for each in requests}) > 1:
            return Refused.SEVERAL
        parts = {each.part for each in requests if not self._open[each.request_id]} or {each.part for each in requests}
        if len(parts) > 1:
            return Refused.SEVERAL
        requests = tuple(each for each in requests if each.part in parts)
        able = [each.request_id for each in requests if method in each.askable]
        if not able:
            return Refused.UNABLE
        whose = self._place(able, size_bytes)
        if not isinstance(whose, Refused):
            self._questions[ask_id] = _Open(whose, set(able), size_bytes)
        return whose

    def end(self, ask_id: int) -> bool:
        """Close a question. Return whether it was open."""
        question = self._questions.pop(ask_id, None)
        if question is None:
            return False
        self._open[question.request_id] -= 1
        return True

    def forget(self, request_id: int) -> Ended:
        """A request has ended; what becomes of its questions that are open."""
        moved, ended = {}, []
        for ask_id, question in self._questions.items():
            question.may_be_of.discard(request_id)
            if question.request_id != request_id:
                continue
            others = sorted(question.may_be_of)
            whose = self._place(others, question.size_bytes) if others else Refused.NOBODY
            if isinstance(whose, Refused):
                ended.append(ask_id)
            else:
                moved[ask_id] = question.request_id = whose
        for ask_id in ended:
            del self._questions[ask_id]
        for counts in (self._asked, self._open, self._asked_bytes):
            counts.pop(request_id, None)
        return Ended(moved, tuple(ended))

    def _place(self, able: Sequence[int], size_bytes: int) -> int | Refused:
        # The one that has waited longest without a question is the likeliest to ask one.
        request_id = min(able, key=lambda each: self._open[each])
        if self._open[request_id] >= MAX_OPEN or self._asked[request_id] >= MAX_ASKED:
            return Refused.TOO_MANY
        if self._asked_bytes[request_id] + size_bytes > MAX_ASKED_BYTES:
            return Refused.TOO_LARGE
        self._open[request_id] += 1
        self._asked[request_id] += 1
        self._asked_bytes[request_id] += size_bytes
        return request_id
