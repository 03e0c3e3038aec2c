"""One type for what a model is told of a tool's arguments and for what the tool is handed."""

from enum import StrEnum
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from quarterdeck.tools.spec import Arguments, read_arguments, schema_of


class Row(Arguments):
    """A row, which no model reads of."""

    task: Annotated[str, Meta(min_length=1)]
    title: Literal["a", "b"] = "a"


class Probe(Arguments):
    """A tool's arguments."""

    path: Annotated[str, Meta(min_length=1, description="Where.")]
    max_bytes: Annotated[int, Meta(ge=1)] | None = None
    rows: tuple[Row, ...] = ()
    anything: dict[str, object] | None = None
    is_deep: bool = False


def test_a_schema_is_closed_flat_and_in_the_wires_spelling() -> None:
    """Models would meet references, nulls and names that no caller writes."""
    row = {
        "type": "object",
        "properties": {
            "task": {"type": "string", "minLength": 1},
            "title": {"type": "string", "enum": ["a", "b"], "default": "a"},
        },
        "required": ["task"],
        "additionalProperties": False,
    }
    assert schema_of(Probe) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Where."},
            "maxBytes": {"type": "integer", "minimum": 1},
            "rows": {"type": "array", "items": row, "default": []},
            "anything": {"type": "object", "additionalProperties": {}},
            "isDeep": {"type": "boolean", "default": False},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Painted(Arguments, frozen=True):
    """A tool's arguments."""

    colour: Annotated[Colour, Meta(description="Which.")]


def test_a_choice_keeps_its_description_and_names_its_type() -> None:
    """Models would guess what a choice is about, and some clients refuse a parameter without a type."""
    properties = schema_of(Painted)["properties"]
    assert properties == {"colour": {"type": "string", "enum": ["blue", "red"], "description": "Which."}}


def test_a_tool_without_arguments_has_a_whole_schema() -> None:
    """Clients refuse a list for one input schema without properties."""
    assert schema_of(Arguments) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_arguments_arrive_as_their_type() -> None:
    """A tool would pick strings out of dictionaries."""
    given = {"path": "x", "maxBytes": 5, "rows": [{"task": "t", "title": "b"}], "anything": {"a": [1]}}
    assert read_arguments(Probe, given) == Probe(
        path="x", max_bytes=5, rows=(Row(task="t", title="b"),), anything={"a": [1]}
    )


def test_a_whole_number_may_be_written_with_a_point() -> None:
    """A call would fail after its schema had accepted it."""
    assert read_arguments(Probe, {"path": "x", "maxBytes": 5.0}).max_bytes == 5


@pytest.mark.parametrize(
    "given", [{}, {"path": 1}, {"path": "x", "maxBytes": 1e30}, {"path": "x", "more": 1}, [], None]
)
def test_what_the_schema_refuses_is_refused(given: object) -> None:
    """A tool would run on something that nobody checked."""
    with pytest.raises(ValueError, match=r"."):
        read_arguments(Probe, given)
