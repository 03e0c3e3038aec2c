"""Cut a tool's result to a budget of tokens, as native tools cut what they print: both ends stay.  Pure.

What counts is text: text blocks, the text of embedded resources, and structured content that no output schema
describes.  Images, sound, links and binary resources stay as they are, and so does structured content that a schema
describes: clients check it.

All clients wait while a result is cut, so no more of a long text is decoded than may stay of it: that it is above the
budget its bytes say, and the rest is passed on as its server wrote it.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck.common.tokens import CHARS_PER_TOKEN
from quarterdeck.tools.results import BudgetKind, kept_ends
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.tools import WireResult

MAX_BYTES: Final = 1024 * 1024 * 1024
"""The largest result that a configuration lets a server say."""

MAX_BLOCKS: Final = 2048
"""Of a result that is cut; each is looked at, some 10 ms for all of them."""

MAX_WORD_BYTES: Final = 1024
"""Of a block's type or MIME type that is read."""

CHAR_BYTES: Final = 12
"""The most that a character takes in JSON: the escapes of a surrogate pair."""

_T = TypeVar("_T")

_PLAIN: Final = "text/plain"
_JSON: Final = "application/json"
_CONTENT: Final = "content"
_STRUCTURED: Final = "structuredContent"
_RESOURCE: Final = "resource"


def chars_within(max_tokens: int) -> int:
    """The characters of a text of so many tokens, by the estimate; no text has more of them than bytes in JSON."""
    return math.floor(max_tokens * CHARS_PER_TOKEN)


class _Block(msgspec.Struct, frozen=True):
    """A content block that has text.

    Attributes:
        place: which of the blocks it is.
        said: the text as the server wrote it, a JSON string: megabytes are neither decoded nor encoded anew.
        members: all of the block, and of the resource in it where that has the text.
    """

    place: int
    said: bytes
    members: dict[str, Raw]
    resource: dict[str, Raw] | None = None
    mime_type: str = _PLAIN

    @property
    def size(self) -> int:
        """Bytes of the text between its quotes."""
        return len(self.said) - 2

    def with_text(self, text: str) -> dict[str, Raw]:
        """The block with another text."""
        said = Raw(msgspec.json.encode(text))
        if self.resource is None:
            return {**self.members, "text": said}
        return {**self.members, _RESOURCE: Raw(msgspec.json.encode({**self.resource, "text": said}))}


class Overlong(msgspec.Struct, frozen=True):
    """A result that is above a budget, taken apart."""

    _wire: WireResult
    _members: dict[str, Raw]
    _content: Sequence[dict[str, Raw]]
    _blocks: Sequence[_Block]
    _structure: bytes | None
    _max_chars: int

    @property
    def size(self) -> int:
        """Bytes of all its text, the least that `whole` has."""
        return sum(block.size for block in self._blocks) + len(self._structure or b"")

    def whole(self, uri: str) -> bytes:
        """All its text as the result of `resources/read`, one JSON object."""
        contents = [{"uri": uri, "mimeType": each.mime_type, "text": Raw(each.said)} for each in self._blocks]
        if self._structure is not None:
            text = Raw(msgspec.json.encode(self._structure.decode()))
            contents.append({"uri": uri, "mimeType": _JSON, "text": text})
        return msgspec.json.encode({"contents": contents})

    def cut(self, where: str) -> WireResult:
        """The result within its budget; a notice, on top of that, stands in place of what is left out.

        Args:
            where: what the notice says of the whole.
        """
        blocks, structure = self._blocks, self._structure
        content: list[dict[str, Raw] | None] = list(self._content)
        is_cut = _are_above([block.said for block in blocks], self._max_chars)
        if is_cut:
            too = " and the structured content" if structure is not None else ""
            texts = _kept(blocks, self._max_chars, lambda size: f"\n[{size:,} bytes{too} left out: {where}]\n")
            for block, text in texts:
                content[block.place] = None if text is None else block.with_text(text)
        elif structure is not None:
            notice = f"[structured content of {len(structure):,} bytes left out: {where}]"
            content.append({"type": Raw(b'"text"'), "text": Raw(msgspec.json.encode(notice))})
        left_out = {_STRUCTURED} if structure is not None else frozenset[str]()
        members = {name: value for name, value in self._members.items() if name not in left_out}
        members[_CONTENT] = Raw(msgspec.json.encode([each for each in content if each is not None]))
        return msgspec.structs.replace(self._wire, body=msgspec.json.encode(members), members=None)


def overlong(wire: WireResult, max_tokens: int, has_schema: Callable[[], bool]) -> Overlong | None:
    """`wire` when it is above so many tokens; None when it is within, or has no content.

    Args:
        wire: what a server said to a call.
        max_tokens: 1 or more.
        has_schema: whether an output schema describes the tool's structured content; asked where there is some.

    Raises:
        BodyError: it is no result whose text can be read.
    """
    max_chars = chars_within(max_tokens)
    if len(wire.body) <= max_chars:
        return None
    members = dict(wire.members if wire.members is not None else check_object(wire.body, max_bytes=MAX_BYTES))
    if _CONTENT not in members:
        return None
    content = _content_of(members[_CONTENT])
    blocks = [block for place, each in enumerate(content) if (block := _block(each, place)) is not None]
    structure: bytes | None = bytes(members.get(_STRUCTURED, b"null"))
    if structure == b"null" or has_schema():
        structure = None
    texts = [block.said for block in blocks]
    if not _are_above(texts, max_chars, structure or b""):
        return None
    return Overlong(wire, members, content, blocks, structure, max_chars)


def _are_above(texts: Sequence[bytes], max_chars: int, structure: bytes = b"") -> bool:
    """Whether texts, JSON strings, and a structure have more characters; where bytes can say it, they are not read."""
    if sum(len(said) - 2 for said in texts) + len(structure) > max_chars * CHAR_BYTES:
        return True
    return sum(len(_text_of(said)) for said in texts) + len(structure.decode()) > max_chars


def _kept(blocks: Sequence[_Block], max_chars: int, notice: Callable[[int], str]) -> list[tuple[_Block, str | None]]:
    """What stays of those blocks that do not stay whole, read one after the other; None for one that goes whole.

    Args:
        blocks: of more than `max_chars` characters together.
        max_chars: what stays.
        notice: the text in place of so many bytes.
    """
    head_left, _ = kept_ends(max_chars, BudgetKind.MIDDLE, max_chars)
    tail_left = max_chars - head_left
    first, last = 0, len(blocks) - 1
    while len(head := _head(blocks[first].said, head_left + 1)) <= head_left:
        head_left -= len(head)
        first += 1
    while len(tail := _tail(blocks[last].said, tail_left + 1)) <= tail_left:
        tail_left -= len(tail)
        last -= 1
    head, tail = head[:head_left], tail[len(tail) - tail_left :]
    kept_bytes = len(msgspec.json.encode(head)) + len(msgspec.json.encode(tail)) - 4
    gap = notice(sum(block.size for block in blocks[first : last + 1]) - kept_bytes)
    if first == last:
        return [(blocks[first], f"{head}{gap}{tail}")]
    between: list[tuple[_Block, str | None]] = [(block, None) for block in blocks[first + 1 : last]]
    return [(blocks[first], f"{head}{gap}"), *between, (blocks[last], tail or None)]


def _head(said: bytes, chars: int) -> str:
    """The first so many characters of a JSON string, of which no more is decoded than they may take."""
    end = 1 + chars * CHAR_BYTES
    if end >= len(said) - 1:
        return _text_of(said)[:chars]
    for one in range(end, end - CHAR_BYTES, -1):
        # What ends within a character, or within its escape, is no JSON string.
        try:
            return _text_of(b'"%b"' % said[1:one])[:chars]
        except BodyError:
            continue
    raise BodyError("content whose text cannot be read")


def _tail(said: bytes, chars: int) -> str:
    """The same of the last."""
    start = len(said) - 1 - (chars + 1) * CHAR_BYTES
    if start <= 1:
        return _text_of(said)[-chars:]
    # Which backslash escapes and which is escaped, the length of their run says.
    start -= (start - len(said[:start].rstrip(b"\\"))) % 2
    rest = _REST.match(said, start)
    assert rest is not None
    return _text_of(b'"%b' % said[rest.end() :])[-chars:]


_REST: Final = re.compile(rb"[0-9A-Fa-f]{0,4}[\x80-\xbf]{0,3}(?:\\u[dD][c-fC-F][0-9A-Fa-f]{2})?")
"""What may be left of a character where a text is cut anywhere but behind a backslash: no more than one takes."""


def _content_of(raw: Raw) -> list[dict[str, Raw]]:
    """The blocks of a result, each still raw.

    Raises:
        BodyError: it is no list of objects, or of too many.
    """
    blocks = msgspec.structs.astuple(_decoded(raw, _blocks()))
    return list(takewhile(lambda block: block is not UNSET, blocks))


@cache
def _blocks() -> type[msgspec.Struct]:
    """An array of at most `MAX_BLOCKS` objects: a list would be built whole, however long, before its length counts."""
    fields: list[Any] = [(f"b{place}", dict[str, Raw] | UnsetType, UNSET) for place in range(MAX_BLOCKS)]
    return msgspec.defstruct("_Blocks", fields, array_like=True, forbid_unknown_fields=True)


def _block(members: dict[str, Raw], place: int) -> _Block | None:
    """The block when it has text; what is no block of the protocol's is left to the client."""
    match _short(members.get("type"), ""):
        case "text" if "text" in members:
            return _Block(place, _string(members["text"]), members)
        case "resource" if _begins(members.get(_RESOURCE), b"{"):
            resource = _decoded(members[_RESOURCE], dict[str, Raw])
            if "text" not in resource:
                return None
            mime_type = _short(resource.get("mimeType"), _PLAIN)
            return _Block(place, _string(resource["text"]), members, resource, mime_type)
    return None


def _string(raw: Raw) -> bytes:
    if not _begins(raw, b'"'):
        raise BodyError("content whose text is none")
    return bytes(raw)


def _short(raw: Raw | None, default: str) -> str:
    """A word, which may be written with escapes; what is none, or very long, is `default`."""
    is_word = raw is not None and _begins(raw, b'"') and len(bytes(raw)) <= MAX_WORD_BYTES
    return _decoded(raw, str) if raw is not None and is_word else default


def _begins(raw: Raw | None, mark: bytes) -> bool:
    return raw is not None and bytes(memoryview(raw)[:1]) == mark


def _text_of(said: bytes) -> str:
    """The text of a JSON string."""
    return _decoded(said, str)


def _decoded(raw: bytes | Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError("content whose text cannot be read", error) from None
