"""The servers of a deck, those that are held among them, as the router and the daemon see them."""

from collections.abc import Callable

from quarterdeck.common.watchers import Told
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.fleet.session_servers import SessionServers
from quarterdeck.trust.approvals import Approvals
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck_protocol.contract import LiveFleet
from quarterdeck_protocol.offers import News

from .deck_server import DeckServer, Note


class DeckServers(LiveFleet):
    """See the module; `note` is told how calls end."""

    def __init__(
        self,
        fleet: SupervisedFleet,
        approvals: Approvals,
        sessions: SessionServers,
        note: Note = lambda *_: None,
    ) -> None:
        """Over a fleet.

        Args:
            fleet: the servers.
            approvals: what is trusted of them.
            sessions: the servers that single sessions have for themselves.
            note: told how calls end.
        """
        self._fleet = fleet
        self._approvals = approvals
        self._sessions = sessions
        self._note = note
        self._known: dict[str, DeckServer] = {}
        self._rows: tuple[ServerRow, ...] = ()

    def endpoint(self, server: str) -> DeckServer | None:
        """The server of this id; None when it is not configured."""
        if self._approvals.rows is not self._rows:
            self._follow_rows()
        return self._known.get(server)

    def endpoints(self) -> tuple[DeckServer, ...]:
        """The servers in configuration order."""
        if self._approvals.rows is not self._rows:
            self._follow_rows()
        return tuple(self._known.values())

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """Call `callback` after each change of a phase, of tools, or of what of them is trusted, with its server."""
        return self._approvals.watch_each(callback)

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """Call `callback` with what servers say unasked, sessions' own among them; returns what unregisters it."""
        unwatch, unwatch_sessions = self._fleet.watch_news(callback), self._sessions.watch_news(callback)

        def forget() -> None:
            unwatch()
            unwatch_sessions()

        return forget

    def _follow_rows(self) -> None:
        """Have one for each row; that of a row whose configuration is the same stays."""
        self._rows = self._approvals.rows
        old, self._known = self._known, {}
        for row in self._rows:
            server = old.get(row.id)
            if server is None or server.config != row.config:
                server = DeckServer(row.config, row.scope, self._fleet, self._approvals, self._sessions, self._note)
            self._known[row.id] = server
