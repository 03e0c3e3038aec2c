"""How a server is reached; those that are objects within this process: `objects`."""

from collections.abc import Callable, Iterable
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
    Call,
    Compare,
    Explain,
    Explanation,
    Greet,
    Greeting,
    Injure,
    List,
    Look,
    Notify,
    Numbered,
    Recover,
    Reply,
    ServerView,
    Takes,
    Want,
)

from .connection import Connection
from .notifications import Told
from .pending import Inbox, Pending

T = TypeVar("T")


class Backend(Protocol):
    """One server."""

    @property
    def id(self) -> str:
        """What it is called."""

    @property
    def key(self) -> object:
        """Equal where the very same server is reached."""

    @property
    def told(self) -> Told:
        """What it tells unasked."""

    def call(
        self, tool: str, arguments: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        """Call a tool; the arguments are one JSON object."""

    def ask(
        self, method: str, params: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        """Make another request."""

    def answer(self, asked: Asked, end: QuestionEnd) -> None:
        """End a question of the server's."""

    def greeting(self) -> Pending[Greeting]:
        """What it said of itself."""

    def tell(self, method: str, params: bytes) -> Pending[None]:
        """Notify it, where its era has it notified."""

    def want(self, what: str, value: str) -> Pending[None]:
        """Hear of more, or less; see `Want`."""

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """The definitions of a list, as JSON."""

    def view(self) -> Pending[ServerView]:
        """How it is."""

    def explain(self, texts: Iterable[str]) -> Pending[Explanation]:
        """What a report says of it, and these texts without secrets."""

    def injure(self, how: str, amount: float = 0.0) -> Pending[None]:
        """Do something bad to it; see `supervisor.injuries`."""

    def recovered(self) -> Pending[None]:
        """It is ready again."""

    def compare(self, lock: str) -> Pending[list[tuple[str, str]]]:
        """How its instance differs from a lock: the server, and a text."""


class RemoteBackend:
    """A server that the supervisor runs, for a project whose root directory this is."""

    def __init__(self, connection: Connection, key: str, server: str, root: Path) -> None:
        self._connection = connection
        self._key = key
        self._root = root
        self.id: Final = server

    @property
    def key(self) -> object:
        """See `Backend`."""
        return self._key, self.id

    @property
    def told(self) -> Told:
        """See `Backend`."""
        return self._connection.told(self._key, self.id)

    def call(
        self, tool: str, arguments: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        call = Call(self._connection.next_id(), self._key, self.id, tool, arguments, timeout_s, takes)
        return self._begin(call, inbox)

    def ask(
        self, method: str, params: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        ask = Ask(self._connection.next_id(), self._key, self.id, method, params, timeout_s, takes)
        return self._begin(ask, inbox)

    def answer(self, asked: Asked, end: QuestionEnd) -> None:
        """See `Backend`."""
        self._connection.answer(Answered(asked.id, asked.question, end))

    def greeting(self) -> Pending[Greeting]:
        """See `Backend`."""
        return self._ask(partial(value_of, Greeting), Greet, self.id)

    def tell(self, method: str, params: bytes) -> Pending[None]:
        """See `Backend`."""
        return self._ask(_nothing, Notify, self.id, method, params)

    def want(self, what: str, value: str) -> Pending[None]:
        """See `Backend`."""
        return self._ask(_nothing, Want, self.id, what, value)

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """See `Backend`."""
        return self._ask(partial(value_of, list[bytes]), List, self.id, listing.value)

    def view(self) -> Pending[ServerView]:
        """See `Backend`."""

        def mine(reply: Reply) -> ServerView:
            return next(view for view in value_of(list[ServerView], reply) if view.id == self.id)

        return self._ask(mine, Look)

    def explain(self, texts: Iterable[str]) -> Pending[Explanation]:
        """See `Backend`."""
        return self._ask(partial(value_of, Explanation), Explain, self.id, tuple(texts))

    def injure(self, how: str, amount: float = 0.0) -> Pending[None]:
        """See `Backend`."""
        return self._ask(_nothing, Injure, self.id, how, amount)

    def recovered(self) -> Pending[None]:
        """See `Backend`."""
        return self._ask(_nothing, Recover, self.id)

    def compare(self, lock: str) -> Pending[list[tuple[str, str]]]:
        """See `Backend`."""
        return self._ask(partial(value_of, list[tuple[str, str]]), Compare, str(self._root / lock))

    def _begin(self, request: Call | Ask, inbox: Inbox) -> Pending[RemoteCallResult]:
        return Pending(self._connection.send(request, inbox.put), _result_of, inbox)

    def _ask(self, made: Callable[[Reply], T], kind: Callable[..., Numbered], *fields: object) -> Pending[T]:
        """Send a request of this kind about the instance; `made` makes the result of its reply."""
        return Pending(self._connection.send(kind(self._connection.next_id(), self._key, *fields)), made)


def value_of(kind: Callable[..., T] | type[T], reply: Reply) -> T:
    """What a reply's body is."""
    value: T = msgspec.msgpack.decode(reply.body, type=kind)
    return value


def _result_of(reply: Reply) -> RemoteCallResult:
    return RemoteCallResult(WireResult(reply.body, reply.era, reply.is_error))


def _nothing(_: Reply) -> None:
    return None
