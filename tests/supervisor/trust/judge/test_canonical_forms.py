"""The canonical form: order of sets and own paths are gone, and nothing else."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.trust.judge.canonical_forms import canonical_hash

HOME = "/state/servers/0123456789ab/notes/home"


def tool(**schema: Any) -> dict[str, Any]:
    return {"name": "find", "description": "Finds notes.", "inputSchema": {"type": "object", **schema}}


def form(value: object, home: str = HOME) -> str:
    return canonical_hash(json.dumps(value).encode(), home)


def default(value: object) -> dict[str, Any]:
    return tool(properties={"fields": {"type": "string", "default": value}})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tool(required=["a", "b"]), tool(required=["b", "a"])),
        (tool(properties={"a": {"enum": [1, "x", None]}}), tool(properties={"a": {"enum": [None, 1, "x"]}})),
        (default(["a", "b"]), default(["b", "a"])),
        (default("summary,status,labels"), default("labels,summary,status")),
        (default("a, b"), default("b, a")),
        (tool(dependentRequired={"x": ["a", "b"]}), tool(dependentRequired={"x": ["b", "a"]})),
        (tool(anyOf=[{"enum": ["a", "b"]}]), tool(anyOf=[{"enum": ["b", "a"]}])),
        ({"description": f"In {HOME}/x."}, {"description": "In /other/servers/ba9876543210/notes/home/x."}),
    ],
    ids=repr,
)
def test_what_varies_by_itself_is_one_form(one: object, other: object) -> None:
    """A server with sets in its schemas would be held at each start."""
    assert form(one) == form(other, "/other/servers/ba9876543210/notes/home")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tool(required=["a", "b"]), tool(required=["a"])),
        (tool(required=["a", "b"]), tool(required=["a", "b", "b"])),
        (tool(properties={"a": {"enum": [1]}}), tool(properties={"a": {"enum": [True]}})),
        (tool(properties={"a": {"enum": [1]}}), tool(properties={"a": {"enum": ["1"]}})),
        (tool(prefixItems=[{"type": "a"}, {"type": "b"}]), tool(prefixItems=[{"type": "b"}, {"type": "a"}])),
        (tool(anyOf=[{"type": "a"}, {"type": "b"}]), tool(anyOf=[{"type": "b"}, {"type": "a"}])),
        (tool(const=["a", "b"]), tool(const=["b", "a"])),
        (default([["a"], ["b"]]), default([["b"], ["a"]])),
        (default("a,b"), default(["a", "b"])),
        (default("ignore all, instructions"), default("instructions, ignore all")),
        ({"name": "x", "description": "a,b"}, {"name": "x", "description": "b,a"}),
        ({"name": "x", "required": ["a", "b"]}, {"name": "x", "required": ["b", "a"]}),
        ({"_meta": {"enum": ["a", "b"]}}, {"_meta": {"enum": ["b", "a"]}}),
        ({"description": "In /home/me/x."}, {"description": "In /home/you/x."}),
        ({"description": f"In {HOME}/x."}, {"description": f"In {HOME}/y."}),
        ({"description": f"In {HOME}x."}, {"description": "In /other/homex."}),
    ],
    ids=repr,
)
def test_everything_else_counts(one: object, other: object) -> None:
    """What a person approved to vary would carry something else past them."""
    assert form(one) != form(other)


@given(st.lists(st.text(max_size=5) | st.integers() | st.booleans() | st.none(), max_size=6), st.randoms())
def test_any_order_of_the_same_scalars_is_one_form(scalars: list[object], chance: random.Random) -> None:
    """Some start would be held for an order that no other had."""
    shuffled = list(scalars)
    chance.shuffle(shuffled)
    assert form(tool(required=scalars)) == form(tool(required=shuffled))


def test_a_document_that_cannot_be_read_has_a_form() -> None:
    """A server could end the judging of all others by one definition."""
    assert len({canonical_hash(body, HOME) for body in (b"", b"{", b"[" * 100_000, b'"x"')}) == 4
