"""Tools by name, for programs that define their own."""

import pytest
from support.tools.contexts import inert_context

from quarterdeck.embedding.deck import ToolRegistry, UnknownToolError, builtin_registry
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import DefinedTool, ToolSpec, define_tool
from quarterdeck_protocol.tools import CancelToken, ToolCall


def tool(name: str, description: str = "", seen: list[ToolContext] | None = None) -> DefinedTool:
    async def run(arguments: object, ctx: ToolContext) -> ToolResult:
        if seen is not None:
            seen.append(ctx)
        return ToolResult.of_text(f"{name} ran")

    return define_tool(ToolSpec(name, description, {"type": "object", "properties": {}}, run))


def registry_of(*names: str) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_all(map(tool, names))
    return registry


def test_a_second_registration_replaces_and_keeps_the_position() -> None:
    registry = registry_of("a", "b")
    registry.register(tool("a", "newer"))
    assert registry.names() == ("a", "b")
    assert registry.get("a").description == "newer"
    assert registry.has("a")
    assert not registry.has("c")


def test_an_unknown_tool_is_named() -> None:
    with pytest.raises(UnknownToolError, match="no tool called 'x'") as caught:
        ToolRegistry().get("x")
    assert caught.value.missing == "x"


def test_a_box_holds_the_tools_of_its_making() -> None:
    registry = registry_of("a", "b")
    box = registry.to_tool_box(inert_context)
    registry.register(tool("c"))
    assert [descriptor.name for descriptor in box.descriptors()] == ["a", "b"]


async def test_all_calls_of_a_box_share_one_identity_and_none_a_token() -> None:
    """A checklist set by one call would be empty for the next; or one cancelled call would stop all."""
    seen: list[ToolContext] = []
    made: list[ToolContext] = []

    def make_context() -> ToolContext:
        made.append(inert_context())
        return made[-1]

    registry = ToolRegistry()
    registry.register(tool("a", seen=seen))
    box = registry.to_tool_box(make_context)
    tokens = [CancelToken(), CancelToken()]
    for token in tokens:
        await box.runner.run(ToolCall("1", "a", {}), token)
    assert len(made) == 1
    assert seen == [made[0], made[0]]
    assert [context.cancel for context in seen] == tokens


async def test_a_call_runs_the_named_tool() -> None:
    outcome = await registry_of("a", "b").to_tool_box(inert_context).runner.run(ToolCall("9", "b", {}), CancelToken())
    assert (outcome.id, outcome.output, outcome.is_error) == ("9", "b ran", False)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("reed", "There is no tool called 'reed': did you mean 'read'?"),
        ("xyz", "There is no tool called 'xyz'."),
        ("x" * 1000, f"There is no tool called '{'x' * 162}'."),
    ],
)
async def test_an_unknown_name_is_an_outcome_with_suggestions(asked: str, text: str) -> None:
    box = registry_of("read", "write").to_tool_box(inert_context)
    outcome = await box.runner.run(ToolCall("1", asked, {}), CancelToken())
    assert (outcome.id, outcome.output, outcome.is_error) == ("1", text, True)


def test_the_registry_holds_the_twelve_in_order() -> None:
    registry = builtin_registry()
    names = [
        *("read", "ls", "grep", "find", "websearch", "webfetch", "write", "edit", "bash"),
        *("todo_set", "todo_read", "process"),
    ]
    assert registry.names() == tuple(names)
    assert [registry.get(name).name for name in names] == names


def test_registries_share_their_tools_and_nothing_else() -> None:
    first, second = builtin_registry(), builtin_registry()
    first.register(second.get("todo_read"))
    assert first is not second
    assert first.get("todo_read") is second.get("todo_read")
