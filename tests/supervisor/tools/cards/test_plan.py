"""Plan mode's markers."""

import pytest
from support.tools.cards import ask, text_of

from quarterdeck.tools.card_types import DeckContext
from quarterdeck.tools.cards.plan import (
    enter_plan_mode_tool,
    exit_plan_mode_tool,
)
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock


@pytest.mark.anyio
async def test_entering_is_marked_and_told() -> None:
    """A host could not see the wish, or a model would go on changing things."""
    result = await ask(enter_plan_mode_tool)()
    marker, prose = result.content
    assert marker == JsonContentBlock({"enterPlanMode": True, "applied": False})
    assert isinstance(prose, TextContentBlock)
    assert "only explore" in prose.text
    assert not result.is_error


@pytest.mark.anyio
async def test_leaving_carries_the_plan() -> None:
    """A host would have nothing to show its user."""
    result = await ask(exit_plan_mode_tool)(plan="# Dig\n1. dig")
    assert list(result.content) == [JsonContentBlock({"exitPlan": True, "plan": "# Dig\n1. dig"})]


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", [{}, {"plan": ""}, {"plan": 5}])
async def test_leaving_without_a_plan_is_an_error(arguments: dict[str, object]) -> None:
    """A user would be asked to approve nothing."""
    result = await ask(exit_plan_mode_tool)(**arguments)
    assert result.is_error
    assert "plan" in text_of(result)


def test_both_are_always_permitted() -> None:
    """A session in plan mode could not ask to leave it."""
    for build in (enter_plan_mode_tool, exit_plan_mode_tool):
        card = build(DeckContext("/work"))
        assert card.read_only
        assert card.hints is not None
        assert not card.hints.open_world
