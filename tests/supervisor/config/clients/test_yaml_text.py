"""YAML: changed in one place."""

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from quarterdeck.config.clients.yaml_text import remove_member, set_member
from quarterdeck.config.clients.yaml_tree import comments, parse
from quarterdeck.config.load.text_edit import EditError

PATH = ("extensions", "quarterdeck")

ROW = {"type": "stdio", "cmd": "/q", "args": ["serve"], "envs": {"A": "b"}, "enabled": True}

ITEM = {"name": "quarterdeck", "command": "/q", "args": ["serve"]}

WORDS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=12)

ROWS = st.fixed_dictionaries(
    {"cmd": WORDS},
    optional={
        "args": st.lists(WORDS, max_size=3),
        "envs": st.dictionaries(WORDS, WORDS, max_size=3),
        "n": st.integers(),
    },
)

DOCUMENTS = st.recursive(
    st.one_of(st.booleans(), st.none(), st.integers(), WORDS),
    lambda inner: st.one_of(st.dictionaries(WORDS, inner, max_size=3), st.lists(inner, max_size=3)),
    max_leaves=10,
)


def dumped(document: object, *, is_flow: bool) -> str:
    """A text as a client would write it; a flow is JSON, since the library cannot read all flows that it writes."""
    if is_flow:
        return json.dumps(document) + "\n"
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    stream = StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(WORDS.filter(lambda word: word != "extensions"), DOCUMENTS, min_size=1, max_size=3),
    st.dictionaries(WORDS.filter(lambda word: word != "quarterdeck"), ROWS, min_size=1, max_size=3),
    ROWS,
    st.booleans(),
)
def test_a_row_comes_and_goes_and_all_else_means_the_same(
    document: dict[str, Any], others: dict[str, Any], row: dict[str, Any], is_flow: bool
) -> None:
    """A user's settings would be changed for one entry, or lose their comments."""
    text = dumped(document | {"extensions": others}, is_flow=is_flow)
    if not is_flow:
        text = f"# mine\n{text}# the end\n"
    linked = set_member(text, PATH, row)
    assert parse(linked)["extensions"] == others | {"quarterdeck": row}
    unlinked = remove_member(linked, PATH)
    assert parse(unlinked) == parse(text)
    assert [[found[0] for found in comments(each)] for each in (linked, unlinked)] == [
        [found[0] for found in comments(text)]
    ] * 2


@pytest.mark.parametrize(
    "text",
    [
        "extensions:\n  a:\n    b: 1\n",
        "extensions:\n    a: {b: 1}  # c\n# d\nz: 1\n",
        "extensions: {a: {b: 1}}\n",
        "extensions: {}\n",
        "---\nextensions:\n  a:\n    b: |\n      t\n",
        "x: &x 1\nextensions:\n  a: *x\n",
        "extensions:\r\n  a:\r\n    b: 1\r\n",
    ],
)
def test_a_row_goes_as_it_came(text: str) -> None:
    """A file under version control would differ for ever."""
    linked = set_member(text, PATH, ROW)
    assert parse(linked)["extensions"]["quarterdeck"] == ROW  # type: ignore[index]
    assert remove_member(linked, PATH) == text
    assert parse(set_member(linked, PATH, {"cmd": "/new"}))["extensions"]["quarterdeck"] == {"cmd": "/new"}  # type: ignore[index]


@pytest.mark.parametrize("text", ["", "# only this\n", "a: 1", "extensions:\n", "extensions: # c\nb: 1\n", "---\n"])
def test_a_place_is_made_where_there_is_none(text: str) -> None:
    """A client that was just installed could not be linked."""
    linked = set_member(text, PATH, ROW)
    assert parse(linked)["extensions"] == {"quarterdeck": ROW}
    assert parse(remove_member(linked, PATH))["extensions"] == {}


@pytest.mark.parametrize(
    "text",
    [
        "mcpServers:\n  - name: a\n    command: b\nz: 1\n",
        "mcpServers:\n- name: a\n- command: b\n",
        "mcpServers: []\n",
        "mcpServers: [{name: a, command: b}]\n",
    ],
)
def test_an_item_of_a_list_goes_as_it_came(text: str) -> None:
    """Continue keeps its servers in a list."""
    path = ("mcpServers", "quarterdeck")
    linked = set_member(text, path, ITEM, is_item=True)
    assert parse(linked)["mcpServers"][-1] == ITEM  # type: ignore[index]
    assert remove_member(linked, path) == text


@pytest.mark.parametrize("text", ["", "a: 1\n", "mcpServers:\nz: 1\n"])
def test_a_list_is_made_where_there_is_none(text: str) -> None:
    """Continue could not be linked before it had a first server."""
    assert parse(set_member(text, ("mcpServers", "quarterdeck"), ITEM, is_item=True))["mcpServers"] == [ITEM]


@pytest.mark.parametrize(
    "text", ["extensions: 1\n", "extensions: [a]\n", "extensions: null\n", "extensions: {a: 1, # c\n }\n"]
)
def test_a_file_that_has_no_place_for_a_row_is_left(text: str) -> None:
    """It would be broken for its client."""
    with pytest.raises(EditError):
        remove_member(set_member(text, PATH, ROW), ("extensions", "absent"))


def test_a_file_whose_comments_would_be_lost_is_left() -> None:
    """A user's notes within braces would vanish: the round trip keeps none there."""
    with pytest.raises(EditError, match="a comment in it would be lost"):
        set_member("extensions: {a: {b: 1}, # mine\n  c: {}}\n", PATH, ROW)


def test_a_word_that_other_readers_take_for_a_boolean_is_quoted() -> None:
    """A client that reads YAML 1.1 would start us with `true` for an argument."""
    assert 'args: ["yes", serve]' in set_member("", PATH, {"args": ["yes", "serve"]})


def test_a_list_that_has_a_name_more_than_once_is_left() -> None:
    """One of two entries would be replaced, and the client start the other."""
    text = "mcpServers:\n- name: quarterdeck\n  command: a\n- name: quarterdeck\n  command: b\n"
    with pytest.raises(EditError, match="more than once"):
        set_member(text, ("mcpServers", "quarterdeck"), ITEM, is_item=True)
