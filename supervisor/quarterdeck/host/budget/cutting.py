"""Cut a tool's result to a budget of tokens, as native tools cut what they print: both ends stay.  Pure.

What counts is text: text blocks, the text of embedded resources, and structured content that no output schema
describes.  Images, sound, links and binary resources stay as they are, and so does structured content that a schema
describes: clients check it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from quarterdeck.common.tokens import CHARS_PER_TOKEN
from quarterdeck.tools.results import BudgetKind, kept_ends
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.tools import WireResult

MAX_BYTES: Final = 1024 * 1024 * 1024
"""The largest result that a configuration lets a server say."""

_T = TypeVar("_T")

_PLAIN: Final = "text/plain"
_JSON: Final = "application/json"
_CONTENT: Final = "content"
_STRUCTURED: Final = "structuredContent"
_RESOURCE: Final = "resource"


def chars_within(max_tokens: int) -> int:
    """The characters of a text of so many tokens, by the estimate; no text has more of them than bytes in JSON."""
    return math.floor(max_tokens * CHARS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class _Block:
    """A content block that has text, or a part of a result that is read as one.

    Attributes:
        said: the text as the server wrote it, JSON: megabytes are not encoded anew.
    """

    text: str
    said: Raw
    mime_type: str = _PLAIN
    place: int = -1
    members: dict[str, Raw] | None = None
    resource: dict[str, Raw] | None = None

    def with_text(self, text: str) -> Raw:
        """The block as JSON, with another text."""
        said = Raw(msgspec.json.encode(text))
        if self.resource is None:
            return Raw(msgspec.json.encode({**(self.members or {}), "text": said}))
        resource = Raw(msgspec.json.encode({**self.resource, "text": said}))
        return Raw(msgspec.json.encode({**(self.members or {}), _RESOURCE: resource}))


@dataclass(frozen=True, slots=True)
class Overlong:
    """A result that is above a budget, taken apart."""

    _wire: WireResult
    _members: dict[str, Raw]
    _content: Sequence[Raw]
    _blocks: Sequence[_Block]
    _structure: str | None
    _max_chars: int

    def whole(self, uri: str) -> bytes:
        """All its text as the result of `resources/read`, one JSON object."""
        parts = [
            *self._blocks,
            *(
                [_Block(self._structure, Raw(msgspec.json.encode(self._structure)), _JSON)]
                if self._structure is not None
                else []
            ),
        ]
        contents = [{"uri": uri, "mimeType": each.mime_type, "text": each.said} for each in parts]
        return msgspec.json.encode({"contents": contents})

    def cut(self, where: str) -> WireResult:
        """The result within its budget; a notice, on top of that, stands in place of what is left out.

        Args:
            where: what the notice says of the whole.
        """
        total = sum(len(block.text) for block in self._blocks)
        too = " and the structured content" if self._structure is not None and total > self._max_chars else ""
        content: list[Raw | None] = list(self._content)
        texts = _kept(
            [block.text for block in self._blocks],
            self._max_chars,
            lambda left_out: f"\n[{left_out:,} characters{too} left out: {where}]\n",
        )
        for block, text in zip(self._blocks, texts, strict=True):
            if text is not block.text:
                content[block.place] = None if text is None else block.with_text(text)
        if self._structure is not None and not too:
            notice = f"[structured content of {len(self._structure):,} characters left out: {where}]"
            content.append(Raw(msgspec.json.encode({"type": "text", "text": notice})))
        left_out = {_STRUCTURED} if self._structure is not None else frozenset[str]()
        members = {name: value for name, value in self._members.items() if name not in left_out}
        members[_CONTENT] = Raw(msgspec.json.encode([each for each in content if each is not None]))
        return replace(self._wire, body=msgspec.json.encode(members), members=None)


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
    content = _decoded(members[_CONTENT], list[Raw])
    blocks = [block for place, raw in enumerate(content) if (block := _block(raw, place)) is not None]
    structure = None
    if bytes(members.get(_STRUCTURED, b"null")) != b"null" and not has_schema():
        structure = bytes(members[_STRUCTURED]).decode("utf-8", "replace")
    if sum(len(block.text) for block in blocks) + len(structure or "") <= max_chars:
        return None
    return Overlong(wire, members, content, blocks, structure, max_chars)


def _kept(texts: Sequence[str], max_chars: int, notice: Callable[[int], str]) -> list[str | None]:
    """What stays of texts that are read one after the other; None for one that is left out whole."""
    total = sum(map(len, texts))
    if total <= max_chars:
        return list(texts)
    head_end, tail_start = kept_ends(total, BudgetKind.MIDDLE, max_chars)
    kept: list[str | None] = []
    at = 0
    has_notice = False
    for text in texts:
        end = at + len(text)
        if end <= head_end or at >= tail_start:
            kept.append(text)
        elif not has_notice:
            gap = notice(tail_start - head_end)
            kept.append(f"{text[: head_end - at]}{gap}{text[tail_start - at :]}")
            has_notice = True
        else:
            kept.append(text[tail_start - at :] or None)
        at = end
    return kept


def _block(raw: Raw, place: int) -> _Block | None:
    """The block when it has text; what is no block of the protocol's is left to the client."""
    if not bytes(raw).startswith(b"{"):
        return None
    members = _decoded(raw, dict[str, Raw])
    match bytes(members.get("type", b"")):
        case b'"text"':
            if "text" not in members:
                return None
            return _Block(_decoded(members["text"], str), members["text"], place=place, members=members)
        case b'"resource"' if bytes(members.get(_RESOURCE, b"")).startswith(b"{"):
            resource = _decoded(members[_RESOURCE], dict[str, Raw])
            if "text" not in resource:
                return None
            mime = bytes(resource.get("mimeType", b""))
            mime_type = _decoded(Raw(mime), str) if mime.startswith(b'"') else _PLAIN
            return _Block(_decoded(resource["text"], str), resource["text"], mime_type, place, members, resource)
    return None


def _decoded(raw: Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError("content whose text cannot be read", error) from None
