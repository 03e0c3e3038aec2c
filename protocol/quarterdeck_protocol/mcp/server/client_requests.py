"""Our requests to a client of the legacy era, which passes on what a server asks, and what a client can be asked."""

import itertools
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Message
from quarterdeck_protocol.questions import MAX_CAPABILITIES_BYTES, Answerer, Question, QuestionEnd, end_by

NOTHING: Final = b"{}"
"""The capabilities of a client that can be asked nothing."""

MAX_OPEN: Final = 64
"""Requests to one client at once: a person answers them one by one."""

MAX_ERROR_CHARS: Final = 4_000

T = TypeVar("T")

ID_PREFIX: Final = "quarterdeck-"
"""Of the ids of our requests."""


class _Elicitation(msgspec.Struct, gc=False):
    form: dict[str, Raw] | UnsetType | None = UNSET
    url: dict[str, Raw] | UnsetType | None = UNSET


class _Capabilities(msgspec.Struct, gc=False):
    elicitation: _Elicitation | None = None
    sampling: dict[str, Raw] | None = None
    roots: dict[str, Raw] | None = None


class _Mode(msgspec.Struct, gc=False):
    mode: str = "form"


class _Error(msgspec.Struct, gc=False):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw | UnsetType = UNSET


def refusal(capabilities: bytes, question: Question) -> QuestionEnd | None:
    """Return the error of a question that a client of these capabilities cannot be asked; None when it can.

    An `elicitation` without a mode means forms (specification of 2025-11-25, client/elicitation, "Capabilities").
    """
    able = _Capabilities()
    if len(capabilities) <= MAX_CAPABILITIES_BYTES:
        able = _read(_capabilities, capabilities) or able
    match question.method:
        case "elicitation/create" if able.elicitation is not None:
            mode = (_read(_mode, question.params) or _Mode()).mode
            has_form, has_url = able.elicitation.form is not UNSET, able.elicitation.url is not UNSET
            can = has_url if mode == "url" else has_form or not has_url
            return None if can else QuestionEnd(code=INVALID_PARAMS, message=f"the client takes no {mode} elicitation")
        case "sampling/createMessage" if able.sampling is not None:
            return None
        case "roots/list" if able.roots is not None:
            return None
    return QuestionEnd(code=METHOD_NOT_FOUND, message="the client did not declare that capability")


class ClientRequests:
    """The requests to one client that have no answer yet.

    Attributes:
        capabilities: what the client can be asked; nothing before its greeting said more.
    """

    def __init__(self, call_soon: Callable[..., object]) -> None:
        """Nothing is asked yet; `call_soon` is the loop's."""
        self.capabilities = NOTHING
        self._call_soon = call_soon
        self._numbers = itertools.count(1)
        self._open: dict[str, Callable[[QuestionEnd], None]] = {}

    def ask(
        self, question: Question, answer: Callable[[QuestionEnd], None], write: Callable[[bytes], None]
    ) -> Callable[[], None]:
        """Ask by `write`, which sends a message to the client; see `Answerer.ask`."""
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
        if (answer := self._open.pop(message.id, None)) is not None:
            answer(_end_of(message))
        return True

    def close(self) -> None:
        """The client is gone: whoever waits for it hears so."""
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            answer(QuestionEnd(code=INTERNAL_ERROR, message="the client is gone"))


class Asking(Answerer):
    """Asks the client of one session, once it is greeted, over one of its streams.

    Attributes:
        capabilities: what the client can be asked.
        bridges: a legacy client is asked question by question.
    """

    capabilities = NOTHING
    bridges = True

    def __init__(self, requests: ClientRequests, write: Callable[[bytes], None]) -> None:
        """`write` sends a message on the stream."""
        self.capabilities = requests.capabilities
        self._requests = requests
        self._write = write

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """Ask on this stream."""
        return self._requests.ask(question, answer, self._write)

    def tell(self, method: str, params: Mapping[str, object]) -> None:
        """Send a notification on this stream."""
        self._write(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}))


def _end_of(message: Message) -> QuestionEnd:
    if bytes(message.error):
        error = _read(_error, message.error)
        if error is None:
            error = _Error(message="the client answered with an error that cannot be read")
        data = b"" if error.data is UNSET else bytes(error.data)
        return QuestionEnd(code=error.code or INTERNAL_ERROR, message=error.message[:MAX_ERROR_CHARS], data=data)
    return end_by(bytes(message.result), unreadable=INTERNAL_ERROR)


def _read(decoder: msgspec.json.Decoder[T], data: bytes | Raw) -> T | None:
    """Decode what a stranger wrote; None for what cannot be."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_capabilities: Final = msgspec.json.Decoder(_Capabilities)
_mode: Final = msgspec.json.Decoder(_Mode)
_error: Final = msgspec.json.Decoder(_Error)
