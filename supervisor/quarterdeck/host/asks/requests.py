"""Requests of ours to a client of an older era, which is asked what a server asks.

One for each session: it writes requests, and knows the answers to them.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, Message
from quarterdeck_protocol.questions import Question, QuestionEnd, end_by

from .abilities import NOTHING, refusal

MAX_OPEN: Final = 64
"""Requests to one client at once: a person answers them one by one."""

MAX_ERROR_CHARS: Final = 4_000

ID_PREFIX: Final = "quarterdeck-"
"""Of the ids of our requests: the SDK's session, which may speak on the same connection, counts without."""


class _Error(msgspec.Struct, gc=False):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw | UnsetType = UNSET


class ClientRequests:
    """See the module.

    Attributes:
        capabilities: what the client can be asked; nothing before its greeting said more.
    """

    def __init__(self, call_soon: Callable[..., object], capabilities: bytes = NOTHING) -> None:
        """Nothing is asked yet; `call_soon` is the loop's."""
        self.capabilities = capabilities
        self._call_soon = call_soon
        self._numbers = itertools.count(1)
        self._open: dict[str, Callable[[QuestionEnd], None]] = {}

    def ask(
        self, question: Question, answer: Callable[[QuestionEnd], None], write: Callable[[bytes], None]
    ) -> Callable[[], None]:
        """See `Answerer`; `write` sends a message to the client."""
        refused = refusal(self.capabilities, question)
        if refused is None and len(self._open) >= MAX_OPEN:
            refused = QuestionEnd(code=INVALID_REQUEST, message="the client is being asked too much at once")
        if refused is not None:
            is_wanted = True

            def refuse() -> None:
                if is_wanted:
                    answer(refused)

            def drop() -> None:
                nonlocal is_wanted
                is_wanted = False

            self._call_soon(refuse)
            return drop
        request_id = f"{ID_PREFIX}{next(self._numbers)}"
        self._open[request_id] = answer
        params = Raw(question.params or b"{}")
        request = {"jsonrpc": "2.0", "id": request_id, "method": question.method, "params": params}
        write(msgspec.json.encode(request))

        def withdraw() -> None:
            if self._open.pop(request_id, None) is not None:
                params = {"requestId": request_id, "reason": "the server does not wait for it any more"}
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                write(msgspec.json.encode(note))

        return withdraw

    def take(self, message: Message) -> bool:
        """Whether `message` answers a request of ours; then whoever asked has the answer."""
        if message.method is not UNSET or not isinstance(message.id, str) or not message.id.startswith(ID_PREFIX):
            return False
        answer = self._open.pop(message.id, None)
        if answer is not None:
            answer(_end_of(message))
        return True

    def close(self) -> None:
        """The client is gone: whoever waits for it hears so."""
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            answer(QuestionEnd(code=INTERNAL_ERROR, message="the client is gone"))


class Asking:
    """Asks the client of one session over one of its streams; an `Answerer`."""

    bridges = True

    def __init__(self, requests: ClientRequests, write: Callable[[bytes], None]) -> None:
        """`write` sends a message on the stream."""
        self._requests = requests
        self._write = write

    @property
    def capabilities(self) -> bytes:
        """See `Answerer`."""
        return self._requests.capabilities

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        return self._requests.ask(question, answer, self._write)

    def tell(self, method: str, params: Mapping[str, object]) -> None:
        """See `Notifies`."""
        self._write(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}))


def _end_of(message: Message) -> QuestionEnd:
    """What an answer says."""
    if bytes(message.error):
        try:
            error = _error.decode(message.error)
        except (msgspec.DecodeError, UnicodeDecodeError):
            error = _Error(message="the client answered with an error that cannot be read")
        data = b"" if error.data is UNSET else bytes(error.data)
        return QuestionEnd(code=error.code or INTERNAL_ERROR, message=error.message[:MAX_ERROR_CHARS], data=data)
    return end_by(bytes(message.result), unreadable=INTERNAL_ERROR)


_error: Final = msgspec.json.Decoder(_Error)
