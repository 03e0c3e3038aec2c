"""Write for people (styled on a terminal, plain elsewhere) or for programs (JSON, one document a line).

Text of strangers, and numbers, as they may be shown on a terminal.  Pure.
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

import msgspec

UNITS: Final = ("KiB", "MiB", "GiB")

_STYLING: Final = re.compile(r"\x1b\[[0-9;:]*m")
"""Colours and weights: harmless, and lost."""

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2060-\u2065\u206a-\u206f"
    r"\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""What moves the cursor, retitles the window, turns text around, cannot be encoded, or is not seen though a model reads
it; not newline and tab, nor what joins and colours emoji.
"""

_C1: Final = re.compile("[\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` with control characters written as escapes, so that no server can write to the terminal itself."""
    return _CONTROL.sub(lambda found: _escape(found[0]), _STYLING.sub("", text))


def flat(text: str) -> str:
    """`text` on one line, with line ends and tabs written as escapes too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def one_line(text: str) -> str:
    """The first line of `text` that says something."""
    return printable(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def printable_json(text: str) -> str:
    """JSON `text`, which escapes most controls itself, with the rest escaped too: the same value."""
    return _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def size(count: int) -> str:
    """`count` bytes for people: `512 B`, `4.1 MiB`."""
    if count < 1024:
        return f"{count} B"
    step = min((count.bit_length() - 1) // 10, len(UNITS))
    return f"{count / 1024**step:.1f} {UNITS[step - 1]}"


def peak_memory(count: int, *, is_sampled: bool) -> str:
    """The most memory that a process held; `is_sampled` when it was only looked at now and then."""
    return f"peak memory {'at least ' if is_sampled else ''}{size(count)}"


def counted(count: int, noun: str) -> str:
    """How many there are: `1 event`, `2,000 events`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """A time for people: `850 ms`, `4.2 s`, `42 s`, `3 m 12 s`, `5 h 04 m`, `2 d 3 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def _escape(character: str) -> str:
    number = ord(character)
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


WIDEST: Final = 110
"""Columns that a paragraph may fill and still be read with ease."""

_CODES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
"""Select Graphic Rendition (ECMA-48 8.3.117), by the words that styles are made of."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a table, and how it is styled on a terminal."""

    text: str
    style: str = ""


def print_json(value: object) -> None:
    """One JSON document on stdout, on one line."""
    sys.stdout.write(printable_json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


def print_line(text: str = "", style: str = "", *, stderr: bool = False) -> None:
    """One line for people, on stdout unless told otherwise; `text` is safe to show."""
    stream = sys.stderr if stderr else sys.stdout
    stream.write(styled(text, style, stream) + "\n")
    stream.flush()


def styled(text: str, style: str, stream: TextIO) -> str:
    """`text` in a style such as `bold red`, where `stream` is a terminal that shows it."""
    if not (style and text and _shows_styles(stream)):
        return text
    codes = ";".join(str(_CODES[word]) for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def paragraph_width() -> int:
    """Columns for text that is wrapped."""
    return max(40, min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: str = "") -> None:
    """Aligned columns on stdout; on a terminal the last one is cut at the edge."""
    for line in lay_out(headers, rows, width=_width(), indent=indent):
        sys.stdout.write("".join(styled(cell.text, cell.style, sys.stdout) for cell in line) + "\n")
    sys.stdout.flush()


def lay_out(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, width: int | None = None, indent: str = ""
) -> list[list[Cell]]:
    """The lines of a table, each cell padded to its column; the last column may be cut to `width` in all."""
    table = [[Cell(header, "bold") for header in headers], *(list(row) for row in rows)]
    widths = [max(columns_of(row[column].text) for row in table) for column in range(len(headers))]
    left = len(indent) + sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(8, width - left) if width is not None else widths[-1]
    lines = []
    for row in table:
        padded = [
            Cell(cell.text + " " * (size - columns_of(cell.text) + 2), cell.style)
            for cell, size in zip(row, widths[:-1], strict=False)
        ]
        last = row[-1].text if columns_of(row[-1].text) <= room else _cut(row[-1].text, room - 1).rstrip() + "…"
        lines.append([Cell(indent), *padded, Cell(last, row[-1].style)])
    return lines


def columns_of(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of_character, text))


def _columns_of_character(character: str) -> int:
    import unicodedata  # most output is ASCII

    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cut(text: str, columns: int) -> str:
    """As much of `text` as fits."""
    used = 0
    for index, character in enumerate(text):
        used += _columns_of_character(character)
        if used > columns:
            return text[:index]
    return text


def _shows_styles(stream: TextIO) -> bool:
    # https://no-color.org
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
