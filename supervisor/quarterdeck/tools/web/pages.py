"""Have a page read in a process of its own, so that no page can block or exhaust ours.

The process limits its own memory and processor time, and is killed at its deadline or when its caller is cancelled. It
needs no sandbox: parsing in Python has no memory to corrupt, and the page cannot name anything that is opened. A page
that it fails on only loses its tags here.
"""

import html
import os
import re
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread

from quarterdeck.common.child_process import Helper
from quarterdeck.tools.installed import is_installed

from .page_text import readable

WALL_S: Final = 15.0  # for one page, the wait for its turn included; its processor time is limited to less
AT_A_TIME: Final = 2  # each may need three quarters of a gigabyte
MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024  # of a text; the process itself stops at four million characters
BOOT: Final = "from quarterdeck.tools.web.page_child import main; main()"
_NEEDED: Final = ("quarterdeck", "justhtml")
_INHERITED: Final = ("LD_LIBRARY_PATH",)  # some interpreters need it to start


@dataclass(frozen=True, slots=True)
class PageText:
    """A page's text; if it `is_crude`, its tags were only stripped: links, lists and tables are lost."""

    title: str
    text: str
    is_crude: bool = False


class PageReader:
    """Reads pages, at most two at a time."""

    def __init__(self, wall_s: float = WALL_S) -> None:
        self._wall_s = wall_s
        self._turns = anyio.Semaphore(AT_A_TIME)

    async def read(self, page: str, url: str) -> PageText:
        """Return the text of `page`, which came from `url`, whatever the page is."""
        output = None
        if is_installed("justhtml"):
            with anyio.move_on_after(self._wall_s):
                async with self._turns:
                    question = url.encode() + b"\n" + page.encode("utf-8", "replace")
                    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
                    helper = Helper(BOOT, _NEEDED, environment, is_apart=True)
                    output = await helper.ask_async(question, MAX_OUTPUT_BYTES)
        if output is None:
            return PageText("", await anyio.to_thread.run_sync(strip_tags, page), is_crude=True)
        title, _, text = output.decode("utf-8", "replace").partition("\n")
        return PageText(title, text)


_RAW: Final = ("script", "style", "template", "noscript", "svg", "iframe", "head")  # removed with their content

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


def strip_tags(page: str) -> str:
    """Return the text of `page`, each block on a line of its own."""
    page = _drop(page, _COMMENTS, page.rfind("-->") + 3).partition("<!--")[0]
    for end, element in _RAW_ELEMENTS:
        page = _drop(page, element, max((found.end() for found in end.finditer(page)), default=0))
    stop = page.rfind(">") + 1
    body = _TAGS.sub(_in_place_of, page[:stop]) + _OPEN.split(page[stop:], 1)[0]
    text = _ENTITY.sub(lambda found: html.unescape(found[0]), body)
    lines = (" ".join(line.split()) for line in readable(text).split("\n"))
    return "\n".join(line for line in lines if line)


def _drop(page: str, pattern: re.Pattern[str], stop: int) -> str:
    return pattern.sub("\n", page[:stop]) + page[stop:]


def _in_place_of(tag: re.Match[str]) -> str:
    return "" if (tag[1] or "").lower() in _INLINE else "\n"
