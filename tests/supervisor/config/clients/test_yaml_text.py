"""YAML: read, changed in one place, and refused where a stranger made it to hurt."""

import json
import time
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from quarterdeck.config.clients.documents import editor_of
from quarterdeck.config.clients.yaml_text import MAX_CHARS, comments, parse, remove_member, set_member
from quarterdeck.config.load.document import DocumentError
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
    # The library loses a comment behind an empty item of a list: such a file is left to its user.
    lambda inner: st.one_of(
        st.dictionaries(WORDS, inner, max_size=3),
        st.lists(inner.filter(lambda item: item not in (None, {}, [])), max_size=3),
    ),
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
        *("extensions:\n  a:\n    b: 1\n", "extensions:\n    a: {b: 1}  # c\n# d\nz: 1\n"),
        *("extensions: {a: {b: 1}}\n", "extensions: {}\n", "---\nextensions:\n  a:\n    b: |\n      t\n"),
        *("x: &x 1\nextensions:\n  a: *x\n", "extensions:\r\n  a:\r\n    b: 1\r\n"),
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


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{','.join(['*' + chr(97 + at)] * 9)}]\n" for at in range(9)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "aliases stand for more"),
        ("a: &a [*a]\n", "nested deeper"),
        ("a: *a\n", "undefined alias"),
        ("a: " + "[" * 100_000, "nested deeper"),
        ("- " * 50_000, "nested deeper"),
        ("{" * 100_000, "nested deeper"),
        ("x" * (MAX_CHARS + 1), "larger than"),
        ("a: !!python/object/apply:os.system [id]\n", "tag"),
        ("a: !mine 1\n", "tag"),
        ("a: 1\na: 2\n", "more than once"),
        ("a: 1\n---\nb: 1\n", "more than one document"),
        ("- a\n", "expected a mapping"),
        ("? [a]\n: b\n", "a key is not a text"),
        ("a: 'b", "line 1"),
        ("a: \x00", "YAML"),
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_is_refused_soon_and_says_why(text: str, reason: str) -> None:
    """A project's file would hold a user's command for minutes, or run a program."""
    began = time.process_time()
    with pytest.raises(DocumentError, match=reason):
        set_member(text, ("extensions", "quarterdeck"), {"cmd": "/q"})  # which parses it first
    assert time.process_time() - began < 10


def test_anchors_and_merges_mean_what_they_mean() -> None:
    """A server whose settings are shared with another would be imported without them."""
    text = "base: &base {timeout: 5, env: {A: b}}\nmore: &more {x: 1}\na: {<<: [*base, *more], timeout: 6}\nb: *base\n"
    shared = {"timeout": 5, "env": {"A": "b"}}
    assert parse(text) == {"base": shared, "more": {"x": 1}, "a": {**shared, "x": 1, "timeout": 6}, "b": shared}


def test_plain_words_mean_what_the_core_schema_says() -> None:
    """A port would be a text, or a version a number."""
    text = "[1, -2, 0o17, 0x1f, 1.5, 1e3, true, False, null, ~, yes, 1.2.3, '1', .inf]"
    assert parse(f"a: {text}\nb:\n") == {
        "a": [1, -2, 15, 31, 1.5, 1000.0, True, False, None, None, "yes", "1.2.3", "1", ".inf"],
        "b": None,
    }


def test_a_hash_in_a_key_begins_no_comment() -> None:
    """A part of a user's settings would count as a comment, and a change be refused that would lose it."""
    assert [found[0] for found in comments('"a #b": 1 # c\nx: {"k #e": [y #z\n  ]} # d\n')] == ["# c", "#z", "# d"]


def test_secrets_are_hidden_and_comments_are_seen() -> None:
    """A token would be on the screen, and in its recording."""
    text = """# api_key: sk-1234567890abcdef1234
a:  # plain
  args: ["--token", hunter2x, 'b # no']
  envs: {KEY: value#1}
  env:
    OTHER: |
      two
      lines
  url: "https://h/ #top"  # api_key: sk-abcdef1234567890abcd
"""
    shown = editor_of("config.yaml").mask(text)
    assert not any(word in shown for word in ("sk-", "hunter2x", "value#1", "two", "lines"))
    assert all(word in shown for word in ("# plain", "b # no", "https://h/"))
    first, *between, last = (found[0] for found in comments(text))
    assert (first, between) == ("# api_key: sk-1234567890abcdef1234", ["# plain"])
    assert last == "# api_key: sk-abcdef1234567890abcd", "a value with such a character stands before it"
    assert "sk-" not in editor_of("config.yaml").mask("a: [sk-1234")
