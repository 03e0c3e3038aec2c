"""Have a page read in a process of its own, so that no page can hold up or exhaust ours.

The process limits its own memory and processor time, and is killed when its time is up or nobody waits any more.  It
needs no sandbox: parsing in Python has no memory to corrupt, and the page cannot name anything that is opened.
"""

import os
import subprocess
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import Process

from quarterdeck.common.processes import child_command
from quarterdeck.tools.native_extra import is_installed

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
                    output = await _run(url.encode() + b"\n" + page.encode("utf-8", "replace"))
        if output is None:
            return PageText("", await anyio.to_thread.run_sync(strip_tags, page), is_crude=True)
        title, _, text = output.decode("utf-8", "replace").partition("\n")
        return PageText(title, text)


async def _run(question: bytes) -> bytes | None:
    """What the process answers; None when it failed."""
    try:
        with anyio.CancelScope(shield=True):  # it does not wait; cancelled halfway, nobody would own the process
            process = await anyio.open_process(
                child_command(_BOOT, _NEEDED),
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
    except OSError:
        return None
    answer = bytearray()
    async with process:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_ask, process, question)
            assert process.stdout is not None
            async for piece in process.stdout:
                answer += piece
                if len(answer) > MAX_OUTPUT_BYTES:
                    process.kill()
                    return None
        returncode = await process.wait()
    return bytes(answer) if returncode == 0 else None


async def _ask(process: Process, question: bytes) -> None:
    assert process.stdin is not None
    try:
        await process.stdin.send(question)
        await process.stdin.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass  # it died, which its return code will tell
