"""Map the end of a connection, by what was seen of it, to one fault for each site.  Starts and stops nothing.

The SDK's exceptions arrive in nested groups, without the HTTP status that explains them: all of it is put together
here.  Of a URL only its origin is told: the rest may be a key.
"""

import errno
import socket
import ssl
from collections.abc import Iterator

import httpx2
from mcp.shared.exceptions import MCPError

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.secrets import only_origins, origin_of

from .internet_only import ClosedAddressError
from .recorder import StatusRecorder
from .refusals import code_of_start, page_of, pause_of, scopes_of


def root_cause(error: BaseException) -> BaseException:
    """The first real error in nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def unreachable(url: str, cause: BaseException, recorder: StatusRecorder) -> FaultRecord:
    """A URL that cannot be reached, or where no MCP server answers."""
    origin = origin_of(url)
    if recorder.wants_credentials:
        code, message = "auth_needed", f"{origin} requires login: it answered {recorder.status}"
    elif (refusal := recorder.refusal) is not None:
        code = code_of_start(refusal)
        more = f"{scopes_of(refusal)}{page_of(refusal)}{pause_of(refusal)}" or (
            ": no MCP server there" if code == "connect_failed" else ""
        )
        message = f"{origin} answered {refusal.status}{more}"
    elif isinstance(cause, MCPError):
        code, message = "handshake_failed", f"{origin}: the handshake failed: {_told(cause)}"
    else:
        code, message = "connect_failed", f"{origin} cannot be reached: {_why(cause)}"
    return FaultRecord(FaultKind.TRANSPORT, message, code, Delivery.NOT_SENT, _cause(cause))


def refused_or_closed(url: str, recorder: StatusRecorder) -> FaultRecord:
    """A remote server that refused the session or closed the connection."""
    origin = origin_of(url)
    if not recorder.rejected.is_set():
        return _lost(f"{origin} closed the connection")
    if recorder.wants_credentials:
        return _lost(f"{origin} requires login again: it answered {recorder.status}", "auth_needed")
    message = f"{origin} answered {recorder.status}: the session is over, as after a restart of the server"
    return _lost(message, "session_gone")


def session_gone() -> FaultRecord:
    """A session that somebody else made, and that is closed."""
    return _lost("the session's connection is closed")


def broken(cause: BaseException) -> FaultRecord:
    """A greeted server whose connection raised something."""
    message = f"the connection to the server broke: {_told(cause)}"
    code = "result_too_large" if isinstance(cause, httpx2.SSEError) else "server_lost"
    return FaultRecord(FaultKind.TRANSPORT, message, code, cause=_cause(cause))


def _why(cause: BaseException) -> str:
    """Why no connection came about; a client's exception hides the system's, which says it."""
    for each in _beneath(cause):
        match each:
            case ClosedAddressError():
                return str(each)
            case socket.gaierror():
                return "its name has no address (or this machine cannot ask for it)"
            case ConnectionRefusedError():
                return "nothing listens there: the connection was refused"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not accepted: {each.verify_message}"
            case ssl.SSLError():
                return "it does not speak TLS as https:// needs it"
            case TimeoutError():
                return "it did not answer in time"
            case OSError(errno=errno.ENETUNREACH | errno.EHOSTUNREACH):
                return "this machine has no way to it"
            case _:
                continue
    return _told(cause)


def _beneath(error: BaseException) -> Iterator[BaseException]:
    """The error and all that led to it, each once."""
    waiting, met = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        yield each
        inner = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [one for one in (*inner, each.__context__, each.__cause__) if one is not None]


def _told(cause: BaseException) -> str:
    """What an exception says; HTTP clients write whole URLs into theirs."""
    return only_origins(plain_words(cause)) or type(cause).__name__


def _cause(cause: BaseException) -> RemoteCause:
    return RemoteCause(type(cause).__name__, only_origins(str(cause)))


def _lost(message: str, code: str = "server_lost") -> FaultRecord:
    return FaultRecord(FaultKind.TRANSPORT, message, code)
