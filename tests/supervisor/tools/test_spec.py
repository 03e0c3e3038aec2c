"""Defining and invoking one tool."""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from support.tools.cards import text_of
from support.tools.contexts import inert_context

from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.input_check import InputCheck, is_plain
from quarterdeck.tools.results import JsonContentBlock, Output, ToolResult
from quarterdeck.tools.spec import (
    Arguments,
    DefinedTool,
    RunTool,
    ToolSpec,
    define_tool,
    native_tool,
    output_schema_of,
    schema_of,
)
from quarterdeck_protocol.tools import CancelToken, ProgressNote, ToolCall, ToolHints, ToolOutcome

SCHEMA = {"type": "object", "properties": {}}


def tool_of(run: RunTool) -> DefinedTool:
    return define_tool(ToolSpec("probe", "Probes.", {}, run))


async def give_back(arguments: object, ctx: ToolContext) -> ToolResult:
    return ToolResult([JsonContentBlock(arguments)])


async def fail(arguments: object, ctx: ToolContext) -> ToolResult:
    raise arguments if isinstance(arguments, BaseException) else AssertionError


@pytest.mark.parametrize(
    ("given", "received"),
    [
        (None, {}),
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", [1]),
        ("{broken", "{broken"),
        ("[" * 100_000, "[" * 100_000),
        ("{\ud800", "{\ud800"),
        ("plain", "plain"),
        ('"text"', '"text"'),
        (0, 0),
    ],
)
async def test_input_is_read_as_models_mean_it(given: object, received: object) -> None:
    """A model that sends its arguments as a string, or none, would fail at every call."""
    outcome = await tool_of(give_back).invoke(ToolCall("1", "probe", given), inert_context())
    assert outcome == ToolOutcome("1", received)


async def test_a_native_tools_wrong_input_is_refused_before_it_runs() -> None:
    """A tool would run on what nobody checked."""
    tool = define_tool(ToolSpec("probe", "Probes.", SCHEMA, fail))
    outcome = await tool.invoke(ToolCall("1", "probe", [1]), inert_context())
    assert outcome.is_error
    assert "expected an object, got [1]" in str(outcome.output)


async def test_a_grafted_tools_input_is_its_servers_to_judge() -> None:
    """A server that takes more than it says could not be given it."""
    tool = define_tool(ToolSpec("probe", "Probes.", SCHEMA, give_back, definition=b"{}"))
    assert (await tool.invoke(ToolCall("1", "probe", [1]), inert_context())).output == [1]


async def test_a_tool_can_take_its_arguments_as_a_type_and_tell_of_its_progress() -> None:
    """Each tool would have to pick its arguments apart, and a client would wait in the dark."""

    class Given(Arguments):
        times: int

    async def count(arguments: Given, ctx: ToolContext) -> ToolResult:
        for step in range(arguments.times):
            ctx.tell(step, arguments.times, "counting")
        return ToolResult.of_text("done")

    tool = native_tool("count", "Counts.", Given, count, hints=ToolHints()).titled("Count")
    notes: list[ProgressNote] = []
    call = ToolCall("1", "count", {"times": 2}, report=notes.append)
    outcome = await tool.invoke(call, inert_context().with_cancel(CancelToken(), call.report))
    assert (outcome.output, tool.label) == ("done", "Count")
    assert notes == [ProgressNote(0, 2, "counting"), ProgressNote(1, 2, "counting")]


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


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
    colour: Annotated[Colour, Meta(description="Which.")] = Colour.RED


def test_a_schema_is_closed_flat_and_in_the_wires_spelling() -> None:
    """Models would meet references, nulls and names that no caller writes; some clients want a type of each choice."""
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
            "colour": {"type": "string", "enum": ["blue", "red"], "description": "Which.", "default": "red"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


class Ended(Output, frozen=True):
    """How something ended, which no model reads of."""

    exit_code: Annotated[int | None, Meta(description="Null for none.")]


class Listed(Output, frozen=True):
    """Some that ended."""

    all: list[Ended]


ENDED = {
    "type": "object",
    "properties": {"exitCode": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "Null for none."}},
    "required": ["exitCode"],
    "additionalProperties": False,
}


def test_what_a_tool_returns_is_described_by_its_types() -> None:
    """Clients refuse a list for an output schema that is not an object's, and a result for a null that it forbids."""
    listed = {
        "type": "object",
        "properties": {"all": {"type": "array", "items": ENDED}},
        "required": ["all"],
        "additionalProperties": False,
    }
    assert output_schema_of(Ended) == ENDED
    assert output_schema_of(Ended, Listed) == {"type": "object", "anyOf": [ENDED, listed]}
    assert output_schema_of(Ended, Listed) is output_schema_of(Ended, Listed)
    assert probe().descriptor().output_schema is None


def test_a_tool_without_arguments_has_a_whole_schema() -> None:
    """Clients refuse a list for one input schema without properties."""
    assert schema_of(Arguments) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


async def echo(arguments: Probe, _: ToolContext) -> ToolResult:
    return ToolResult.of_text(repr(arguments))


def probe() -> DefinedTool:
    return native_tool("probe", "Probes.", Probe, echo, hints=ToolHints())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"path": "x", "maxBytes": 5}, "max_bytes=5"),
        ({"path": "x", "maxBytes": 5.0}, "max_bytes=5"),
        ({"path": "x", "anything": {"a": None}}, "anything={'a': None}"),
        ('{"path": "x"}', "path='x'"),
    ],
)
async def test_what_the_schema_accepts_reaches_the_tool_as_its_type(given: object, text: str) -> None:
    """A call that follows the published schema would be refused."""
    result = await probe().run(given, inert_context())
    assert not result.is_error
    assert text in text_of(result)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"path": "x", "maxBytes": None}, "maxBytes: expected a whole number, got null"),
        ({"path": "x", "maxByte": 5}, "there is no parameter"),
        ({"path": "x", "anything": {"a": float("inf")}}, "numbers must be finite"),
        ({"path": "x", "rows": ()}, "rows: expected a list, got []"),
        ({"path": "x", "anything": [(None,)], "rows": set()}, "rows: expected a list"),
        ({"path": "x", "isDeep": "\ud800"}, "isDeep: expected true or false"),
    ],
)
async def test_what_the_schema_refuses_is_said_in_its_words(given: object, text: str) -> None:
    """A tool would run on what its schema forbids, or a model be told of types that it never saw."""
    result = await probe().run(given, inert_context())
    assert result.is_error
    assert text in text_of(result)


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("path", "maxBytes", "anything", "isDeep"), ANY_VALUE),
            "rows": st.lists(
                st.fixed_dictionaries({"task": ANY_VALUE}, optional={"title": st.sampled_from(["a", "c"])}), max_size=2
            )
            | ANY_VALUE,
        },
    )
)
def test_what_is_read_without_the_schema_is_what_the_schema_accepts(value: dict[str, object]) -> None:
    """A tool would run on input that its published schema refuses."""
    if is_plain(value):
        try:
            msgspec.convert(value, Probe)
        except msgspec.ValidationError:
            return
        assert InputCheck("probe", schema_of(Probe)).problem(value) is None
