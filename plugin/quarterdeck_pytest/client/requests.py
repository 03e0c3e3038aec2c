"""The pending requests of both clients."""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.offers import LEVELS, Listing
from quarterdeck_protocol.questions import QuestionEnd
from quarterdeck_protocol.tools import ProgressNote
from quarterdeck_pytest.messages import Asked, Greeting, Meanwhile, Takes

from .answers import Answers
from .backends import Backend
from .notifications import Hearing, Notification
from .pending import Inbox, McpTestError, Pending
from .transcript import Transcript

Json = dict[str, Any]

OnProgress = Callable[[ProgressNote], Coroutine[Any, Any, None] | None]
"""Takes notes of progress; may be a coroutine function for `AsyncMcpClient`."""


@dataclass(frozen=True, slots=True)
class ServerGreeting:
    """A server's part of the handshake; `instructions`, for a model, may be empty."""

    protocol_version: str
    server_info: Json
    capabilities: Json
    instructions: str


class Requests:
    """A test's requests of one server, with its `answers` and the server's notifications (`hearing`)."""

    def __init__(self, backend: Backend, answers: Answers, since: int = 0) -> None:
        self.answers: Final = answers
        self.hearing: Final = Hearing(backend.told, since)
        self._backend: Final = backend
        self._transcript: Final = Transcript(lambda: backend.told.count)
        self._log_level = ""
        self._wants = False

    @property
    def last_messages(self) -> tuple[tuple[str, ...], int]:
        """The last messages of this test, and how many earlier ones are left out; see `Transcript`."""
        return self._transcript.last(self.hearing.placed())

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None,
        timeout: float | None,
        on_progress: OnProgress | None = None,
    ) -> Pending[RemoteCallResult]:
        """Call a tool."""
        body = msgspec.json.encode(dict(arguments or {}))
        self._transcript.note_request("tools/call", f"{name} {body.decode()}")
        pending = self._backend.ask(name, "", body, timeout, *self._taken(on_progress))
        return pending.noted(self._transcript.note_end)

    def request(
        self,
        method: str,
        params: Mapping[str, object],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Pending[Json]:
        """Make another request."""
        body = msgspec.json.encode(dict(params))
        self._transcript.note_request(method, body.decode())
        pending = self._backend.ask("", method, body, timeout, *self._taken(on_progress))
        return pending.noted(self._transcript.note_end).then(_value)

    def items(self, listing: Listing) -> Pending[list[Json]]:
        """Return a list of the server's."""
        self._transcript.note_request(listing.method, "")
        return self._backend.items(listing).noted(self._transcript.note_end).then(_decoded)

    def greeting(self) -> Pending[ServerGreeting]:
        """Return the server's part of the handshake."""
        return self._backend.greeting().then(_greeting)

    def want(self, what: str, value: str) -> Pending[None]:
        """Change the notifications that come; see `Want`. Raise `McpTestError` for an unknown log level."""
        self._wants = True
        if what == "log_level":
            if value not in LEVELS:
                raise McpTestError(f"there is no log level {value!r}: levels are {', '.join(LEVELS)}")
            self._log_level = value
        return self._backend.want(what, value)

    def notify(self, method: str, params: Mapping[str, object]) -> Pending[None]:
        """Notify the server."""
        body = msgspec.json.encode(dict(params))
        self._transcript.note_request(method, body.decode())
        return self._backend.tell(method, body)

    def told(self, method: str) -> Pending[Notification]:
        """Return the first notification of this method that no wait has returned yet."""
        return Pending(*self.hearing.next(method))

    def leave(self) -> None:
        """End the test's subscriptions and log level, for other tests that use the server."""
        if self._wants:
            self._wants = False
            with suppress(ProtocolFault, McpTestError):  # a server that is gone tells nothing, either
                self._backend.want("", "").result()

    def _taken(self, on_progress: OnProgress | None) -> tuple[Takes, Inbox]:
        takes = Takes(self.answers.capabilities, on_progress is not None, self._log_level)

        def handle(item: Meanwhile) -> Coroutine[Any, Any, None] | None:
            if isinstance(item, Asked):
                self._transcript.note_asked(item.method, item.params)
                return self.answers.answer(item.method, item.params, partial(self._answer, item))
            assert on_progress is not None
            note = ProgressNote(item.progress, item.total, item.message)
            self._transcript.note_progress(note)
            return on_progress(note)

        return takes, Inbox(handle)

    def _answer(self, asked: Asked, end: QuestionEnd) -> None:
        self._transcript.note_answer(asked.method, end)
        self._backend.answer(asked, end)


def _value(result: RemoteCallResult) -> Json:
    return dict(result.value)


def _decoded(items: list[bytes]) -> list[Json]:
    return [msgspec.json.decode(item, type=Json) for item in items]


def _greeting(said: Greeting) -> ServerGreeting:
    info, capabilities = (msgspec.json.decode(each, type=Json) for each in (said.info, said.capabilities))
    return ServerGreeting(said.era, info, capabilities, said.instructions)
