"""Tools by name, and the box made of them."""

import pytest

from quarterdeck.tools.context import ToolContext, inert_context
from quarterdeck.tools.registry import ToolRegistry, UnknownToolError
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
    """A list of tools would change its order when one is replaced."""
    registry = registry_of("a", "b")
    registry.register(tool("a", "newer"))
    assert registry.names() == ("a", "b")
    assert registry.get("a").description == "newer"
    assert registry.has("a")
    assert not registry.has("c")


def test_an_unknown_tool_is_named() -> None:
    """A caller could not tell what was missing."""
    with pytest.raises(UnknownToolError, match="no tool called 'x'") as caught:
        ToolRegistry().get("x")
    assert (caught.value.kind, caught.value.missing) == ("tool", "x")


def test_collections_keep_their_own_order() -> None:
    """A profile would list its tools differently from its definition."""
    registry = registry_of("a", "b", "c")
    registry.collection("some", ["c", "a"])
    registry.collection("none", [])
    assert [member.name for member in registry.members_of("some")] == ["c", "a"]
    assert registry.members_of("none") == ()
    assert registry.collection_names() == ("some", "none")


def test_a_collection_shows_the_latest_registration() -> None:
    """A replaced tool would live on in its collections."""
    registry = registry_of("a")
    registry.collection("all", ["a"])
    registry.register(tool("a", "newer"))
    assert registry.members_of("all")[0].description == "newer"


def test_a_collection_of_unknown_tools_is_refused() -> None:
    """A slip would be found when a session starts, not when it is written."""
    with pytest.raises(UnknownToolError) as caught:
        registry_of("a").collection("some", ["a", "x"])
    assert (caught.value.kind, caught.value.missing) == ("tool", "x")


def test_an_unknown_collection_is_named() -> None:
    """A misspelt profile would be an empty one."""
    for ask in (ToolRegistry().members_of, lambda name: ToolRegistry().to_tool_box(inert_context, name)):
        with pytest.raises(UnknownToolError) as caught:
            ask("some")
        assert (caught.value.kind, caught.value.missing) == ("collection", "some")


def test_a_box_holds_the_tools_of_its_making() -> None:
    """A session's tools would change under it without a notice."""
    registry = registry_of("a", "b")
    registry.collection("one", ["b"])
    whole, part = registry.to_tool_box(inert_context), registry.to_tool_box(inert_context, "one")
    registry.register(tool("c"))
    assert [descriptor.name for descriptor in whole.descriptors()] == ["a", "b"]
    assert [descriptor.name for descriptor in part.descriptors()] == ["b"]


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_a_call_runs_the_named_tool() -> None:
    """Calls would go to another tool."""
    outcome = await registry_of("a", "b").to_tool_box(inert_context).runner.run(ToolCall("9", "b", {}), CancelToken())
    assert (outcome.id, outcome.output, outcome.is_error) == ("9", "b ran", False)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("reed", "There is no tool called 'reed': did you mean 'read'?"),
        ("xyz", "There is no tool called 'xyz'."),
        ("x" * 1000, f"There is no tool called '{'x' * 162}'."),
    ],
)
async def test_an_unknown_name_is_an_outcome_with_suggestions(asked: str, text: str) -> None:
    """A model could not correct a slip, or would be sent back a name of any length."""
    box = registry_of("read", "write").to_tool_box(inert_context)
    outcome = await box.runner.run(ToolCall("1", asked, {}), CancelToken())
    assert (outcome.id, outcome.output, outcome.is_error) == ("1", text, True)
