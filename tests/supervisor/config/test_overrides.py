"""What a user says of one server's tools, and which name leads where."""

from typing import Any

import pytest
from pydantic import ValidationError

from quarterdeck.config.overrides import ServerOverrides


def said(**keys: Any) -> ServerOverrides:
    return ServerOverrides.model_validate(keys)


@pytest.mark.parametrize(
    ("written", "is_fixed", "value"),
    [
        ("me", True, "me"),
        (None, True, None),
        (["a"], True, ["a"]),
        ({"a": 1}, True, {"a": 1}),
        ({"fixed": {"default": 1}}, True, {"default": 1}),
        ({"default": "me"}, False, "me"),
        ({"default": None}, False, None),
        ({"default": 1, "fixed": 2}, True, {"default": 1, "fixed": 2}),
    ],
)
def test_a_bare_value_is_fixed_and_a_default_says_so(written: object, is_fixed: bool, value: object) -> None:
    """A model could override what the user meant to fix."""
    argument = said(arguments={"t": {"a": written}}).arguments["t"]["a"]
    assert (argument.is_fixed, argument.value) == (is_fixed, value)


def test_a_text_describes_and_an_object_may_give_a_title_too() -> None:
    """Who only wants other words would have to write an object."""
    described = said(describe={"a": "Does.", "b": {"title": "B"}}).describe
    assert (described["a"].title, described["a"].description) == (None, "Does.")
    assert (described["b"].title, described["b"].description) == ("B", None)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65])
def test_a_name_that_not_every_client_takes_is_refused(name: str) -> None:
    """The renamed tool would break the list of some client."""
    with pytest.raises(ValidationError, match="is no name for every client"):
        said(rename={"a": name})


def test_two_things_cannot_have_one_new_name() -> None:
    """A call would run either of them."""
    with pytest.raises(ValidationError, match="'rename' calls two things 'c'"):
        said(rename={"a": "c", "b": "c"})


def test_each_public_name_leads_to_one_of_the_servers_or_to_nothing() -> None:
    """A client would get another tool than it asked for, or one that is hidden."""
    names = said(rename={"a": "b", "h": "i"}, hide=["h", "x*"])
    wanted = {"b": "a", "a": None, "c": "c", "i": None, "h": None, "x1": None}
    assert {public: names.own(public) for public in wanted} == wanted
    assert bool(said()) is False
    assert bool(names) is True
