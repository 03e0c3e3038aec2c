"""What a door and the daemon say to one another.  Pure.

    door → daemon      a length (4 bytes, big-endian), then one `Handover` as msgpack; with its first byte the
                       descriptors of the client's stdin, stdout and stderr, of the session's memory, and of the
                       listening HTTP socket, if the door holds one
    command → daemon   likewise an `Ask`, with at most one descriptor: such a socket; the answer is one frame, which
                       follows a `HOLD` if the daemon is to be replaced and listens on HTTP
    door → daemon      `TOLD_TO_END`, once: its client, or a person, wants the door to end
    daemon → door      frames: a kind (1 byte), a length (4 bytes, big-endian), so many bytes of UTF-8; a `HOLD` may
                       bring a descriptor with its first byte

The end of the stream is the death of the other side.  What waits in a door is `wait.py`, which knows the frames only.
"""

from enum import StrEnum
from typing import Final

import msgspec

from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.tool_names import DEFAULT_LIMIT
from quarterdeck.config.load.trouble import Trouble

PROTOCOL: Final = 4
"""The version of the doors' protocol, part of the socket's name, so that a door never meets a daemon of another
version.

Raise it with every field that narrows what a client is served: an older daemon would ignore it, and serve everything.
"""

MAX_HANDOVER_BYTES: Final = 4 * 1024 * 1024
"""An environment has at most 2 MiB on Linux, with 128 KiB for each variable."""

DESCRIPTORS: Final = 4
"""Descriptors in a handover: stdin, stdout, stderr, memory; a held HTTP socket comes in addition."""

ACCEPTED: Final = b"A"
"""The client is served from here on; the text is the daemon's version."""

REFUSED: Final = b"R"
"""The client is not taken, and has not been told so; the text says why."""

LOG: Final = b"L"
"""The text belongs on the door's stderr."""

END: Final = b"E"
"""The door has to end, with the exit code that the text is."""

HOLD: Final = b"H"
"""Keep the frame's descriptor, the daemon's listening HTTP socket, for the next daemon, instead of an earlier one;
without a descriptor, keep no socket.
"""

TOLD_TO_END: Final = b"T"

ANSWER: Final = b"S"
"""The text answers an `Ask`: a `DaemonStatus` as JSON."""

HEAD_BYTES: Final = 5
"""Bytes of a frame's kind and length."""

MAX_TEXT_BYTES: Final = 1024 * 1024


class NativeRequest(msgspec.Struct, frozen=True):
    """The native tools that a `serve` is asked for; directories are absolute.  `tools`: None for all of the profile."""

    profile: str
    workspace: str
    allow_dirs: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The one server of a `run`: the words of its command line, a row's `sandbox` as JSON with absolute paths, its
    `TrustMode`, variables with their values, and names of variables of the client's environment.
    """

    words: tuple[str, ...]
    sandbox: str = "{}"
    trust: str = "baseline"
    env: dict[str, str] = {}
    inherit_env: tuple[str, ...] = ()


class ServeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a `serve` or a `run` on stdio asks for; paths are absolute.

    Attributes:
        cwd: where unnamed files are looked for, and where a command runs that may see it.
        command: of a `run`, instead of files.
        config: the named files.
        name_budget: characters of a tool's name; None to leave names unchanged. The default is that of a `serve`
            without options, so that an HTTP client shares its deck.
        settle_s: how long the first list waits; None for the default.
        lock_file: offer only what this `deck.lock` names, and end with anything else.
        groups: the groups that this client sees, together; empty for everything.
        search: show this client two tools that find and call the others, instead of them.
        user: whose processes it uses of servers that each client has for itself; empty for the owner's.
    """

    cwd: str
    command: CommandRequest | None = None
    config: tuple[str, ...] = ()
    native: NativeRequest | None = None
    name_budget: int | None = DEFAULT_LIMIT
    settle_s: float | None = None
    lock_file: str | None = None
    portable_schemas: bool = False
    allow_unsandboxed: bool = False
    groups: tuple[str, ...] = ()
    search: bool = False
    user: str = ""

    @property
    def of_deck(self) -> "ServeRequest":
        """The request for the deck alone, without the client's own choice of groups and search, and its user."""
        return msgspec.structs.replace(self, groups=(), search=False, user="")


class Handover(msgspec.Struct, frozen=True, tag="handover"):
    """A client's streams, given to the daemon, with the door's version, pid and environment.

    Attributes:
        key: the line of the file next to the socket, which only its user can read.
        log_level: of the least severe lines that the door wants, as in `logging`.
        log_is_json: whether it wants them as JSON.
        is_resumed: whether another daemon served this session before, and died.
        holds_listener: whether an earlier daemon's listening HTTP socket comes with it.
    """

    key: str
    version: str
    pid: int
    request: ServeRequest
    environ: dict[bytes, bytes]
    log_level: int
    log_is_json: bool
    is_resumed: bool = False
    holds_listener: bool = False


class Order(StrEnum):
    """A command's order to the daemon."""

    STATUS = "status"
    STAY = "stay"
    """End only when told to."""
    END = "end"
    REPLACE = "replace"
    """End, and leave the doors waiting: they go through the next daemon."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A command's order; every answer is the daemon's status. `http` asks it to listen there first, `metrics` to serve
    metrics at this address, if any. `holds_listener` says that the previous daemon's listening HTTP socket comes with
    the order.
    """

    key: str
    version: str
    order: Order
    http: HttpWish | None = None
    holds_listener: bool = False
    metrics: str = ""


class ClientStatus(msgspec.Struct, frozen=True):
    """One connected client; it came at `since` (ISO 8601, UTC).

    Attributes:
        name: as it introduced itself, empty before it did; so is `version`.
        pid: of its door; 0 over HTTP, and where the system does not tell.
        deck: the key of its deck, empty while that is being opened.
        token: the name of its token over HTTP; empty for a door.
        waiting: those of its `calls` that await their turn at a server.
        rate: its requests of the last minute.
        refused: its requests that met a bound of a connection.
        own_servers: the ids of its session's own servers.
    """

    name: str
    version: str
    pid: int
    deck: str
    cwd: str
    calls: int
    since: str
    token: str = ""
    waiting: int = 0
    rate: int = 0
    refused: int = 0
    own_servers: tuple[str, ...] = ()


class ServerStatus(msgspec.Struct, frozen=True):
    """The calls of one server of a deck, or of several decks that share it: those that it has, and those that wait.

    Attributes:
        deck: the key of a deck that has it.
        refused: how often each limit refused a call; only limits that did.
        waits: the calls that wait for more than some seconds, with the reasons, for people; empty if there are none.
        awake: what keeps it from falling asleep in this deck; empty while it does not run.
    """

    id: str
    deck: str
    calls: int
    waiting: int
    refused: dict[str, int]
    waits: str = ""
    awake: tuple[str, ...] = ()


class DeckStatus(msgspec.Struct, frozen=True):
    """One deck, opened at `since` (ISO 8601, UTC), with the files of its configuration.

    Attributes:
        ready: how many of its `servers` are ready, or asleep until they are called.
        native: the profile of its native tools; empty without any.
        command: the id of the one server of a `run`, which has no files; empty for a configuration.
        name: of its configuration, see `deck_names`; empty for none.
        problem: why it serves no client now: servers offer what its lock does not name; empty otherwise.
        troubles: the unusable parts of its configuration.
    """

    key: str
    files: tuple[str, ...]
    native: str
    servers: int
    ready: int
    since: str
    command: str = ""
    name: str = ""
    problem: str = ""
    troubles: tuple[Trouble, ...] = ()


class HttpStatus(msgspec.Struct, frozen=True):
    """The daemon on HTTP; the bounds `max_requests` and `max_held_bytes` apply before shares count.

    Attributes:
        url: of the deck of the user's own configuration; empty while it does not listen.
        problem: why it does not listen as requested, with a remedy; both empty without one.
        held_bytes: of large requests and of unread answers.
        wish: has another daemon listen at the same place.
        refused: how often each limit refused a client, by `LIMIT (token NAME)`.
    """

    url: str = ""
    problem: str = ""
    remedy: str = ""
    requests: int = 0
    max_requests: int = 0
    held_bytes: int = 0
    max_held_bytes: int = 0
    wish: HttpWish | None = None
    refused: dict[str, int] = {}


class DaemonStatus(msgspec.Struct, frozen=True):
    """The daemon, its clients and what runs. `stays`: it ends only when told to. `http` is None if it was never
    requested. `doors` counts connections, of `max_doors`; `refused_doors` were too many. `drain_s`: how long
    calls under way may take once it is told to end. `metrics` is where they are
    served without a token, and `metrics_problem` why they are not. `refusal` is why it serves nobody, and ends.
    """

    pid: int
    version: str
    since: str
    stays: bool
    clients: tuple[ClientStatus, ...] = ()
    decks: tuple[DeckStatus, ...] = ()
    http: HttpStatus | None = None
    servers: tuple[ServerStatus, ...] = ()
    doors: int = 0
    max_doors: int = 0
    refused_doors: int = 0
    drain_s: float = 0.0
    metrics: str = ""
    metrics_problem: str = ""
    refusal: str = ""


class BadHandoverError(ValueError):
    """Bytes from a door are no handover."""


def encode_request(handover: Handover | Ask) -> bytes:
    """Return a request behind its length. Raise BadHandoverError if it is too large, or a path in it is not UTF-8."""
    try:
        body = msgspec.msgpack.encode(handover)
    except UnicodeEncodeError as error:
        raise BadHandoverError("a path is not UTF-8") from error
    if len(body) > MAX_HANDOVER_BYTES:
        raise BadHandoverError(f"the environment is too large: {len(body):,} of {MAX_HANDOVER_BYTES:,} bytes")
    return len(body).to_bytes(4) + body


def decode_request(body: bytes) -> Handover | Ask:
    """Decode a request without its length. Raise BadHandoverError if it is none."""
    try:
        request: Handover | Ask = _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadHandoverError(str(error)) from None
    return request


def frame(kind: bytes, text: str) -> bytes:
    """Return one frame; a text that is too long is cut."""
    data = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    return kind + len(data).to_bytes(4) + data


_requests: Final = msgspec.msgpack.Decoder(Handover | Ask)
