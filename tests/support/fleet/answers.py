"""A client that is asked: it notes what, and answers when the test says so."""

import asyncio
from collections.abc import Callable
from typing import Final

from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall

CAPABLE: Final = b'{"elicitation":{"form":{}},"sampling":{},"roots":{}}'
"""What it can be asked: everything."""

ME, OTHER = Client("me", "door-1"), Client("other", "door-2")


class Answering:
    """See `Answerer`."""

    def __init__(self, capabilities: bytes = CAPABLE, *, bridges: bool = True) -> None:
        self.capabilities = capabilities
        self.bridges = bridges
        self.asked: list[Question] = []
        self.withdrawn: list[Question] = []
        self._answers: list[Callable[[QuestionEnd], None]] = []

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        self.asked.append(question)
        self._answers.append(answer)
        return lambda: self.withdrawn.append(question)

    def answer(self, number: int, result: bytes = b"{}", **members: object) -> None:
        self._answers[number](QuestionEnd(result, **members))  # type: ignore[arg-type]


class Waiter:
    """The end of a request, once it has one; delivered at most once."""

    def __init__(self, begin: Callable[[Deliver], PendingCall | None]) -> None:
        self.ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
        pending = begin(self.ended.set_result)
        assert pending is not None
        self.pending = pending
