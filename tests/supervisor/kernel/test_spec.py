"""Defining and invoking one tool."""

import anyio
import pytest

from quarterdeck.kernel.context import ToolContext, inert_context
from quarterdeck.kernel.results import JsonContentBlock, ToolResult
from quarterdeck.kernel.spec import DefinedTool, RunTool, ToolSpec, define_tool
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome, WireResult

SCHEMA = {"type": "object", "properties": {}}


def tool_of(run: RunTool) -> DefinedTool:
    return define_tool(ToolSpec("probe", "Probes.", {}, run))


async def give_back(arguments: object, ctx: ToolContext) -> ToolResult:
    return ToolResult([JsonContentBlock(arguments)])


async def fail(arguments: object, ctx: ToolContext) -> ToolResult:
    raise arguments if isinstance(arguments, BaseException) else AssertionError


def test_a_tool_shows_what_it_was_defined_with() -> None:
    """A model would be told something else than the author wrote."""
    tool = define_tool(ToolSpec("probe", "Probes.", SCHEMA, give_back, definition=b"{}"))
    assert tool.descriptor() == ToolDescriptor("probe", "Probes.", SCHEMA, b"{}")
    assert (tool.name, tool.label, tool.description, tool.parameters) == ("probe", "probe", "Probes.", SCHEMA)


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_the_wire_result_is_copied_unchanged() -> None:
    """A client would get our projection in place of the server's own result."""
    wire = WireResult(b"{}", "2025-11-25")

    async def run(arguments: object, ctx: ToolContext) -> ToolResult:
        return ToolResult([JsonContentBlock(1)], is_error=True, wire=wire)

    outcome = await tool_of(run).invoke(ToolCall("1", "probe", {}), inert_context())
    assert outcome.wire is wire
    assert outcome.is_error


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such thing"), "probe did not finish: no such thing"),
        (ValueError(), "probe did not finish: ValueError"),
    ],
)
async def test_an_exception_becomes_an_outcome(error: Exception, text: str) -> None:
    """One bad tool would end the session."""
    outcome = await tool_of(fail).invoke(ToolCall("1", "probe", error), inert_context())
    assert outcome == ToolOutcome("1", text, is_error=True)


@pytest.mark.anyio
async def test_a_call_that_is_cancelled_already_does_not_run() -> None:
    """A tool would have its effect after the user said stop."""
    cancel = CancelToken()
    cancel.cancel()
    call = ToolCall("1", "probe", AssertionError("it ran"))
    outcome = await tool_of(fail).invoke(call, inert_context().with_cancel(cancel))
    assert outcome.is_error
    assert "cancelled" in str(outcome.output)


@pytest.mark.anyio
async def test_cancelling_the_task_is_not_swallowed() -> None:
    """A session could not be stopped."""

    async def run(arguments: object, ctx: ToolContext) -> ToolResult:
        scope.cancel()
        await anyio.sleep_forever()
        return ToolResult.of_text("awake")

    with anyio.CancelScope() as scope:
        await tool_of(run).invoke(ToolCall("1", "probe", {}), inert_context())
    assert scope.cancelled_caught
