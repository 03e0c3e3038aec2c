"""The gate of a server that each session has for itself: one approval, and every one of them held to it.

The deck's own server of the row is listed and judged, and no call reaches it.  A session's own is called only for tools
that it defines just as those that were judged.
"""

from functools import partial

from quarterdeck.common.watchers import wait_until
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.fleet.requests import refuse
from quarterdeck.fleet.session_servers import SessionServer, SessionServers
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteTool, is_usable_phase
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.tools import Client, PendingCall

from .approvals import Approvals
from .gate import WAIT_S, GatedCall, GatedEndpoint, Note, WaitingCall
from .judge.documents import tool_document


class SessionGate(GatedEndpoint):
    """See the module."""

    def __init__(
        self, config: ServerConfig, fleet: SupervisedFleet, approvals: Approvals, note: Note, sessions: SessionServers
    ) -> None:
        super().__init__(config, fleet, approvals, note)
        self._sessions = sessions

    def queue_of(self, client: Client) -> CallQueue:
        """See `GatedEndpoint`."""
        return self._sessions.queue(self.config.id, client.key)

    def start_on(self, endpoint: ServerEndpointImpl, call: GatedCall) -> PendingCall:
        """Begin a call whose tool is one of the endpoint's, on its session's own server."""
        own = self._sessions.get(self.config, call.caller)
        if isinstance(own, ProtocolFault):
            return refuse(call.settle, own)
        match self._find_own(own, endpoint, call.tool):
            case ProtocolFault() as fault:
                return refuse(call.settle, fault)
            case None:
                wait_s = WAIT_S if call.left_s is None else min(WAIT_S, call.left_s)
                find = partial(self._awaited_own, own, endpoint, call.tool, wait_s)
                return WaitingCall(find, partial(super().start_on, call=call), call)
            case found:
                return super().start_on(found, call)

    def _find_own(
        self, own: SessionServer, judged: ServerEndpointImpl, tool: str
    ) -> ServerEndpointImpl | ProtocolFault | None:
        """Where the tool may be called, or why not; None while the session's server is being started."""
        if own.is_coming:
            return None
        endpoint, server = own.endpoint, self.config.id
        if endpoint is None or not is_usable_phase(endpoint.phase):
            why = f"{server} of this session is not ready" + (f": {own.last_fault}" if own.last_fault else "")
            return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected", own.last_fault)
        lists = judged.offered(), endpoint.offered()
        if own.checked.get(tool) != lists:
            approved, found = (_tool(each, tool) for each in lists)
            if approved is None or found is None or tool_document(approved).hash != tool_document(found).hash:
                why = f"{server} of this session defines the tool {tool!r} otherwise than what was approved"
                return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "tool_held")
            own.checked[tool] = lists
        return endpoint

    async def _awaited_own(
        self, own: SessionServer, judged: ServerEndpointImpl, tool: str, wait_s: float
    ) -> ServerEndpointImpl | ProtocolFault:
        await wait_until(own.watch, lambda: not own.is_coming, wait_s)
        if (found := self._find_own(own, judged, tool)) is not None:
            return found
        why = f"{self.config.id} of this session is still being started: call again"
        return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")


def _tool(tools: tuple[RemoteTool, ...], name: str) -> RemoteTool | None:
    return next((each for each in tools if each.ref.name == name), None)
