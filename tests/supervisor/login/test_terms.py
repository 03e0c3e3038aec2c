"""Terms are compared by what they allow, and tokens are renewed in time."""

import pytest

from quarterdeck.login.terms import Grant, Terms, Tokens, read_grant, read_terms

TERMS = Terms.of("https://as.example", "https://mcp.example/mcp", ("write", "read", "read"))


def test_terms_are_the_same_in_whatever_order_scopes_come() -> None:
    """A server that lists them otherwise would be held."""
    assert Terms.of(TERMS.issuer, TERMS.resource, ("read", "write")) == TERMS
    assert read_terms(TERMS.body) == TERMS


@pytest.mark.parametrize(
    ("others", "is_within"),
    [
        (TERMS, True),
        (Terms.of(TERMS.issuer, TERMS.resource, ("read", "write", "admin")), True),
        (Terms.of(TERMS.issuer, TERMS.resource, ("read",)), False),
        (Terms.of("https://as.example/", TERMS.resource, TERMS.scopes), False),
        (Terms.of(TERMS.issuer, "https://mcp.example", TERMS.scopes), False),
    ],
)
def test_who_asks_for_less_needs_no_approval(others: Terms, is_within: bool) -> None:
    """One more scope, or another issuer, would pass unseen."""
    assert TERMS.is_within(others) is is_within


@pytest.mark.parametrize(
    ("tokens", "now", "renew_in_s"),
    [
        (Tokens(access="a"), 10.0, None),
        (Tokens(access="a", given_at=0, ends_at=3600), 0.0, 3540.0),
        (Tokens(access="a", given_at=0, ends_at=3600), 3540.0, 0.0),
        (Tokens(access="a", given_at=0, ends_at=3600), 9999.0, 0.0),
        (Tokens(access="a", given_at=0, ends_at=40), 0.0, 30.0),
        (Tokens(access="a", given_at=50, ends_at=40), 0.0, 40.0),
    ],
)
def test_a_token_is_renewed_before_it_ends(tokens: Tokens, now: float, renew_in_s: float | None) -> None:
    """Calls would be refused in between."""
    assert tokens.renew_in_s(now) == renew_in_s


@pytest.mark.parametrize("body", [None, b"", b"{}", b"[]", b'{"issuer": 1}', b"\xff"])
def test_what_is_no_document_of_terms_approves_nothing(body: bytes | None) -> None:
    """An edited ledger would let a login pass."""
    assert read_terms(body) is None


def test_what_is_no_login_is_none() -> None:
    """See `read_grant`."""
    assert read_grant("{}") is None
    assert Grant.__struct_fields__[0] == "url"
