"""The one error of Quarterdeck, discriminated by kind and code, and the values that travel with it.

    ProtocolFault          what every caller sees; never subclassed
      .kind      FaultKind     where it happened (six kinds, closed)
      .code      str | None    what happened: a stable string of `REMEDIES`
      .delivery  Delivery      whether the call may have had an effect
      .dossier   Dossier       how the process died, when one did
      .cause     exception here, `RemoteCause` when it crossed a process
      .reply     ReplyError    the server's own JSON-RPC error, when it replied one

Faults are data: they compare by identity, cross the link as a `FaultRecord`, and are raised at the edge.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self, TypeGuard


class FaultKind(StrEnum):
    """The site of a fault.  `TIMEOUT` is any deadline that passed, wherever it was."""

    TRANSPORT = "transport"
    PROTOCOL = "protocol"
    TIMEOUT = "timeout"
    TOOL_ERROR = "tool_error"
    NOT_CONNECTED = "not_connected"
    SPAWN_FAILED = "spawn_failed"


class Delivery(StrEnum):
    """What is known of a call's effect when it ends in a fault.  Only `NOT_SENT` is safe to repeat."""

    ANSWERED = "answered"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"


REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "access_denied": "ask its operator for the permission, or log in as who has it: quarterdeck login SERVER",
        "auth_needed": "quarterdeck login SERVER; for a token got by hand: quarterdeck secret set NAME; in its row "
        '"headers": {"Authorization": "Bearer ${keyring:NAME}"}',
        "bad_arguments": "pass the arguments as one JSON object",
        "bad_cwd": "correct cwd: it must be an existing directory",
        "bad_output": "see quarterdeck logs SERVER, and report it to the server's author",
        "bad_result": "report it to the server's author",
        "busy": "call again when some calls have ended",
        "call_timeout": "raise call_timeout_s, or ask for less",
        "cancelled": "nothing: the client cancelled the call, and the server was notified",
        "capability_held": "approve it: quarterdeck trust approve SERVER --capabilities shows it first",
        "closed": "start it again",
        "command_not_found": "install it, or give its full path in command",
        "config_invalid": "correct the configuration where the message points",
        "connect_failed": "check that the URL is right and that the server runs; from this machine: curl -i URL",
        "crash_loop": "see quarterdeck logs SERVER, then quarterdeck restart SERVER",
        "daemon_lost": "look whether it was done, then call again; the daemon's log may say why it ended",
        "directory_unusable": "make room where the message says, or make it writable: see df -h and df -i",
        "exited": "quarterdeck logs SERVER shows what it wrote last; it is restarted unless it keeps crashing",
        "exited_at_handshake": "see quarterdeck logs SERVER, then run its command by hand; to show it a file that it "
        "lacks: quarterdeck allow SERVER --read PATH",
        "handshake_failed": "see quarterdeck logs SERVER, and check the server's version",
        "handshake_timeout": "see quarterdeck logs SERVER: is it an MCP server, with the arguments that it needs? One "
        "that is slow needs a larger connect_timeout_s",
        "input_required": "pass what the server asks for as an argument, or call it from a client that can be asked",
        "keyring_unusable": "unlock the keyring, then quarterdeck restart SERVER; where there is none: "
        "quarterdeck login SERVER --file",
        "launch_blocked": "unblock it: quarterdeck trust approve SERVER --all",
        "launch_held": "look at it with quarterdeck trust diff SERVER, then quarterdeck trust approve SERVER --all",
        "limit_hit": "raise that limit in the row's sandbox.limits, or ask the server for less",
        "list_timeout": "restart it, see its logs, or raise list_timeout_s",
        "login_failed": "quarterdeck restart SERVER tries again; quarterdeck login SERVER shows each step",
        "login_held": "look at it and approve it: quarterdeck login SERVER",
        "missing_client_secret": "quarterdeck secret set NAME --client CLIENT; without --client it is the owner's",
        "network_failed": "`quarterdeck doctor` says what this machine's sandboxes need for a network",
        "network_lost": "wait: it is restarted unless it keeps crashing",
        "not_connected": "quarterdeck ps says why; quarterdeck restart SERVER tries again",
        "not_executable": "make it executable, or start it through its interpreter",
        "not_granted": "use a token or a group that allows it: quarterdeck token list, and groups in the "
        "configuration, say what each allows",
        "not_mcp": "correct command and args: the program must speak MCP on its stdin and stdout, for which many need "
        "an argument (its documentation says which)",
        "not_offered": "send what a server answers: calls, prompts, resources, completion, tasks",
        "not_resumable": "make the request again without requestState and inputResponses",
        "program_changed": "look at it with quarterdeck trust diff SERVER, then quarterdeck trust approve SERVER --all",
        "prompt_blocked": "unblock it: quarterdeck trust approve SERVER PROMPT",
        "prompt_held": "look at it with quarterdeck trust diff SERVER, then quarterdeck trust approve SERVER PROMPT",
        "protocol_violation": "report this to us with the log",
        "question_held": "if the server may ask that, have its row say 'ask': 'allow'",
        "rate_limited": "call again when the pause that the message names is over, or call less often",
        "reply_error": "correct the arguments as the server's message says: quarterdeck tools --json has its schema",
        "request_refused": "check the row's url and headers, and what is sent; from this machine: curl -i URL",
        "request_timeout": "look whether it was done, then call again; what is sent may be too large for its proxy",
        "resource_blocked": "unblock it: quarterdeck trust approve SERVER URI",
        "resource_held": "look at it with quarterdeck trust diff SERVER, then quarterdeck trust approve SERVER URI",
        "result_too_large": "raise max_result_bytes, or ask for less",
        "sandbox_refused": "change the row as the message says, or what the machine gives: quarterdeck "
        "doctor says what that is",
        "scope_needed": "quarterdeck login SERVER asks for it, too; where the login has it already, or the row sends a "
        "token of its own, ask its operator",
        "seal_changed": "quarterdeck seals verify says which file differs; quarterdeck upgrade SERVER seals its "
        "package anew",
        "seal_failed": "do what the message says, then quarterdeck restart SERVER; to start its package runner "
        'instead: "seal": false in its row',
        "server_error": "look whether it was done, then call again; its operator can see why it failed",
        "server_lost": "wait: it is restarted unless it keeps crashing",
        "server_unavailable": "look whether it was done, then call again in a minute",
        "session_gone": "call again: it is greeted anew, and what its session held is lost",
        "shutting_down": "call again once it runs",
        "spawn_failed": "run the command by hand; if it works, restart the server",
        "task_lost": "call the tool again: what it worked on is gone",
        "too_many_items": "report it to the server's author: its list is too long",
        "too_many_pages": "report it to the server's author: its list of tools does not end",
        "too_many_tools": "report it to the server's author: its list of tools is too long",
        "tool_blocked": "unblock it: quarterdeck trust approve SERVER TOOL",
        "tool_held": "look at it with quarterdeck trust diff SERVER, then quarterdeck trust approve SERVER TOOL",
        "unknown_prompt": "list the prompts again: their server may be away, or offer others now",
        "unknown_resource": "list the resources again: their server may be away, or offer others now",
        "unknown_task": "start it again: it has ended, or its server has",
        "unknown_tool": "quarterdeck tools lists them",
        "unset_variable": "set the variable that the configuration names, or give it a default: ${NAME:-default}",
        "web_page": "open the URL in a browser: a proxy, a login page or a wrong path answers in the server's place",
        "worker_lost": "wait: the worker is restarted unless it keeps crashing",
        "worker_unresponsive": "wait: the worker was killed, and is restarted",
    }
)
"""Every stable code, and what a person can do about it; `quarterdeck explain` has a page for each."""


NOTHING_TO_ADD: Final = "nothing can be added for it"
"""Marks a hidden path that `allow` refuses, too: the message itself contains the remedy."""

_ADDED_BY_ALLOW: Final = re.compile(r'is hidden: add "(?:read|write)": \[(?!.*"grants")')
"""Matches the message of a hidden path that `allow` can add."""

_ADDED_BY_HINT: Final = re.compile(r'add "(?:read|write)": \[')


def find_remedy(code: str | None, message: str = "", hints: Iterable[str] = ()) -> str | None:
    """Return a code's remedy, for any server; None if it has none. All views call this, to show the same fix."""
    if code == "sandbox_refused" and _ADDED_BY_ALLOW.search(message):
        return "quarterdeck allow SERVER gives it what its row names; or change the row's sandbox"
    if code == "exited_at_handshake" and any(map(_ADDED_BY_HINT.search, hints)):
        return (
            "quarterdeck allow SERVER gives it what its row names, and with --read PATH or --write PATH what a hint "
            "names; see quarterdeck logs SERVER"
        )
    return REMEDIES.get(code) if code else None


_SERVER: Final = re.compile(r"(\bquarterdeck (?:[a-z]+ )+)SERVER\b(?! TOOL)")
"""A command in a remedy, which holds for every server."""


_OF_CLIENT: Final = re.compile(r"\bquarterdeck (?:log(?:in|s) SERVER|secret set [\w-]+)(?![\w-]| --client)")
"""A command in a remedy for which each client has something of its own."""


def fill_remedy(remedy: str, words: str, client: str = "") -> str:
    """Fill in a remedy's server: `words` are its id and whatever else a command needs to find it. `client` is whose
    process of it failed; empty for one that is not a single client's.
    """
    if client:
        remedy = _OF_CLIENT.sub(lambda found: f"{found[0]} --client {client}", remedy)
    return _SERVER.sub(lambda found: f"{found[1]}{words}", remedy)


MAX_MESSAGE_CHARS: Final = 8_000
"""Of a fault's message as it crosses: a server's own text may be in it, and a header has its limit."""

MAX_CAUSE_CHARS: Final = 4_000
MAX_REPLY_DATA_BYTES: Final = 64 * 1024
_MAX_REPLY_CODE: Final = 2**53
_INTERNAL_ERROR: Final = -32603

MAX_STDERR_TAIL_CHARS: Final = 32 * 1024


def sayable(text: str, max_chars: int) -> str:
    """`text` cut to `max_chars`, lone surrogates (undecodable file names have them) written as escapes."""
    return text[:max_chars].encode("utf-8", "backslashreplace").decode()[:max_chars]


@dataclass(frozen=True, slots=True)
class RemoteCause:
    """An exception of another process: its type's name and its text, never the object."""

    type_name: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_name", sayable(self.type_name, MAX_CAUSE_CHARS))
        object.__setattr__(self, "message", sayable(self.message, MAX_CAUSE_CHARS))

    @classmethod
    def of(cls, error: object) -> Self:
        """Describe `error`, an exception as a rule."""
        return cls(type(error).__name__, str(error))


@dataclass(frozen=True, slots=True)
class Dossier:
    """What is known about a server that ended.

    Attributes:
        limit: name of the limit that was hit.
        stderr_tail: its last 32 KiB, redacted.
        peak_rss_bytes: the most memory of its control group, file caches included; without one, of its largest process.
        cpu_s: user and system time of the whole tree.
        hints: inferred causes, one sentence each.
        peak_is_sampled: whether more memory may have been used between two samples.
    """

    exit_status: int | None = None
    signal: int | None = None
    limit: str | None = None
    stderr_tail: str = ""
    peak_rss_bytes: int | None = None
    cpu_s: float | None = None
    uptime_s: float | None = None
    hints: tuple[str, ...] = ()
    peak_is_sampled: bool = False

    def __post_init__(self) -> None:
        tail = self.stderr_tail[-MAX_STDERR_TAIL_CHARS:]
        object.__setattr__(self, "stderr_tail", sayable(tail, MAX_STDERR_TAIL_CHARS))


@dataclass(frozen=True, slots=True)
class ReplyError:
    """A server's JSON-RPC error; `data` is any JSON, empty if too long; a `code` beyond parsers becomes -32603."""

    code: int
    message: str
    data: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", self.code if abs(self.code) <= _MAX_REPLY_CODE else _INTERNAL_ERROR)
        object.__setattr__(self, "message", sayable(self.message, MAX_CAUSE_CHARS))
        object.__setattr__(self, "data", self.data if len(self.data) <= MAX_REPLY_DATA_BYTES else b"")


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A fault as it crosses the link; always small and clean enough for a header.  For `denied` see `WireResult`."""

    kind: FaultKind
    message: str
    code: str | None = None
    delivery: Delivery = Delivery.UNKNOWN
    cause: RemoteCause | None = None
    dossier: Dossier | None = None
    reply: ReplyError | None = None
    denied: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", sayable(self.message, MAX_MESSAGE_CHARS))


class ProtocolFault(Exception):  # noqa: N818 - the seeds' name
    """The one error of the bridge; branch on `.kind`, then on `.code`, never on the text.

    `str()` is the message alone; `__cause__` is set if the cause is an exception of this process.
    """

    def __init__(
        self,
        kind: FaultKind | str,
        message: str,
        cause: object = None,
        *,
        code: str | None = None,
        delivery: Delivery = Delivery.UNKNOWN,
        dossier: Dossier | None = None,
        remedy: str | None = None,
        reply: ReplyError | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = FaultKind(kind)
        self.message = message
        self.cause = cause
        self.code = code
        self.delivery = delivery
        self.dossier = dossier
        self.reply = reply
        self.server: str | None = None
        """The `words` of `fill_remedy`, set by whoever knows whose fault it is."""
        self.client = ""
        """The `client` of `fill_remedy`, likewise."""
        self.denied = ""
        """`read` or `write` and the path, or `network` and the host, that the call lacked; empty for none."""
        self._remedy = remedy
        if isinstance(cause, BaseException):
            self.__cause__ = cause

    @property
    def remedy(self) -> str | None:
        """What a person can do about it: its own, or else what `REMEDIES` says of its code, for its server."""
        return self.remedy_for(self.server, self.client)

    def remedy_for(self, server: str | None, client: str = "") -> str | None:
        """Return the remedy for this server and client (see `fill_remedy`), or with None for any server.

        A failed server's requests get the remedy of its failure, word for word as `ps` shows it.
        """
        if self._remedy is None and self.code == "not_connected" and isinstance(self.cause, ProtocolFault):
            return self.cause.remedy_for(server, client)
        hints = self.dossier.hints if self.dossier is not None else ()
        remedy = self._remedy or find_remedy(self.code, self.message, hints)
        return fill_remedy(remedy, server, client) if remedy and server else remedy

    @classmethod
    def not_sent(cls, kind: FaultKind, message: str, code: str, cause: object = None) -> Self:
        """The fault of a call or a start of which nothing has left: safe to repeat."""
        return cls(kind, message, cause, code=code, delivery=Delivery.NOT_SENT)

    @classmethod
    def from_record(cls, record: FaultRecord, remedy: str | None = None) -> Self:
        """The fault that `record` describes; without `remedy` it has its code's."""
        fault = cls(
            record.kind,
            record.message,
            record.cause,
            code=record.code,
            delivery=record.delivery,
            dossier=record.dossier,
            remedy=remedy,
            reply=record.reply,
        )
        fault.denied = record.denied
        return fault


def protocol_fault(kind: FaultKind | str, message: str, cause: object = None) -> ProtocolFault:
    """Make a fault of `kind`, tersely; raises `ValueError` if `kind` is none of the six."""
    return ProtocolFault(kind, message, cause)


def is_protocol_fault(value: object) -> TypeGuard[ProtocolFault]:
    """Whether `value` is a fault of the bridge."""
    return isinstance(value, ProtocolFault)
