"""What is asked of a parsed page before and while it is read, over the nodes of the parser.

Runs in the child process that parses (`page_child`), and imports nothing heavy.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import urljoin

MAX_LINK_CHARS: Final = 2000
"""Longer ones lead to data, not to pages."""

MAX_TITLE_CHARS: Final = 300

LISTS: Final = frozenset(("ul", "ol", "menu"))
CODE: Final = frozenset(("code", "kbd", "samp", "tt"))
CELLS: Final = frozenset(("td", "th"))
HEADINGS: Final = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}
"""Each with what stands in front of its text."""

BLOCKS: Final = frozenset(
    (
        *("p", "dl", "figure", "figcaption", "details", "fieldset", "address", "form", "article", "section", "main"),
        "table",
    )
)
"""Elements that stand apart from what is around them."""

LINES: Final = frozenset(
    (
        *("div", "header", "footer", "nav", "aside", "center", "dt", "summary", "legend", "caption", "hgroup"),
        *("search", "tr"),
    )
)
"""Elements that stand on lines of their own."""

_DROPPED: Final = frozenset(
    (
        *("head", "script", "style", "template", "noscript", "svg", "math", "iframe", "frameset", "noframes"),
        *("object", "embed", "applet", "canvas", "audio", "video", "map", "select", "datalist", "textarea"),
        *("meter", "progress", "dialog"),
    )
)
"""Elements without text for a reader, or whose text is a stand-in."""

_NOT_IN_CELLS: Final = frozenset({"table", "pre", "blockquote", "form", *LISTS, *HEADINGS})
"""A table with one of these inside arranges a page: it is no table of values."""

_UNREADABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPACES: Final = re.compile(r"[\s\x00-\x20]+")


class Node(Protocol):
    """What is used of a node of the parser; read-only."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def attrs(self) -> Mapping[str, str | None] | None: ...  # noqa: D102
    @property
    def children(self) -> Sequence["Node"] | None: ...  # noqa: D102
    @property
    def data(self) -> object: ...  # noqa: D102


def readable(text: str) -> str:
    """`text` without characters that command a terminal."""
    return _UNREADABLE.sub("", text)


def attribute(node: Node, name: str) -> str:
    """An attribute's value; empty when there is none."""
    return (node.attrs or {}).get(name) or ""


def is_dropped(node: Node) -> bool:
    """Whether the node is left out with all that is in it."""
    return node.name in _DROPPED or (bool(node.attrs) and "hidden" in (node.attrs or ()))


def first_number(node: Node) -> int:
    """The number of a list's first item."""
    text = attribute(node, "start").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 1


def title_of(root: Node) -> str:
    """The page's title on one line; empty for none."""
    for node in _preamble(root):
        if node.name == "title":
            text = "".join(str(each.data or "") for each in node.children or () if each.name == "#text")
            return readable(" ".join(text.split()))[:MAX_TITLE_CHARS]
    return ""


def base_of(root: Node, url: str) -> str:
    """What relative links start from, on a page that came from `url`."""
    for node in _preamble(root):
        if node.name == "base" and (href := attribute(node, "href")):
            return link_target(href, url, url, schemes=("http://", "https://")) or url
    return url


def link_target(
    href: str, base: str, page: str, schemes: tuple[str, ...] = ("http://", "https://", "mailto:")
) -> str | None:
    """Where a link leads, as a URL that can stand in brackets; None when not to another page than `page`."""
    href = _SPACES.sub("%20", href.strip())
    if not href or len(href) > MAX_LINK_CHARS or href.startswith("#"):
        return None
    try:
        target = urljoin(base, href)
    except ValueError:
        return None
    if not target.lower().startswith(schemes) or target.partition("#")[0] == page or len(target) > MAX_LINK_CHARS:
        return None
    return target.replace("(", "%28").replace(")", "%29")


def arranging_tables(root: Node) -> frozenset[int]:
    """The identities of the tables that arrange a page."""
    found: set[int] = set()
    tasks: list[tuple[Node, Node | None]] = [(root, None)]
    while tasks:
        node, table = tasks.pop()
        if table is not None and node.name in _NOT_IN_CELLS:
            found.add(id(table))
        inner = node if node.name == "table" else table
        tasks.extend((child, inner) for child in node.children or ())
    return frozenset(found)


def _preamble(root: Node) -> Iterator[Node]:
    """What stands before the body, in order."""
    tasks = [root]
    while tasks:
        node = tasks.pop()
        if node.name == "body":
            return
        yield node
        tasks.extend(reversed(node.children or ()))
