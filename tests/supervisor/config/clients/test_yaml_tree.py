"""YAML: read, and refused where a stranger made it to hurt."""

import time

import pytest

from quarterdeck.config.clients.documents import Format, mask_as
from quarterdeck.config.clients.yaml_text import set_member
from quarterdeck.config.clients.yaml_tree import MAX_CHARS, comments, parse
from quarterdeck.config.load.document import DocumentError

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
        parse(text)
    with pytest.raises(DocumentError):
        set_member(text, ("extensions", "quarterdeck"), {"cmd": "/q"})
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
    shown = mask_as(Format.YAML, text)
    assert not any(word in shown for word in ("sk-", "hunter2x", "value#1", "two", "lines"))
    assert all(word in shown for word in ("# plain", "b # no", "https://h/"))
    first, *between, last = (found[0] for found in comments(text))
    assert (first, between) == ("# api_key: sk-1234567890abcdef1234", ["# plain"])
    assert last == "# api_key: sk-abcdef1234567890abcd", "a value with such a character stands before it"
    assert "sk-" not in mask_as(Format.YAML, "a: [sk-1234")
