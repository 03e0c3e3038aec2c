"""How a tool of our own becomes a card: the kernel checks its input, runs it and cuts its texts; nothing is added."""

from collections.abc import Mapping

from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import DefinedTool
from quarterdeck_protocol.tools import ToolHints


class NativeCard:
    """A `DefinedTool` as a `Card`.

    Stateless by itself: what the tool keeps, it keeps.
    """

    def __init__(self, tool: DefinedTool, label: str = "") -> None:
        self._tool = tool
        self._label = label

    @property
    def name(self) -> str:
        """What a model calls it by."""
        return self._tool.name

    @property
    def label(self) -> str:
        """What a person is shown: the deck's own words, else the tool's."""
        return self._label or self._tool.label

    @property
    def description(self) -> str:
        """What a model is told."""
        return self._tool.description

    @property
    def parameters(self) -> Mapping[str, object]:
        """The JSON Schema of its input."""
        return self._tool.parameters

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing, by its hints."""
        return self.hints is not None and self.hints.read_only

    @property
    def hints(self) -> ToolHints | None:
        """What a client may assume."""
        return self._tool.descriptor().hints

    @property
    def definition(self) -> bytes | None:
        """None: a server's tools have one."""
        return self._tool.descriptor().definition

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run one call; see `DefinedTool.run`."""
        return await self._tool.run(value, ctx)
