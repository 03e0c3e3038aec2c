"""What the tokens of HTTP clients allow, for how long and how often, and whose token was shown.  Pure.

A token is 256 random bits, so its keyed hash is all that is kept of it: nobody who reads that can show the token.  A
token that was revoked is known for a while, so that its holder is told so and not that it is wrong.  Times are seconds
since the epoch, but for those of a `Bucket`.
"""

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final, Literal

import msgspec

from quarterdeck.common.patterns import may_fit_longer, surely_fits
from quarterdeck.config.groups import is_group_name
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.tools import Client

from .admission import Scope

MAX_GRANTS: Final = 256
"""Tokens at one time, with those that ended lately; each request's is compared with all of them."""

KEPT_S: Final = 30 * 86_400.0
"""How long a token that ended is known as such."""

MAX_NAME_CHARS: Final = 64

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RATE: Final = re.compile(r"([1-9][0-9]{0,6})/([smh])")
NEVER: Final = "never"
"""The value of a lifetime without an end."""

_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_SIZE: Final = re.compile(r"([1-9][0-9]{0,9})([KMG]?)")

_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

RESERVED: Final = frozenset({"owner"})
"""What the token of `quarterdeck token show` is called."""


class Rate(msgspec.Struct, frozen=True):
    """So many requests in so long; all of them may come at once."""

    count: int
    per_s: float

    def __str__(self) -> str:
        unit = next((unit for unit, seconds in _SECONDS.items() if seconds == self.per_s), f"{self.per_s:g}s")
        return f"{self.count}/{unit}"


class GrantState(StrEnum):
    """Whether a token opens anything."""

    LIVE = "live"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one token allows.

    Attributes:
        digest: of the token, see `digest_of`.
        servers: the ids of those whose tools may be used; empty for all.
        tools: patterns as in a shell, of names as `quarterdeck tools` lists them; empty for all.
        profile: of native tools none but these; empty for all, but none beside named `servers`.
        rate: of its requests; None for any.
        expires_at: None for never.
        revoked_at: None unless it was.
        max_result_bytes: of one result; None for what the servers' own limits let through.
        decks: the names of the daemon's decks that it opens; empty for the user's own, and for what has no name.
        groups: the names of the groups of what it reaches that it is shown, together; empty for everything.
        search: whether it is shown two tools that find and call what it may use, in place of that.
        scope: what it opens in place of all this; None for a client's token.
    """

    name: str
    digest: str
    created_at: float
    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    profile: str = ""
    rate: Rate | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    decks: tuple[str, ...] = ()
    max_result_bytes: int | None = None
    groups: tuple[str, ...] = ()
    search: bool = False
    scope: Scope | None = None

    @property
    def client(self) -> Client:
        """Who shows it; another token of the same name is another client."""
        return Client(self.name, f"token {self.digest[:16]}", is_searched=self.search, user=self.name)

    @property
    def is_limited(self) -> bool:
        """Whether it shows less than everything."""
        return bool(self.servers or self.tools or self.profile or self.max_result_bytes)

    def state(self, now: float) -> GrantState:
        """How it stands."""
        if self.revoked_at is not None:
            return GrantState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return GrantState.EXPIRED if is_over else GrantState.LIVE

    def allows(self, tool: str, of_profile: Collection[str]) -> bool:
        """Whether the tool of this name may be listed and called.

        Args:
            tool: `server__tool`, or a native tool's name.
            of_profile: the names of the native tools of `profile`.
        """
        server, is_servers, _ = tool.partition(QUALIFIER)
        if is_servers:
            is_within = not self.servers or server in self.servers
        else:
            is_within = tool in of_profile if self.profile else not self.servers
        return is_within and (not self.tools or surely_fits(tool, self.tools))

    def allows_some_of(self, server: str) -> bool:
        """Whether some name of this server's is allowed, whatever it offers: the server itself may then be known of."""
        if self.servers and server not in self.servers:
            return False
        return not self.tools or any(may_fit_longer(f"{server}{QUALIFIER}", pattern) for pattern in self.tools)


class Grants(msgspec.Struct, frozen=True):
    """All tokens of a state directory, in the order of their making.

    Attributes:
        key: of their digests, as hex.
    """

    key: str
    grants: tuple[Grant, ...] = ()
    version: Literal[1] = 1

    def find(self, token: str) -> Grant | None:
        """Whose token this is; None for nobody's.  How long it takes tells nothing about any."""
        shown = digest_of(token, self.key)
        found = None
        for grant in self.grants:
            if hmac.compare_digest(grant.digest, shown):
                found = grant
        return found

    def live(self, name: str, now: float) -> Grant | None:
        """The one of this name that opens something."""
        return next((each for each in self.grants if each.name == name and each.state(now) is GrantState.LIVE), None)

    def with_grant(self, grant: Grant, now: float) -> "Grants":
        """With this one more, and without what ended long ago.

        Raises:
            ValueError: there is one of its name, or there are too many.
        """
        if self.live(grant.name, now) is not None:
            raise ValueError(f"there is a token called {grant.name!r}")
        kept = tuple(each for each in self.grants if _ended_at(each, now) + KEPT_S > now)
        if len(kept) >= MAX_GRANTS:
            raise ValueError(f"there are {MAX_GRANTS} tokens, with those that ended in the last 30 days")
        return msgspec.structs.replace(self, grants=(*kept, grant))

    def without(self, name: str, now: float) -> "Grants":
        """With the one of this name revoked; the same where there is none."""
        return msgspec.structs.replace(
            self,
            grants=tuple(
                msgspec.structs.replace(each, revoked_at=now)
                if each.name == name and each.state(now) is GrantState.LIVE
                else each
                for each in self.grants
            ),
        )


NO_GRANTS: Final = Grants("")


class Bucket:
    """What is left of a rate: it holds all of it, and fills evenly."""

    def __init__(self, rate: Rate, now: float) -> None:
        """A full one; `now` is monotonic here, seconds."""
        self._rate = rate
        self._left = float(rate.count)
        self._at = now

    def take(self, now: float) -> float:
        """Take one; 0 when there was one, else in how many seconds there is."""
        per_s = self._rate.count / self._rate.per_s
        self._left = min(float(self._rate.count), self._left + (now - self._at) * per_s)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / per_s


def digest_of(token: str, key: str) -> str:
    """What is kept of a token."""
    return hmac.new(bytes.fromhex(key), token.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def check_name(name: str) -> str:
    """The name itself, when a token may be called so.

    Raises:
        ValueError: it may not.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise ValueError(f"{name[:MAX_NAME_CHARS]!r} cannot be a token's name: up to 64 letters, digits, '.', '_', '-'")
    if name in RESERVED:
        raise ValueError(f"{name!r} is the token of quarterdeck token show")
    return name


def parse_rate(text: str) -> Rate:
    """`20/s`, `100/m` or `1000/h`.

    Raises:
        ValueError: it is no rate.
    """
    if (found := _RATE.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a rate")
    return Rate(int(found[1]), _SECONDS[found[2]])


def parse_span(text: str) -> float | None:
    """Return the seconds of `30d`, `12h`, `90m`, `45s` or `2w`; None for `never`.

    Raises:
        ValueError: it is no span of time.
    """
    if text == NEVER:
        return None
    if (found := _SPAN.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a span of time")
    return float(int(found[1]) * _SECONDS[found[2]])


def parse_size(text: str) -> int:
    """The bytes of `65536`, `64K` or `2M`.

    Raises:
        ValueError: it is no size.
    """
    if (found := _SIZE.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a size")
    return int(found[1]) * _UNITS[found[2]]


def check_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns, none of which is empty or larger than a name could need.

    Raises:
        ValueError: one is.
    """
    given = tuple(patterns)
    for each in given:
        if not 0 < len(each) <= 256 or not each.isprintable():
            raise ValueError(f"{each[:64]!r} is not a pattern of tools' names")
    return given


def check_groups(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each of which a group may have; whether there is one, only the deck knows that is reached.

    Raises:
        ValueError: one cannot be a group's.
    """
    given = tuple(names)
    for each in given:
        if not is_group_name(each):
            raise ValueError(f"{each[:64]!r} cannot be a group's name")
    return given


def _ended_at(grant: Grant, now: float) -> float:
    """When it ended; for one that opens something, now."""
    if grant.revoked_at is not None:
        return grant.revoked_at
    return min(now, grant.expires_at) if grant.expires_at is not None else now
