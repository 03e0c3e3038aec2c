"""Have a page read in a process of its own, so that no page can hold up or exhaust ours.

The process limits its own memory and processor time, and is killed when its time is up or nobody waits any more.  It
needs no sandbox: parsing in Python has no memory to corrupt, and the page cannot name anything that is opened.
"""

import os
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread

from quarterdeck.common.child_process import Helper
from quarterdeck.tools.optional_packages import is_installed

from .tags import strip_tags

WALL_S: Final = 15.0
"""For one page, the wait for its turn included; its processor time is limited to less."""

AT_A_TIME: Final = 2
"""Each may need three quarters of a gigabyte."""

MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024
"""Of a text; the process itself stops at four million characters."""

_BOOT: Final = "from quarterdeck.tools.web.page_child import main; main()"
_NEEDED: Final = ("quarterdeck", "justhtml")
_INHERITED: Final = ("LD_LIBRARY_PATH",)
"""Some interpreters need it to start."""


@dataclass(frozen=True, slots=True)
class PageText:
    """What a page says.

    Attributes:
        is_crude: its tags were stripped, no more: links, lists and tables are lost.
    """

    title: str
    text: str
    is_crude: bool = False


class PageReader:
    """Reads pages, at most two at a time."""

    def __init__(self, wall_s: float = WALL_S) -> None:
        """A reader that gives each page `wall_s` seconds."""
        self._wall_s = wall_s
        self._turns = anyio.Semaphore(AT_A_TIME)

    async def read(self, page: str, url: str) -> PageText:
        """The text of `page`, which came from `url`; whatever the page is, there is one."""
        output = None
        if is_installed("justhtml"):
            with anyio.move_on_after(self._wall_s):
                async with self._turns:
                    question = url.encode() + b"\n" + page.encode("utf-8", "replace")
                    output = await _helper().ask_async(question, MAX_OUTPUT_BYTES)
        if output is None:
            return PageText("", await anyio.to_thread.run_sync(strip_tags, page), is_crude=True)
        title, _, text = output.decode("utf-8", "replace").partition("\n")
        return PageText(title, text)


def _helper() -> Helper:
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return Helper(_BOOT, _NEEDED, environment, is_apart=True)
