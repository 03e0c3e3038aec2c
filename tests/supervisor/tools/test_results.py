"""From content blocks to an outcome."""

import json

import pytest

from quarterdeck.tools.results import ContentBlock, JsonContentBlock, TextContentBlock, ToolResult, project_content
from quarterdeck_protocol.tools import ToolOutcome, WireResult

TEXT = TextContentBlock("a")
JSON = JsonContentBlock({"n": 1})


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ([TEXT], "a"),
        ((JSON,), {"n": 1}),
        ([JsonContentBlock(None)], None),
        ([], []),
        ([TEXT, JSON], [{"type": "text", "text": "a"}, {"type": "json", "value": {"n": 1}}]),
        ((TEXT, TEXT), [{"type": "text", "text": "a"}, {"type": "text", "text": "a"}]),
    ],
)
def test_blocks_become_one_json_value_and_none_is_lost(content: list[ContentBlock], output: object) -> None:
    """A model would see a Python repr, or miss a block."""
    assert project_content(content) == output


def test_blocks_say_their_kind() -> None:
    """Code that branches on the kind would need isinstance."""
    assert (TEXT.kind, JSON.kind) == ("text", "json")


def test_an_outcome_carries_error_and_wire_unchanged() -> None:
    """A server's own result would be replaced by our projection."""
    wire = WireResult(b'{"content":[]}', "2025-11-25")
    outcome = ToolResult([TEXT], is_error=True, wire=wire).to_outcome("7")
    assert outcome == ToolOutcome("7", "a", is_error=True, wire=wire)
    assert outcome.wire is wire


def test_text_and_error_results_are_one_block() -> None:
    """Tools would spell out the same three nested calls everywhere."""
    assert ToolResult.of_text("x") == ToolResult((TextContentBlock("x"),))
    assert ToolResult.of_error("x") == ToolResult((TextContentBlock("x"),), is_error=True)


def test_mcp_blocks_reach_an_mcp_client_as_they_are() -> None:
    """An image would arrive as a wall of base64."""
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    result = ToolResult.of_mcp({"type": "text", "text": "a picture"}, image)
    assert result.content == (TextContentBlock("a picture"), JsonContentBlock(image))
    assert result.wire is not None
    assert json.loads(result.wire.body) == {"content": [{"type": "text", "text": "a picture"}, image], "isError": False}


def test_several_blocks_stay_apart_beside_their_projection() -> None:
    """A client would be shown a list of tagged blocks in place of their texts."""
    assert ToolResult((TEXT, JSON)).to_outcome("7").parts == ("a", {"n": 1})
    assert (
        ToolResult((JsonContentBlock([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),))
        .to_outcome("7")
        .parts
        == ()
    )
