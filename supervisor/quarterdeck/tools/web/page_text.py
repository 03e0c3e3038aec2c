"""A parsed page as text for a model: Markdown's headings, links, lists, tables and code, without its escapes.

Pure. Runs in the child process that parses (`page_child`), and imports nothing heavy. The tree is walked without
recursion, as the page's author decides how deep it is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import urljoin

from .layout import FullError, Lines

MAX_LINK_CHARS: Final = 2000  # longer ones lead to data, not to pages
MAX_TITLE_CHARS: Final = 300
LISTS: Final = frozenset(("ul", "ol", "menu"))
CODE: Final = frozenset(("code", "kbd", "samp", "tt"))
CELLS: Final = frozenset(("td", "th"))
HEADINGS: Final = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}
"""Each with its prefix."""

BLOCKS: Final = frozenset(
    (
        *("p", "dl", "figure", "figcaption", "details", "fieldset", "address", "form", "article", "section", "main"),
        "table",
    )
)
"""Elements that stand apart from their surroundings."""

LINES: Final = frozenset(
    (
        *("div", "header", "footer", "nav", "aside", "center", "dt", "summary", "legend", "caption", "hgroup"),
        *("search", "tr"),
    )
)
"""Elements on lines of their own."""

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
    """The used part of the parser's node; read-only."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def attrs(self) -> Mapping[str, str | None] | None: ...  # noqa: D102
    @property
    def children(self) -> Sequence["Node"] | None: ...  # noqa: D102
    @property
    def data(self) -> object: ...  # noqa: D102


def readable(text: str) -> str:
    """Remove characters that control a terminal."""
    return _UNREADABLE.sub("", text)


def attribute(node: Node, name: str) -> str:
    """Return an attribute's value; empty when there is none."""
    return (node.attrs or {}).get(name) or ""


def is_dropped(node: Node) -> bool:
    """Return whether the node is left out with its content."""
    return node.name in _DROPPED or (bool(node.attrs) and "hidden" in (node.attrs or ()))


def first_number(node: Node) -> int:
    """Return the number of a list's first item."""
    text = attribute(node, "start").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 1


def title_of(root: Node) -> str:
    """Return the page's title on one line; empty for none."""
    for node in _preamble(root):
        if node.name == "title":
            text = "".join(str(each.data or "") for each in node.children or () if each.name == "#text")
            return readable(" ".join(text.split()))[:MAX_TITLE_CHARS]
    return ""


def base_of(root: Node, url: str) -> str:
    """Return the base of relative links, on a page that came from `url`."""
    for node in _preamble(root):
        if node.name == "base" and (href := attribute(node, "href")):
            return link_target(href, url, url, schemes=("http://", "https://")) or url
    return url


def link_target(
    href: str, base: str, page: str, schemes: tuple[str, ...] = ("http://", "https://", "mailto:")
) -> str | None:
    """Return a link's target as a URL that can stand in brackets; None when it is not another page than `page`."""
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
    """Return the identities of the tables that arrange a page."""
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
    """Yield the nodes before the body, in order."""
    tasks = [root]
    while tasks:
        node = tasks.pop()
        if node.name == "body":
            return
        yield node
        tasks.extend(reversed(node.children or ()))


CUT: Final = "\n\n[the page goes on]"
_BACKTICKS: Final = re.compile("`+")


def text_of(root: Node, url: str, max_chars: int) -> str:
    """Return the page's text, at most a little longer than `max_chars`, with links made absolute by its `url`."""
    reader = _Reader(root, url, max_chars)
    tasks: list[tuple[Node, bool]] = [(root, False)]
    try:
        while tasks:
            node, is_left = tasks.pop()
            if is_left:
                reader.leave(node)
            elif node.name == "#text":
                reader.read(str(node.data or ""))
            elif not is_dropped(node):
                reader.enter(node)
                tasks.append((node, True))
                tasks.extend((child, False) for child in reversed(node.children or ()))
    except FullError:
        return readable(reader.lines.text()) + CUT
    return readable(reader.lines.text())


class _Reader:
    """The open elements while the tree is walked; of each kind, the outermost counts."""

    def __init__(self, root: Node, url: str, max_chars: int) -> None:
        self.lines = Lines(max_chars)
        self._url = url.partition("#")[0]
        self._base = base_of(root, self._url)
        self._arranging = arranging_tables(root)
        self._lists: list[int | None] = []
        self._pre: tuple[Node, list[str]] | None = None
        self._flat: tuple[Node, tuple[int, int]] | None = None
        self._code: tuple[Node, tuple[int, int]] | None = None
        self._link: tuple[Node, tuple[int, int]] | None = None
        self._rows: list[list[str]] | None = None

    def read(self, text: str) -> None:
        if self._pre is not None:
            self._pre[1].append(text)
        else:
            self.lines.words(text)

    def enter(self, node: Node) -> None:
        name = node.name
        if self._pre is not None:
            if name == "br":
                self._pre[1].append("\n")
        elif name == "a":
            self._link = self._link or (node, self.lines.position())
        elif name in CODE:
            self._code = self._code or (node, self.lines.position())
        elif name == "img":
            if alt := " ".join(attribute(node, "alt").split()):
                self.lines.mark(alt if self._link is not None else f"[image: {alt}]")
        elif self._flat is not None:
            if name in CELLS or name in BLOCKS or name in LINES or name in LISTS or name in ("li", "br", "dd"):
                self.lines.gap()
        elif name in HEADINGS:
            self.lines.end_block()
            self._flat = (node, self.lines.position())
        else:
            self._enter_block(node, name)

    def _enter_block(self, node: Node, name: str) -> None:
        if name == "br":
            self.lines.end_line()
        elif name == "hr":
            self.lines.end_block()
            self.lines.verbatim("---")
            self.lines.end_block()
        elif name == "pre":
            self._block()
            self._pre = (node, [])
        elif name in LISTS:
            self._block()
            self._lists.append(first_number(node) if name == "ol" else None)
        elif name == "li":
            self.lines.indent(*self._next_item())
        elif name == "blockquote":
            self._block()
            self.lines.indent("> ", "> ")
        elif name == "dd":
            self.lines.indent("  ", "  ")
        elif name in CELLS:
            self.lines.gap()
            if self._rows:
                self._flat = (node, self.lines.position())
        elif name == "tr" and self._rows is not None:
            self._rows.append([])
        elif name in BLOCKS:
            self._block()
            if name == "table" and id(node) not in self._arranging:
                self._rows = []
        elif name in LINES:
            self.lines.end_line()

    def leave(self, node: Node) -> None:
        name = node.name
        if self._pre is not None:
            if self._pre[0] is node:
                self._end_pre("".join(self._pre[1]))
        elif self._link is not None and self._link[0] is node:
            self._end_link(node, self.lines.take_since(self._link[1]))
        elif self._code is not None and self._code[0] is node:
            self._end_code(self.lines.take_since(self._code[1]))
        elif self._flat is not None:
            if self._flat[0] is node:
                self._end_flat(name, (self.lines.take_since(self._flat[1]) or "").strip())
            elif name in BLOCKS or name in LINES:
                self.lines.gap()
        elif name in LISTS:
            self._lists.pop()
            self._block()
        elif name in ("li", "dd"):
            self.lines.dedent()
        elif name == "blockquote":
            self.lines.dedent()
            self._block()
        elif name == "table" and self._rows is not None:
            self._end_table(self._rows)
        elif name in BLOCKS:
            self._block()
        elif name in LINES:
            self.lines.end_line()

    def _block(self) -> None:
        # The items of a list stand close.
        if self._lists:
            self.lines.end_line()
        else:
            self.lines.end_block()

    def _next_item(self) -> tuple[str, str]:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "  ", "- "
        self._lists[-1] = number + 1
        marker = f"{number}. "
        return " " * len(marker), marker

    def _end_pre(self, text: str) -> None:
        self._pre = None
        code = text.rstrip().lstrip("\n")
        if code:
            fence = _fence(code, 3)
            self.lines.verbatim(f"{fence}\n{code}\n{fence}")
        self._block()

    def _end_code(self, text: str | None) -> None:
        self._code = None
        if text and text.strip():
            fence = _fence(text, 1)
            room = " " if "`" in text else ""
            self._put(f"{fence}{room}{text.strip()}{room}{fence}", text)

    def _end_link(self, node: Node, text: str | None) -> None:
        self._link = None
        target = link_target(attribute(node, "href"), self._base, self._url)
        if text is None:
            if target:
                self.lines.verbatim(f"({target})")
        elif label := text.strip():
            self._put(f"[{label}]({target})" if target and target != label else label, text)

    def _put(self, text: str, around: str) -> None:
        """Append `text` instead of `around`, with the spaces that are in front of that and behind."""
        self.lines.words(" " * (around[0] == " ") + text + " " * (around[-1] == " "))

    def _end_flat(self, name: str, text: str) -> None:
        self._flat = None
        if self._rows and name in CELLS:
            self._rows[-1].append(text)
        elif text:
            self.lines.mark(HEADINGS[name] + text)
            self.lines.end_block()

    def _end_table(self, rows: list[list[str]]) -> None:
        self._rows = None
        filled = [cells for cells in rows if any(cells)]
        if all(len(cells) == 1 for cells in filled):
            for [cell] in filled:
                self.lines.verbatim(cell)
        else:
            for index, cells in enumerate(filled):
                self.lines.verbatim("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
                if index == 0:
                    self.lines.verbatim("|" + " --- |" * len(cells))
        self._block()


def _fence(code: str, least: int) -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(code)), default=0)
    return "`" * max(least, longest + 1)
