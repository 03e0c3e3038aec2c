"""What the relay tells its caller, as plain values.  Pure.

Every request of the caller's ends in exactly one of `Answered`, `Listed`, `ListingFailed`, `Refused`, `Spoiled`,
`Failed`, unless the caller cancels it or the connection ends first: then its outcome is unknown.
"""

from dataclasses import replace
from enum import StrEnum
from typing import Final

import msgspec

from quarterdeck_protocol.faults import MAX_REPLY_DATA_BYTES, Delivery, FaultKind, FaultRecord, ReplyError
from quarterdeck_protocol.mcp.jsonrpc import SplitResult

from .eras import is_modern

MAX_ERROR_CHARS: Final = 4_000
"""A server's error text beyond it is cut."""


class _Event(msgspec.Struct, frozen=True, gc=False):
    """The base of all events."""


# What a caller is told at once


class RelayMisuseError(Exception):
    """Our bug: a request number that is in use, an answer to nothing."""


class Refusal(StrEnum):
    """Why a request was not taken; not a byte of it will be sent."""

    NOT_OPEN = "not_open"
    BUSY = "busy"


# The greeting


class Server(msgspec.Struct, frozen=True):
    """What a greeted server said of itself; all text is bounded, all bytes are JSON objects that may be passed on.

    Attributes:
        era: the protocol revision agreed.
        name, version, title: for people only; empty if not given.
        info: its `serverInfo` as sent, with icons and whatever else; `{}` if not given, or too large.
        announces: the lists whose changes it reports: "tools", "prompts", "resources".
    """

    era: str
    name: str = ""
    version: str = ""
    title: str = ""
    instructions: str = ""
    capabilities: bytes = b"{}"
    info: bytes = b"{}"
    announces: frozenset[str] = frozenset()

    @property
    def is_modern(self) -> bool:
        """Whether requests carry an envelope, and the server itself asks nothing."""
        return is_modern(self.era)


class Greeted(_Event, frozen=True):
    """The server is there: from now on it can be asked."""

    server: Server


class GreetingFailed(_Event, frozen=True):
    """The server cannot be spoken to; nothing more will come of this connection.

    Attributes:
        message: the reason, as the end of a sentence.
        code: of the JSON-RPC error that it answered; None if it answered something else, or nothing.
        is_echo: whether it sends back what it is sent, as `cat` does: it is no MCP server.
    """

    message: str
    code: int | None = None
    is_echo: bool = False


# Ends of requests


class Answered(_Event, frozen=True):
    """A result, without its era's envelope."""

    request_id: int
    result: SplitResult


class Listed(_Event, frozen=True):
    """All items of a list, as one JSON array of the server's own bytes."""

    request_id: int
    items: bytes


class ListingFailed(_Event, frozen=True):
    """A list that cannot be taken; `code` is its stable name: `too_many_pages`, `too_many_tools`, `bad_output`, …"""

    request_id: int
    code: str
    message: str


class Refused(_Event, frozen=True):
    """A JSON-RPC error: the server refused, the connection is fine.  `data` is JSON that may be passed on, or empty."""

    request_id: int
    code: int
    message: str
    data: bytes = b""


class Spoiled(_Event, frozen=True):
    """An answer that is none: broken, cut, nested too deeply, too large, or not of the shape that it must have."""

    request_id: int
    reason: str


class Failed(_Event, frozen=True):
    """The carrier could not deliver the request, or have its answer."""

    request_id: int
    fault: FaultRecord


# What the server says unasked


class Progressed(_Event, frozen=True):
    """How far a request is."""

    request_id: int
    progress: float
    total: float | None = None
    message: str | None = None


class Logged(_Event, frozen=True):
    """A line of its log; `data` is any JSON."""

    level: str
    logger: str
    data: bytes


class Changed(_Event, frozen=True):
    """These of its lists are different now, or may be: "tools", "prompts", "resources"."""

    kinds: tuple[str, ...]


class Updated(_Event, frozen=True):
    """A resource that was subscribed is different now, or one below it."""

    uri: str


class Listening(_Event, frozen=True):
    """It has acknowledged `listen`; `honoured` is the filter that it agreed to, as it sent it."""

    honoured: bytes


class Noted(_Event, frozen=True):
    """Any other notification: a task's status, an elicitation's end; `params` as they came, an object or empty."""

    method: str
    params: bytes


class Junk(_Event, frozen=True):
    """A line that is no message, or a notification that cannot be read; it is counted and dropped."""

    line: bytes


# What the server asks


class Asked(_Event, frozen=True):
    """A request of the server's, to be ended by `Relay.answer` or `Relay.refuse` with this `ask_id`."""

    ask_id: int
    method: str
    params: bytes


class EndOfAsk(StrEnum):
    """Why a request of the server's needs no answer any more."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"


class AskEnded(_Event, frozen=True):
    """The server gave up its request, or it got an error because nobody answered it in time."""

    ask_id: int
    why: EndOfAsk


Said = Logged | Changed | Updated | Noted
"""Unrequested messages of a server, apart from the progress of a request."""

End = Answered | Listed | ListingFailed | Refused | Spoiled | Failed
"""How a request of the caller's ends."""

Event = Greeted | GreetingFailed | End | Said | Progressed | Listening | Junk | Asked | AskEnded


def fault_of(event: Refused | Spoiled | ListingFailed) -> FaultRecord:
    """What a bad end of a call is to whoever called; of a list, it is a fault of the kind `protocol`."""
    match event:
        case Refused(code=code, message=message, data=data):
            return refusal(code, message, data)
        case Spoiled(reason=reason):
            return bad_output(reason)
        case ListingFailed(code=name, message=message):
            return FaultRecord(FaultKind.PROTOCOL, message, name, Delivery.ANSWERED)


def refusal(code: int, message: str, data: bytes = b"") -> FaultRecord:
    """A JSON-RPC error reply as a fault: the server refused, the connection is fine."""
    detail = f": {data.decode(errors='replace')}" if data and data != b"null" else ""
    text = f"{message or 'the server refused the call'} (JSON-RPC error {code}){detail}"[:MAX_ERROR_CHARS]
    reply = ReplyError(code, message, data)
    return FaultRecord(FaultKind.TOOL_ERROR, text, code="reply_error", delivery=Delivery.ANSWERED, reply=reply)


HINT_KEY: Final = "quarterdeck/hint"
"""Member of an error's `data` with our hint to whoever reads it."""


def with_hint(fault: FaultRecord, hint: str) -> FaultRecord:
    """Add a hint to the message of a server's error, and to its data unless that is of another form than an object."""
    message, reply = f"{fault.message}; {hint}", fault.reply
    if reply is not None:
        try:
            known = msgspec.json.decode(reply.data or b"{}", type=dict[str, msgspec.Raw] | None) or {}
            data = msgspec.json.encode({**known, HINT_KEY: hint})
            reply = replace(reply, data=data) if len(data) <= MAX_REPLY_DATA_BYTES else reply
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # a text or a list stays as it is
    return replace(fault, message=message, reply=reply)


def bad_output(reason: str) -> FaultRecord:
    """An answer that is none."""
    return FaultRecord(FaultKind.TOOL_ERROR, reason[:MAX_ERROR_CHARS], code="bad_output", delivery=Delivery.ANSWERED)
