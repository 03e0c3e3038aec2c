"""A grafted tool as a card: uniform with the native ones, run by the box that it came from."""

from dataclasses import dataclass

import msgspec

from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import TextContentBlock, ToolResult
from quarterdeck_protocol.tools import ToolBox, ToolCall, ToolDescriptor, ToolHints, ToolOutcome, ToolRunner


@dataclass(frozen=True, slots=True)
class BridgeCapability:
    """One grafted tool, a `Card`.

    Attributes:
        descriptor: what the box says of it, under its qualified name.
        runner: what runs it; it finds the server by the name.
    """

    descriptor: ToolDescriptor
    runner: ToolRunner

    @property
    def name(self) -> str:
        """The qualified name."""
        return self.descriptor.name

    @property
    def label(self) -> str:
        """The qualified name: what people are shown must not be a server's to choose."""
        return self.descriptor.name

    @property
    def description(self) -> str:
        """What its server says of it."""
        return self.descriptor.description

    @property
    def parameters(self) -> dict[str, object]:
        """The portable schema of its input."""
        return dict(self.descriptor.parameters)

    @property
    def read_only(self) -> bool:
        """Never: a server's word is none to skip a permission on."""
        return False

    @property
    def hints(self) -> ToolHints | None:
        """None: they are in the definition."""
        return None

    @property
    def definition(self) -> bytes | None:
        """Its server's whole tool object."""
        return self.descriptor.definition

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run one call on its server."""
        call = ToolCall(f"{self.name}-bridged", self.name, value, ctx.report)
        return project_outcome(await self.runner.run(call, ctx.cancel))


def bridge_box_to_capabilities(box: ToolBox) -> tuple[BridgeCapability, ...]:
    """Every tool that `box` offers at this moment, over its one runner."""
    return tuple(BridgeCapability(descriptor, box.runner) for descriptor in box.descriptors())


def project_outcome(outcome: ToolOutcome) -> ToolResult:
    """An outcome as one text block: a text verbatim, nothing as nothing, all else as indented JSON.

    `is_error` and the wire form go along.
    """
    return ToolResult((TextContentBlock(_text_of(outcome.output)),), outcome.is_error, outcome.wire)


def _text_of(output: object) -> str:
    if isinstance(output, str):
        return output
    if output is None:
        return ""
    return msgspec.json.format(msgspec.json.encode(output, enc_hook=str), indent=2).decode()
