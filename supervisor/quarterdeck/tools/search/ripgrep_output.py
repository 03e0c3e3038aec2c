"""Read ripgrep's output piece by piece: matching lines, paths of files, complaints. Pure.

Names and contents of files may be hostile: no more of ripgrep's output is kept than the bounds allow.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_RECORD_BYTES: Final = 64 * 1024  # of one record; a path has 4 KiB at most
MAX_TEXT_BYTES: Final = 2_100
"""Kept of a line. ripgrep clips it too, by characters as people see them, one of which can have any length."""

MAX_NUMBER_BYTES: Final = 20  # of a line's number: no file has as many lines
MAX_COMPLAINT_BYTES: Final = 16 * 1024  # kept of complaints that are not about single paths; they repeat the pattern

_BINARY: Final = re.compile(
    rb"\A.{1,5000}?: (?:WARNING: stopped searching binary file after match|binary file matches)"
    rb' \(found "\\0" byte around offset \d{1,20}\)\n',
    re.DOTALL,
)
"""Precedes a record: a binary file matches, and its following matches are not shown."""

_OS_ERROR: Final = b" (os error "  # ends, with a number and a bracket, the complaint about one path


@dataclass(frozen=True, slots=True)
class MatchingLine:
    """A matching line, without its end; `path` is ripgrep's spelling, `number` counts from 1."""

    path: bytes
    number: int
    text: bytes


class MatchReader:
    """Reads the output of `--null --with-filename --line-number`: `path NUL number : text LF`.

    It keeps the first `most` lines, in the order in which they came; of `binary_files` some matches are not shown.
    """

    def __init__(self, most: int) -> None:
        self.lines: list[MatchingLine] = []
        self.has_more = False
        self.binary_files = 0
        self._most = most
        self._rest = b""
        self._is_clipped = False

    def feed(self, data: bytes) -> None:
        """Take the next piece, cut anywhere."""
        if self._is_clipped:
            line_end = data.find(b"\n")
            if line_end < 0:
                return
            data = data[line_end:]
            self._is_clipped = False
        data = self._rest + data
        start = 0
        while not self.has_more:
            name_end = data.find(b"\0", start)
            line_end = data.find(b"\n", name_end) if name_end >= 0 else -1
            if line_end < 0:
                break
            self._take(data[start:name_end], data[name_end + 1 : line_end])
            start = line_end + 1
        self._rest = b"" if self.has_more else data[start:]
        if len(self._rest) > MAX_RECORD_BYTES:
            self._rest = self._rest[:MAX_RECORD_BYTES]
            self._is_clipped = True

    def close(self) -> None:
        """Note the end of the output."""
        self._without_notes(self._rest)
        self._rest = b""

    def _take(self, path: bytes, rest: bytes) -> None:
        if b"\n" in path:
            path = self._without_notes(path)
        if len(self.lines) == self._most:
            self.has_more = True
            return
        number, _, text = rest[: MAX_TEXT_BYTES + MAX_NUMBER_BYTES].partition(b":")
        text = text.removesuffix(b"\r")[:MAX_TEXT_BYTES]
        self.lines.append(MatchingLine(path, int(number) if number.isdigit() else 0, text))

    def _without_notes(self, text: bytes) -> bytes:
        while (note := _BINARY.match(text)) is not None:
            self.binary_files += 1
            text = text[note.end() :]
        return text


class PathReader:
    """Reads the output of `--files --null`: paths, each with a NUL at its end."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the paths that this piece, cut anywhere, completes."""
        *paths, rest = (self._rest + data).split(b"\0")
        self._rest = rest if len(rest) <= MAX_RECORD_BYTES else b""
        return paths


class ComplaintReader:
    """Reads ripgrep's standard error.

    `place_error` is why the searched place itself could not be read; empty when it could.
    """

    def __init__(self, place: bytes) -> None:
        self.unreadable = 0
        self.place_error = ""
        self._place = b"rg: %b: " % place
        self._other = bytearray()
        self._rest = b""

    @property
    def text(self) -> str:
        """The beginning of all complaints that are not about one path."""
        return self._other.decode(errors="replace").strip()

    def feed(self, data: bytes) -> None:
        """Take the next piece, cut anywhere."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        self._rest = rest if len(rest) <= MAX_RECORD_BYTES else b""

    def close(self) -> None:
        """Note the end of the output."""
        if self._rest:
            self._take(self._rest)
        self._rest = b""

    def _take(self, line: bytes) -> None:
        head, mark, number = line.rpartition(_OS_ERROR)
        if not mark or not number.removesuffix(b")").isdigit():
            self._other += (line + b"\n")[: MAX_COMPLAINT_BYTES - len(self._other)]
            return
        self.unreadable += 1
        if line.startswith(self._place):
            self.place_error = head.rpartition(b": ")[2].decode(errors="replace")
