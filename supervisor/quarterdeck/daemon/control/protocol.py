"""The messages of the control socket: the key and one request line in, one answer line out, both JSON. Pure.

Only the user can read the key, a file next to the socket: a confined program that reaches the socket, as with a grant
of sockets, cannot. Requests and answers are closed unions of tagged structs; any other line is refused.
"""

from enum import StrEnum
from typing import Final

import msgspec

from quarterdeck.config.load.trouble import Trouble
from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.plain_words import plain_words

SOCKET_NAME: Final = "control.sock"
KEY_NAME: Final = "control.key"

MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
"""The longest request line: room for a file in a tool's arguments, as over HTTP."""


class Message(msgspec.Struct, frozen=True, tag_field="type"):
    """One line."""


class Ps(Message, frozen=True, tag="ps"):
    """Show the state of every server."""


class Tools(Message, frozen=True, tag="tools"):
    """List the tools that can be called, once servers have connected, as for an MCP client's first list; only those of
    these groups together, and of this server, if given (which leaves out native tools). `refresh` starts servers that
    sleep first, so that what they list is compared.
    """

    groups: tuple[str, ...] = ()
    server: str = ""
    refresh: bool = False


class Call(Message, frozen=True, tag="call"):
    """Call the tool of this name; `arguments` is one JSON object, untouched on its way to a server."""

    name: str
    arguments: msgspec.Raw


class Restart(Message, frozen=True, tag="restart"):
    """Restart a server, and show its state once it is ready or has failed."""

    server: str


class Wake(Message, frozen=True, tag="wake"):
    """Start a server if it sleeps, keep it awake for a while, and show its state once it is ready or has failed."""

    server: str


class Sleep(Message, frozen=True, tag="sleep"):
    """Stop a server until it is called, and show its state."""

    server: str


class LogPath(Message, frozen=True, tag="log_path"):
    """Name the file that keeps a server's standard error, or that of one client's own process of it."""

    server: str
    client: str = ""


class Inspect(Message, frozen=True, tag="inspect"):
    """Show what confines a server, its limits and what it uses."""

    server: str


class Listings(Message, frozen=True, tag="listings"):
    """List what the servers offer, held or not, once they have connected."""


class Decide(Message, frozen=True, tag="decide"):
    """Record these decisions, all or none, and act on them: `Decision`s, in a list as msgspec writes them."""

    decisions: msgspec.Raw


class WriteCalls(Message, frozen=True, tag="write_calls"):
    """Write the ended calls to the ledger; the answer comes once they can be read there."""


class Record(Message, frozen=True, tag="record"):
    """Record the `Batch` of another process, as JSON in which lone surrogates may be escaped."""

    batch: bytes


class OpenPage(Message, frozen=True, tag="open_page"):
    """Make a link that opens the daemon's page once; `read_only` for a page that may only look."""

    read_only: bool = False


Request = (
    Ps | Tools | Call | Restart | Wake | Sleep | LogPath | Inspect | Listings | Decide | WriteCalls | Record | OpenPage
)


class FaultView(msgspec.Struct, frozen=True):
    """A fault with its remedy; see `ProtocolFault`."""

    kind: str
    code: str | None
    message: str
    remedy: str | None
    delivery: str
    dossier: Dossier | None = None


class SandboxView(msgspec.Struct, frozen=True):
    """A summary of what confines a server; see `SandboxStatus`."""

    tier: str
    network: str
    gaps: tuple[str, ...] = ()
    caught: tuple[str, ...] = ()
    hint: str = ""


class OwnServerView(msgspec.Struct, frozen=True):
    """A server of one session's or client's own; `client` names the client."""

    client: str
    phase: str
    pid: int | None


class ServerView(msgspec.Struct, frozen=True):
    """One server at one moment; see `EndpointStatus`.

    Attributes:
        phase: as of an endpoint, or `installing`, or `asleep`.
        transport: None for an unusable row.
        memory_bytes: resident memory of the server's whole process tree, None when it has none here.
        sandbox: None when it has or had no process here.
        tools: without held and blocked ones.
        held: how many of its tools await the user's approval.
        blocked: how many the user has blocked.
        of_sessions: the sessions' or clients' own servers of this row; this one is listed and judged for all of them.
        awake: what keeps it from falling asleep; empty where servers do not sleep, and while it is not ready.
        seal: the digest of the package tree that it runs from; None for a server that runs as its row says.
        changed: files of its program that have changed since they were approved.
    """

    id: str
    phase: str
    transport: str | None
    tools: int
    pid: int | None
    worker_pid: int | None
    memory_bytes: int | None
    uptime_s: float | None
    restarts: int
    era: str | None
    fault: FaultView | None
    sandbox: SandboxView | None = None
    held: int = 0
    blocked: int = 0
    of_sessions: tuple[OwnServerView, ...] = ()
    awake: tuple[str, ...] = ()
    seal: str | None = None
    changed: tuple[str, ...] = ()


class ToolView(msgspec.Struct, frozen=True):
    """One callable tool.

    Attributes:
        server: empty for a native tool.
        definition: the server's own, whole; for a native tool, the one that MCP clients see.
        alias: the shorter name that MCP clients see; empty when they see `name`.
        own: the server's own name of a renamed tool; empty when that is the second half of `name`.
        cannot_write: whether it is a tool that changes something, of a server that may only read its files.
    """

    name: str
    server: str
    description: str
    definition: msgspec.Raw
    alias: str = ""
    own: str = ""
    cannot_write: bool = False


class ServerList(Message, frozen=True, tag="servers"):
    """The answer to `Ps`, in configuration order; `troubles` are the unusable parts of the configuration."""

    servers: tuple[ServerView, ...]
    troubles: tuple[Trouble, ...] = ()


class ToolList(Message, frozen=True, tag="tools"):
    """The answer to `Tools`: native tools first, then each server's. `absent` servers offer nothing because they are
    not ready, or could not list their tools.

    Attributes:
        held: a line for each server with tools that await approval.
        notes: a line for each override that is impossible or has no effect, and each glob of a group.
        groups: for each group of the configuration, the names of its tools.
    """

    tools: tuple[ToolView, ...]
    absent: tuple[ServerView, ...]
    held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}


class ListingView(msgspec.Struct, frozen=True):
    """One server's lists, with its instructions to models and its capabilities, a JSON object.

    Attributes:
        is_ready: whether it could be asked.
        definitions: its tool objects, whole.
        others: the objects of its other lists, by the member of a page that holds them.
        home: its private home, which its texts may name.
    """

    server: str
    is_ready: bool
    instructions: str
    definitions: tuple[msgspec.Raw, ...]
    others: dict[str, tuple[msgspec.Raw, ...]] = {}
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    home: str = ""


class ListingList(Message, frozen=True, tag="listings"):
    """The answer to `Listings`, in configuration order."""

    listings: tuple[ListingView, ...]


class Decided(Message, frozen=True, tag="decided"):
    """The answer to `Decide`: recorded, and acted upon."""


class Written(Message, frozen=True, tag="written"):
    """The answer to `WriteCalls`."""


class PageLink(Message, frozen=True, tag="page_link"):
    """The answer to `OpenPage`."""

    url: str


class Result(Message, frozen=True, tag="result"):
    """The tool answered the call; `body` is a server's result as it wrote it, a native one's as clients get it."""

    body: msgspec.Raw
    is_error: bool


class Fault(Message, frozen=True, tag="fault"):
    """The call has no result."""

    fault: FaultView


class Restarted(Message, frozen=True, tag="restarted"):
    """The answer to `Restart`, `Wake` and `Sleep`: ready, asleep, or faulted with the reason."""

    server: ServerView


class LogFile(Message, frozen=True, tag="log_file"):
    """The answer to `LogPath`; the file may not exist yet."""

    path: str


class PropertyView(msgspec.Struct, frozen=True):
    """One finding of a receipt; see `Finding`."""

    name: str
    strength: str
    mechanism: str


class LimitView(msgspec.Struct, frozen=True):
    """One limit of a policy: the most that is allowed, the last and the highest measured use, and, for people, what
    enforces it. None for no limit, for use that is not measured, and while nothing runs.
    """

    name: str
    most: float | None
    present: float | None
    peak: float | None
    kept_by: str


class ReceiptView(msgspec.Struct, frozen=True):
    """The observed confinement of a process; see `Receipt` and `ServerStart`."""

    tier: str
    network: str
    uid: int | None
    program: str
    cwd: str
    properties: tuple[PropertyView, ...]
    shown: tuple[str, ...]
    gaps: tuple[str, ...]
    bubblewrap: str = ""


class Inspection(Message, frozen=True, tag="inspection"):
    """The answer to `Inspect`.

    Attributes:
        command: as configured; empty for a server that is no process of ours, whose `policy` is null.
        receipt: what is in force, or was until its process ended; None before the first start.
        last_death: kept while it serves again.
        note: why there is no receipt, empty when there is one.
        cannot_write: the tools that change something, if the server may only read its files.
    """

    server: ServerView
    command: tuple[str, ...]
    policy: msgspec.Raw
    receipt: ReceiptView | None
    limits: tuple[LimitView, ...]
    last_death: FaultView | None
    note: str
    cannot_write: tuple[str, ...] = ()


class Refusal(StrEnum):
    """The reason for a refusal."""

    BAD_REQUEST = "bad_request"
    BUSY = "busy"
    INTERNAL = "internal"
    NO_SUCH_GROUP = "no_such_group"
    NO_SUCH_SERVER = "no_such_server"
    NO_SUCH_TOOL = "no_such_tool"
    NOT_RECORDED = "not_recorded"
    STALE = "stale"


class Refused(Message, frozen=True, tag="refused"):
    """The request cannot be served; `code` is a `Refusal`, of another version perhaps one that we do not know."""

    code: str
    message: str


Answer = (
    ServerList
    | ToolList
    | ListingList
    | Result
    | Fault
    | Restarted
    | LogFile
    | Inspection
    | Decided
    | Written
    | PageLink
    | Refused
)


class BadLineError(ValueError):
    """A line is no message of ours."""


def encode(message: Request | Answer) -> bytes:
    """The message as one line, its newline included."""
    return msgspec.json.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    """Decode a request line. Raise BadLineError if it is none."""
    try:
        request: Request = _requests.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLineError(f"not a valid request: {plain_words(error)}") from None
    return request


def decode_answer(line: bytes) -> Answer:
    """Decode an answer line. Raise BadLineError if it is none."""
    try:
        answer: Answer = _answers.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLineError(f"not a valid answer: {plain_words(error)}") from None
    return answer


_requests: Final = msgspec.json.Decoder(Request)
_answers: Final = msgspec.json.Decoder(Answer)
