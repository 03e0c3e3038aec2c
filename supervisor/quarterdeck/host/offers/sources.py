"""What one client may list and call: its own native tools, then the servers' tools, under names that clients accept.

Above it the host's MCP server and its decks, below it the box over the fleet.  `common.tool_names` decides what a
tool is called; who has which native tools, `decks` knows.
"""

import itertools
import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from quarterdeck.common.tool_names import NameBudget, may_be_alias, public_names
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

MAX_PAST: Final = 4096
"""Aliases of tools that are not offered at the moment: a call still finds the server, which says that it is away."""

MAX_LOGGED: Final = 100
"""Aliases of one change that are logged each on a line of its own: a server may have any number of long names."""

_names_log = logging.getLogger("quarterdeck.names")
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


class ForwardingSource(ToolSource):
    """What a client is shown of a source that carries everything out: for those that show it in another way."""

    def __init__(self, source: ToolSource) -> None:
        self.native_names = source.native_names
        self._source = source

    @property
    def can_change(self) -> bool:
        """As the source can."""
        return self._source.can_change

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """As the source does."""
        return self._source.descriptors()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the source."""
        return self._source.watch(callback)

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """As the source does."""
        return await self._source.run(call, cancel)

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """As the source does."""
        return self._source.begin(call, deliver)

    def public(self, name: str) -> str:
        """As the source does."""
        return self._source.public(name)

    def own(self, name: str) -> str:
        """As the source does."""
        return self._source.own(name)


class RenamedSource(ForwardingSource):
    """The tools of a source under names within a budget; calls find their way by those names and by their own.

    Attributes:
        budget: what their names keep to.
    """

    def __init__(self, source: ToolSource, budget: NameBudget) -> None:
        super().__init__(source)
        self.budget: Final = budget
        self._inner: tuple[ToolDescriptor, ...] = ()
        self._shown: tuple[ToolDescriptor, ...] = ()
        self._aliased: dict[str, tuple[ToolDescriptor, ToolDescriptor]] = {}
        self._owners: dict[str, str] = {}
        self._fitting: set[str] = set()

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The source's tools in its order.

        One whose name fits is the source's own descriptor; any other stays the same object while the source's own does.
        """
        inner = tuple(self._source.descriptors())
        # By identity: comparing schemas that a server wrote costs time, and recursion, of its choosing.
        if inner is not self._inner and not (
            len(inner) == len(self._inner) and all(map(operator.is_, inner, self._inner))
        ):
            self._rename(inner)
        self._inner = inner
        return self._shown

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run the tool that is shown under this name, or has it."""
        name = self.own(call.name)
        return await self._source.run(call if name == call.name else replace(call, name=name), cancel)

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """See `ToolSource`; the name may be the source's own or the one that clients are shown."""
        name = self.own(call.tool)
        return self._source.begin(call if name == call.tool else msgspec.structs.replace(call, tool=name), deliver)

    def public(self, name: str) -> str:
        """See `ToolSource`."""
        return self._aliased[name][1].name if name in self._aliased else name

    def own(self, name: str) -> str:
        """See `ToolSource`."""
        if name not in self._owners and may_be_alias(name):
            # A client may know it from an earlier list than any of ours.
            self.descriptors()
        return self._owners.get(name, name)

    def _rename(self, inner: tuple[ToolDescriptor, ...]) -> None:
        new = {descriptor.name for descriptor in inner} - self._fitting
        self._fitting |= {name for name in new if self.budget.fits(name)}
        if not (self._aliased or self._owners or new - self._fitting):
            self._shown = inner  # as it mostly is: no name has to be shortened, or was before
            return
        names = public_names((descriptor.name for descriptor in inner), self.budget)
        before, self._aliased = self._aliased, {}
        shown = inner
        if any(name != alias for name, alias in names.items()):
            shown = tuple(self._renamed(descriptor, names[descriptor.name], before) for descriptor in inner)
        self._shown = shown
        self._remember({pair[1].name: name for name, pair in self._aliased.items()}, names)

    def _renamed(
        self, descriptor: ToolDescriptor, alias: str, before: dict[str, tuple[ToolDescriptor, ToolDescriptor]]
    ) -> ToolDescriptor:
        if alias == descriptor.name:
            return descriptor
        pair = before.get(descriptor.name)
        if pair is None or pair[0] is not descriptor or pair[1].name != alias:
            pair = (descriptor, replace(descriptor, name=alias))
        self._aliased[descriptor.name] = pair
        return pair[1]

    def _remember(self, present: dict[str, str], names: dict[str, str]) -> None:
        """Know the owners of the aliases that are shown, and of the latest that are not any more."""
        fresh = [(name, alias) for alias, name in present.items() if self._owners.get(alias) != name]
        for name, alias in fresh[:MAX_LOGGED]:
            _names_log.info("the tool %s is shown to clients as %s", name, alias)
        if len(fresh) > MAX_LOGGED:
            _names_log.info("%d further tools are shown to clients under shorter names", len(fresh) - MAX_LOGGED)
        past = {a: name for a, name in self._owners.items() if a not in present and a not in names}
        self._owners = dict(itertools.islice(past.items(), max(0, len(past) - MAX_PAST), None)) | present
