"""The process that parses one page, started anew for each, so that a hostile page harms only its own parser.

    stdin: the page's URL, a newline, the page in UTF-8 · stdout: its title, a newline, its text in UTF-8

Its memory and processor time are limited, and it can write no file and start no process; beyond that it dies. It
imports the parser, and only the code of ours that reads its tree.
"""

import gc
import resource
import sys
from typing import Final, cast

from .page_text import Node, text_of, title_of

CPU_S: Final = 10  # a page of 5 MiB takes five seconds; a malicious one forever
MEMORY_BYTES: Final = 768 << 20  # address space: the parser needs some 25 bytes for each of a page, 130 for one of tags
MAX_INPUT_BYTES: Final = 16 << 20  # five million characters in UTF-8, and some
MAX_CHARS: Final = 4_000_000  # of the text; relative links that become absolute can make it longer than the page


def main() -> None:
    """Read one page, write its text."""
    _limit()
    # The tree lives as long as we do.
    gc.disable()
    url, _, page = sys.stdin.buffer.read(MAX_INPUT_BYTES).partition(b"\n")
    from justhtml.parser import JustHTML

    root = cast("Node", JustHTML(page.decode("utf-8", "replace"), sanitize=False).root)
    text = f"{title_of(root)}\n{text_of(root, url.decode('ascii', 'replace'), MAX_CHARS)}"
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _limit() -> None:
    for limit, value in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, most = resource.getrlimit(limit)
        ours = value if most == resource.RLIM_INFINITY else min(value, most)
        try:
            resource.setrlimit(limit, (ours, ours))
        except (ValueError, OSError):
            pass  # a system that does not know it; whoever started us keeps the time


if __name__ == "__main__":
    main()
