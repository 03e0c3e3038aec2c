"""What a tool gives back, and how a caller sees it.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self

import msgspec

from quarterdeck_protocol.tools import ToolOutcome, WireResult

_ERA: Final = "2025-11-25"
"""The revision that our own blocks are written in; later ones take them as they are."""


@dataclass(frozen=True, slots=True)
class TextContentBlock:
    """Text for the model."""

    kind: ClassVar[Literal["text"]] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class JsonContentBlock:
    """Any JSON value."""

    kind: ClassVar[Literal["json"]] = "json"
    value: object


ContentBlock = TextContentBlock | JsonContentBlock


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a run ended.

    Attributes:
        wire: the result as an MCP client is shown it, of which `content` is the projection: a server's own, or one of
            `of_mcp`.  Whoever changes `content` drops it.
    """

    content: Sequence[ContentBlock]
    is_error: bool = False
    wire: WireResult | None = None

    @classmethod
    def of_text(cls, text: str) -> Self:
        """A success of one text block."""
        return cls((TextContentBlock(text),))

    @classmethod
    def of_error(cls, text: str) -> Self:
        """A failure that `text` explains."""
        return cls((TextContentBlock(text),), is_error=True)

    @classmethod
    def of_mcp(cls, *blocks: Mapping[str, object]) -> Self:
        """A success of MCP content blocks (`{"type": "image", …}`), which an MCP client is shown as they are.

        Source: MCP specification, "Tools", section Tool Result.
        """
        body = msgspec.json.encode({"content": blocks, "isError": False})
        content = tuple(
            TextContentBlock(str(block["text"])) if block["type"] == "text" else JsonContentBlock(dict(block))
            for block in blocks
        )
        return cls(content, wire=WireResult(body, _ERA))

    def to_outcome(self, call_id: str) -> ToolOutcome:
        """The outcome of the call that ran to this result; `wire` goes along unchanged."""
        return ToolOutcome(call_id, project_content(self.content), self.is_error, self.wire)


def project_content(content: Sequence[ContentBlock]) -> object:
    """One JSON value for all blocks.

    A lone text block is its text, a lone JSON block its value; none or many are a list of tagged fragments
    (`{"type": "text", "text": …}`, `{"type": "json", "value": …}`), so that none is lost.
    """
    match content:
        case [TextContentBlock(text=text)]:
            return text
        case [JsonContentBlock(value=value)]:
            return value
        case _:
            return [_fragment(block) for block in content]


def fragments_of(output: object) -> list[object] | None:
    """The texts and values of the blocks that `project_content` made a list of; None when it is no such list."""
    if not isinstance(output, list) or len(output) < 2:
        return None
    found: list[object] = []
    for item in output:
        match item:
            case {"type": "text", "text": str(text)} if len(item) == 2:
                found.append(text)
            case {"type": "json", "value": value} if len(item) == 2:
                found.append(value)
            case _:
                return None
    return found


def _fragment(block: ContentBlock) -> dict[str, object]:
    if isinstance(block, TextContentBlock):
        return {"type": block.kind, "text": block.text}
    return {"type": block.kind, "value": block.value}
