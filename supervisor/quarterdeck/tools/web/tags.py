"""A page without its tags, for one that no parser gets through: crude, but linear whatever the page is.  Pure.

Each step looks only as far as the last end of what it drops: whatever begins before that does end, so no search runs
to the end of the page in vain, again and again.  What takes the place of a tag is given by a function, as other
threads then get their turn at each tag: a page can have a million.
"""

import html
import re
from typing import Final

_RAW: Final = ("script", "style", "template", "noscript", "svg", "iframe", "head")
"""Elements whose content goes with them."""

_INLINE: Final = frozenset(
    (
        *("a", "abbr", "b", "big", "bdi", "bdo", "cite", "code", "em", "font", "i", "kbd", "mark", "q", "s", "samp"),
        *("small", "span", "strong", "sub", "sup", "u"),
    )
)
"""Elements that begin no line."""

_COMMENTS: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_RAW_ELEMENTS: Final = tuple(
    (
        re.compile(rf"</{name}[^>]*>?", re.IGNORECASE),
        re.compile(rf"<{name}\b.*?</{name}[^>]*>?", re.IGNORECASE | re.DOTALL),
    )
    for name in _RAW
)
_TAGS: Final = re.compile(r"<(?:/?([a-zA-Z][a-zA-Z0-9]*)|[/!?])[^>]*>")
_OPEN: Final = re.compile(r"<[a-zA-Z/!?]")
_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z0-9]{1,31});")
"""No longer ones: `html.unescape` fails for numbers of thousands of digits."""

_UNREADABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def strip_tags(page: str) -> str:
    """The text of `page`, each block on a line of its own."""
    page = _drop(page, _COMMENTS, page.rfind("-->") + 3).partition("<!--")[0]
    for end, element in _RAW_ELEMENTS:
        page = _drop(page, element, max((found.end() for found in end.finditer(page)), default=0))
    stop = page.rfind(">") + 1
    body = _TAGS.sub(_in_place_of, page[:stop]) + _OPEN.split(page[stop:], 1)[0]
    text = _ENTITY.sub(lambda found: html.unescape(found[0]), body)
    lines = (" ".join(line.split()) for line in _UNREADABLE.sub("", text).split("\n"))
    return "\n".join(line for line in lines if line)


def _drop(page: str, pattern: re.Pattern[str], stop: int) -> str:
    return pattern.sub(_a_line_end, page[:stop]) + page[stop:]


def _a_line_end(_: re.Match[str]) -> str:
    return "\n"


def _in_place_of(tag: re.Match[str]) -> str:
    return "" if (tag[1] or "").lower() in _INLINE else "\n"
