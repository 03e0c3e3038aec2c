"""Questions to a client of an older era over the SDK's session, on the stream of the request that they belong to."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import anyio
import msgspec
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError

from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR
from quarterdeck_protocol.questions import Question, QuestionEnd

from .abilities import NOTHING, refusal
from .parked import ANSWER_S

_log = logging.getLogger("quarterdeck.host")


class SessionAnswerer:
    """Answers what is asked during one request; an `Answerer`."""

    bridges = True

    def __init__(self, session: ServerSession) -> None:
        able = session.client_capabilities
        self.capabilities: Final = able.model_dump_json(by_alias=True, exclude_none=True).encode() if able else NOTHING
        # Private, but the only way to a request of ours that the SDK does not rebuild (mcp 2.3).
        self._channel = session._request_outbound  # noqa: SLF001
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        asking = self._refuse(question, answer) if refusal(self.capabilities, question) else self._ask(question, answer)
        return self._started(asking)

    def _started(self, asking: Coroutine[Any, Any, None]) -> Callable[[], None]:
        task = asyncio.get_running_loop().create_task(asking)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def withdraw() -> None:
            task.cancel()

        return withdraw

    def tell(self, method: str, params: Mapping[str, object]) -> None:
        """See `Notifies`."""
        self._started(self._channel.notify(method, params))

    async def _refuse(self, question: Question, answer: Callable[[QuestionEnd], None]) -> None:
        refused = refusal(self.capabilities, question)
        assert refused is not None
        answer(refused)

    async def _ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> None:
        params = msgspec.json.decode(question.params or b"{}")
        try:
            result = await self._channel.send_raw_request(question.method, params, {"timeout": ANSWER_S})
            end = QuestionEnd(result=msgspec.json.encode(result))
        except MCPError as error:
            data = b"" if error.error.data is None else msgspec.json.encode(error.error.data)
            end = QuestionEnd(code=error.error.code or INTERNAL_ERROR, message=error.error.message, data=data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, msgspec.MsgspecError, ValueError) as error:
            _log.info("%s could not be asked of a client: %s", question.method, error)
            end = QuestionEnd(code=INTERNAL_ERROR, message="the client could not be asked")
        answer(end)
