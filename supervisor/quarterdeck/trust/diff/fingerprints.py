"""The fingerprint of a local program: its file and the files that its arguments name, and how two compare.  Pure."""

import msgspec

from quarterdeck.ledger.events.events import decode_json, encode_json, hash_of

Stamp = tuple[str, int, int, int, int]
"""Path, size, inode, and both times: the same as long as nobody has written or replaced a file."""


class FileMark(msgspec.Struct, frozen=True):
    """One file as it was when it was read.

    Attributes:
        real: its path without links.
        mtime_ns, ctime_ns: 0 for times too fresh to tell a later change.
        sha256: of its content; empty for a file that is too large or unreadable, whose times count instead.
    """

    real: str
    size: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    sha256: str = ""

    @property
    def stamp(self) -> Stamp:
        """All but the content."""
        return (self.real, self.size, self.inode, self.mtime_ns, self.ctime_ns)

    def has_content_of(self, other: "FileMark") -> bool:
        """Return whether both are of the same content, as far as anybody can tell."""
        if self.sha256 and other.sha256:
            return self.sha256 == other.sha256
        return self.sha256 == other.sha256 and self.stamp == other.stamp


class Fingerprint(msgspec.Struct, frozen=True):
    """A program; `words` is the hash of the command line that names its `files`, by the path that names each."""

    words: str
    files: dict[str, FileMark]

    @property
    def body(self) -> bytes:
        """The document that the ledger keeps."""
        return encode_json(self)

    @property
    def hash(self) -> str:
        """The name of that document."""
        return hash_of(self.body)


def fingerprint_of(body: bytes | None) -> Fingerprint | None:
    """Return the fingerprint in a kept document; None for none."""
    try:
        return decode_json(body, Fingerprint) if body is not None else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def changed_files(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return the paths of the files whose content differs, and of those that only one of both has, in order."""
    named = dict.fromkeys((*after.files, *before.files))
    return tuple(path for path in named if not _is_same(before.files.get(path), after.files.get(path)))


def _is_same(before: FileMark | None, after: FileMark | None) -> bool:
    return before is not None and after is not None and before.has_content_of(after)


def contents_of(document: object) -> object:
    """Return what of a fingerprint's JSON value people compare: a line for each file, without its times."""
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict):
        return document
    return {path: _line(mark) for path, mark in files.items()}


def _line(mark: object) -> object:
    if not isinstance(mark, dict):
        return mark
    hashed = f"sha256 {mark['sha256']}" if mark.get("sha256") else f"not read, last changed {mark.get('ctime_ns')}"
    return f"{mark.get('real')}: {mark.get('size')} bytes, {hashed}"
