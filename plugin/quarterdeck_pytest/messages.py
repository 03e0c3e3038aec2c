"""What a test process and the run's supervisor say to each other over the run's socket.  Pure.

A message is four bytes of length and one msgpack object, tagged with its type.  Each request but `Hello`, `Cancel` and
`Answered` has an id and is answered once, with `Reply`, `Failed` or `Wrong`; what a reply's body is, the request says.
Before that comes `Meanwhile`, and `Heard` at any time.
"""

import hashlib
from typing import Final

import msgspec
from msgspec import Struct

from quarterdeck_protocol.faults import FaultRecord, ProtocolFault, RemoteCause
from quarterdeck_protocol.link.frames import MAX_RESULT_BYTES
from quarterdeck_protocol.questions import QuestionEnd

MAX_MESSAGE_BYTES: Final = MAX_RESULT_BYTES + 1024 * 1024
"""A result of the largest size, and what is said beside it."""

LENGTH_BYTES: Final = 4


class Wish(Struct, frozen=True):
    """Which servers an instance runs, and how they differ from what is written.

    Attributes:
        file: a configuration file; empty for a command.
        server: the id of a row; empty for all of the file.
        words: a command line, in place of a file.
        name: the id of the command's server; empty for one that is made of the words.
        cwd: where the command runs, and what it may read.
        env: variables beside those of the row, by name.
        policy: keys of the row's `sandbox` in place of what is there, as a JSON object; empty for none.
        network: what is reached where neither `policy` says it, nor the servers are trusted.
        era: the revision of MCP; empty for 2025-11-25 if the server speaks it.
        timeout_s: of a start, and of each call; None for what the rows say.
    """

    file: str = ""
    server: str = ""
    words: tuple[str, ...] = ()
    name: str = ""
    cwd: str = ""
    env: tuple[tuple[str, str], ...] = ()
    policy: bytes = b""
    network: str = ""
    era: str = ""
    timeout_s: float | None = None

    @property
    def digest(self) -> str:
        """Equal where the same would be run; the key of what a whole run shares."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()[:24]


class ServerView(Struct, frozen=True):
    """A server at one moment; see `EndpointStatus`.

    Attributes:
        policy: the sandbox that is wanted, as JSON; empty for a server without a process.
        tier: how it is confined, with `network` and `gaps` its receipt; empty while it is not.
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
    """What a server said of itself when it was greeted; `info` and `capabilities` are JSON objects, as it sent them."""

    era: str
    info: bytes
    capabilities: bytes
    instructions: str = ""


class Explanation(Struct, frozen=True):
    """What a failure's report says of a server: texts without secrets.

    Attributes:
        texts: those that were asked about, in their order.
        stderr: what the server wrote last.
        last_fault: how it last died, though it may serve again.
    """

    server: ServerView
    texts: tuple[str, ...]
    stderr: str
    last_fault: FaultRecord | None = None


# From the test process


class Hello(Struct, frozen=True, tag=True):
    """The first message: whoever knows the run's token may speak."""

    token: str
    worker: str


class OfInstance(Struct, frozen=True, tag=True):
    """A request that is answered under its id, about the instance of this key."""

    id: int
    key: str


class OfServer(OfInstance, frozen=True, tag=True):
    """One about a server of the instance."""

    server: str


class Open(OfInstance, frozen=True, tag=True):
    """Start an instance, or join it, and wait until its servers are ready or have failed; answered with `ServerView`s.

    `test` is who asks, `shared` whether it outlives this connection.
    """

    wish: Wish
    test: str
    shared: bool


class Close(OfInstance, frozen=True, tag=True):
    """Stop an instance; answered with a list of what it left, one line each."""


class Takes(Struct, frozen=True):
    """What the test takes of a server before a request's end.

    Attributes:
        capabilities: what it can be asked, as the JSON object of client capabilities; empty for nothing.
        progress: whether it wants notes of progress.
        log_level: from which on it wants the log lines of a server of 2026-07-28; empty for none.
    """

    capabilities: bytes = b""
    progress: bool = False
    log_level: str = ""


class Call(OfServer, frozen=True, tag=True):
    """Call a tool; answered with the result's JSON.  `arguments` is a JSON object."""

    tool: str
    arguments: bytes
    timeout_s: float | None
    takes: Takes = Takes()


class Ask(OfServer, frozen=True, tag=True):
    """Make any other request that is no connection's own; answered with the result's JSON."""

    method: str
    params: bytes
    timeout_s: float | None
    takes: Takes = Takes()


class List(OfServer, frozen=True, tag=True):
    """A list of the server's, by a `Listing`; answered with a list of its items' JSON."""

    listing: str


class Look(OfInstance, frozen=True, tag=True):
    """How the servers of an instance are; answered with a list of `ServerView`."""


class Greet(OfServer, frozen=True, tag=True):
    """What a server said of itself; answered with a `Greeting`."""


class Notify(OfServer, frozen=True, tag=True):
    """Tell a server something, where its era has it told; answered with nothing.  `params` is a JSON object."""

    method: str
    params: bytes


class Want(OfServer, frozen=True, tag=True):
    """What this connection wants to be told of a server unasked, from now on; answered with nothing.

    Attributes:
        what: `subscribe` or `unsubscribe` a resource, `log_level` of a server of an older era; empty for nothing more.
        value: the URI, or the level.
    """

    what: str = ""
    value: str = ""


class Explain(OfServer, frozen=True, tag=True):
    """What a failure's report says of a server; answered with an `Explanation`."""

    texts: tuple[str, ...]


class Injure(OfServer, frozen=True, tag=True):
    """Do something bad to a server, by a name of `injuries`; answered with nothing when it is done."""

    how: str
    amount: float


class Recover(OfServer, frozen=True, tag=True):
    """Wait until the server is ready; answered with nothing."""


class Compare(OfInstance, frozen=True, tag=True):
    """Compare what an instance's servers offer with a lock; answered with a list of differences: server, and text."""

    lock: str


class Cancel(Struct, frozen=True, tag=True):
    """Give a request up; nothing is answered to it any more."""

    id: int


class Answered(Struct, frozen=True, tag=True):
    """How the question of an `Asked` ended; harmless when nobody waits for it any more."""

    id: int
    question: int
    end: QuestionEnd


Numbered = Open | Close | Call | Ask | List | Look | Greet | Notify | Want | Explain | Injure | Recover | Compare
Request = Hello | Numbered | Cancel | Answered


# From the supervisor


class Reply(Struct, frozen=True, tag=True):
    """A good end; `era` is that of a call's result."""

    id: int
    body: bytes = b""
    era: str = ""
    is_error: bool = False


class Failed(Struct, frozen=True, tag=True):
    """A fault of the server's, or of ours with it."""

    id: int
    fault: FaultRecord
    remedy: str = ""
    server: str = ""


class Wrong(Struct, frozen=True, tag=True):
    """The test asked for what there is not: one sentence."""

    id: int
    why: str


class Progressed(Struct, frozen=True, tag=True):
    """How far a request is."""

    id: int
    progress: float
    total: float | None = None
    message: str | None = None


class Asked(Struct, frozen=True, tag=True):
    """What a server asks during the request of this id; `question` is its number, `params` a JSON object."""

    id: int
    question: int
    method: str
    params: bytes


class Heard(Struct, frozen=True, tag=True):
    """What a server of an instance told unasked: a notification, `params` a JSON object or empty.

    Attributes:
        lost: how many were left out before this one, as they came faster than they were taken.
    """

    key: str
    server: str
    method: str
    params: bytes
    lost: int = 0


Answer = Reply | Failed | Wrong
Meanwhile = Progressed | Asked
Said = Answer | Meanwhile | Heard


class BadMessageError(Exception):
    """The other end does not speak this protocol."""


def encode(message: Request | Said) -> bytes:
    """A message as it is sent."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES) + body


def length_of(head: bytes) -> int:
    """How long the body behind these `LENGTH_BYTES` is.

    Raises:
        BadMessageError: longer than any message is.
    """
    length = int.from_bytes(head)
    if length > MAX_MESSAGE_BYTES:
        raise BadMessageError(f"a message of {length:,} bytes: at most {MAX_MESSAGE_BYTES:,} are taken")
    return length


def decode_request(body: bytes) -> Request:
    """A request.

    Raises:
        BadMessageError: it is none.
    """
    try:
        request: Request = _requests.decode(body)
    except msgspec.MsgspecError as error:
        raise BadMessageError(f"no request: {error}") from None
    return request


def decode_said(body: bytes) -> Said:
    """What the supervisor said.

    Raises:
        BadMessageError: it is none.
    """
    try:
        said: Said = _said.decode(body)
    except msgspec.MsgspecError as error:
        raise BadMessageError(f"no answer: {error}") from None
    return said


def record_of(fault: ProtocolFault) -> FaultRecord:
    """A fault as it crosses."""
    cause = fault.cause if isinstance(fault.cause, RemoteCause) or fault.cause is None else RemoteCause.of(fault.cause)
    return FaultRecord(fault.kind, fault.message, fault.code, fault.delivery, cause, fault.dossier, fault.reply)


def fault_of(failed: Failed) -> ProtocolFault:
    """The fault that crossed, to be raised."""
    fault = ProtocolFault.from_record(failed.fault, failed.remedy or None)
    fault.server = failed.server or None
    return fault


_requests: Final = msgspec.msgpack.Decoder(Request)
_said: Final = msgspec.msgpack.Decoder(Said)
