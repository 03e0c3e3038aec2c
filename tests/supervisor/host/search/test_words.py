"""The words that tools are found by, and those of questions."""

import json

from quarterdeck.host.search.words import (
    MAX_FIELD_CHARS,
    MAX_QUESTION_WORDS,
    ToolWords,
    split_words,
    words_of_question,
    words_of_tool,
)
from quarterdeck_protocol.tools import ToolDescriptor


def test_a_name_is_taken_apart_where_people_join_words() -> None:
    """`createIssue` would be found by nobody who asks for an issue."""
    assert split_words("github__createIssue") == "github  create Issue"
    assert split_words("parseHTTPResponse") == "parse HTTP Response"
    assert split_words("read-file v2Beta") == "read-file v2 Beta"


def test_all_that_says_what_a_tool_is_for_is_among_its_words() -> None:
    """A question in the words of a parameter would find nothing."""
    schema = {
        "type": "object",
        "description": "not said twice",
        "properties": {
            "repoOwner": {"type": "string", "title": "Who", "description": "of the fork"},
            "where": {"anyOf": [{"type": "null"}, {"properties": {"line": {}}}]},
        },
    }
    definition = json.dumps({"name": "open", "title": "Open it", "inputSchema": schema}).encode()
    tool = ToolDescriptor("gh__open", "Opens what was_closed.", {}, definition)
    assert words_of_tool(tool) == ToolWords(
        "gh  open", "Open it", "Opens what was closed.", "repo Owner where Who of the fork line"
    )
    native = ToolDescriptor("grep", "Finds text.", {"properties": {"glob": {}}}, title="Grep")
    assert words_of_tool(native) == ToolWords("grep", "Grep", "Finds text.", "glob")


def test_a_definition_of_any_shape_has_words_and_not_too_many() -> None:
    """One odd server would keep all tools from being found, or fill the memory of the index."""
    deep: object = {}
    for _ in range(200):
        deep = {"items": deep, "properties": {"p" * 100: {}}}
    for schema in (None, [], {"properties": []}, {"properties": {"a": None}, "items": 7, "anyOf": {"x": 1}}, deep):
        definition = json.dumps({"title": 3, "inputSchema": schema}).encode()
        words = words_of_tool(ToolDescriptor("s__t", "d" * 9_999, {}, definition))
        assert (words.title, len(words.description)) == ("", MAX_FIELD_CHARS)
        assert len(words.parameters) <= MAX_FIELD_CHARS
    assert words_of_tool(ToolDescriptor("s__t", "", {}, b"\xff")).parameters == ""


def test_a_question_is_its_telling_words_once_each() -> None:
    """Half of every question would be found in every tool."""
    assert words_of_question("How do I read the contents of a File, or read_files?") == (
        "read",
        "contents",
        "file",
        "files",
    )
    assert words_of_question("how to do it") == ("how", "to", "do", "it")
    assert words_of_question('"; DROP -- *') == ("drop",)
    assert words_of_question("!?") == ()
    assert len(words_of_question(" ".join(f"w{number}" for number in range(99)))) == MAX_QUESTION_WORDS
