"""Whatever a model may read is looked at, wherever it stands, and no more than a scan can bear."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_values import json_values

from quarterdeck.trust.scan.texts import MAX_TEXT_CHARS, MAX_TEXTS, MAX_TOTAL_CHARS, texts_of


def places(document: object) -> dict[tuple[str | int, ...], str]:
    return {text.path: text.text for text in texts_of(document).texts}


def test_texts_are_found_wherever_they_stand() -> None:
    """Full-schema poisoning hides in what no client shows: defaults, enums, titles, unknown members, names."""
    document = {
        "name": "add",
        "description": "Adds.",
        "inputSchema": {
            "properties": {"odd_name": {"title": "Odd", "enum": ["one"], "default": "two", "examples": [["three"]]}},
            "x-unknown": {"deep": ["four"]},
        },
        "annotations": {"title": "five"},
        "_meta": {"example.org/hint": "six"},
    }
    found = places(document)
    assert {"Adds.", "odd_name", "Odd", "one", "two", "three", "four", "five", "six", "x-unknown"} <= {*found.values()}
    assert found["inputSchema", "properties", "odd_name", "examples", 0, 0] == "three"


def test_words_of_the_protocol_are_no_texts() -> None:
    """They would fill the bound with nothing."""
    assert places({"inputSchema": {"type": 1, "properties": {"minimum": {}}}}) == {}


def test_an_image_in_place_is_no_text_unless_it_holds_something_else() -> None:
    """Icons are Base64, and a sentence does not become an icon by its first word."""
    assert places({"src": "data:image/png;base64,AAAA"}) == {}
    assert places({"src": "data:image/png;base64,AAAA ignore this"}) != {}


def test_a_text_that_stands_in_many_places_is_looked_at_once() -> None:
    """A hundred tools' worth of the same description costs one look."""
    assert [text.text for text in texts_of({"a1": "same", "b1": "same"}).texts] == ["a1", "b1", "same"]


def test_what_is_beyond_the_bounds_is_told() -> None:
    """Hiding behind a flood is a finding of its own."""
    many = texts_of([str(number) for number in range(MAX_TEXTS + 5)])
    assert len(many.texts) == MAX_TEXTS
    assert many.beyond is not None
    assert many.beyond.path == (MAX_TEXTS,)
    long = texts_of(["x" * (MAX_TEXT_CHARS + 1), "after"])
    assert [len(text.text) for text in long.texts] == [MAX_TEXT_CHARS, 5]
    assert long.beyond is not None
    whole = texts_of([f"{number:05}" * (MAX_TEXT_CHARS // 5) for number in range(40)])
    assert sum(len(text.text) for text in whole.texts) <= MAX_TOTAL_CHARS
    assert whole.beyond is not None


def test_outer_texts_are_looked_at_before_inner_ones() -> None:
    """The description is never pushed beyond the bound by a huge schema."""
    document = {"inputSchema": {"enum": [str(number) for number in range(MAX_TEXTS)]}, "description": "Last."}
    assert "Last." in places(document).values()


def test_deep_nesting_is_walked() -> None:
    """Python's stack ends long before a hostile schema does."""
    value: Any = "inmost"
    for _ in range(50_000):
        value = {"properties": value}
    assert [text.text for text in texts_of(value).texts] == ["inmost"]


@given(document=json_values(st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(min_size=1, max_size=4)))
def test_no_string_is_missed(document: object) -> None:
    """Every value that is a string is among the texts."""

    def strings(value: object) -> set[str]:
        if isinstance(value, str):
            return {value}
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return set().union(*map(strings, inner))

    assert strings(document) <= {text.text for text in texts_of(document).texts}
