"""The gate of a server that each session has for itself: one approval, and every one of them held to it.

The deck's own server of the row is listed and judged, and no call reaches it.  A session's own is asked only for what
it defines just as the judged one does.
"""

from functools import partial
from typing import Final

from quarterdeck.common.watchers import wait_until
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.fleet.session_servers import SessionServer, SessionServers
from quarterdeck.fleet.workers.requests import refuse
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteTool, is_usable_phase
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.tools import Client, PendingCall

from .approvals import Approvals
from .gate import GatedEndpoint, Note
from .gated_calls import GatedCall, GatedRequest, WaitingCall
from .judge.documents import SUBJECTS, offered_document, tool_document
from .judge.held_messages import HELD_CODES


class SessionGate(GatedEndpoint):
    """See the module."""

    def __init__(
        self, config: ServerConfig, fleet: SupervisedFleet, approvals: Approvals, note: Note, sessions: SessionServers
    ) -> None:
        super().__init__(config, fleet, approvals, note)
        self._sessions = sessions
        self._levels: dict[str, str] = {}

    def queue_of(self, client: Client) -> CallQueue:
        """See `GatedEndpoint`."""
        return self._sessions.queue(self.config.id, client.key)

    def start_on(self, endpoint: ServerEndpointImpl, call: GatedCall) -> PendingCall:
        """Begin a call whose tool is one of the endpoint's, on its session's own server."""
        own = self._sessions.get(self.config, call.caller)
        if isinstance(own, ProtocolFault):
            return refuse(call.settle, own)
        key = call.wish.key if isinstance(call, GatedRequest) else ItemKey(Subject.TOOL, call.tool)
        match self._find_own(own, endpoint, key):
            case ProtocolFault() as fault:
                return refuse(call.settle, fault)
            case None:
                find = partial(self._awaited_own, own, endpoint, key, call.patience_s)
                return WaitingCall(find, partial(self._start_own, call=call), call)
            case found:
                return self._start_own(found, call)

    def has_linked(self, uri: str) -> bool:
        """See `GatedEndpoint`: any session's."""
        return any(endpoint.has_linked(uri) for endpoint in self._sessions.endpoints(self.config.id))

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `GatedEndpoint`."""
        if (own := self._sessions.endpoint(self.config.id, client)) is not None:
            own.unsubscribe(client, uri)

    def set_level(self, client: Client, level: str) -> None:
        """See `GatedEndpoint`; a server that is started later is told with its next call."""
        if client.key in self._levels or len(self._levels) < MAX_LEVELS:
            self._levels[client.key] = level
        if (own := self._sessions.endpoint(self.config.id, client)) is not None:
            own.set_level(client, level)

    def leave(self, client: Client) -> None:
        """See `GatedEndpoint`."""
        if not client.part:
            self._levels.pop(client.key, None)
        if (own := self._sessions.endpoint(self.config.id, client)) is not None:
            own.leave(client)

    def tell(self, method: str, params: bytes = b"{}") -> None:
        """See `GatedEndpoint`: every session's."""
        for endpoint in self._sessions.endpoints(self.config.id):
            endpoint.tell(method, params)

    def _start_own(self, endpoint: ServerEndpointImpl, call: GatedCall) -> PendingCall:
        if (level := self._levels.get(call.caller.key)) is not None:
            endpoint.set_level(call.caller, level)
        return super().start_on(endpoint, call)

    def _find_own(
        self, own: SessionServer, judged: ServerEndpointImpl, key: ItemKey | None
    ) -> ServerEndpointImpl | ProtocolFault | None:
        """Where what `key` names may be used, or why not; None while the session's server is being started."""
        if own.is_coming:
            return None
        endpoint, server = own.endpoint, self.config.id
        if endpoint is None or not is_usable_phase(endpoint.phase):
            why = f"{server} of this session is not ready" + (f": {own.last_fault}" if own.last_fault else "")
            return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected", own.last_fault)
        if key is not None and (fault := self._compared(own, judged, endpoint, key)) is not None:
            return fault
        return endpoint

    def _compared(
        self, own: SessionServer, judged: ServerEndpointImpl, endpoint: ServerEndpointImpl, key: ItemKey
    ) -> ProtocolFault | None:
        """Why a session's server may not be asked for this: it defines it otherwise than what was judged."""
        lists = _list(judged, key), _list(endpoint, key)
        before = own.checked.get(key)
        if before is not None and before[0] is lists[0] and before[1] is lists[1]:
            return None
        approved, found = (_form(each, key) for each in lists)
        # A URI that neither lists is one of a template, or of a link: there is nothing to compare.
        if approved != found or (approved is None and key.subject not in _UNLISTED):
            what = f"the {key.subject} {key.name!r}"
            why = f"{self.config.id} of this session defines {what} otherwise than what was approved"
            return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, HELD_CODES[key.subject][0])
        if len(own.checked) >= MAX_CHECKED:
            own.checked.clear()
        own.checked[key] = lists
        return None

    async def _awaited_own(
        self, own: SessionServer, judged: ServerEndpointImpl, key: ItemKey | None, wait_s: float
    ) -> ServerEndpointImpl | ProtocolFault:
        await wait_until(own.watch, lambda: not own.is_coming, wait_s)
        if (found := self._find_own(own, judged, key)) is not None:
            return found
        why = f"{self.config.id} of this session is still being started: call again"
        return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")


MAX_LEVELS: Final = 4_096
"""Clients whose level is known, as of any server."""

MAX_CHECKED: Final = 1_000
"""Things of one session's server whose comparison is remembered; clients make URIs up."""

_UNLISTED: Final = frozenset({Subject.RESOURCE, Subject.TEMPLATE})


def _list(endpoint: ServerEndpointImpl, key: ItemKey) -> tuple[RemoteTool, ...] | tuple[Offered, ...]:
    """The list in which this stands, or could."""
    listing = next(listing for listing, subject in SUBJECTS.items() if subject is key.subject)
    return endpoint.offered() if listing is Listing.TOOLS else endpoint.offers(listing)


def _form(listed: tuple[RemoteTool, ...] | tuple[Offered, ...], key: ItemKey) -> str | None:
    """The hash of what a list has of this name, None for nothing."""
    for each in listed:
        if isinstance(each, RemoteTool):
            if each.ref.name == key.name:
                return tool_document(each).hash
        elif each.key == key.name:
            return offered_document(each).hash
    return None
