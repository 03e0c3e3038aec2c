"""Write for people (on a terminal styled, in columns that fit; plain elsewhere) or for programs (JSON, a line each).

A command makes rows and declares their columns; `show` prints them either way.  What people are shown is drawn by rich,
which a plain line and JSON do without: loading it takes as long as an answer.
Text comes from servers too: controls in it are escaped here, and nothing in it is markup, a link or an emoji's name.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

import msgspec

from quarterdeck.common.words import flat, printable, printable_json

from .exits import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.containers import Lines
    from rich.text import Text

    from quarterdeck.ledger.events.fold import ItemKey

WIDEST: Final = 110
"""Columns that a paragraph may fill and still be read with ease."""

LONGEST_WORD: Final = 40
"""Columns of a word that no table breaks: half of an id or a time can be neither read nor copied; a path is longer."""

NARROWEST: Final = 10
"""Columns that whatever may be wrapped keeps; a terminal without room for that is sent whole rows, and wraps them."""

NARROWEST_LINE: Final = 20
"""The least columns of a terminal for our line breaks; a narrower terminal breaks lines itself."""

ENDLESS: Final = 1 << 20
"""Columns where there is no edge: a program that reads a table wants it uncut."""


_UNIT: Final = re.compile(
    r"(\s*)([^\s`]*`[^`]*`\S*"  # a command, as messages quote it
    r"|quarterdeck(?: [^\s`;,()]*[^\s`;,:()])+$"  # or a command at the end of a message
    r"|\S+)"
)
"""Matches a part that a line break keeps whole, and the blanks before it."""

_PIECE: Final = re.compile(r"[^\s/\\,;:=&?]*[/\\,;:=&?]+|[^\s/\\,;:=&?]+")
"""Matches a piece of a word that is wider than its column: a path is broken behind a slash."""


class Cell(msgspec.Struct, frozen=True):
    """One field of a table, and its style on a terminal."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        value: a key or attribute of each row, or a function that returns a value or a `Cell` for a row.
        style: of rich; or one for each text.
        empty: shown for None, False, and an empty text or list.
        form: turns a value into text.
    """

    title: str
    value: str | Callable[[Any], object]
    style: str | Mapping[str, str] = ""
    empty: str = "-"
    form: Callable[[Any], str] = str

    def cell(self, row: object) -> Cell:
        """Return the field of one row: True as yes, lists with commas."""
        if callable(self.value):
            found = self.value(row)
        else:
            found = row[self.value] if isinstance(row, Mapping) else getattr(row, self.value)
        if isinstance(found, Cell):
            return found
        if found is None or found is False:
            text = ""
        elif isinstance(found, list | tuple):
            text = ", ".join(map(str, found))
        else:
            text = "yes" if found is True else self.form(found)
        if not text:
            return Cell(self.empty)
        return Cell(text, self.style if isinstance(self.style, str) else self.style.get(text, ""))


def show(
    rows: Sequence[object],
    columns: Sequence[Column],
    *,
    json: bool = False,
    document: object = None,
    none: str = "",
    indent: str = "",
    is_cut: bool = False,
) -> None:
    """Print rows: JSON for programs, a table for people.

    Programs get `document`, or all members of the rows (mappings or structs). `none` is a line on stderr for people if
    there are no rows; `is_cut` cuts the last column on a terminal instead of wrapping it.
    """
    if json:
        print_json(rows if document is None else document)
    elif rows:
        cells = [[column.cell(row) for column in columns] for row in rows]
        print_table([column.title for column in columns], cells, indent=indent, is_cut=is_cut)
    elif none:
        print_line(none, stderr=True)


def report(document: object, text: str, style: str = "", *, json: bool) -> None:
    """Print the result: a document for programs, a line for people."""
    if json:
        print_json(document)
    else:
        print_line(text, style)


def print_outcome(text: str, *, is_done: bool, dry_run: bool = False) -> None:
    """Print the result of a change that was shown first, or that nothing was changed."""
    print_line(text if is_done else "nothing was changed" + " (--dry-run)" * dry_run, "green" if is_done else "dim")


def describe_key(key: "ItemKey") -> str:
    """Return a tool's name; for other items name and kind; the kind in brackets for what has no name."""
    what = f"({key.subject.value})"
    return flat(key.name) if key.subject.value == "tool" else f"{flat(key.name)} {what}" if key.name else what


def is_confirmed(question: str, *, can_ask: bool = True) -> bool:
    """Ask on the terminal; return whether the user agrees. Raise CommandError if there is no terminal."""
    import click

    _require_terminal(can_ask=can_ask)
    return click.confirm(flat(question), err=True)


def choose(question: str, words: Sequence[str], default: str | None = None) -> str:
    """Ask on the terminal for one of these words, or the beginning of one. Raise CommandError without a terminal."""
    import click

    def chosen(text: str) -> str:
        found = [word for word in words if text and word.startswith(text.strip().lower())]
        if len(found) != 1:
            raise click.BadParameter(f"answer with one of {', '.join(words)}")
        return found[0]

    _require_terminal()
    return str(click.prompt(flat(question), default=default, show_default=True, value_proc=chosen, err=True))


def _require_terminal(*, can_ask: bool = True) -> None:
    if not (can_ask and sys.stdin.isatty()):
        raise UsageError(
            "confirmation needed, and there is no terminal to ask on: nothing was changed",
            "look at what is shown, then add --yes",
        )


def type_secret(question: str, remedy: str) -> str:
    """Return what the user types on the terminal, without echo; raise UsageError with this remedy if that fails."""
    import getpass
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)
            return getpass.getpass(question)
    except (EOFError, getpass.GetPassWarning):
        raise UsageError("nothing was typed, or the terminal cannot hide the input", remedy) from None


def print_json(value: object) -> None:
    """Print one JSON document on one line of stdout."""
    sys.stdout.write(printable_json(msgspec.json.encode(value).decode()) + "\n")
    sys.stdout.flush()


def print_line(text: str = "", style: str = "", *, stderr: bool = False, wraps: bool = True) -> None:
    """Print one line for people; a terminal breaks it only at blanks.

    Line ends in it are escaped: a server's text cannot begin a line of its own. `wraps` is False for another program's
    text, which users may copy.
    """
    stream = sys.stderr if stderr else sys.stdout
    text = flat(text)
    if wraps and stream.isatty():
        text = fold(text, _columns_of(stream))
    if style and text and shows_styles(stream):
        _print(_text_class().assemble((text, style)), _console(stream), stream=stream, soft_wrap=True)
    else:
        stream.write(text + "\n")
        stream.flush()


def fields(value: object, *names: str) -> dict[str, object]:
    """Return these members of a value, for programs."""
    return {name: getattr(value, name) for name in names}


def warn(text: str, fix: str = "") -> None:
    """Print a warning on stderr, and its fix on the next line."""
    print_line(text, "yellow", stderr=True)
    if fix:
        print_line(f"  fix: {fix}", stderr=True)


def hint(text: str) -> None:
    """Print on stderr what to do next."""
    print_line(text, "dim", stderr=True)


def print_text(text: str) -> None:
    """Print text of several lines on stdout, such as a tool's answer."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def fold(text: str, columns: int) -> str:
    """Break lines wider than `columns` at blanks, and indent the rest. Commands and paths stay whole."""
    return "\n".join(_fold_line(line, columns) for line in text.split("\n"))


def _fold_line(line: str, columns: int) -> str:
    if _cells(line) <= columns or columns < NARROWEST_LINE:
        return line
    margin = line[: len(line) - len(line.lstrip())] + "  "
    lines, current = list[str](), ""
    for blanks, unit in _UNIT.findall(line):
        if current.strip() and _cells(current + blanks + unit) > columns:
            lines.append(current)
            current = margin + unit
        else:
            current += blanks + unit
    return "\n".join((*lines, current))


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def _columns_of(stream: TextIO) -> int:
    """Return the width of a terminal; `COLUMNS` overrides it."""
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return ENDLESS


def print_paragraph(text: str, style: str = "", *, lead: Cell | None = None) -> None:
    """Print text on stdout after `lead`; a terminal wraps it at words, next to the lead."""
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
    """Print aligned columns on stdout; a terminal wraps wide cells, or cuts the last column with `is_cut`."""
    from rich.table import Table

    console = _console(sys.stdout)
    console.width -= len(indent)
    room = console.width - 2 * (len(headers) - 1)
    columns = [(header, *(row[at].text for row in rows)) for at, header in enumerate(headers)]
    widest = [max(_cells(flat(text)) for text in texts) for texts in columns]
    least = [_least_width(texts, wide) for texts, wide in zip(columns, widest, strict=True)]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=None)
    if is_cut:
        least[-1] = min(least[-1], NARROWEST)
    fits = sum(least) <= room
    widths = _fit(widest, least, room) if fits else least if is_cut else widest
    for header, width in zip(headers, widths, strict=True):
        table.add_column(_text(Cell(header, "bold")), overflow="fold", width=width)
    for row in rows:
        drawn = [_text(cell) for cell in row]
        if is_cut:
            drawn[-1].no_wrap, drawn[-1].overflow = True, "ellipsis"
        table.add_row(*drawn)
    if not fits:
        console.width = ENDLESS
    _print(table, console, indent)


def _least_width(texts: Sequence[str], widest: int) -> int:
    """Return the least columns that keep each word whole, or each piece of a word that is too wide for a column."""
    words = [word for text in texts for word in flat(text).split()]
    if widest <= LONGEST_WORD and all(" " not in text for text in texts):
        return widest
    longest = max((_cells(piece) for word in words for piece in _PIECE.findall(word)), default=0)
    return max(min(longest, LONGEST_WORD), min(widest, NARROWEST))


def _fit(widest: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return column widths that fit into `room`: columns that may be narrower share the rest equally."""
    widths = [min(wide, max(room, low)) for wide, low in zip(widest, least, strict=True)]
    while (excess := sum(widths) - room) > 0:
        at = max((at for at in range(len(widths)) if widths[at] > least[at]), key=lambda at: widths[at], default=None)
        if at is None:
            break
        next_wide = max((wide for other, wide in enumerate(widths) if other != at and wide < widths[at]), default=0)
        widths[at] -= max(1, min(excess, widths[at] - max(least[at], next_wide)))
    return widths


@contextmanager
def waiting_for(what: str, *, is_shown: bool = True) -> Iterator[Callable[..., None]]:
    """Show a spinner on stderr during the block, if that is a terminal; yield what changes its words, of several lines.

    Nothing of it stays; what is printed on stderr meanwhile stays above it. The cursor stays visible: whatever kills
    us, the terminal is as it was.
    """
    if not (is_shown and sys.stderr.isatty()) or not (console := _console(sys.stderr)).is_interactive:
        yield lambda *_: None
        return
    from rich.live import Live
    from rich.spinner import Spinner

    console.show_cursor = lambda show=True: show  # type: ignore[method-assign]

    def said(*lines: str) -> "Text":
        texts = [_text(Cell(line, "dim")) for line in lines]
        for text in texts:
            text.truncate(console.width - 2, overflow="ellipsis")
        return _text_class()("\n").join(texts)

    spinner = Spinner("dots", said(what))
    # Rich would have what is printed on stdout meanwhile go to stderr.
    with Live(spinner, console=console, transient=True, refresh_per_second=10, redirect_stdout=False):
        yield lambda *lines: spinner.update(text=said(*lines))


def shows_styles(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal that shows styles, or FORCE_COLOR is set (https://force-color.org)."""
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def _console(stream: TextIO) -> "Console":
    """Return a console without markup, emoji names and highlights: the text may be anyone's."""
    from rich.console import Console

    width = None if stream.isatty() else ENDLESS
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def _text(cell: Cell) -> "Text":
    return _text_class().assemble((flat(cell.text), cell.style))


@cache
def _text_class() -> "type[Text]":
    from rich.text import Text

    class FoldedText(Text):
        def wrap(self, console: "Console", width: int, **how: Any) -> "Lines":
            found = [] if how.get("no_wrap") else _breaks(self.plain, width)
            return Text.wrap(Text("\n").join(self.divide(found)) if found else self, console, width, **how)

    return FoldedText


def _breaks(text: str, width: int) -> list[int]:
    found: list[int] = []
    for word in re.finditer(r"\S+", text):
        if not (word[0].isascii() and len(word[0]) > width):
            continue
        start = word.start()
        for piece in _PIECE.finditer(text, word.start(), word.end()):
            if piece.end() - start > width and piece.start() > start:
                found.append(piece.start())
                start = piece.start()
    return found


def _print(
    drawn: "RenderableType", console: "Console", indent: str = "", stream: TextIO | None = None, **how: Any
) -> None:
    """Write what rich makes of it, whole, without the blanks with which it fills lines."""
    with console.capture() as capture:
        console.print(drawn, **how)
    file = stream or console.file  # which writes past a spinner that is shown on the stream
    file.write("".join(f"{indent}{line}".rstrip() + "\n" for line in capture.get().split("\n")[:-1]))
    file.flush()
