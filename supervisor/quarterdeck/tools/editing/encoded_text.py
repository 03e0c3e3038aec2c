r"""A text file as characters, its lines ending in `\n`, with the way back to the very same bytes.

A byte order mark, an encoding or line ends of several kinds are kept where nothing was changed.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, count
from operator import add
from typing import Final

from quarterdeck.tools.files.file_kinds import TextEncoding, encoding_of

LF: Final = "\n"
CR: Final = "\r"
CRLF: Final = "\r\n"


class UnifiedText:
    r"""A text with every line end as `\n`.

    Attributes:
        text: the unified one; all offsets are its.
    """

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self._ends_in_cr = LF not in raw and CR in raw
        pieces = [raw] if self._ends_in_cr else raw.split(CRLF)
        self.text = raw.replace(CR, LF) if self._ends_in_cr else LF.join(pieces)
        self._crlf_at = _ends(pieces)
        self._is_uniform = len(self._crlf_at) in (0, self.text.count(LF))
        self._all_at = array("q") if self._is_uniform else _ends(self.text.split(LF))

    def unify(self, part: str) -> str:
        """`part` as it would stand in `text`."""
        unified = part.replace(CRLF, LF)
        return unified.replace(CR, LF) if self._ends_in_cr else unified

    def raw_offset(self, offset: int) -> int:
        """Where in `raw` the character at `offset` is."""
        return offset + bisect_left(self._crlf_at, offset)

    def line_end_at(self, offset: int) -> str | None:
        """What the line at `offset` ends in; for a last line that ends in nothing what the one before does.

        None when there is one line only.
        """
        if self._ends_in_cr:
            return CR
        if self._is_uniform:
            return CRLF if self._crlf_at else LF if LF in self.text else None
        end = self._all_at[min(bisect_left(self._all_at, offset), len(self._all_at) - 1)]
        place = bisect_left(self._crlf_at, end)
        return CRLF if place < len(self._crlf_at) and self._crlf_at[place] == end else LF


def _ends(pieces: list[str]) -> "array[int]":
    """Where the separators are when `pieces` are joined by one character."""
    # Millions of lines: none of them may take a step of ours.
    return array("q", map(add, accumulate(map(len, pieces[:-1])), count()))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why bytes are no text that could be written back as it was; `reason` begins with a verb."""

    reason: str


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's text, line ends as they are, without the byte order mark."""

    text: str
    encoding: TextEncoding

    def encode(self, text: str) -> bytes:
        """`text` as the bytes of this file.

        Raises:
            UnicodeEncodeError: it holds half a surrogate pair.
        """
        return self.encoding.mark + text.encode(self.encoding.codec)


def decode_file(data: bytes) -> TextFile | Unreadable:
    """`data` as text that encodes to `data` again."""
    encoding = encoding_of(data)
    if encoding.codec == "utf-8" and b"\0" in data:
        return Unreadable("is binary (it holds NUL bytes)")
    try:
        text = data[len(encoding.mark) :].decode(encoding.codec)
    except UnicodeDecodeError as error:
        at = len(encoding.mark) + error.start
        return Unreadable(f"is not valid {encoding.family}: its byte {at:,} cannot be decoded")
    if "\0" in text:
        return Unreadable("is binary (it holds NUL characters)")
    file = TextFile(text, encoding)
    if file.encode(text) != data:
        return Unreadable(f"does not survive being decoded as {encoding.family} and encoded again")
    return file
