"""A raw call over HTTP, from its exchange's request to its answer, and the legacy session that it may be of.

Above it `short_way`, which takes requests; below it `WireCall`, which runs them whatever carries them.
"""

import asyncio
from typing import Protocol

from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS

from quarterdeck.host.asks.requests import ClientRequests
from quarterdeck.host.caller import Caller
from quarterdeck.host.held_bytes import UNCOUNTED_BYTES
from quarterdeck.host.raw_call_gate import RawCallGate
from quarterdeck.host.raw_calls import Key, WireRequest
from quarterdeck.host.results import refused_result
from quarterdeck.host.wire_call import Part, WireCall, answer_of
from quarterdeck_protocol.tools import ANONYMOUS, Client

from .connection import OK, Exchange


class Holder(Protocol):
    """Keeps a session from ending for idleness while calls of it are under way."""

    @property
    def has_ended(self) -> bool:
        """Whether its client ended it; what is left of it here goes later."""
        ...

    def hold(self) -> None:
        """One call more."""
        ...

    def release(self) -> None:
        """One call less."""
        ...


class LegacySession:
    """A legacy session whose client was greeted."""

    def __init__(self, who: str, version: str, holder: Holder, capabilities: bytes) -> None:
        self.who = who
        self.version = version
        self.holder = holder
        self.asking = ClientRequests(asyncio.get_running_loop().call_soon, capabilities)
        self.gate: RawCallGate[HttpCall] = RawCallGate()
        self.gate.open()


class CallHost(Protocol):
    """What a call needs of the way by which it came."""

    @property
    def server_info(self) -> bytes:
        """Our identity as JSON."""
        ...

    @property
    def calls(self) -> "dict[HttpCall, None]":
        """Those under way; a call adds itself when it begins, and takes itself out when it has ended."""
        ...

    def caller_of(self, client: Client, session: LegacySession | None, exchange: Exchange) -> Caller:
        """A client as it makes requests."""
        ...

    def hold(self, client: Client, size: int) -> str:
        """Keep so much for a client; empty when it was counted, else which bound it met."""
        ...

    def ended(self, call: "HttpCall") -> None:
        """A call that had begun is over."""
        ...


class HttpCall:
    """A raw call, and the exchange that it answers."""

    def __init__(self, way: CallHost, request: WireRequest, exchange: Exchange, session: LegacySession | None) -> None:
        self.exchange = exchange
        self.client = ANONYMOUS
        self._way = way
        self._request = request
        self._session = session
        self._call = WireCall(request, self, way.server_info, self._on_end)
        self.answer_bytes = 0
        """What is held of its answer."""

    @property
    def request_bytes(self) -> int:
        """What is held of it while it is under way."""
        return len(self._request.arguments)

    @property
    def is_congested(self) -> bool:
        """See `Outlet`."""
        return self.exchange.is_congested

    def tell(self, message: bytes) -> None:
        """See `Outlet`."""
        self.exchange.tell(message)

    def answer(self, id_json: bytes, *parts: Part, error: int = 0) -> None:  # noqa: ARG002 - an exchange has one request
        """See `Outlet`; a result that is too much for its client is replaced by a fault that says so."""
        size = sum(map(len, parts))
        if size > UNCOUNTED_BYTES or self.client.allowance is not None:
            fault = refused_result(self.client, size, self._way.hold)
            if fault is None:
                self.answer_bytes = size
            else:
                parts, error = answer_of(fault, self._request, self._way.server_info)
        # In 2026-07-28 some errors have a status of their own, which proxies and clients go by: those of the SDK.
        status = ERROR_CODE_HTTP_STATUS.get(error, OK) if self._request.is_modern else OK
        self.exchange.answer(*parts, status=status)

    def begin(self, client: Client) -> bool:
        """Start it; False when the application has to run it."""
        self.client = client
        if not self._call.begin(self._way.caller_of(client, self._session, self.exchange)):
            return False
        if self._session is not None:
            self._session.gate.began(self._request, self)
            self._session.holder.hold()
        self._way.calls[self] = None
        return True

    def gone(self) -> None:
        """The client closed its connection."""
        self._call.cancel("the client closed its connection")

    def cancel(self, code: int, message: str, reason: str) -> None:
        """Give up, and say so to who waits for the answer."""
        self._call.cancel(reason)
        self.exchange.refuse(self._request.id_json, code, message)

    def end(self) -> None:
        """Give up because serving ends, and say so."""
        self._call.end()

    def _on_end(self, key: Key) -> None:
        if self._way.calls.pop(self, self) is self:
            return  # it never began
        if self._session is not None:
            self._session.gate.ended(key)
            self._session.holder.release()
        self._way.ended(self)
