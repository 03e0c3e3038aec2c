"""A fleet as clients may see it: each server behind its gate, and those that are held."""

from collections.abc import Callable
from functools import partial

from quarterdeck.common.watchers import Told
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import FleetStatus, LiveFleet
from quarterdeck_protocol.offers import News
from quarterdeck_protocol.tools import CallEnd, Client

from .approvals import Approvals
from .gate import GatedEndpoint, Note

NoteCall = Callable[[str, str, str, float, CallEnd | None, Client], None]
"""A `Note` behind the scope and the id of the server."""

WatchNews = Callable[[Callable[[News], None]], Callable[[], None]]
"""Calls a callback with what servers say; returns what unregisters it."""

MakeGate = Callable[[ServerConfig, SupervisedFleet, Approvals, Note], GatedEndpoint]


class GatedFleet(LiveFleet):
    """The servers of a fleet, and those that are held, behind what is trusted of them; `note` is told how calls end."""

    def __init__(
        self,
        fleet: SupervisedFleet,
        approvals: Approvals,
        note: NoteCall = lambda *_: None,
        make_gate: MakeGate | None = None,
        watch_others: WatchNews | None = None,
    ) -> None:
        """Over a fleet.

        Args:
            fleet: the servers.
            approvals: what is trusted of them.
            note: told how calls end.
            make_gate: makes the gate of a server in place of an ordinary one.
            watch_others: watches what servers say that are not the fleet's.
        """
        self._note = note
        self._make_gate = make_gate or GatedEndpoint
        self._fleet = fleet
        self._watch_others = watch_others
        self._approvals = approvals
        self._known: dict[str, GatedEndpoint] = {}
        self._rows: tuple[ServerRow, ...] = ()

    def endpoint(self, server: str) -> GatedEndpoint | None:
        """The gate of this server; None when it is not configured."""
        return self._gates.get(server)

    def endpoints(self) -> tuple[GatedEndpoint, ...]:
        """The gates in configuration order."""
        return tuple(self._gates.values())

    def status(self) -> FleetStatus:
        """See `ServerFleet`."""
        return self._fleet.status()

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """Call `callback` after each change of a phase, of tools, or of what of them is trusted, with its server."""
        return self._approvals.watch_each(callback)

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """Call `callback` with what servers say unasked; returns what unregisters it."""
        unwatch = self._fleet.watch_news(callback)
        if self._watch_others is None:
            return unwatch
        unwatch_others = self._watch_others(callback)
        return lambda: (unwatch(), unwatch_others(), None)[2]

    @property
    def _gates(self) -> dict[str, GatedEndpoint]:
        """A gate for each row; one whose configuration is the same stays."""
        if self._approvals.rows is not self._rows:
            self._rows = self._approvals.rows
            old = self._known
            self._known = {}
            for row in self._rows:
                gate = old.get(row.id)
                is_same = gate is not None and gate.config == row.config
                self._known[row.id] = gate if gate is not None and is_same else self._gate(row)
        return self._known

    def _gate(self, row: ServerRow) -> GatedEndpoint:
        return self._make_gate(row.config, self._fleet, self._approvals, partial(self._note, row.scope, row.id))

    async def spin_up(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.spin_up()

    async def tear_down(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.tear_down()
