"""The questions of the bench over the tools of public servers: what the documentation says is found, is."""

import asyncio

from bench.tool_search import DECK, GROUPS, measure, measure_groups, questions, stuffed, tools_of


def test_the_questions_name_tools_that_there_are() -> None:
    """A question would count as missed for a slip of its writer's."""
    names = {tool.name for tool in tools_of(DECK)}
    asked = questions()
    assert len(asked) == len({each.text for each in asked}) == 100
    assert [each for each in asked if not each.right or each.right - names] == []


def test_most_questions_are_answered_among_the_first_five() -> None:
    """A change of the words or weights would cost models what they look for, unseen."""
    found = asyncio.run(measure(tools_of(DECK)))
    assert (found.servers, found.fifth >= 85, found.twentieth >= 95) == (17, True, True)
    assert found.after < found.before / 100


def test_a_server_that_is_made_to_be_found_by_every_question_crowds_nobody_out() -> None:
    """One server could keep every other's tools from models by its words alone."""
    found = asyncio.run(measure((*stuffed("description"), *tools_of(DECK))))
    assert (found.servers, found.fifth >= 70) == (18, True)


def test_groups_spare_what_the_documentation_says() -> None:
    """The table would be of groups that fit nothing, or of other tools."""
    found = measure_groups(tools_of(DECK))
    assert [each.name for each in found] == list(GROUPS)
    assert all(0 < each.tools < 239 and 0 < each.searched < each.tokens for each in found)
