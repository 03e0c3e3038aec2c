"""Tools ranked by a question."""

import sqlite3

import pytest

from quarterdeck.host.search import index
from quarterdeck.host.search.index import ToolIndex, missing_reason
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import ToolDescriptor


def tool(name: str, description: str = "", *parameters: str) -> ToolDescriptor:
    return ToolDescriptor(name, description, {"properties": {each: {} for each in parameters}})


def names(tools: ToolIndex, question: str) -> list[str]:
    return [each.name for each in tools.ranked(question)]


def test_what_is_called_so_comes_before_what_speaks_of_it() -> None:
    """A model would read the wrong definitions first, or only them."""
    tools = ToolIndex(
        [
            tool("fs__move", "Moves a file; see also what reads a file."),
            tool("gh__createIssue", "Opens one.", "title"),
            tool("gh__list", "Lists, for a title to be created, every issue."),
            tool("fs__read_file", "Shows what is in it."),
            tool("clock__now"),
        ]
    )
    assert names(tools, "How do I create an issue?") == ["gh__createIssue", "gh__list"]
    assert names(tools, "reading files")[0] == "fs__read_file"
    assert names(tools, "gh__createIssue")[0] == "gh__createIssue"
    assert names(tools, "weather") == names(tools, "?") == names(ToolIndex(()), "file") == []


def test_words_of_a_question_are_no_language() -> None:
    """A question with an AND, a star or a quote in it would fail, or ask for something else."""
    tools = ToolIndex([tool("a__near", "and or not"), tool("a__other", "x\ud800y")])
    for question in ("NOT near", 'near"', "near*", "name:near", "NEAR(near other)", "near) OR (1"):
        assert "a__near" in names(tools, question), question


def test_ties_stand_in_the_order_of_the_deck() -> None:
    """The same question would be answered otherwise each time, and no prompt be cached."""
    tools = ToolIndex([tool(f"s__same_{letter}") for letter in "dacb"])
    assert names(tools, "same") == [f"s__same_{letter}" for letter in "dacb"]


def test_a_python_without_full_text_search_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search would fail for the first model that asks, in words of SQLite's."""
    assert missing_reason() == ""
    monkeypatch.setattr(index, "_TABLE", "CREATE VIRTUAL TABLE tools USING fts9(name)")
    assert missing_reason() == (
        f"this Python's SQLite {sqlite3.sqlite_version} has no full-text search (FTS5): no such module: fts9"
    )
    with pytest.raises(ProtocolFault, match="tools cannot be searched: this Python's SQLite"):
        ToolIndex(())
