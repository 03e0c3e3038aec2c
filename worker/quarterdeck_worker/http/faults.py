"""Faults of a remote server: of a request that HTTP refused or lost, of a start, and of the whole connection.

A request is reported as not sent only where the status says that it was not carried out.  Of a URL only its origin is
told: the rest may be a key.
"""

import errno
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Final

import httpx2

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.mcp.client.events import GreetingFailed
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.secrets import REDACTED, hide_text, only_origins, origin_of

from .bodies import media_type
from .client import wanted_scopes
from .internet_only import ClosedAddressError

ENDS_SESSION: Final = frozenset({"auth_needed", "session_gone"})
"""Faults after which no request of the session has a chance."""

BROKEN: Final = frozenset({"connect_failed", "server_lost"})
"""Faults after which it is to be seen whether the server is there at all."""

PASSING: Final = BROKEN | {"rate_limited", "request_timeout", "server_error", "server_unavailable"}
"""Faults that may be over a little later."""

MAX_PAUSE_S: Final = 300
"""The longest that a server's `Retry-After` keeps us away: it may be wrong, or meant badly."""

MAX_SHOWN_CHARS: Final = 160  # of a web page in a server's place: enough for its title
MAX_SHOWN_SCOPES: Final = 8  # of those that a server wants; each has 256 characters at most
_MARKUP: Final = re.compile(r"(?is)<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)|<[^>]*(?:>|\Z)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is none."""

    status: int
    content_type: str = ""  # of its body, without parameters
    beginning: str = ""  # of a web page, its first words
    pause_s: int | None = None  # for how long the server wants to be left alone; None if it does not say
    # Those for want of which it was, as far as named; None if it was not for that
    wanted_scopes: tuple[str, ...] | None = None
    leads_to: str = ""  # the origin of a redirect that is not followed; empty for none

    @property
    def is_page(self) -> bool:
        """Whether it is for people to read."""
        return self.content_type in _PAGES


_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})

_CODES: Final[Mapping[int, tuple[str, Delivery, str]]] = {
    401: ("auth_needed", Delivery.NOT_SENT, "requires login again"),
    403: ("access_denied", Delivery.NOT_SENT, "denies access"),
    408: ("request_timeout", Delivery.UNKNOWN, "gave up waiting for the request"),
    429: ("rate_limited", Delivery.NOT_SENT, "takes no more requests for now"),
    502: ("server_unavailable", Delivery.UNKNOWN, "is out of reach of the proxy before it"),
    503: ("server_unavailable", Delivery.UNKNOWN, "is not available for now"),
    504: ("server_unavailable", Delivery.UNKNOWN, "did not answer the proxy before it in time"),
}


def refusal_of(response: httpx2.Response) -> Refusal:
    """Return what the head of an answer says."""
    asked = response.headers.get("retry-after") if response.status_code in (429, 503) else None
    pause_s = pause_asked(asked, time.time()) if asked is not None else None
    following = response.next_request
    return Refusal(
        response.status_code,
        media_type(response),
        pause_s=pause_s,
        wanted_scopes=wanted_scopes(response),
        leads_to=origin_of(str(following.url)) if following is not None else "",
    )


def fault_of_refusal(origin: str, refusal: Refusal, *, has_session: bool) -> FaultRecord:
    """Return the fault of a request to a greeted server that was refused so.

    `has_session`: whether a 404 means that the session is over (2025-11-25, "Session Management").
    """
    status = refusal.status
    if status == 404 and has_session:
        code, delivery, what = "session_gone", Delivery.NOT_SENT, "knows the session no more"
    elif refusal.wanted_scopes is not None:
        code, delivery, what = "scope_needed", Delivery.NOT_SENT, f"denies access{_scopes_of(refusal)}"
    elif status in _CODES:
        code, delivery, what = _CODES[status]
    elif status >= 500:
        code, delivery, what = "server_error", Delivery.UNKNOWN, "failed"
    elif status >= 400:
        code, delivery, what = "request_refused", Delivery.NOT_SENT, "refused the request"
    else:
        code, delivery, what = "web_page", Delivery.UNKNOWN, "did not answer in MCP"
    redirect = f" and a redirect to {refusal.leads_to}, which is not followed" if refusal.leads_to else ""
    message = f"{origin} {what}: it answered {status}{redirect}{_page_of(refusal)}{_pause_of(refusal)}"
    return FaultRecord(FaultKind.TOOL_ERROR, message, code, delivery)


def _page_of(refusal: Refusal) -> str:
    if not refusal.is_page:
        return ""
    begins = f" that begins {refusal.beginning!r}" if refusal.beginning else ""
    return f" with a web page ({refusal.content_type}){begins}, as a proxy or a login page does"


def _scopes_of(refusal: Refusal) -> str:
    if refusal.wanted_scopes is None:
        return ""
    named, more = refusal.wanted_scopes[:MAX_SHOWN_SCOPES], len(refusal.wanted_scopes) - MAX_SHOWN_SCOPES
    listed = " ".join(named) + (f" and {more} more" if more > 0 else "")
    return f" for want of the {'scope' if len(named) == 1 else 'scopes'} {listed}" if named else " for want of a scope"


def _pause_of(refusal: Refusal) -> str:
    return "" if refusal.pause_s is None else f"; it asks to be left alone for {refusal.pause_s} s"


def rate_limited(origin: str, left_s: float) -> FaultRecord:
    """The fault of a request that was not sent, since the server asked for a pause."""
    message = f"{origin} asked to be left alone: for another {max(1, round(left_s))} s nothing is sent to it"
    return FaultRecord(FaultKind.TOOL_ERROR, message, "rate_limited", Delivery.NOT_SENT)


def first_words(page: bytes) -> str:
    """The beginning of a page as a person would read it, without secrets, in one line."""
    words = " ".join(_MARKUP.sub(" ", page.decode(errors="replace")).split())
    shown = "".join(each if each.isprintable() else " " for each in words)
    return hide_text(only_origins(shown), lambda _: REDACTED)[:MAX_SHOWN_CHARS]


def pause_asked(value: str, now: float) -> int | None:
    """Return the bounded seconds of a `Retry-After` (RFC 9110 10.2.3), or None; `now` is seconds since 1970."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:9]), MAX_PAUSE_S)
    try:
        date = parsedate_tz(value)
        return None if date is None else max(0, min(round(mktime_tz(date) - now), MAX_PAUSE_S))
    except (ValueError, OverflowError):
        return None


def broken(origin: str, error: Exception) -> FaultRecord:
    """The fault of a request without an answer: no connection came about, or it broke off."""
    never_sent = httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.ProxyError
    why = only_origins(plain_words(error)) or type(error).__name__
    if isinstance(error, never_sent):
        message = f"{origin} cannot be reached: {why}"
        return FaultRecord(FaultKind.TOOL_ERROR, message, "connect_failed", Delivery.NOT_SENT)
    message = f"{origin} broke off before its answer: {why}"
    return FaultRecord(FaultKind.TOOL_ERROR, message, "server_lost", Delivery.UNKNOWN)


def unreachable(
    url: str,
    refusal: Refusal | None,
    error: Exception | None = None,
    failed: GreetingFailed | None = None,
    loss: FaultRecord | None = None,
) -> FaultRecord:
    """Return the fault of a URL that cannot be reached, or where no MCP server answers.

    `refusal` is HTTP's last, `error` of the last request without an answer, `failed` the greeting's outcome, `loss` why
    the connection ended first.
    """
    origin = origin_of(url)
    why = only_origins(failed.message if failed is not None else loss.message if loss is not None else "it ended")
    if refusal is not None and refusal.status == 401:
        code, message = "auth_needed", f"{origin} requires login: it answered 401"
    elif refusal is not None:
        code = _code_of_start(refusal)
        more = f"{_scopes_of(refusal)}{_page_of(refusal)}{_pause_of(refusal)}" or (
            ": no MCP server there" if code == "connect_failed" else ""
        )
        message = f"{origin} answered {refusal.status}{more}"
    elif error is not None:
        code, message = "connect_failed", f"{origin} cannot be reached: {_why(error)}"
    else:
        code, message = "handshake_failed", f"{origin}: the handshake failed: {why}"
    name, words = ("MCPError", why) if error is None else (type(error).__name__, only_origins(str(error)))
    return FaultRecord(FaultKind.TRANSPORT, message, code, Delivery.NOT_SENT, RemoteCause(name, words))


def _code_of_start(refusal: Refusal) -> str:
    if refusal.wanted_scopes is not None:
        return "scope_needed"
    if refusal.status in _CODES:
        return _CODES[refusal.status][0]
    if refusal.status >= 500:
        return "server_error"
    return "web_page" if refusal.is_page and refusal.status < 400 else "connect_failed"


def session_over(url: str, status: int) -> FaultRecord:
    """A greeted server that refused the session."""
    origin = origin_of(url)
    if status == 401:
        return lost(f"{origin} requires login again: it answered 401", "auth_needed")
    return lost(f"{origin} answered {status}: the session is over, as after a restart of the server", "session_gone")


def lost(message: str, code: str = "server_lost") -> FaultRecord:
    """A greeted server that is gone."""
    return FaultRecord(FaultKind.TRANSPORT, message, code)


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
    return only_origins(plain_words(cause)) or type(cause).__name__


def _beneath(error: BaseException) -> Iterator[BaseException]:
    waiting, met = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        yield each
        inner = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [one for one in (*inner, each.__context__, each.__cause__) if one is not None]
