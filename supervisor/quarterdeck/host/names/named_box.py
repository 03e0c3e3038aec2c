"""A tool box whose tools bear names that clients accept; calls find their way by those names and by their own.

Above it a host or its clients' boxes, below it the grafted tools.  `names` decides what a tool is called.
"""

import itertools
import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from quarterdeck.common.published_names import NameBudget, may_be_alias, public_names
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

MAX_PAST: Final = 4096
"""Aliases of tools that are not offered at the moment: a call still finds the server, which says that it is away."""

MAX_LOGGED: Final = 100
"""Aliases of one change that are logged each on a line of its own: a server may have any number of long names."""

_log = logging.getLogger("quarterdeck.names")


def named_box(box: ToolBox, budget: NameBudget) -> "NamedBox":
    """`box` under names within `budget`; it can be watched, and has a short way, when `box` can and has."""
    return _KINDS[isinstance(box, WatchableToolBox), isinstance(box, ShortWay)](box, budget)


class NamedBox:
    """The tools of a box under names within a budget; made by `named_box`.

    Attributes:
        budget: what their names keep to.
    """

    def __init__(self, box: ToolBox, budget: NameBudget) -> None:
        self.budget: Final = budget
        self._box = box
        self._inner: tuple[ToolDescriptor, ...] = ()
        self._shown: tuple[ToolDescriptor, ...] = ()
        self._aliased: dict[str, tuple[ToolDescriptor, ToolDescriptor]] = {}
        self._owners: dict[str, str] = {}

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The box's tools in its order.

        One whose name fits is the box's own descriptor; any other stays the same object while the box's own does.
        """
        inner = tuple(self._box.descriptors())
        # By identity: comparing schemas that a server wrote costs time, and recursion, of its choosing.
        if inner is not self._inner and not (
            len(inner) == len(self._inner) and all(map(operator.is_, inner, self._inner))
        ):
            self._rename(inner)
        self._inner = inner
        return self._shown

    @property
    def runner(self) -> ToolRunner:
        """The box itself."""
        return self

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run the tool that is shown under this name, or has it."""
        name = self._owner(call.name)
        return await self._box.runner.run(call if name == call.name else replace(call, name=name), cancel)

    def public(self, name: str) -> str:
        """What the tool is called before clients that is called `name`, before them or before us."""
        return self._aliased[name][1].name if name in self._aliased else name

    def _owner(self, name: str) -> str:
        """The box's own name for the tool `name`."""
        if name not in self._owners and may_be_alias(name):
            # A client may know it from an earlier list than any of ours.
            self.descriptors()
        return self._owners.get(name, name)

    def _rename(self, inner: tuple[ToolDescriptor, ...]) -> None:
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
            _log.info("the tool %s is shown to clients as %s", name, alias)
        if len(fresh) > MAX_LOGGED:
            _log.info("%d further tools are shown to clients under shorter names", len(fresh) - MAX_LOGGED)
        past = {a: name for a, name in self._owners.items() if a not in present and a not in names}
        self._owners = dict(itertools.islice(past.items(), max(0, len(past) - MAX_PAST), None)) | present


class _Watchable(NamedBox, WatchableToolBox):
    """Over a box that can be watched."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the box."""
        assert isinstance(self._box, WatchableToolBox)
        return self._box.watch(callback)


class _Short(NamedBox, ShortWay):
    """Over a box with a short way."""

    def __init__(self, box: ToolBox, budget: NameBudget) -> None:
        super().__init__(box, budget)
        assert isinstance(box, ShortWay)
        self._way: ShortWay = box

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
        """See `ShortWay.begin`; the name may be the box's own or the one that clients are shown."""
        return self._way.begin(
            self._owner(name), arguments, deliver, meta=meta, timeout_s=timeout_s, on_progress=on_progress
        )


class _WatchableShort(_Watchable, _Short):
    """Over a box that can be watched and has a short way: a fleet's."""


_KINDS: Final[dict[tuple[bool, bool], type[NamedBox]]] = {
    (False, False): NamedBox,
    (True, False): _Watchable,
    (False, True): _Short,
    (True, True): _WatchableShort,
}
"""By whether the box can be watched, and has a short way."""
