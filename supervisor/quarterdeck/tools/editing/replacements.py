"""Parts of a text that others take the place of.  Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from .encoded_text import LF, UnifiedText


@dataclass(frozen=True, slots=True)
class Replacement:
    r"""What takes the place of a unified text's characters from `start` up to `end`; its lines end in `\n`."""

    start: int
    end: int
    text: str


def replace_parts(unified: UnifiedText, replacements: Iterable[Replacement]) -> str:
    """The raw text with `replacements`, ascending and apart from each other, made in it.

    What is replaced takes the line ends of the place where it goes; all else stays as it is.
    """
    pieces: list[str] = []
    done = 0
    for each in replacements:
        pieces.append(unified.raw[done : unified.raw_offset(each.start)])
        end = unified.line_end_at(each.start)
        pieces.append(each.text if end in (None, LF) else each.text.replace(LF, str(end)))
        done = unified.raw_offset(each.end)
    pieces.append(unified.raw[done:])
    return "".join(pieces)
