"""TOML: read, changed in one place, and refused where a stranger made it to hurt."""

import time
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.clients.documents import editor_of
from quarterdeck.config.clients.toml_text import MAX_CHARS, comments, parse, remove_member, scalars, set_member
from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.text_edit import EditError

PATH = ("mcp_servers", "quarterdeck")

ROW = {"command": "/q", "args": ["serve"], "env": {"A": "b"}}

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)

ROWS = st.fixed_dictionaries(
    {"command": WORDS}, optional={"args": st.lists(WORDS, max_size=3), "env": st.dictionaries(WORDS, WORDS, max_size=3)}
)

DOCUMENTS = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**60), 2**60), WORDS, st.dates(), st.lists(st.integers(), max_size=3)),
    lambda inner: st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(WORDS.filter(lambda word: word != PATH[0]), DOCUMENTS, max_size=4), ROWS, st.booleans())
def test_a_row_comes_and_goes_and_every_other_byte_stays(
    document: dict[str, Any], row: dict[str, Any], crlf: bool
) -> None:
    """A user's settings would be changed for one entry."""
    text = tomlkit.dumps(document)
    text = text.replace("\n", "\r\n") if crlf and "\\" not in text else text
    text = text if not text or text.endswith("\n") else text + "\n"
    linked = set_member(text, PATH, row)
    assert linked.startswith(text)
    assert tomllib.loads(linked.replace("\r\n", "\n"))["mcp_servers"]["quarterdeck"] == row
    assert remove_member(linked, PATH) == text


@given(st.dictionaries(WORDS, DOCUMENTS, max_size=4))
def test_every_value_is_found_where_it_stands(document: dict[str, Any]) -> None:
    """A secret would be shown, or something else be hidden in its place."""
    text = tomlkit.dumps(document)
    for names, value, start, end in scalars(text):
        if text[start] in "\"'" and names[-1]:
            assert tomllib.loads(f"a = {text[start:end]}")["a"] == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[mcp_servers.quarterdeck]\ncommand = 'x'\n# mine\n[b]\n", "# mine\n[b]\n"),
        ("[a]\n\n[mcp_servers.quarterdeck]\ncommand = 'x'\n\n[b]\n", "[a]\n\n[b]\n"),
        ("[mcp_servers.quarterdeck]\na=1\n[mcp_servers.quarterdeck.tools.x]\nb = 1 # c\n[b]\n", "[b]\n"),
        ("[mcp_servers]\nquarterdeck = {command='x'}\nb = {command='y'}\n", "[mcp_servers]\nb = {command='y'}\n"),
        ("mcp_servers.quarterdeck.command = 'x'\nmcp_servers.quarterdeck.args = []\na = 1\n", "a = 1\n"),
        ("[mcp_servers.quarterdeck]\na = '''\n[mcp_servers.b]\n'''\n[c]\n", "[c]\n"),
        ('[mcp_servers."quarterdeck"]\na = [\n  "]", # ]\n]\n[c]\n', "[c]\n"),
    ],
)
def test_a_table_is_taken_out_however_it_is_written(text: str, expected: str) -> None:
    """The client would go on to start it, or lose the comment of the table behind."""
    assert remove_member(text, PATH) == expected


@pytest.mark.parametrize("text", ["mcp_servers = {}\n", "mcp_servers = 1\n", "[[mcp_servers]]\na = 1\n"])
def test_a_file_that_has_no_place_for_a_table_is_left(text: str) -> None:
    """It would be broken for its client."""
    with pytest.raises(EditError):
        set_member(text, PATH, ROW)
    with pytest.raises(EditError):
        remove_member(text, PATH)


@pytest.mark.parametrize(
    "text",
    [
        *("a = " + "[" * 100_000, "a." * 100_000 + "b = 1", "a = " + "{a = " * 50_000, "x" * (MAX_CHARS + 1)),
        *("a = " + "9" * 10_000, "[a]\n[a]\n", "a = 1\na = 2\n", "a = '\x00'", "= 1"),
    ],
    ids=lambda text: text[:8],
)
def test_a_hostile_text_is_refused_soon(text: str) -> None:
    """A project's file would hold a user's command for minutes."""
    began = time.process_time()
    for work in (parse, lambda text: list(scalars(text)), lambda text: set_member(text, PATH, ROW)):
        with pytest.raises(DocumentError):
            work(text)
    assert time.process_time() - began < 10


def test_a_hash_in_a_key_begins_no_comment() -> None:
    """A part of a user's settings would count as a comment, and a change be refused that would lose it."""
    assert [found[0] for found in comments('"a #b" = 1 # c\nx = {"k #e" = 2} # d\n["t #f"] # g\n')] == [
        "# c",
        "# d",
        "# g",
    ]


def test_secrets_are_hidden_and_comments_are_seen() -> None:
    """A token would be on the screen, and in its recording."""
    text = """# api_key: sk-1234567890abcdef1234
[mcp_servers.a]  # plain
args = ["--token", "hunter2x", "b"] # c
env = { KEY = 'value#1', "OTHER" = \"\"\"
two
lines\"\"\" }
http_headers.X = "secret"
url = "https://h/#top"  # api_key: sk-abcdef1234567890abcd
"""
    shown = editor_of("config.toml").mask(text)
    assert not any(word in shown for word in ("sk-", "hunter2x", "value#1", "lines", '"secret"'))
    assert all(word in shown for word in ("# plain", '"b"', "https://h/", "# c"))
    first, *between, last = (found[0] for found in comments(text))
    assert (first, between) == ("# api_key: sk-1234567890abcdef1234", ["# plain", "# c"])
    assert last == "# api_key: sk-abcdef1234567890abcd", "a value with such a character stands before it"
    assert "sk-" not in editor_of("config.toml").mask("a = sk-1234")


def test_values_that_json_has_not_are_texts() -> None:
    """An imported row could not be written to our file."""
    assert parse("a = 1979-05-27\nb = inf\nc = 07:32:00\n") == {"a": "1979-05-27", "b": "inf", "c": "07:32:00"}
