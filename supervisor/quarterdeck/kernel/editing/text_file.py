"""A text file as characters, so that it can go back to the very same bytes.  Pure."""

from dataclasses import dataclass

from quarterdeck.kernel.files.file_kinds import TextEncoding, encoding_of


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
