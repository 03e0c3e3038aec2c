"""What a tool gives back, and how a caller sees it.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from quarterdeck_protocol.tools import ToolOutcome, WireResult


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
        wire: a server's own result, of which `content` is the projection.  Whoever changes `content` drops it.
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


def _fragment(block: ContentBlock) -> dict[str, object]:
    if isinstance(block, TextContentBlock):
        return {"type": block.kind, "text": block.text}
    return {"type": block.kind, "value": block.value}
