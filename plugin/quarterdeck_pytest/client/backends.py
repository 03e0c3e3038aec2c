"""One server as a test process reaches it: through the run's supervisor, or as an object in the process (`objects`)."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.questions import QuestionEnd
from quarterdeck_protocol.tools import WireResult
from quarterdeck_pytest.messages import (
    Answered,
    Ask,
    Asked,
    Compare,
    Explain,
    Explanation,
    Greet,
    Greeting,
    Injure,
    List,
    Look,
    Meanwhile,
    Notify,
    Numbered,
    Recover,
    Reply,
    ServerView,
    Takes,
    Want,
)

from .notifications import Told
from .pending import Inbox, Pending

T = TypeVar("T")


class Link(Protocol):
    """Carries requests to servers; its methods may be called in any thread."""

    def next_id(self) -> int:
        """Return a new id for a request."""

    def send(self, request: Numbered, meanwhile: Callable[[Meanwhile], None] | None = None) -> "Future[Reply]":
        """Send a request; cancelling the future gives it up.

        The future ends with a reply, a `ProtocolFault` or a `McpTestError`.  `meanwhile` takes what comes before, in a
        thread of the link's.
        """

    def answer(self, answered: Answered) -> None:
        """End a server's question; ignored if the question is no longer open."""

    def told(self, key: str, server: str) -> Told:
        """Return the notifications of this server of an instance."""


class Backend:
    """One server of an instance, reached over a link; `root` is the project's root directory."""

    def __init__(self, link: Link, key: str, server: str, root: Path) -> None:
        self._link = link
        self._root = root
        self.id: Final = server
        self.key: Final = key

    @property
    def told(self) -> Told:
        """The server's notifications."""
        return self._link.told(self.key, self.id)

    def ask(
        self, tool: str, method: str, body: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        """Call a tool, or make another request; see `Ask`."""
        request = Ask(self._link.next_id(), self.key, self.id, tool, method, body, timeout_s, takes)
        return Pending(self._link.send(request, inbox.put), _result_of, inbox)

    def answer(self, asked: Asked, end: QuestionEnd) -> None:
        """End a question of the server's."""
        self._link.answer(Answered(asked.id, asked.question, end))

    def greeting(self) -> Pending[Greeting]:
        """Return the server's part of the handshake."""
        return self._send(partial(value_of, Greeting), Greet, self.id)

    def tell(self, method: str, params: bytes) -> Pending[None]:
        """Notify the server, if its era has clients notify it."""
        return self._send(_nothing, Notify, self.id, method, params)

    def want(self, what: str, value: str) -> Pending[None]:
        """Change the notifications that come; see `Want`."""
        return self._send(_nothing, Want, self.id, what, value)

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """Return the definitions of a list, as JSON."""
        return self._send(partial(value_of, list[bytes]), List, self.id, listing.value)

    def view(self) -> Pending[ServerView]:
        """Return the server's state."""

        def mine(reply: Reply) -> ServerView:
            return next(view for view in value_of(list[ServerView], reply) if view.id == self.id)

        return self._send(mine, Look)

    def explain(self, texts: Iterable[str]) -> Pending[Explanation]:
        """Return the facts for a report, and these texts without secrets."""
        return self._send(partial(value_of, Explanation), Explain, self.id, tuple(texts))

    def injure(self, how: str, amount: float = 0.0) -> Pending[None]:
        """Inject a fault; see `supervisor.injuries`."""
        return self._send(_nothing, Injure, self.id, how, amount)

    def recovered(self) -> Pending[None]:
        """Wait until the server is ready again."""
        return self._send(_nothing, Recover, self.id)

    def compare(self, lock: str) -> Pending[list[tuple[str, str]]]:
        """Return the differences of the instance from a lock: the server, and a text."""
        return self._send(partial(value_of, list[tuple[str, str]]), Compare, str(self._root / lock))

    def _send(self, made: Callable[[Reply], T], kind: Callable[..., Numbered], *fields: object) -> Pending[T]:
        return Pending(self._link.send(kind(self._link.next_id(), self.key, *fields)), made)


def value_of(kind: Callable[..., T] | type[T], reply: Reply) -> T:
    """Decode the body of a reply."""
    value: T = msgspec.msgpack.decode(reply.body, type=kind)
    return value


def _result_of(reply: Reply) -> RemoteCallResult:
    return RemoteCallResult(WireResult(reply.body, reply.era, reply.is_error))


def _nothing(_: Reply) -> None:
    return None
