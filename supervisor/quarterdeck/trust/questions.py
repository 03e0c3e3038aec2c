"""Answer what a server asks in a client's name as far as its row lets it ask; `judge.questions` says how far."""

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct

from quarterdeck_protocol.configs import AskMode
from quarterdeck_protocol.mcp.tasks import takes_tasks
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd

from .judge.questions import Declined, judge_question, judged_capabilities

NOTHING_CAN_BE_ASKED = b"{}"

_log = logging.getLogger("quarterdeck.trust")


class JudgedAnswerer(Struct, frozen=True, eq=False):
    """The `Answerer` of one request, behind what its server may ask: a struct, for each request has one."""

    answerer: Answerer
    mode: AskMode
    has_tasks: Callable[[], bool]

    @property
    def capabilities(self) -> bytes:
        """See `Answerer`; nothing that could be asked for a server that may not ask."""
        capabilities = self.answerer.capabilities
        if takes_tasks(capabilities):
            return judged_capabilities(capabilities, self.mode, has_tasks=self.has_tasks())
        return NOTHING_CAN_BE_ASKED if self.mode is AskMode.DENY else capabilities

    @property
    def bridges(self) -> bool:
        """See `Answerer`."""
        return self.answerer.bridges

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`; what may not be asked is answered here."""
        judged = judge_question(question, self.mode)
        if not isinstance(judged, Declined):
            return self.answerer.ask(judged, answer)
        if judged.warning:
            _log.warning("%s", judged.warning)
        return asyncio.get_running_loop().call_soon(answer, judged.end).cancel
