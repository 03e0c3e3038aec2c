"""A server's refusal says what it wants, whatever else it holds; what is no scope is none."""

import pytest

from quarterdeck_protocol.challenge import MAX_SCOPES, Challenge, read_challenge, read_scopes


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ("", Challenge()),
        ("Basic realm=x", Challenge()),
        (
            'Bearer realm="a, b", error="invalid_token", resource_metadata="https://a.example/m", scope="read write"',
            Challenge("https://a.example/m", ("read", "write"), "invalid_token"),
        ),
        ("Bearer RESOURCE_METADATA=https://a.example/m,scope=read", Challenge("https://a.example/m", ("read",))),
        ('Bearer resource_metadata="https://a.example/\\"q"', Challenge('https://a.example/"q')),
        ('Bearer scope="first" scope="second"', Challenge("", ("first",))),
        ('Bearer error="' + "x" * 100_000, Challenge()),
        (f'Bearer error="insufficient_scope", scope="{"x" * 100_000}"', Challenge("", (), "insufficient_scope")),
        (
            f'Bearer error="insufficient_scope", scope="read {"x" * 1_000}"',
            Challenge("", ("read",), "insufficient_scope"),
        ),
    ],
)
def test_a_challenge_is_read_whatever_else_it_holds(header: str, challenge: Challenge) -> None:
    """The login would ask for the wrong scopes, or look in the wrong place."""
    assert read_challenge(header) == challenge


def test_what_is_no_scope_is_left_out() -> None:
    """A quote in a scope would end the header, or the page, that it is put into."""
    assert read_scopes('read  wri"te a\\b read über ok') == ("read", "ok")


def test_no_more_scopes_are_read_than_one_login_has() -> None:
    """A server could have a person agree to a list that nobody reads."""
    assert len(read_challenge(f'Bearer scope="{" ".join(map(str, range(1_000)))}"').scopes) == MAX_SCOPES
