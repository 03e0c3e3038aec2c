"""What one client may call: its own native tools, and the grafted ones beside them.

Above it the faces of the host; who has which native tools, `decks` knows.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.tools import (
    CallEnd,
    CancelToken,
    ProgressNote,
    ShortCall,
    ShortWay,
    ToolBox,
    ToolCall,
    ToolDescriptor,
    ToolOutcome,
    ToolRunner,
    WatchableToolBox,
)

_log = logging.getLogger("quarterdeck.decks")


class SessionBox(WatchableToolBox, ShortWay):
    """A client's own native tools, then the grafted ones that all clients share.

    Attributes:
        native_names: what the native tools are called; reserved for them.
        problem: why there are none; empty when there are.
    """

    def __init__(self, native: ToolBox, live: ToolBox, problem: str = "") -> None:
        self.native_names: Final = frozenset(descriptor.name for descriptor in native.descriptors())
        self.problem: Final = problem
        self._native = native
        self._live = live
        self._left_out: set[str] = set()

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """Native tools first; a grafted one that bears a native name is left out."""
        return (*self._native.descriptors(), *filter(self._is_free, self._live.descriptors()))

    @property
    def runner(self) -> ToolRunner:
        """The box itself."""
        return self

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run a native tool by its name, anything else as the grafted tools' box does."""
        return await (self._native if self._is_native(call.name) else self._live).runner.run(call, cancel)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the grafted tools; the native ones stay as they are."""
        return self._live.watch(callback) if isinstance(self._live, WatchableToolBox) else lambda: None

    def begin(
        self,
        name: str,
        arguments: bytes,
        deliver: Callable[[CallEnd], None],
        *,
        meta: bytes = b"",
        timeout_s: float | None = None,
        on_progress: Callable[[ProgressNote], None] | None = None,
    ) -> ShortCall | None:
        """See `ShortWay.begin`; a native tool has no short way."""
        if name in self.native_names or not isinstance(self._live, ShortWay):
            return None
        return self._live.begin(name, arguments, deliver, meta=meta, timeout_s=timeout_s, on_progress=on_progress)

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


def box_without(problem: str, live: ToolBox) -> SessionBox:
    """The grafted tools, and what says at each native call why there are no others."""
    return SessionBox(_NoDeck(problem), live, problem)


class _NoDeck:
    """Stands for a deck that cannot be had."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def descriptors(self) -> Sequence[ToolDescriptor]:
        return ()

    @property
    def runner(self) -> ToolRunner:
        return self

    async def run(self, call: ToolCall, _: CancelToken) -> ToolOutcome:
        text = f"{call.name} was not run: there are no native tools: {self._reason}"
        return ToolOutcome(call.id, text, is_error=True)
