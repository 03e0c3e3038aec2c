"""What one client may list and call: its own native tools, then the servers' tools; `decks` knows whose are which."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.tools import (
    CancelToken,
    Deliver,
    PendingCall,
    RawCall,
    ToolBox,
    ToolCall,
    ToolDescriptor,
    ToolOutcome,
    ToolSource,
)

_log = logging.getLogger("quarterdeck.names")
_log = logging.getLogger("quarterdeck.decks")


class SessionSource(ToolSource):
    """A client's own native tools, then the servers' tools that all clients share.

    Attributes:
        native_names: what the native tools are called; reserved for them.
        problem: why there are none; empty when there are.
    """

    def __init__(self, native: ToolBox, live: ToolSource, problem: str = "") -> None:
        self.native_names = frozenset(descriptor.name for descriptor in native.descriptors())
        self.problem: Final = problem
        self._native = native
        self._live = live
        self._left_out: set[str] = set()
        self._listed: tuple[tuple[ToolDescriptor, ...], ...] = ((), (), ())

    @property
    def can_change(self) -> bool:
        """As the servers' tools do; the native ones stay as they are."""
        return self._live.can_change

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """Native tools first; a server's that bears a native name is left out.  The same tuple until one changes."""
        native, live = tuple(self._native.descriptors()), tuple(self._live.descriptors())
        if native is not self._listed[0] or live is not self._listed[1]:
            self._listed = native, live, (*native, *filter(self._is_free, live))
        return self._listed[2]

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run a native tool by its name, anything else as the servers' tools' source does."""
        return await (self._native if self._is_native(call.name) else self._live).runner.run(call, cancel)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the servers' tools."""
        return self._live.watch(callback)

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """See `ToolSource`; a native tool takes no raw call."""
        return None if call.tool in self.native_names else self._live.begin(call, deliver)

    def own(self, name: str) -> str:
        """See `ToolSource`."""
        return name if name in self.native_names else self._live.own(name)

    def _is_native(self, name: str) -> bool:
        """Whether the native tools know best what to say of `name`, be it theirs or a slip."""
        if name in self.native_names:
            return True
        # A server's names are qualified; another box beside us may have plain ones.
        return QUALIFIER not in name and all(tool.name != name for tool in self._live.descriptors())

    def _is_free(self, descriptor: ToolDescriptor) -> bool:
        if descriptor.name not in self.native_names:
            return True
        if descriptor.name not in self._left_out:
            self._left_out.add(descriptor.name)
            _log.warning("a server's tool called %s is left out: the name is a native tool's", descriptor.name)
        return False


def source_without_native(problem: str, live: ToolSource) -> SessionSource:
    """The servers' tools, and what says at each native call why there are no others."""
    return SessionSource(_NoNativeTools(problem), live, problem)


class _NoNativeTools(ToolSource):
    """In place of native tools that cannot be had."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def descriptors(self) -> Sequence[ToolDescriptor]:
        return ()

    async def run(self, call: ToolCall, _: CancelToken) -> ToolOutcome:
        text = f"{call.name} was not run: there are no native tools: {self._reason}"
        return ToolOutcome(call.id, text, is_error=True)
