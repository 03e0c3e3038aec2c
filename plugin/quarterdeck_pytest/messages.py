"""Messages between a test process and the run's supervisor, over the run's socket.  Pure.

A message is four bytes of length and one msgpack object, tagged with its type.  Each request but `Hello`, `Cancel` and
`Answered` has an id and is answered once, with `Reply`, `Failed` or `Wrong`; each request documents the body of its
reply.  `Meanwhile` messages come before the answer, `Heard` at any time.
"""

import hashlib
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from quarterdeck_protocol.faults import FaultRecord, ProtocolFault, RemoteCause
from quarterdeck_protocol.link.frames import MAX_RESULT_BYTES
from quarterdeck_protocol.questions import QuestionEnd

MAX_MESSAGE_BYTES: Final = MAX_RESULT_BYTES + 1024 * 1024  # a result of the largest size, and the fields around it
LENGTH_BYTES: Final = 4


class Wish(Struct, frozen=True):
    """The servers that an instance runs, and how they differ from their configuration."""

    file: str = ""  # a configuration file; empty for a command
    server: str = ""  # the id of one row; empty for all of the file
    words: tuple[str, ...] = ()  # a command line, instead of a file
    name: str = ""  # the id of the command's server; empty to derive it from the words
    cwd: str = ""  # where the command runs, and what it may read
    env: tuple[tuple[str, str], ...] = ()  # variables besides those of the row, by name
    policy: bytes = b""  # keys that replace the row's `sandbox` keys, as a JSON object; empty for none
    network: str = ""  # network mode, unless `policy` sets one or the preset is `trusted`
    era: str = ""  # the revision of MCP; empty for 2025-11-25 if the server speaks it
    timeout_s: float | None = None  # of a start, and of each call; None for the rows' own

    @property
    def digest(self) -> str:
        """Key of the servers that a whole run shares: equal for equal wishes."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()[:24]


class ServerView(Struct, frozen=True):
    """A server at one moment; see `EndpointStatus`. `policy` is the requested sandbox, as JSON, empty for a server
    without a process; `tier` is how it is confined, with `network` and `gaps` its receipt, empty while it is not.
    """

    id: str
    phase: str
    tools: int = 0
    fault: FaultRecord | None = None
    remedy: str = ""
    pid: int | None = None
    worker_pid: int | None = None
    era: str = ""
    restarts: int = 0
    policy: bytes = b""
    tier: str = ""
    network: str = ""
    gaps: tuple[str, ...] = ()


class Greeting(Struct, frozen=True):
    """A server's part of the handshake; `info` and `capabilities` are JSON objects, as it sent them."""

    era: str
    info: bytes
    capabilities: bytes
    instructions: str = ""


class Explanation(Struct, frozen=True):
    """Facts about a server for a failure's report, without secrets: the request's texts, the end of its standard error,
    how it last died, though it may serve again.
    """

    server: ServerView
    texts: tuple[str, ...]
    stderr: str
    last_fault: FaultRecord | None = None


# From the test process


class Hello(Struct, frozen=True, tag=True):
    """The first message: it proves knowledge of the run's token."""

    token: str
    worker: str


class OfInstance(Struct, frozen=True, tag=True):
    """A request that is answered under its id, about the instance of this key."""

    id: int
    key: str


class OfServer(OfInstance, frozen=True, tag=True):
    """A request about one server of the instance."""

    server: str


class Open(OfInstance, frozen=True, tag=True):
    """Start an instance, or join it, and wait until its servers are ready or have failed; answered with `ServerView`s.

    `test` is the first test that uses it; a `shared` one outlives this connection.
    """

    wish: Wish
    test: str
    shared: bool


class Close(OfInstance, frozen=True, tag=True):
    """Stop an instance; answered with a list of its leftovers, one line each."""


class Takes(Struct, frozen=True):
    """Messages of the server that a test accepts before a request ends: questions, for which it has `capabilities`, a
    JSON object of a client's, notes of progress, and log lines of a server of 2026-07-28 from `log_level` on; each may
    be empty.
    """

    capabilities: bytes = b""
    progress: bool = False
    log_level: str = ""


class Ask(OfServer, frozen=True, tag=True):
    """Call the `tool` of this name, or, where it is empty, make the request `method`; answered with the result's JSON.

    `body` is the tool's arguments, or the request's params, as a JSON object.
    """

    tool: str
    method: str
    body: bytes
    timeout_s: float | None
    takes: Takes = Takes()


class List(OfServer, frozen=True, tag=True):
    """List a server's items by a `Listing`; answered with a list of the items' JSON."""

    listing: str


class Look(OfInstance, frozen=True, tag=True):
    """View the servers of an instance; answered with a list of `ServerView`."""


class Greet(OfServer, frozen=True, tag=True):
    """Return a server's part of the handshake; answered with a `Greeting`."""


class Notify(OfServer, frozen=True, tag=True):
    """Notify a server, if its era has clients notify it; answered with nothing.  `params` is a JSON object."""

    method: str
    params: bytes


class Want(OfServer, frozen=True, tag=True):
    """Change the notifications that this connection receives: `subscribe` or `unsubscribe` for a URI, `log_level` of a
    legacy server; an empty `what` ends all of it. It is answered with nothing.
    """

    what: str = ""
    value: str = ""


class Explain(OfServer, frozen=True, tag=True):
    """Explain a server's state for a failure's report; answered with an `Explanation`."""

    texts: tuple[str, ...]


class Injure(OfServer, frozen=True, tag=True):
    """Inject a fault, by a name of `injuries`; answered with nothing when it is done."""

    how: str
    amount: float


class Recover(OfServer, frozen=True, tag=True):
    """Wait until the server is ready; answered with nothing."""


class Compare(OfInstance, frozen=True, tag=True):
    """Compare the servers' tools with a lock; answered with a list of differences: server, and text."""

    lock: str


class Cancel(Struct, frozen=True, tag=True):
    """Give up a request, which is not answered any longer."""

    id: int


class Answered(Struct, frozen=True, tag=True):
    """The end of an `Asked` question; ignored if the question is no longer open."""

    id: int
    question: int
    end: QuestionEnd


OfEndpoint = List | Greet | Notify | Want
"""Requests that a server's endpoint answers alone, wherever it is driven."""

Numbered = Open | Close | Ask | OfEndpoint | Look | Explain | Injure | Recover | Compare
Request = Hello | Numbered | Cancel | Answered


# From the supervisor


class Reply(Struct, frozen=True, tag=True):
    """A request's result; `era` and `is_error` belong to that of an `Ask`."""

    id: int
    body: bytes = b""
    era: str = ""
    is_error: bool = False


class Failed(Struct, frozen=True, tag=True):
    """A request's `ProtocolFault`."""

    id: int
    fault: FaultRecord
    remedy: str = ""
    server: str = ""


class Wrong(Struct, frozen=True, tag=True):
    """A mistake of the test's, in one sentence."""

    id: int
    why: str


class Progressed(Struct, frozen=True, tag=True):
    """A request's progress."""

    id: int
    progress: float
    total: float | None = None
    message: str | None = None


class Asked(Struct, frozen=True, tag=True):
    """A server's question during the request of this id; `question` is its number, `params` a JSON object."""

    id: int
    question: int
    method: str
    params: bytes


class Heard(Struct, frozen=True, tag=True):
    """A notification from a server of an instance; `lost` ones before it came faster than they were read."""

    key: str
    server: str
    method: str
    params: bytes
    lost: int = 0


Answer = Reply | Failed | Wrong
Meanwhile = Progressed | Asked
Said = Answer | Meanwhile | Heard

T = TypeVar("T")


class BadMessageError(Exception):
    """The other end does not speak this protocol."""


def encode(message: Request | Said) -> bytes:
    """Encode a message with its length."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES) + body


def length_of(head: bytes) -> int:
    """Return the length of the body after these `LENGTH_BYTES`. Raise `BadMessageError` if it is too long."""
    length = int.from_bytes(head)
    if length > MAX_MESSAGE_BYTES:
        raise BadMessageError(f"a message of {length:,} bytes: at most {MAX_MESSAGE_BYTES:,} are taken")
    return length


def decode_request(body: bytes) -> Request:
    """Decode a test process's message. Raise `BadMessageError` if it is none."""
    return _decoded(_requests, body, "request")


def decode_said(body: bytes) -> Said:
    """Decode the supervisor's message. Raise `BadMessageError` if it is none."""
    return _decoded(_said, body, "answer")


def _decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes, kind: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise BadMessageError(f"no {kind}: {error}") from None


def reply_of(request: Numbered, value: object) -> Reply:
    """Answer a request with a value as the body."""
    return Reply(request.id, msgspec.msgpack.encode(value))


def record_of(fault: ProtocolFault) -> FaultRecord:
    """Turn a fault into its form on the wire."""
    cause = fault.cause if isinstance(fault.cause, RemoteCause) or fault.cause is None else RemoteCause.of(fault.cause)
    return FaultRecord(fault.kind, fault.message, fault.code, fault.delivery, cause, fault.dossier, fault.reply)


def fault_of(failed: Failed) -> ProtocolFault:
    """Return the fault of an answer, to be raised."""
    fault = ProtocolFault.from_record(failed.fault, failed.remedy or None)
    fault.server = failed.server or None
    return fault


_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_said: Final[msgspec.msgpack.Decoder[Said]] = msgspec.msgpack.Decoder(Said)
