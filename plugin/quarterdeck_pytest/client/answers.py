"""A test's answers to a server's questions: elicitation, sampling, roots; each a value, or a function of the params."""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.questions import CAPABILITY_OF, QuestionEnd

from .pending import McpTestError

Json = dict[str, Any]

QUESTIONS: Final = 100  # questions of a server that are kept: as many as it may ask during one request
INTERNAL_ERROR: Final = -32603

_CAPABILITIES: Final[Mapping[str, Json]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
"""The client capabilities that each kind of answer implies."""


@dataclass(frozen=True, slots=True)
class Question:
    """A server's question: its kind (`elicitation`, `sampling` or `roots`), and its params as the server sent them."""

    kind: str
    params: Json


class McpAnswerError(Exception):
    """An answer, returned or raised: the server receives this error, as when a user declines sampling (-1)."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR) -> None:
        super().__init__(message)
        self.code: Final = code


class Answers:
    """The answers of a test, the last answered `questions`, the oldest first, and the kinds of the `unanswered`."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self._given: dict[str, object] = {}
        self.unanswered: Final[dict[str, None]] = {}
        self.questions: Final[deque[Question]] = deque(maxlen=QUESTIONS)
        self.give(given or {})

    def give(self, given: Mapping[str, object]) -> None:
        """Set answers from now on; None removes one. Raise `McpTestError` for an unknown kind."""
        for kind, answer in given.items():
            if kind not in _CAPABILITIES:
                raise McpTestError(f"servers ask for {', '.join(_CAPABILITIES)}, not for {kind!r}")
            if answer is None:
                self._given.pop(kind, None)
            else:
                self._given[kind] = answer

    @property
    def capabilities(self) -> bytes:
        """The kinds with an answer, as the JSON object of client capabilities; empty for none."""
        can = {kind: _CAPABILITIES[kind] for kind in self._given}
        return msgspec.json.encode(can) if can else b""

    def answer(
        self, method: str, params: bytes, end: Callable[[QuestionEnd], None]
    ) -> Coroutine[Any, Any, None] | None:
        """Answer a question. Await the returned coroutine, if any: the answer is a coroutine function's.

        A question without an answer ends with an error that names it. Raise `McpTestError` for an unusable answer.
        """
        kind = CAPABILITY_OF[method]
        if kind not in self._given:
            self.unanswered[kind] = None
            end(QuestionEnd(code=METHOD_NOT_FOUND, message=f"the test gives no answer: answer({kind}=…)"))
            return None
        question = Question(kind, msgspec.json.decode(params, type=Json) if params else {})
        self.questions.append(question)
        answer = self._given[kind]
        if callable(answer):
            try:
                answer = answer(question.params)
            except McpAnswerError as error:
                answer = error
        if isawaitable(answer):
            return _later(kind, answer, end)
        end(_end_of(kind, answer))
        return None


async def _later(kind: str, answer: Any, end: Callable[[QuestionEnd], None]) -> None:
    try:
        given = await answer
    except McpAnswerError as error:
        given = error
    end(_end_of(kind, given))


def _end_of(kind: str, answer: object) -> QuestionEnd:
    if isinstance(answer, McpAnswerError):
        return QuestionEnd(code=answer.code, message=str(answer))
    try:
        return QuestionEnd(msgspec.json.encode(_RESULTS[kind](answer)))
    except (TypeError, ValueError) as error:
        raise McpTestError(f"this is no answer to {kind}: {answer!r}: {error}") from None


def _elicited(answer: object) -> Json:
    """Convert `accept`, `decline` or `cancel`, or the content that is accepted."""
    match answer:
        case "accept" | "decline" | "cancel":
            return {"action": answer}
        case Mapping():
            return {"action": "accept", "content": dict(answer)}
    raise ValueError('it is "accept", "decline", "cancel" or the content')


def _sampled(answer: object) -> Json:
    """Convert the model's text, or the whole result."""
    match answer:
        case str():
            said = {"type": "text", "text": answer}
            return {"role": "assistant", "content": said, "model": "pytest", "stopReason": "endTurn"}
        case Mapping():
            return dict(answer)
    raise ValueError("it is the model's text, or a whole result")


def _rooted(answer: object) -> Json:
    """Convert folders, or whole roots."""
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Sequence):
        raise TypeError("it is a list of folders, of their URIs, or of roots")
    return {"roots": [_root(each) for each in answer]}


def _root(folder: object) -> Json:
    match folder:
        case Mapping():
            return dict(folder)
        case str() if "://" in folder:
            return {"uri": folder}
        case str() | Path():
            return {"uri": Path(folder).absolute().as_uri()}
    raise ValueError(f"{folder!r} is no folder")


_RESULTS: Final[Mapping[str, Callable[[object], Json]]] = {
    "elicitation": _elicited,
    "sampling": _sampled,
    "roots": _rooted,
}
