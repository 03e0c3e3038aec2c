"""Write for people (styled on a terminal, plain elsewhere) or for programs (JSON, one document a line)."""

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final, TextIO

import msgspec

from quarterdeck.common.words import printable_json

from .exits import UsageError

WIDEST: Final = 110
"""Columns that a paragraph may fill and still be read with ease."""

_CODES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
"""Select Graphic Rendition (ECMA-48 8.3.117), by the words that styles are made of."""


class Cell(msgspec.Struct, frozen=True):
    """One field of a table, and how it is styled on a terminal."""

    text: str
    style: str = ""


def is_confirmed(question: str, *, can_ask: bool = True) -> bool:
    """Whether the user answers a question on the terminal with yes.

    Raises:
        CommandError: there is no terminal.
    """
    import click

    if not (can_ask and sys.stdin.isatty()):
        raise UsageError(
            "confirmation needed, and there is no terminal to ask on: nothing was changed",
            "look at what is shown, then add --yes",
        )
    return click.confirm(question, err=True)


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
