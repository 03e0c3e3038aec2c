"""What is asked of a parsed page."""

from typing import cast

import pytest
from justhtml import JustHTML

from quarterdeck.tools.web.page_tree import MAX_TITLE_CHARS, Node, base_of, link_target, title_of

URL = "https://example.com/a/b"


def tree(html: str) -> Node:
    return cast("Node", JustHTML(html, sanitize=False).root)


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> A \n page </title>", "A page"),
        ("<title>&lt;b&gt;</title>", "<b>"),
        ("<p>no title", ""),
        ("<title></title>", ""),
        ("<svg><title>icon</title></svg>", ""),
        ("<title>" + "x" * 1000, "x" * MAX_TITLE_CHARS),
    ],
)
def test_the_title_is_the_pages_own(html: str, title: str) -> None:
    """An icon's title would be shown as the page's."""
    assert title_of(tree(html)) == title


@pytest.mark.parametrize(
    ("html", "base"),
    [
        ("", URL),
        ("<base href=/x/>", "https://example.com/x/"),
        ("<base target=_top><base href='https://b.example/'>", "https://b.example/"),
        ("<base href='file:///etc/'>", URL),
        ("<base href='http://['>", URL),
        ("<body><base href=/late/>", URL),
    ],
)
def test_links_start_where_the_page_says(html: str, base: str) -> None:
    """Relative links would lead to pages that are not there."""
    assert base_of(tree(html), URL) == base


def test_a_link_within_the_page_leads_nowhere() -> None:
    """Tables of contents would be lists of links to the page itself."""
    assert link_target("#x", URL, URL) is None
    assert link_target("b#x", URL, URL) is None
    assert link_target("c#x", URL, URL) == "https://example.com/a/c#x"
