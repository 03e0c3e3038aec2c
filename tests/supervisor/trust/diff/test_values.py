"""What a server wrote is quoted in one harmless line."""

import json

from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_values import json_values

from quarterdeck.trust.diff.values import MAX_PLACE_CHARS, cut_pair, place_of, shown, spelled

TEXTS = st.text(st.characters(codec=None), max_size=80)


@given(text=TEXTS, limit=st.integers(1, 60))
def test_nothing_unseen_survives_and_no_limit_is_passed(text: str, limit: int) -> None:
    """A terminal shows exactly what is printed to it."""
    assert shown(text, limit).isprintable()
    assert len(shown(text, limit)) <= limit


def test_what_does_not_show_itself_is_written_as_an_escape() -> None:
    """Line breaks, colours, invisible letters, letters that turn text around, fillers that Python calls printable."""
    assert shown("a\n\x1b[1m\u200b\u202e\U000e0041\ufe0f\u3164é", 80) == (
        "a\\n\\u001b[1m\\u200b\\u202e\\U000e0041\\ufe0f\\u3164é"
    )


def test_an_escape_is_never_cut_in_half() -> None:
    """Half of one would be read as something else."""
    assert shown("\u200b\u200b\u200b", 14) == "\\u200b\\u200b…"
    assert shown("\u200b\u200b", 8) == "\\u200b…"


def test_a_path_becomes_a_pointer_of_bounded_length() -> None:
    """RFC 6901; and a member's name may have a megabyte."""
    assert place_of(()) == ""
    assert place_of(("a/b", 0, "~")) == "/a~1b/0/~0"
    assert len(place_of(("x" * 10_000,) * 1_000)) == MAX_PLACE_CHARS


@given(value=json_values())
def test_a_value_is_spelled_as_json_with_sorted_keys(value: object) -> None:
    """What is shown as before and after can be read back."""
    assert spelled(value, 10_000) == json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert spelled(value, 7) == spelled(value, 10_000)[:7]


@given(common=st.text(max_size=200), one=st.text(max_size=40), other=st.text(max_size=40))
def test_two_texts_that_differ_still_differ_when_cut(common: str, one: str, other: str) -> None:
    """Otherwise a change would be shown as none."""
    before, after = cut_pair(common + one, common + other, 40)
    assert len(before) <= 40
    assert len(after) <= 40
    if one != other:
        assert before != after
