"""Write for people (on a terminal styled, in columns that fit; plain elsewhere) or for programs (JSON, a line each).

What people are shown is drawn by rich, which a plain line and JSON do without: loading it takes as long as an answer.
Text comes from servers too: controls in it are escaped here, and nothing in it is markup, a link or an emoji's name.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from quarterdeck.common.words import printable, printable_json

from .exits import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

WIDEST: Final = 110
"""Columns that a paragraph may fill and still be read with ease."""

LONGEST_WORD: Final = 40
"""Columns of a word that no table breaks: half of an id or a time can be neither read nor copied; a path is longer."""

NARROWEST: Final = 10
"""Columns that whatever may be wrapped keeps; a terminal without room for that is sent whole rows, and wraps them."""

ENDLESS: Final = 1 << 20
"""Columns where there is no edge: a program that reads a table wants it uncut."""


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
    return click.confirm(printable(question), err=True)


def print_json(value: object) -> None:
    """One JSON document on stdout, on one line."""
    sys.stdout.write(printable_json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


def print_line(text: str = "", style: str = "", *, stderr: bool = False) -> None:
    """One line for people, on stdout unless told otherwise; a terminal wraps it where it must."""
    stream = sys.stderr if stderr else sys.stdout
    if style and text and shows_styles(stream):
        _print(_text(Cell(text, style)), _console(stream), soft_wrap=True)
    else:
        stream.write(printable(text) + "\n")
        stream.flush()


def print_paragraph(text: str, style: str = "", *, lead: Cell | None = None) -> None:
    """Text on stdout, behind `lead` if there is one; on a terminal it is wrapped at words, beside the lead."""
    if not shows_styles(sys.stdout):
        print_line((lead.text if lead else "") + text)
        return
    from rich.table import Table

    paragraph = Table.grid()
    if lead is not None:
        paragraph.add_column(no_wrap=True)
    paragraph.add_column(overflow="fold")
    paragraph.add_row(*([_text(lead)] if lead else []), _text(Cell(text, style)))
    _print(paragraph, _console(sys.stdout), width=WIDEST if sys.stdout.isatty() else None)


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: str = "", is_cut: bool = False
) -> None:
    """Aligned columns on stdout; on a terminal what is too wide is wrapped, or the last column cut with `is_cut`."""
    from rich.measure import measure_renderables
    from rich.table import Table

    console = _console(sys.stdout)
    console.width -= len(indent)
    endless = console.options.update(max_width=ENDLESS)
    least = 2 * (len(headers) - 1)
    drawn = [[_text(cell) for cell in row] for row in rows]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=None)
    for column, header in enumerate(headers):
        title = _text(Cell(header, "bold"))
        wide = measure_renderables(console, endless, [title, *(row[column] for row in drawn)])
        is_word = wide.minimum == wide.maximum <= LONGEST_WORD
        least += wide.maximum if is_word else min(wide.maximum, NARROWEST)
        table.add_column(title, overflow="fold", no_wrap=is_word)
    for row in drawn:
        if is_cut:
            row[-1].no_wrap, row[-1].overflow = True, "ellipsis"
        table.add_row(*row)
    if least > console.width:
        console.width = least if is_cut else ENDLESS
    _print(table, console, indent)


@contextmanager
def waiting_for(what: str, *, is_shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Show on stderr, while the block runs, what is waited for, if it is a terminal; yields what changes the words.

    Nothing of it stays.  The cursor stays visible: whatever kills us, the terminal is as it was.
    """
    if not (is_shown and sys.stderr.isatty()) or not (console := _console(sys.stderr)).is_interactive:
        yield lambda _: None
        return
    from rich.live import Live
    from rich.spinner import Spinner

    console.show_cursor = lambda show=True: show  # type: ignore[method-assign]

    def said(words: str) -> "Text":
        text = _text(Cell(words, "dim"))
        text.truncate(console.width - 2, overflow="ellipsis")
        return text

    spinner = Spinner("dots", said(what))
    # Rich would have what is printed on stdout meanwhile go to stderr.
    with Live(spinner, console=console, transient=True, refresh_per_second=10, redirect_stdout=False):
        yield lambda words: spinner.update(text=said(words))


def shows_styles(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that shows styles, or is to be taken for one (https://force-color.org)."""
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def _console(stream: TextIO) -> "Console":
    """What draws for `stream`: without markup, names of emoji and highlights, for the text may be anyone's."""
    from rich.console import Console

    width = None if stream.isatty() else ENDLESS
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def _text(cell: Cell) -> "Text":
    from rich.text import Text

    return Text.assemble((printable(cell.text), cell.style))


def _print(drawn: "RenderableType", console: "Console", indent: str = "", **how: Any) -> None:
    """Write what rich makes of it, whole, and without the blanks with which it fills up lines."""
    with console.capture() as capture:
        console.print(drawn, **how)
    console.file.write("".join(f"{indent}{line}".rstrip() + "\n" for line in capture.get().split("\n")[:-1]))
    console.file.flush()
