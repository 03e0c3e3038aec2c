"""Which events are wanted.  Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from .events import Stored
from .migrations import column, lookups


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is asked for; None asks for nothing in particular.

    Attributes:
        kinds: as events are tagged: `approve`, `seen` and so on.
        since: the earliest time, itself included.
        until: the latest time, itself included.
        after_seq: the events up to this one are not wanted.
    """

    scope: str | None = None
    server: str | None = None
    tool: str | None = None
    kinds: Collection[str] | None = None
    since: str | None = None
    until: str | None = None
    after_seq: int = 0

    def matches(self, stored: Stored) -> bool:
        """Whether the event is wanted."""
        kind, scope, server, tool = lookups(stored.event)
        return (
            stored.seq > self.after_seq
            and (self.since is None or stored.at >= self.since)
            and (self.until is None or stored.at <= self.until)
            and (self.kinds is None or kind in self.kinds)
            and (self.scope is None or scope == column(self.scope))
            and (self.server is None or server == column(self.server))
            # What is of no tool is not of one without a name.
            and (self.tool is None or (bool(tool) and tool == column(self.tool)))
        )
