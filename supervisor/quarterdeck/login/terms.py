"""The terms of a login, as approved and kept: issuer, resource and scopes.  Pure.

The tokens of a login are kept together with the terms on which they were given, so that they are used on no others.
"""

from collections.abc import Iterable
from typing import Final, Self

import msgspec

from quarterdeck.ledger.events.events import Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey

LOGIN: Final = ItemKey(Subject.LOGIN)
"""The ledger's key of a remote server's login."""

RENEW_BEFORE_S: Final = 60.0
"""A token is renewed so long before it ends, or a quarter of its life where that is less."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a login: the issuer, the resource (RFC 8707), and sorted scopes; none for the server's default."""

    issuer: str
    resource: str
    scopes: tuple[str, ...] = ()

    @classmethod
    def of(cls, issuer: str, resource: str, scopes: Iterable[str]) -> Self:
        """Return terms with these scopes, sorted."""
        return cls(issuer=issuer, resource=resource, scopes=tuple(sorted(set(scopes))))

    @property
    def body(self) -> bytes:
        """The document to approve."""
        return msgspec.json.encode(self, order="sorted")

    @property
    def hash(self) -> str:
        """The document's hash."""
        return hash_of(self.body)

    def is_at(self, others: "Terms") -> bool:
        """Return whether the others have the same issuer and resource."""
        return (self.issuer, self.resource) == (others.issuer, others.resource)

    def is_within(self, others: "Terms") -> bool:
        """Return whether these ask for nothing more than the others: asking for less needs no approval."""
        return self.is_at(others) and set(self.scopes) <= set(others.scopes)


def read_terms(body: bytes | None) -> Terms | None:
    """Return the terms of a document; None if it cannot be read."""
    try:
        return msgspec.json.decode(body or b"", type=Terms)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Our identity at an authorization server; `secret` is empty for none, and if the row has it."""

    id: str
    secret: str = ""
    method: str = "none"

    def __repr__(self) -> str:
        return f"Client(id={self.id!r})"


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens from an authorization server; times in seconds since the epoch.

    Attributes:
        refresh: gets new tokens; empty for none.
        ends_at: end of the access token; None if unknown.
        scopes: the granted ones; None if not stated, which means those asked for.
    """

    access: str
    refresh: str = ""
    given_at: float = 0.0
    ends_at: float | None = None
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Tokens(ends_at={self.ends_at})"

    def renew_in_s(self, now: float) -> float | None:
        """Return the seconds until a renewal is due, with time to spare; None if the end is unknown."""
        if self.ends_at is None:
            return None
        early_s = min(RENEW_BEFORE_S, max(0.0, self.ends_at - self.given_at) / 4)
        return max(0.0, self.ends_at - early_s - now)

    def has_ended(self, now: float) -> bool:
        """Return whether the access token has ended."""
        return self.ends_at is not None and now >= self.ends_at


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One login as it is kept: its tokens go to the server at `url` only; `revocation_endpoint` may be empty."""

    url: str
    terms: Terms
    client: Client
    tokens: Tokens
    token_endpoint: str
    revocation_endpoint: str = ""


def encode_grant(grant: Grant) -> str:
    """Return the text to keep."""
    return msgspec.json.encode(grant).decode()


def read_grant(text: str) -> Grant | None:
    """Return the login of a kept text; None if it cannot be read."""
    try:
        return msgspec.json.decode(text, type=Grant)
    except (msgspec.MsgspecError, UnicodeError):
        return None
