"""What a client can, as servers of 2026-07-28 are told with a request that is made for it.  Pure."""

from collections.abc import Callable

from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import taking_tasks
from quarterdeck_protocol.questions import Answerer, ForwardingAnswerer, Question, QuestionEnd


class Taking(ForwardingAnswerer):
    """A client that takes a task for a result, because we do for it; asked it is by its own answerer."""

    @classmethod
    def of(cls, answerer: Answerer | None) -> "Answerer":
        """The same of anybody; one that cannot be asked is asked nothing."""
        return cls(answerer if answerer is not None else _Nobody())

    @property
    def capabilities(self) -> bytes:
        """See `Answerer`."""
        try:
            return taking_tasks(self._answerer.capabilities)
        except BodyError:
            return taking_tasks(b"{}")


class _Nobody(Answerer):
    """Nobody can be asked: by what it says it can, no server asks it."""

    capabilities = b"{}"
    bridges = False

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:  # noqa: ARG002
        return _nothing


def _nothing() -> None:
    """There is nothing to withdraw."""
