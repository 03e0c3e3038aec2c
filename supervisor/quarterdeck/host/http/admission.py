"""Whether an HTTP request may reach the protocol, from its head alone: path, Host, Origin, token.  Pure.

A page of any web site can send requests to loopback, under a name of its own (DNS rebinding) or across origins, and
every program of the machine can connect.  So every value is read whole and compared whole, never by its beginning, and
a header that is given twice never counts by its first.
"""

import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import Final

import msgspec

from quarterdeck_protocol.tools import ANONYMOUS, Client

PATH: Final = "/mcp"
"""Where clients connect; which deck that is, their tokens say."""

DECKS_PATH: Final = "/decks/"
"""Before the name of a deck, and `PATH` behind it: where clients connect that name their deck."""

HEALTH_PATH: Final = "/healthz"
"""Where anybody may ask whether the server lives; it says nothing else."""

METRICS_PATH: Final = "/metrics"
"""For Prometheus, with a token of the scope `metrics`: the file that a scraper has it in must open no tool."""

READY_PATH: Final = "/readyz"
"""Where anybody may ask whether requests can be served; see `readiness`."""

Header = tuple[bytes, bytes]
"""A name in lower case, and a value as it was sent."""

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")

_NAME: Final = re.compile(r"[a-z0-9_.-]{1,253}")
_PLACE: Final = re.compile(r"(?:/decks/([a-z0-9-]{1,64}))?/mcp(?:/([A-Za-z0-9][A-Za-z0-9_-]{0,63}))?/?")
"""A deck where many are served, and a group where less than all is shown."""

SEARCH: Final = "search"
"""In the query of a URL: whoever comes by it is shown two tools that find and call the others."""

_OFF: Final = frozenset({"false", "0"})

_PORT: Final = re.compile(r"[0-9]{1,5}")
_ORIGIN: Final = re.compile(r"https?://([^/?#@\\]+)")

_ONCE: Final = frozenset(
    {b"content-type", b"mcp-session-id", b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"last-event-id"}
)
_ONCE_PREFIX: Final = b"mcp-param-"
"""Headers that say who asks for what: of two, an intermediary could believe the one and we the other."""

USER_DECK: Final = "user"
"""The name of the deck of the user's own configuration."""

OWNER: Final = Client("owner", "token owner")
"""Who shows the token of `quarterdeck token show`."""

_CHALLENGE: Final = 'Bearer realm="quarterdeck"'

_EXPOSED: Final = b"Mcp-Session-Id, WWW-Authenticate"
_PREFLIGHT_S: Final = b"600"


class Authority(msgspec.Struct, frozen=True):
    """A host in lower case, IPv6 without brackets and in its shortest spelling, and a port or None for none."""

    host: str
    port: int | None = None


class Scope(StrEnum):
    """What a token opens that opens nothing of MCP."""

    METRICS = "metrics"
    """`/metrics`."""
    READ = "read"
    """The page, to look at."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a request gets in place of the protocol's answer; without an error the body is empty."""

    status: int
    error: str = ""
    headers: tuple[Header, ...] = ()
    client: Client | None = None
    """Whose bound it met, if one it was."""


class Admitted(msgspec.Struct, frozen=True):
    """The request may go on, for `client`, to the deck of this name; `headers` are for its response.

    Attributes:
        client: whose token it shows, whatever session it names.
        group: that its path names; empty for none.
        granted: the groups that its token has; empty for all that the deck offers.
        is_scrape: whether it asks for `METRICS_PATH`, which is of no deck.
    """

    headers: tuple[Header, ...] = ()
    client: Client = ANONYMOUS
    deck: str = ""
    group: str = ""
    granted: Sequence[str] = ()
    is_scrape: bool = False


class ReadinessAsked(msgspec.Struct, frozen=True):
    """The request asks for `READY_PATH`; `in_full` for one that shows the owner's token, or one to look with."""

    in_full: bool = False


@lru_cache(maxsize=64)
def parse_authority(text: str) -> Authority | None:
    """`HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`, and nothing else; None for all else."""
    head, bracket, rest = text.partition("]")
    if bracket:
        try:
            host = str(IPv6Address(head.removeprefix("["))) if head.startswith("[") and "%" not in head else ""
        except ValueError:
            return None
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = text.lower().partition(":")
        host = host if _NAME.fullmatch(host) else ""
    if not host or colon not in {"", ":"} or bool(colon) != bool(port):
        return None
    if not colon:
        return Authority(host)
    return Authority(host, int(port)) if _PORT.fullmatch(port) and 1 <= int(port) <= 65_535 else None


def parse_name(text: str) -> Authority:
    """A name that a user accepts: as `parse_authority`, an IPv6 address without brackets too.

    Raises:
        ValueError: it is none.
    """
    try:
        return Authority(str(ip_address(text)))
    except ValueError:
        pass
    if (found := parse_authority(text)) is None:
        raise ValueError("is not a host name: write NAME, NAME:PORT or [IPV6]:PORT")
    return found


UNKNOWN: Final = "this token is not known: see `quarterdeck token list`"


def _at_once() -> float:
    """Wait for nothing."""
    return 0.0


class Holder(msgspec.Struct, frozen=True):
    """Who shows a token, and what it opens.

    Attributes:
        decks: those that it may use, the one of `PATH` first; empty for one that is bound to none.
        groups: those that it is shown; empty for everything.
        opens_all: whether it may use every deck.
        wait_s: counts a message; returns 0 when it may be sent now, else in how many seconds.
        scope: what it opens in place of decks; None for decks.
    """

    client: Client
    decks: Sequence[str] = ()
    groups: Sequence[str] = ()
    opens_all: bool = False
    wait_s: Callable[[], float] = _at_once
    scope: Scope | None = None


_OWNER: Final = Holder(OWNER, opens_all=True)
_ANYBODY: Final = Holder(ANONYMOUS, opens_all=True)


def no_tokens(_: str) -> Holder | str:
    """Identify nobody: there is no token but the owner's."""
    return UNKNOWN


class Admission:
    """The rules of one HTTP server."""

    def __init__(
        self,
        names: Iterable[Authority],
        token: str | None,
        identify: Callable[[str], Holder | str] = no_tokens,
        *,
        only: str | None = "",
        has_metrics: bool = False,
        serves_mcp: bool = True,
    ) -> None:
        """Rules.

        Args:
            names: what it may be called; one without a port goes with each.
            token: the owner's; None for no check.
            identify: returns whose another token is, or why it opens nothing.
            only: the name of the one deck that is served, empty for one without; None for many, by path or token.
            has_metrics: whether there is `METRICS_PATH`.
            serves_mcp: whether there is `PATH`.
        """
        self._only = only
        self._has_metrics = has_metrics
        self._serves_mcp = serves_mcp
        self._names = frozenset(names)
        self._token = token.encode() if token is not None else None
        self._identify = identify

    def judge(
        self, method: str, path: str, headers: Sequence[Header], fields: Mapping[bytes, bytes], query: bytes = b""
    ) -> HttpAnswer | Admitted | ReadinessAsked:
        """What becomes of a request with this head.

        Args:
            method: in upper case.
            path: without its query.
            headers: all, as they came.
            fields: the same by their names; of a repeated one, the last.
            query: one word of it counts, `SEARCH`.
        """
        is_scrape = self._has_metrics and path == METRICS_PATH
        place = _PLACE.fullmatch(path) if self._serves_mcp else None
        if (place is None and not is_scrape) or (place is not None and place[1] and self._only is not None):
            return self._not_here(method, path, headers)
        twice = _repeated(headers) if len(fields) < len(headers) else ()
        host = fields.get(b"host")
        if host is None or b"host" in twice or not self._is_ours(host.decode("latin-1")):
            return HttpAnswer(421, "this Host header is not accepted: `quarterdeck serve --allow-host NAME` accepts it")
        shared: tuple[Header, ...] = ()
        if b"origin" in fields:
            origins = _values(headers, b"origin")
            if not all(map(self._may_ask, origins)):
                return HttpAnswer(403, "web pages of this origin may not use this server")
            # Without a token, only programs may ask and no page, of whatever origin.
            shared = _shared_with(origins[0]) if self._token is not None and len(origins) == 1 else ()
            if shared and method == "OPTIONS" and (asked := _preflight(headers)):
                return HttpAnswer(204, headers=(*shared, *asked))
        holder = self._holder(b"" if b"authorization" in twice else fields.get(b"authorization"))
        if isinstance(holder, HttpAnswer):
            return replace(holder, headers=(*shared, *holder.headers))
        client = holder.client
        if place is None:
            return self._scrape(method, holder, shared)
        if holder.scope is not None:
            return HttpAnswer(403, f"the token {client.name!r} opens no MCP server: it is for {holder.scope}", shared)
        if twice and (name := next((each for each in twice if each in _ONCE or each.startswith(_ONCE_PREFIX)), b"")):
            return HttpAnswer(400, f"the header {name.decode('latin-1')} is given more than once", shared)
        if method == "POST" and (wait_s := holder.wait_s()):
            why = f"the token {client.name!r} may not ask so often: wait {wait_s:.3g} s"
            session = fields.get(b"mcp-session-id", b"").decode("latin-1")
            asker = msgspec.structs.replace(client, key=f"{client.key}/{session}") if session else client
            return HttpAnswer(429, why, (*shared, (b"retry-after", str(ceil(wait_s)).encode())), asker)
        bound, only = holder.decks, self._only
        if only is None:
            deck = place[1] or (bound[0] if bound else USER_DECK)
            # Whether another deck exists, it is not told.
            if not holder.opens_all and deck not in (bound or (USER_DECK,)):
                return HttpAnswer(403, f"the token {client.name!r} may not use the deck {deck!r}", shared)
        else:
            deck = only
            if bound and deck not in bound:
                why = f"the token {client.name!r} is for other decks than what is served here"
                return HttpAnswer(403, why, shared)
        if query and _asks_for_search(query):
            client = msgspec.structs.replace(client, is_searched=True)
        return Admitted(shared, client, deck, place[2] or "", holder.groups)

    def _scrape(self, method: str, holder: Holder, shared: tuple[Header, ...]) -> HttpAnswer | Admitted:
        if self._token is not None and holder.scope is not Scope.METRICS:
            why = "this needs a token of its own: `quarterdeck token create NAME --scope metrics` makes one"
            return unauthorized(why, "invalid_token")
        if method not in {"GET", "HEAD"}:
            return HttpAnswer(405, "this is only read", ((b"allow", b"GET, HEAD"), *shared))
        return Admitted(shared, holder.client, is_scrape=True)

    def _not_here(self, method: str, path: str, headers: Sequence[Header]) -> HttpAnswer | ReadinessAsked:
        is_look = method in {"GET", "HEAD"}
        if path == HEALTH_PATH and is_look:
            return HttpAnswer(200)
        if path == READY_PATH and is_look:
            given = _values(headers, b"authorization")
            if self._token is None or not given:
                return ReadinessAsked()
            holder = self._holder(given[0].encode("latin-1") if len(given) == 1 else b"")
            if isinstance(holder, HttpAnswer):
                return holder
            return ReadinessAsked(in_full=holder is _OWNER or holder.scope is Scope.READ)
        decks = f", a deck at {DECKS_PATH}NAME{PATH}" if self._only is None else ""
        return HttpAnswer(404, f"nothing is served here: the server is at {PATH}, a group at {PATH}/NAME{decks}")

    def _holder(self, given: bytes | None) -> Holder | HttpAnswer:
        """Who shows a token by this header; None if there is none, empty if it is repeated."""
        if self._token is None:
            return _ANYBODY
        scheme, _, token = (given or b"").partition(b" ")
        token = token.strip()
        if not token or scheme.lower() != b"bearer":
            why = "this server needs one bearer token: see `quarterdeck token show`, and `quarterdeck token create`"
            return unauthorized(why, "" if given is None else "invalid_request")
        if hmac.compare_digest(token, self._token):
            return _OWNER
        holder = self._identify(token.decode("latin-1"))
        return unauthorized(holder, "invalid_token") if isinstance(holder, str) else holder

    def _is_ours(self, text: str) -> bool:
        given = parse_authority(text)
        return given is not None and (given in self._names or Authority(given.host) in self._names)

    def _may_ask(self, origin: str) -> bool:
        found = _ORIGIN.fullmatch(origin.lower())
        return found is not None and self._is_ours(found[1])


def unauthorized(why: str, error: str) -> HttpAnswer:
    """The answer to a request that shows no token that opens anything.

    Source: RFC 6750, section 3.
    """
    challenge = f'{_CHALLENGE}, error="{error}", error_description="{why}"' if error else _CHALLENGE
    return HttpAnswer(401, why, ((b"www-authenticate", challenge.encode()),))


def _asks_for_search(query: bytes) -> bool:
    """Whether a URL's query says `search`, as a word alone or with a value that is not its opposite."""
    words = (word.partition("=") for word in query.decode("latin-1").split("&"))
    return any(name == SEARCH and value.lower() not in _OFF for name, _, value in words)


def _values(headers: Sequence[Header], name: bytes) -> list[str]:
    """All values of one header."""
    return [value.decode("latin-1") for key, value in headers if key == name]


def _repeated(headers: Sequence[Header]) -> Sequence[bytes]:
    """Return the names of the headers that are repeated, in the order of their repetition."""
    seen: set[bytes] = set()
    twice = []
    for name, _ in headers:
        if name in seen:
            twice.append(name)
        seen.add(name)
    return twice


def _shared_with(origin: str) -> tuple[Header, ...]:
    """What lets a page of `origin` read the response."""
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    )


def _preflight(headers: Sequence[Header]) -> tuple[Header, ...]:
    """What a browser is told that asks before it sends a request; empty when it does not ask."""
    if len(_values(headers, b"access-control-request-method")) != 1:
        return ()
    wanted = ",".join(_values(headers, b"access-control-request-headers"))
    allowed = ", ".join(name for one in wanted.split(",") if _NAME.fullmatch(name := one.strip().lower()))
    return (
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", allowed.encode()),
        (b"access-control-max-age", _PREFLIGHT_S),
    )
