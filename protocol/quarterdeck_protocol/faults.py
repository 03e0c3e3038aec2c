"""The one discriminated error of Quarterdeck, and the values that travel with it.

    ProtocolFault          what every caller sees; never subclassed
      .kind      FaultKind     where it happened (six kinds, closed)
      .code      str | None    what happened: a stable string of `REMEDIES`
      .delivery  Delivery      whether the call may have had an effect
      .dossier   Dossier       how the process died, when one did
      .cause     exception here, `RemoteCause` when it crossed a process

Faults are data: they compare by identity, cross the link as a `FaultRecord`, and are raised at the edge.
Nothing here knows why a fault is raised; that is the caller's.
"""

from collections.abc import Mapping
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
        "auth_needed": "the server asks for credentials: name them in the configuration's headers",
        "bad_arguments": "the arguments are not one JSON object: correct them",
        "bad_cwd": "the working directory is missing or no directory: correct cwd",
        "bad_output": "the server wrote something that is no MCP message: see its logs, report it to its author",
        "bad_result": "the server's answer is no tool result: report it to its author",
        "busy": "more calls wait than the worker may hold: call again when some have ended",
        "call_timeout": "the server did not answer in time: raise call_timeout_s, or ask for less",
        "cancelled": "the caller gave up waiting",
        "closed": "the server was closed: start it again",
        "command_not_found": "the command is not on the server's PATH: install it, or give its full path",
        "config_invalid": "correct the configuration where the message points",
        "connect_failed": "the URL cannot be reached: check that it is right and that the server runs",
        "crash_loop": "the server keeps dying and is left alone: see its logs, then restart it by hand",
        "exited": "the server's process ended: see its logs and the dossier",
        "exited_at_handshake": "the server ended before it answered: run its command by hand and see its logs",
        "handshake_failed": "the server refused the handshake: see its logs, check its version",
        "handshake_timeout": "see its logs: is it an MCP server? One that is slow needs a larger connect_timeout_s",
        "input_required": "the server asks its user something that nobody here can answer: give it as an argument",
        "launch_held": "a person has to approve how the server is started: see the message",
        "limit_hit": "the server hit a limit of its sandbox: see the dossier, raise that limit or ask for less",
        "list_timeout": "the server did not list its tools in time: restart it, or see its logs",
        "network_failed": "the sandbox's network could not be made: see the message, and `quarterdeck doctor`",
        "network_lost": "what carries the sandbox's network ended: the server is started again unless it keeps dying",
        "not_connected": "the server is not ready: see its phase and fault",
        "not_executable": "the command may not be executed: make it executable, or start it through its interpreter",
        "protocol_violation": "the worker broke the link's rules and was killed: report this with the logs",
        "reply_error": "the server refused the call: see its message",
        "result_too_large": "the result exceeds max_result_bytes: raise it, or ask for less",
        "sandbox_refused": "the sandbox cannot give what the policy requires: see the message",
        "server_lost": "the connection to the server is gone: it is started again unless it keeps dying",
        "spawn_failed": "the process could not be started: see the message",
        "too_many_pages": "the server's tool list does not end: report it to its author",
        "too_many_tools": "the server lists more tools than the limit: report it to its author",
        "tool_held": "a person has to approve the tool: see the message",
        "unknown_tool": "no tool has this name: list the tools",
        "unset_variable": "set the variable that the configuration names, or give it a default: ${NAME:-default}",
        "worker_lost": "the worker process ended: it is started again unless it keeps dying",
        "worker_unresponsive": "the worker missed its heartbeats and was killed: it is started again",
    }
)
"""Every stable code, and what a person can do about it."""


MAX_MESSAGE_CHARS: Final = 8_000
"""A fault's message as it crosses; a server's own text may be in it, and a header has its limit."""

MAX_CAUSE_CHARS: Final = 4_000
"""A cause's text as it crosses."""

MAX_STDERR_TAIL_CHARS: Final = 32 * 1024
"""The end of stderr that a dossier keeps."""


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
    """What is known about a death.

    Attributes:
        exit_status: the exit status, None when a signal ended it.
        signal: the signal's number, None when it exited.
        limit: name of the limit that was hit.
        stderr_tail: the last 32 KiB of stderr, redacted.
        peak_rss_bytes: largest resident memory seen of the process tree.
        cpu_s: user and system time of the tree, seconds.
        uptime_s: from start to death, seconds.
        hints: inferred causes, one sentence each.

    A longer tail is cut at its beginning.
    """

    exit_status: int | None = None
    signal: int | None = None
    limit: str | None = None
    stderr_tail: str = ""
    peak_rss_bytes: int | None = None
    cpu_s: float | None = None
    uptime_s: float | None = None
    hints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        tail = self.stderr_tail[-MAX_STDERR_TAIL_CHARS:]
        object.__setattr__(self, "stderr_tail", sayable(tail, MAX_STDERR_TAIL_CHARS))


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A fault as it crosses the link; always small and clean enough for a header."""

    kind: FaultKind
    message: str
    code: str | None = None
    delivery: Delivery = Delivery.UNKNOWN
    cause: RemoteCause | None = None
    dossier: Dossier | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", sayable(self.message, MAX_MESSAGE_CHARS))


class ProtocolFault(Exception):  # noqa: N818 - the seeds' name
    """The one error of the bridge; branch on `.kind`, then on `.code`, never on the text.

    `str()` is the message alone.  `__cause__` is set when the cause is an exception of this process.
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
    ) -> None:
        super().__init__(message)
        self.kind = FaultKind(kind)
        self.message = message
        self.cause = cause
        self.code = code
        self.delivery = delivery
        self.dossier = dossier
        if isinstance(cause, BaseException):
            self.__cause__ = cause

    @property
    def remedy(self) -> str | None:
        """What a person can do about it, from `REMEDIES`."""
        return REMEDIES.get(self.code) if self.code else None

    def to_record(self) -> FaultRecord:
        """The fault as a value that can cross the link."""
        cause = self.cause
        if cause is not None and not isinstance(cause, RemoteCause):
            cause = RemoteCause.of(cause)
        return FaultRecord(
            kind=self.kind,
            message=self.message,
            code=self.code,
            delivery=self.delivery,
            cause=cause,
            dossier=self.dossier,
        )

    @classmethod
    def from_record(cls, record: FaultRecord) -> Self:
        """The fault that `record` describes."""
        return cls(
            record.kind,
            record.message,
            record.cause,
            code=record.code,
            delivery=record.delivery,
            dossier=record.dossier,
        )


def protocol_fault(kind: FaultKind | str, message: str, cause: object = None) -> ProtocolFault:
    """A fault of `kind`, tersely.

    Raises:
        ValueError: `kind` is none of the six.
    """
    return ProtocolFault(kind, message, cause)


def is_protocol_fault(value: object) -> TypeGuard[ProtocolFault]:
    """Whether `value` is a fault of the bridge."""
    return isinstance(value, ProtocolFault)
