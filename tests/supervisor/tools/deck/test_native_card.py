"""A tool of our own as a card."""

from dataclasses import replace

import pytest
from support.cards import text_of

from quarterdeck.tools.context import ToolContext, inert_context
from quarterdeck.tools.deck.native_card import NativeCard
from quarterdeck.tools.results import BudgetKind, JsonContentBlock, OutputBudget, TextContentBlock, ToolResult
from quarterdeck.tools.spec import ToolSpec, define_tool
from quarterdeck_protocol.tools import ToolHints

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


async def two_blocks(value: object, ctx: ToolContext) -> ToolResult:
    return ToolResult((TextContentBlock("x" * 100), JsonContentBlock({"given": value})))


def card_of(hints: ToolHints | None = None, label: str = "") -> NativeCard:
    return NativeCard(define_tool(ToolSpec("look", "Looks.", PARAMETERS, two_blocks, title="Look", hints=hints)), label)


def test_a_card_says_what_its_tool_says() -> None:
    """A model or a client would be told something else than what runs."""
    hints = ToolHints(read_only=True)
    card = card_of(hints)
    assert (card.name, card.label, card.description, card.parameters) == ("look", "Look", "Looks.", PARAMETERS)
    assert (card.hints, card.read_only, card.definition) == (hints, True, None)


def test_the_decks_own_words_win_for_people() -> None:
    """The catalogue and the session would call one tool by two names."""
    assert card_of(label="Look around").label == "Look around"


def test_a_tool_without_hints_is_not_taken_for_harmless() -> None:
    """A permission that is needed would not be asked for."""
    assert not card_of().read_only


@pytest.mark.anyio
async def test_every_block_of_a_result_stays() -> None:
    """A marker beside a text would be lost to whoever watches for it."""
    result = await card_of().run({"path": "a"}, inert_context())
    assert [block.kind for block in result.content] == ["text", "json"]


@pytest.mark.anyio
async def test_input_is_judged_and_texts_are_cut_as_for_any_native_tool() -> None:
    """An app card would raise on wrong input, or flood a model."""
    wrong = await card_of().run({}, inert_context())
    assert wrong.is_error
    assert "path is missing" in text_of(wrong)
    narrow = replace(inert_context(), budget=OutputBudget(BudgetKind.HEAD, 10))
    text = (await card_of().run({"path": "a"}, narrow)).content[0]
    assert isinstance(text, TextContentBlock)
    assert text.text == f"{'x' * 10}\n[90 bytes left out]\n"
