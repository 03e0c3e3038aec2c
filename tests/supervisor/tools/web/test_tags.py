"""A page without its tags, however it is made."""

import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web import tags
from quarterdeck.tools.web.tags import strip_tags


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>one</p><p>two <b>three</b></p>", "one\ntwo three"),
        ("a < b &amp;&lt; c", "a < b &< c"),
        ("<script>if (a < b) { x('</p>') }</script>y", "y"),
        ("<STYLE>p{}</STYLE >y", "y"),
        ("<head><title>t</title></head>y", "y"),
        ("x<!-- <p>no</p> -->y", "x\ny"),
        ("x<!-- never closed", "x"),
        ("x<script>never closed", "x\nnever closed"),
        ("x<p never closed", "x"),
        ("<!doctype html><?xml?>x", "x"),
        ("&#65;&#x42;&#99999999999;&nosuch;&#1114112;", "AB&#99999999999;&nosuch;\ufffd"),
        ("a\x1bb\tc\r\nd", "ab c\nd"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_tags_go_and_text_stays(page: str, text: str) -> None:
    """A page that no parser gets through would show nothing."""
    assert strip_tags(page) == text


@given(st.text(alphabet="<>/!-&;#xscript aİ\n\"'=", max_size=200))
def test_any_page_gives_text(page: str) -> None:
    """The last resort could fail itself."""
    assert "\n\n" not in strip_tags(page)


@pytest.mark.parametrize(
    "unit",
    ["<", "<a", "<b>", "</", "<!--", "<!-- -->", "<script>", "<script></", "&", "&#1", "<p title='", "&#" + "9" * 5000],
)
def test_five_megabytes_of_anything_are_done_at_once(unit: str) -> None:
    """A page made to be slow would be slow here too: with a quadratic step this test would take hours."""
    strip_tags(unit * ((5 << 20) // len(unit)))


def test_other_threads_get_a_turn_at_each_tag() -> None:
    """A page of a million tags held up every client for half a second: only Python's own calls let others go on."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == tags.__file__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        strip_tags("<li>" * 1000)
    finally:
        sys.setprofile(before)
    assert calls > 1000
