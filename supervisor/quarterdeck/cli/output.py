"""Write for people (styled on a terminal, plain elsewhere) or for programs (JSON, one document a line)."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from quarterdeck.cli.text import printable_json

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a table, and how it is styled on a terminal."""

    text: str
    style: str = ""


def print_json(value: object) -> None:
    """One JSON document on stdout, on one line."""
    sys.stdout.write(printable_json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


def console(*, stderr: bool = False) -> "Console":
    """Where people read; lines are never wrapped where a program reads along."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_line(text: str = "", style: str = "", *, stderr: bool = False) -> None:
    """One line for people, on stdout unless told otherwise; `text` is safe to show."""
    console(stderr=stderr).print(text, style=style or None)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: str = "") -> None:
    """Aligned columns on stdout; on a terminal the last one is cut at the edge."""
    for line in lay_out(headers, rows, width=_width(), indent=indent):
        _print_cells(line)


def lay_out(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, width: int | None = None, indent: str = ""
) -> list[list[Cell]]:
    """The lines of a table, each cell padded to its column; the last column may be cut to `width` in all."""
    from rich.cells import cell_len, set_cell_size

    table = [[Cell(header, "bold") for header in headers], *(list(row) for row in rows)]
    widths = [max(cell_len(row[column].text) for row in table) for column in range(len(headers))]
    left = len(indent) + sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(8, width - left) if width is not None else widths[-1]
    lines = []
    for row in table:
        padded = [
            Cell(set_cell_size(cell.text, size) + "  ", cell.style)
            for cell, size in zip(row, widths[:-1], strict=False)
        ]
        last = row[-1].text if cell_len(row[-1].text) <= room else set_cell_size(row[-1].text, room - 1).rstrip() + "…"
        lines.append([Cell(indent), *padded, Cell(last, row[-1].style)])
    return lines


def _print_cells(line: Sequence[Cell]) -> None:
    from rich.text import Text

    console().print(Text.assemble(*((cell.text, cell.style) for cell in line)))


def _width() -> int | None:
    return console().width if sys.stdout.isatty() else None
