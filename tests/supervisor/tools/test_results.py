"""From content blocks to an outcome."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.results import (
    STANDARD_BUDGET,
    BudgetKind,
    ContentBlock,
    JsonContentBlock,
    Output,
    OutputBudget,
    TextContentBlock,
    ToolResult,
    clamp,
    project_content,
)
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


def test_an_outcome_carries_error_and_wire_unchanged() -> None:
    """A server's own result would be replaced by our projection."""
    wire = WireResult(b'{"content":[]}', "2025-11-25")
    outcome = ToolResult([TEXT], is_error=True, wire=wire).to_outcome("7")
    assert outcome == ToolOutcome("7", "a", is_error=True, wire=wire)
    assert outcome.wire is wire


class Found(Output, frozen=True):
    """A structure."""

    how_many: int


def test_a_structure_is_shown_as_json_and_goes_along_as_it_is() -> None:
    """A program would be told another thing than the model."""
    result = ToolResult.of_output(Found(how_many=2), TEXT)
    assert result.content == (JsonContentBlock({"howMany": 2}), TEXT)
    assert result.to_outcome("7").structured == {"howMany": 2}


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


def gap(omitted_bytes: int) -> str:
    return f"<{omitted_bytes}>"


@pytest.mark.parametrize(
    ("kind", "max_bytes", "text", "kept"),
    [
        (BudgetKind.HEAD, 3, "abcdef", "abc<3>"),
        (BudgetKind.TAIL, 3, "abcdef", "<3>def"),
        (BudgetKind.MIDDLE, 3, "abcdef", "a<3>ef"),
        (BudgetKind.MIDDLE, 4, "abcdef", "ab<2>ef"),
        (BudgetKind.HEAD, 0, "abc", "<3>"),
        (BudgetKind.TAIL, 0, "abc", "<3>"),
        (BudgetKind.MIDDLE, 0, "abc", "<3>"),
        (BudgetKind.HEAD, 3, "aéé", "aé<2>"),
        (BudgetKind.HEAD, 2, "aéé", "a<4>"),
        (BudgetKind.TAIL, 3, "ééa", "<2>éa"),
        (BudgetKind.TAIL, 2, "ééa", "<4>a"),
        (BudgetKind.HEAD, 3, "€€", "€<3>"),
        (BudgetKind.HEAD, 6, "abcdef", "abcdef"),
        (BudgetKind.HEAD, 2, "\ud800\ud800", "<6>"),
    ],
)
def test_a_text_is_cut_to_its_budget_between_characters(kind: BudgetKind, max_bytes: int, text: str, kept: str) -> None:
    """A model would get half a character, or not be told that something is missing."""
    assert clamp(text, OutputBudget(kind, max_bytes, gap)) == kept


@given(st.text(), st.sampled_from(BudgetKind), st.integers(0, 40))
def test_what_is_kept_and_what_is_named_add_up(text: str, kind: BudgetKind, max_bytes: int) -> None:
    """The notice would lie about how much is missing."""
    named: list[int] = []
    result = clamp(text, OutputBudget(kind, max_bytes, lambda omitted: named.append(omitted) or ""))
    size = len(text.encode())
    assert len(result.encode()) + sum(named) == size
    assert len(result.encode()) <= max(max_bytes, 0)
    assert bool(named) == (size > max_bytes)


def test_the_default_notice_names_the_bytes_left_out() -> None:
    """A model would take the rest for the whole."""
    assert "1,234 bytes" in clamp("x" * (64 * 1024 + 1234), STANDARD_BUDGET)
