"""What a remote server's HTTP says in place of an MCP answer, as the fault of the request that got it.  Pure.

A request is reported as not sent only where the status says that it was not carried out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Final

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.secrets import REDACTED, hide_text, only_origins

MAX_PAUSE_S: Final = 300
"""The longest that a server's `Retry-After` keeps us away: it may be wrong, or meant badly."""

MAX_SHOWN_CHARS: Final = 160
"""Of a web page in a server's place: enough for its title."""

MAX_SHOWN_SCOPES: Final = 8
"""Of those that a server wants; each has 256 characters at most."""

_MARKUP: Final = re.compile(r"(?is)<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)|<[^>]*(?:>|\Z)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is none.

    Attributes:
        status: HTTP's.
        content_type: what its body says to be, without parameters.
        beginning: of a web page, its first words.
        pause_s: for how long the server wants to be left alone; None where it does not say.
        wanted_scopes: those for want of which it was, as far as they are named; None where it was not for that.
    """

    status: int
    content_type: str = ""
    beginning: str = ""
    pause_s: int | None = None
    wanted_scopes: tuple[str, ...] | None = None

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


def fault_of_refusal(origin: str, refusal: Refusal, *, has_session: bool) -> FaultRecord:
    """The fault of a request that was refused so, of a greeted server.

    Args:
        origin: the server's.
        refusal: what it said.
        has_session: whether a 404 means that the session is over (2025-11-25, "Session Management").
    """
    status = refusal.status
    if status == 404 and has_session:
        code, delivery, what = "session_gone", Delivery.NOT_SENT, "knows the session no more"
    elif refusal.wanted_scopes is not None:
        code, delivery, what = "scope_needed", Delivery.NOT_SENT, f"denies access{scopes_of(refusal)}"
    elif status in _CODES:
        code, delivery, what = _CODES[status]
    elif status >= 500:
        code, delivery, what = "server_error", Delivery.UNKNOWN, "failed"
    elif status >= 400:
        code, delivery, what = "request_refused", Delivery.NOT_SENT, "refused the request"
    else:
        code, delivery, what = "web_page", Delivery.UNKNOWN, "did not answer in MCP"
    message = f"{origin} {what}: it answered {status}{page_of(refusal)}{pause_of(refusal)}"
    return FaultRecord(FaultKind.TOOL_ERROR, message, code, delivery)


def code_of_start(refusal: Refusal) -> str:
    """The code of a start that ended so."""
    if refusal.wanted_scopes is not None:
        return "scope_needed"
    if refusal.status in _CODES:
        return _CODES[refusal.status][0]
    if refusal.status >= 500:
        return "server_error"
    return "web_page" if refusal.is_page and refusal.status < 400 else "connect_failed"


def page_of(refusal: Refusal) -> str:
    """What is to be said of a page, after what the server answered."""
    if not refusal.is_page:
        return ""
    begins = f" that begins {refusal.beginning!r}" if refusal.beginning else ""
    return f" with a web page ({refusal.content_type}){begins}, as a proxy or a login page does"


def scopes_of(refusal: Refusal) -> str:
    """What is to be said of the scopes that are wanting."""
    if refusal.wanted_scopes is None:
        return ""
    named, more = refusal.wanted_scopes[:MAX_SHOWN_SCOPES], len(refusal.wanted_scopes) - MAX_SHOWN_SCOPES
    listed = " ".join(named) + (f" and {more} more" if more > 0 else "")
    return f" for want of the {'scope' if len(named) == 1 else 'scopes'} {listed}" if named else " for want of a scope"


def pause_of(refusal: Refusal) -> str:
    """What is to be said of when to come again."""
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
    """The seconds that a `Retry-After` asks for (RFC 9110 10.2.3), bounded; None for what is not one.

    Args:
        value: a number of seconds, or a date.
        now: seconds since 1970.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:9]), MAX_PAUSE_S)
    try:
        date = parsedate_tz(value)
        return None if date is None else max(0, min(round(mktime_tz(date) - now), MAX_PAUSE_S))
    except (ValueError, OverflowError):
        return None
