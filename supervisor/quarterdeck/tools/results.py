"""A tool's result, its form for callers, and the part of its text that is kept for a model. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Literal, Self

import msgspec

from quarterdeck_protocol.tools import ToolOutcome, WireResult


class BudgetKind(StrEnum):
    """The part of a text that is kept."""

    HEAD = "head"
    TAIL = "tail"
    MIDDLE = "middle"  # both ends; the middle goes


@dataclass(frozen=True, slots=True)
class OutputBudget:
    """The part of a text that `clamp` keeps: `max_bytes` of UTF-8, without the notice; `ValueError` below 0.

    `notice` makes the notice of the number of bytes left out; None for a default that names it.
    """

    kind: BudgetKind
    max_bytes: int
    notice: Callable[[int], str] | None = None

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise ValueError(f"max_bytes is {self.max_bytes}: a budget cannot be negative")


STANDARD_BUDGET: Final = OutputBudget(BudgetKind.MIDDLE, 64 * 1024)
"""A long output's beginning says what ran and its end how it went; 64 KiB is some 16,000 tokens."""


def clamp(text: str, budget: OutputBudget) -> str:
    """Cut `text` to `budget` between characters; unchanged when it fits."""
    if len(text) * 4 <= budget.max_bytes:  # no character takes more than four bytes
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= budget.max_bytes:
        return text
    head_end, tail_start = kept_ends(len(data), budget.kind, budget.max_bytes)
    head_end, tail_start = _character_start(data, head_end, -1), _character_start(data, tail_start, +1)
    omitted = tail_start - head_end
    gap = budget.notice(omitted) if budget.notice is not None else f"\n[{omitted:,} bytes left out]\n"
    return f"{_text(data[:head_end])}{gap}{_text(data[tail_start:])}"


def kept_ends(size: int, kind: BudgetKind, most: int) -> tuple[int, int]:
    """Return start and end of the gap in data of this size, of which `most`, no more than `size`, is kept."""
    head = {BudgetKind.HEAD: most, BudgetKind.TAIL: 0, BudgetKind.MIDDLE: most // 2}[BudgetKind(kind)]
    return head, size - (most - head)


def _character_start(data: bytes, at: int, direction: int) -> int:
    """Return the boundary between characters nearest to `at` in `direction`."""
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:
        at += direction
    return at


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


_ERA: Final = "2025-11-25"  # the revision that our own blocks are written in; later ones accept them unchanged


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


class Output(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Base of every structure that a tool returns, and of the objects inside it; output schemas are made of it."""

    def to_value(self) -> dict[str, object]:
        """Return the structure as a JSON value."""
        value: dict[str, object] = msgspec.to_builtins(self)
        return value


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The end of a tool's run; `structured` is the data for programs, as the tool's output schema describes it.

    `wire` is the result in an MCP client's form, a server's own or one of `of_mcp`; `content` is its projection, a
    change of which must drop it.
    """

    content: Sequence[ContentBlock]
    is_error: bool = False
    wire: WireResult | None = None
    structured: Mapping[str, object] | None = None

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Make a success of one text block."""
        return cls((TextContentBlock(text),))

    @classmethod
    def of_error(cls, text: str) -> Self:
        """Make a failure that `text` explains."""
        return cls((TextContentBlock(text),), is_error=True)

    @classmethod
    def of_output(cls, output: Output, *more: ContentBlock) -> Self:
        """Make a success of one structure, shown as JSON with `more` behind it."""
        value = output.to_value()
        return cls((JsonContentBlock(value), *more), structured=value)

    @classmethod
    def of_mcp(cls, *blocks: Mapping[str, object]) -> Self:
        """Make a success of MCP content blocks (`{"type": "image", …}`), which MCP clients are shown unchanged.

        Source: MCP specification, "Tools", section Tool Result.
        """
        body = msgspec.json.encode({"content": blocks, "isError": False})
        content = tuple(
            TextContentBlock(str(block["text"])) if block["type"] == "text" else JsonContentBlock(dict(block))
            for block in blocks
        )
        return cls(content, wire=WireResult(body, _ERA))

    def to_outcome(self, call_id: str) -> ToolOutcome:
        """Return the outcome of this call; `wire` is passed on unchanged."""
        parts = tuple(map(_held, self.content)) if len(self.content) > 1 else ()
        return ToolOutcome(call_id, project_content(self.content), self.is_error, self.wire, parts, self.structured)


def project_content(content: Sequence[ContentBlock]) -> object:
    """Return one JSON value for all blocks.

    A lone text block is its text, a lone JSON block its value; none or many are a list of tagged fragments (`{"type":
    "text", "text": …}`, `{"type": "json", "value": …}`), so that none is lost.
    """
    if len(content) == 1:
        return _held(content[0])
    return [
        {"type": block.kind, "text" if isinstance(block, TextContentBlock) else "value": _held(block)}
        for block in content
    ]


def _held(block: ContentBlock) -> object:
    return block.text if isinstance(block, TextContentBlock) else block.value
