"""What servers ask of whoever calls them, and who answers.  Pure.

A server of an older era asks by a request of its own while a call of it is under way; one of 2026-07-28 by a result
that says `input_required`.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct

from .mcp.jsonrpc import INVALID_REQUEST, BodyError, check_object

CAPABILITY_OF: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""What a server may ask, and the capability of a client that can answer it."""


MAX_CAPABILITIES_BYTES: Final = 64 * 1024
"""Of what a client says it can; more is as good as nothing: it is read for each question."""

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Of one answer, and of those that come together: a sampled message may hold an image."""


def askable(capabilities: bytes) -> frozenset[str]:
    """What a client may be asked that has these capabilities, one JSON object."""
    if len(capabilities) > MAX_CAPABILITIES_BYTES:
        return frozenset()
    has = msgspec.json.decode(capabilities, type=dict[str, Raw])
    return frozenset(method for method, capability in CAPABILITY_OF.items() if capability in has)


class QuestionEnd(Struct, frozen=True):
    """A question's end: the answer `result`, one JSON object, or, with a `code`, a JSON-RPC error with any `data`."""

    result: bytes = b""
    code: int = 0
    message: str = ""
    data: bytes = b""


def end_by(answer: bytes, *, unreadable: int = INVALID_REQUEST) -> QuestionEnd:
    """How a question ends by what a client answered; with an error of the code `unreadable` when that is no object."""
    try:
        check_object(answer, max_bytes=MAX_ANSWER_BYTES)
    except BodyError as error:
        return QuestionEnd(code=unreadable, message=f"the client's answer cannot be read: {error}")
    return QuestionEnd(result=answer)


class Question(Struct, frozen=True):
    """A server's question to its caller.

    Attributes:
        server: who asks, as people know it.
        method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
        params: one JSON object, as the server sent it.
        key: its name in one `input_required`; empty for a request of its own.
    """

    server: str
    method: str
    params: bytes
    key: str = ""


class Answerer(Protocol):
    """Answers the questions that come up during one request, in the name of the client that made it."""

    @property
    def capabilities(self) -> bytes:
        """What its client can be asked, as the JSON object of client capabilities."""

    @property
    def bridges(self) -> bool:
        """Whether an `input_required` is put to it question by question; else its client takes the result itself."""

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """Put a question; `answer` is called once, after this returns, unless what is returned has withdrawn it."""


class ForwardingAnswerer(Answerer):
    """Another's answers: for those that change a part of what is asked, or of what can be."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    @property
    def capabilities(self) -> bytes:
        """See `Answerer`."""
        return self._answerer.capabilities

    @property
    def bridges(self) -> bool:
        """See `Answerer`."""
        return self._answerer.bridges

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        return self._answerer.ask(question, answer)
