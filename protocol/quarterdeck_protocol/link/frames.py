"""Every message between supervisor and worker: frozen tagged structs, one union; `frame_bytes` has how they travel.

A frame is a msgpack array `[tag, fields…]`; JSON travels beside it as an opaque body.  Nothing here is ever a
msgpack extension, a timestamp or a pickled object: the union's types admit none.
"""

from typing import Final, Literal

import msgspec

from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.policy_values import PolicyValues

LINK_VERSION: Final = 7
"""Both ends must say the same; they come from one wheel, so a difference means a half-done upgrade."""


CLOSE_GRACE_S: Final = 2.0
"""Each of the three steps of a stop: stdin closed, TERM, KILL."""

MAX_BEARER_BYTES: Final = 16 * 1024
"""An access token: proxies and servers take some 8 to 16 KiB of headers (nginx, Apache, uvicorn)."""

MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
"""One line of a server, so one result, where its row says nothing; more ends the server with `result_too_large`."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The base of all frames."""


# The link's own.


class Hello(_Frame, frozen=True, tag=1):
    """A worker's first frame: proves itself with the one-time token that it was spawned with."""

    link_version: int
    package_version: str
    token: bytes
    pid: int


class Welcome(_Frame, frozen=True, tag=2):
    """The answer to a good Hello; frames may flow."""

    package_version: str


class Beat(_Frame, frozen=True, tag=3):
    """A sign of life, sent when nothing else was."""


class Credit(_Frame, frozen=True, tag=4):
    """The peer may send this many more units (see `link.units`)."""

    units: int


# Requests, supervisor to worker.  `timeout_s` counts from the frame's arrival.


class Open(_Frame, frozen=True, tag=10):
    """Start and greet the server.  Body: `OpenOrder` as JSON.  Answered with `ServerCard` as JSON."""

    request_id: int
    timeout_s: float


ListKind = Literal["tools", "prompts", "resources", "resourceTemplates"]
"""The values of `Listing`: a decoder takes no others."""


class List(_Frame, frozen=True, tag=11):
    """Take one of the server's lists, all pages.  Answered with a JSON array of its items."""

    request_id: int
    timeout_s: float
    kind: ListKind = "tools"


class Call(_Frame, frozen=True, tag=12):
    """Run one tool. Body: the arguments, one JSON object, untouched. Answered with the result's JSON object.

    `meta` is the caller's own `_meta` (JSON object without envelope keys), empty for none. For a server of 2026-07-28
    alone, else empty: `capabilities`, what the caller can be asked (JSON object), and `log_level`, the lowest it wants.
    """

    request_id: int
    timeout_s: float
    tool: str
    progress: bool = False
    meta: bytes = b""
    capabilities: bytes = b""
    log_level: str = ""


class Forward(_Frame, frozen=True, tag=16):
    """Pass any request on, as a `Call` is.  Body: its params without `_meta`, one JSON object."""

    request_id: int
    timeout_s: float
    method: str
    progress: bool = False
    meta: bytes = b""
    capabilities: bytes = b""
    log_level: str = ""


class Close(_Frame, frozen=True, tag=13):
    """Stop the server in the given time and answer with its `Dossier` as JSON; the worker exits afterwards."""

    request_id: int
    timeout_s: float


class Cancel(_Frame, frozen=True, tag=14):
    """Cancel a request; the server is told.  The worker still answers it, once."""

    request_id: int
    reason: str = ""


class Condemn(_Frame, frozen=True, tag=15):
    """The tree exceeded `limit` (`memory_bytes`): kill it all; `detail` is for people. Unanswered; a loss follows."""

    limit: str
    detail: str


class AskAnswer(_Frame, frozen=True, tag=17):
    """Answer a request of the server's, `Asked` by this id; harmless when it has ended.  Unanswered.

    Body: the result, one JSON object; with a `code`, the data of an error, any JSON, empty for none.
    """

    ask_id: int
    code: int = 0
    message: str = ""


class Tell(_Frame, frozen=True, tag=18):
    """Pass a notification on to the server.  Body: its params, one JSON object, empty for none.  Unanswered."""

    method: str


class Listen(_Frame, frozen=True, tag=19):
    """Have a server of 2026-07-28 tell when these resources, a JSON array of URIs, change. Unanswered."""


class Authorize(_Frame, frozen=True, tag=32):
    """Use another access token from now on.  Body: the token; empty where there is none.  Unanswered."""


# Replies and news, worker to supervisor.


class Answer(_Frame, frozen=True, tag=20):
    """A request's good end.  Body: what the request's docstring says.

    `era` and `result_type` are a result's envelope: the server's protocol revision and `resultType`; for `denied` see
    `WireResult`.
    """

    request_id: int
    era: str = ""
    result_type: str = "complete"
    is_error: bool = False
    denied: str = ""


class Failed(_Frame, frozen=True, tag=21):
    """A request's bad end.  `delivery` `not_sent` only when no byte of it was written to the server."""

    request_id: int
    fault: FaultRecord


class Progress(_Frame, frozen=True, tag=22):
    """How far a call is."""

    request_id: int
    progress: float
    total: float | None = None
    message: str | None = None


class Log(_Frame, frozen=True, tag=23):
    """A log line of the server (`notifications/message`).  Body: its data, any JSON; what is too long is cut."""

    level: str
    logger: str


class ListChanged(_Frame, frozen=True, tag=24):
    """A list of the server's is different now; `resources` stands for its templates, too."""

    kind: Literal["tools", "prompts", "resources"] = "tools"


class Lost(_Frame, frozen=True, tag=25):
    """The server is gone, unasked.  The worker exits afterwards."""

    fault: FaultRecord


class Started(_Frame, frozen=True, tag=26):
    """The server's process runs, and is not greeted yet.  Body: `ServerStart` as JSON; at most once."""


class Asked(_Frame, frozen=True, tag=27):
    """The server asks for something, and waits for an `AskAnswer`.  Body: the params, one JSON object."""

    ask_id: int
    method: str


class AskEnded(_Frame, frozen=True, tag=28):
    """What the server asked needs no answer any more: it gave that up, or was refused because nobody answered."""

    ask_id: int


class Note(_Frame, frozen=True, tag=29):
    """Another notification of the server's.  Body: its params, one JSON object, empty for none."""

    method: str


class Updated(_Frame, frozen=True, tag=30):
    """A resource that was subscribed, or one below it, is different now."""

    uri: str


class Listening(_Frame, frozen=True, tag=31):
    """The server has taken up a `Listen` that named so many URIs; of a remote one, it was told of it."""

    count: int


class Unauthorized(_Frame, frozen=True, tag=33):
    """A remote server refused the access token. Answered with `Authorize`.

    `scopes` are missing from a token that is good, and may be unnamed; None if the token is good for nothing.
    """

    scopes: tuple[str, ...] | None = None


class Quarantined(_Frame, frozen=True, tag=34):
    """A file that the server created for other programs to run or obey, at `path`, and that the worker took away.

    `kept` is its present path; empty if the worker could not move it, for the reason `why`.
    """

    path: str
    kept: str
    why: str = ""


class Hinted(_Frame, frozen=True, tag=35):
    """The server could not use a path or a host: the line that its caller got, or why a listed host failed."""

    hint: str


Request = Open | List | Call | Forward | Close
Reply = Answer | Failed
Told = Condemn | AskAnswer | Tell | Listen | Authorize
"""What a worker is told, without a reply."""
_OfServer = Lost | Started | Asked | AskEnded | Unauthorized | Quarantined | Hinted
News = Progress | Log | ListChanged | Note | Updated | Listening | _OfServer
Frame = Hello | Welcome | Beat | Credit | Request | Cancel | Told | Reply | News


# Bodies.


class StdioServer(msgspec.Struct, frozen=True, tag="stdio"):
    """A server that is a child process; see `StdioServerConfig`, which was judged by then."""

    command: str = ""
    args: tuple[str, ...] = ()
    cwd: str | None = None
    sandbox: PolicyValues = PolicyValues()


class RemoteServer(msgspec.Struct, frozen=True, tag="remote"):
    """A server behind a URL; its proxy and certificate files are empty if unset.

    Attributes:
        headers: sent to that URL's origin only.
        transports: tried in this order.
        bearer: the access token of our login there, sent as a header likewise; empty without one.
        client_key: key of `client_cert`, if in another file.
        internet_only: whether connections go only to addresses of the internet.
    """

    url: str
    headers: dict[str, str] = {}
    transports: tuple[Literal["streamable_http", "sse"], ...] = ("streamable_http",)
    bearer: str = ""
    proxy: str = ""
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    internet_only: bool = False


class OpenOrder(msgspec.Struct, frozen=True):
    """What a worker needs to start a server.

    Attributes:
        server: started, or connected to; the default for a session that others made.
        protocol: the only protocol revision to speak; None for the legacy one, if the server speaks it.
        env: the whole environment of a stdio server, ready to use.
        home, tmp: its private directories, which exist; it runs in `home` if `cwd` is absent.
        log_path: where its stderr is kept; empty for nowhere.
        private: our own state and runtime directories, which no server may see.
        protected: files and folders that no server may write: the user's word.
        user_home, user_env: of the user who runs us: where tools and granted things are.
        allow_unsandboxed: start it even if nothing but limits can be enforced.
        open_port: of this machine's loopback, where we serve without a token, so that it must not be reached; 0 while
            not known yet, None for no such port.
        secrets: what no fault, log or record may repeat.
        prepared: its confinement, the sandbox's `Prepared` as JSON; empty if its worker must lay that out.
        quarantine: the folder for files that it must not create; empty to look for none.
        capabilities: what its callers can be asked, one JSON object; a server of 2026-07-28 uses it for lists alone.
        newer_first: choose the modern era if the process speaks both.
        allow: begins the command that grants the server a path; empty if it has no row.
    """

    server: StdioServer | RemoteServer = StdioServer()
    protocol: str | None = None
    max_result_bytes: int = MAX_RESULT_BYTES
    env: dict[str, str] = {}
    home: str = ""
    log_path: str = ""
    tmp: str = ""
    private: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    user_home: str = ""
    user_env: dict[str, str] = {}
    allow_unsandboxed: bool = False
    open_port: int | None = None
    secrets: tuple[str, ...] = ()
    prepared: str = ""
    capabilities: str = "{}"
    server_id: str = ""
    quarantine: str = ""
    newer_first: bool = False
    allow: str = ""


MAX_START_BYTES: Final = 64 * 1024
"""A `ServerStart` as JSON; a receipt has some ten findings, and a line for each path that was opened."""


class ServerStart(msgspec.Struct, frozen=True):
    """A confined server that runs, for its supervisor to watch and show; process ids are those outside.

    Attributes:
        tree_pid: the topmost process of its tree, ours among them (a bubblewrap, a reaper): where a scan begins.
        root_pid: one whose `/proc/PID/root` is the root that the program sees; 0 if that is the machine's.
        program: the resolved path of what was executed.
        scratch: directories outside whose files count as its scratch space.
        tmpfs: mount points below that root which hold its temporary files in memory.
        enforced: names of limits that the kernel itself holds on the whole tree.
        receipt: the `Receipt` as JSON; a start with any of its `gaps` is announced.
        changed: a path that was no longer as `OpenOrder.prepared` has it; empty for none.
    """

    pid: int
    tree_pid: int
    root_pid: int = 0
    program: str = ""
    cwd: str = ""
    scratch: tuple[str, ...] = ()
    tmpfs: tuple[str, ...] = ()
    enforced: tuple[str, ...] = ()
    receipt: str = "{}"
    gaps: tuple[str, ...] = ()
    changed: str = ""


class ServerCard(msgspec.Struct, frozen=True):
    """What a greeted server said of itself.

    Attributes:
        era: the protocol revision agreed.
        pid: None for a remote one.
        name, version, title: for people only.
        announces: the lists whose changes it reports: "tools", "prompts", "resources".
        capabilities, info: as sent, each one JSON object; `info` is its `serverInfo`, with icons and whatever else.
    """

    era: str
    pid: int | None = None
    name: str = ""
    version: str = ""
    instructions: str = ""
    announces: tuple[str, ...] = ()
    title: str = ""
    capabilities: bytes = b"{}"
    info: bytes = b"{}"
