"""Whose a URI is: what is listed, what names its server, what a template can have made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.common.uri_routes import fits, has_scheme, prefixed, scheme_of, split_prefixed


@pytest.mark.parametrize(
    ("template", "uri", "is_fit"),
    [
        ("file:///{path}", "file:///a", True),
        ("file:///{path}", "http://a", False),
        ("test://{id}/data", "test://1/data", True),
        ("test://{id}/data", "test://1/other", False),
        ("db://{table}/{row}{?columns}", "db://t/1?columns=a", True),
        ("db://{table}/x/{row}", "db://t/1", False),
        ("a:b", "a:b", True),
        ("a:b", "a:bc", False),
        ("a:{x", "a:{x", True),
        ("a:{x", "a:1", False),
        ("aa{x}aa", "aaa", False),
    ],
)
def test_a_uri_fits_a_template_that_it_can_be_made_from(template: str, uri: str, *, is_fit: bool) -> None:
    assert fits(template, uri) is is_fit


@given(st.lists(st.text("ab:/", max_size=4), min_size=1, max_size=5), st.text("ab:/", max_size=4))
def test_every_expansion_of_a_template_fits_it(literals: list[str], value: str) -> None:
    assert fits("{x}".join(literals), value.join(literals))


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_a_server_calls_a_template_is_looked_at_without_an_error(template: str, uri: str) -> None:
    assert fits(template, uri) in (True, False)


def test_a_template_of_many_expressions_costs_no_more_than_its_length() -> None:
    assert not fits("a:" + "{x}a" * 20_000 + "!", "a:" + "a" * 20_000)


def test_a_uri_that_names_its_server_is_taken_apart_again() -> None:
    assert split_prefixed(prefixed("fs", "file:///a:b")) == ("fs", "file:///a:b")
    for text in ("file:///a", "quarterdeck+fs", "quarterdeck+:x", "quarterdeck+fs:"):
        assert split_prefixed(text) is None


def test_a_scheme_is_told_whatever_its_letters() -> None:
    assert (scheme_of("FILE:///a"), scheme_of("nothing"), scheme_of("")) == ("file", "", "")


def test_a_template_without_a_scheme_says_nothing_of_whose_uris_it_makes() -> None:
    assert has_scheme("file:///{x}")
    assert not has_scheme("{+anything}")
    assert not has_scheme("{scheme}:rest")
