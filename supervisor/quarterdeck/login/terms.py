"""What a login lets us do, as it is approved and kept: by which issuer, at which resource, with which scopes.  Pure.

The tokens of a login are kept together with the terms on which they were given, so that they are used on no others.
"""

from collections.abc import Iterable
from typing import Final, Self

import msgspec

from quarterdeck.ledger.events.events import Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey

LOGIN: Final = ItemKey(Subject.LOGIN)
"""Of any remote server; it has one."""

RENEW_BEFORE_S: Final = 60.0
"""A token is renewed so long before it ends, or a quarter of its life where that is less."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        issuer: of the authorization server, as it names itself.
        resource: for which the tokens are good (RFC 8707).
        scopes: sorted; none for those that the server gives to who asks for none.
    """

    issuer: str
    resource: str
    scopes: tuple[str, ...] = ()

    @classmethod
    def of(cls, issuer: str, resource: str, scopes: Iterable[str]) -> Self:
        """Terms with these scopes, in whatever order."""
        return cls(issuer=issuer, resource=resource, scopes=tuple(sorted(set(scopes))))

    @property
    def body(self) -> bytes:
        """The document that is approved."""
        return msgspec.json.encode(self, order="sorted")

    @property
    def hash(self) -> str:
        """Of the document."""
        return hash_of(self.body)

    def is_at(self, others: "Terms") -> bool:
        """Whether the others are of the same issuer, for the same resource."""
        return (self.issuer, self.resource) == (others.issuer, others.resource)

    def is_within(self, others: "Terms") -> bool:
        """Whether these ask for nothing that the others do not: who asks for less needs no approval."""
        return self.is_at(others) and set(self.scopes) <= set(others.scopes)


def read_terms(body: bytes | None) -> Terms | None:
    """The terms of a document; None for one that cannot be read."""
    try:
        return msgspec.json.decode(body or b"", type=Terms)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are to an authorization server.

    Attributes:
        secret: empty for none, and where the row has it.
        method: how we show the secret: `client_secret_basic`, `client_secret_post` or `none`.
    """

    id: str
    secret: str = ""
    method: str = "none"

    def __repr__(self) -> str:
        return f"Client(id={self.id!r})"


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What an authorization server gave us; times are seconds since the epoch.

    Attributes:
        refresh: gets others; empty for none.
        given_at: when.
        ends_at: when the access token ends; None where that was not said.
        scopes: those that were given, None where that was not said: the ones that were asked for.
    """

    access: str
    refresh: str = ""
    given_at: float = 0.0
    ends_at: float | None = None
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Tokens(ends_at={self.ends_at})"

    def renew_in_s(self, now: float) -> float | None:
        """How long they are good for, less what renewing them may take; None for as long as nobody refuses them."""
        if self.ends_at is None:
            return None
        early_s = min(RENEW_BEFORE_S, max(0.0, self.ends_at - self.given_at) / 4)
        return max(0.0, self.ends_at - early_s - now)

    def has_ended(self, now: float) -> bool:
        """Whether the access token has."""
        return self.ends_at is not None and now >= self.ends_at


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One login, as it is kept.

    Attributes:
        url: of the server; to another one no token of it is sent.
        token_endpoint: of the issuer, where tokens are renewed.
        revocation_endpoint: where they are given back; empty for nowhere.
    """

    url: str
    terms: Terms
    client: Client
    tokens: Tokens
    token_endpoint: str
    revocation_endpoint: str = ""


def encode_grant(grant: Grant) -> str:
    """As it is kept."""
    return msgspec.json.encode(grant).decode()


def read_grant(text: str) -> Grant | None:
    """As `encode_grant` wrote it; None for what cannot be read."""
    try:
        return msgspec.json.decode(text, type=Grant)
    except (msgspec.MsgspecError, UnicodeError):
        return None
