"""Requests whose server wants a login: their client is asked to have its person log in, and then they are made again.

By URL elicitation, as all else that a client is asked: by a request of ours, or by `input_required`.  Only clients of
this machine are: the browser comes back to 127.0.0.1.  All others, and who declines, have the fault, which says what
to do; who declines is not asked again for a while.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.server.client_requests import refusal
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall

if TYPE_CHECKING:
    from quarterdeck.login.broker import LoginBroker, OpenLogin

ACCEPT: Final = "accept"

COMPLETE: Final = "notifications/elicitation/complete"

_log = logging.getLogger("quarterdeck.host")

BeginCall = Callable[[Deliver], PendingCall | None]
"""Begins a call, once or again; None when it has to be run in another way."""


@runtime_checkable
class Notifies(Protocol):
    """An answerer whose client can be told something beside: one of an older era."""

    def tell(self, method: str, params: Mapping[str, object]) -> None:
        """Send a notification on the stream of the request."""
        ...


class LoginCall:
    """One call, and the login that it may need; a `PendingCall`."""

    __slots__ = ("_answerer", "_asking", "_begin", "_client", "_deliver", "_logins", "_running", "_server")

    def __init__(
        self,
        begin: BeginCall,
        deliver: Deliver,
        server: str,
        answerer: Answerer,
        logins: "LoginBroker",
        client: str = "",
    ) -> None:
        """Nothing is begun yet.

        Args:
            begin: begins the call.
            deliver: takes its end.
            server: whose call it is.
            answerer: asks the client.
            logins: where people log in.
            client: the key of the client, which tells it apart.
        """
        self._begin = begin
        self._deliver = deliver
        self._server = server
        self._answerer = answerer
        self._logins = logins
        self._client = client
        self._running: PendingCall | None = None
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> PendingCall | None:
        """Begin it; None when it has to be run in another way."""
        self._running = self._begin(self._first_end)
        return self if self._running is not None else None

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`; a login that nobody else waits for ends."""
        if self._asking is not None:
            self._asking.cancel()
        return self._running.cancel(reason) if self._running is not None else Delivery.NOT_SENT

    def _first_end(self, end: CallEnd) -> None:
        wants = isinstance(end, ProtocolFault) and end.code == "auth_needed" and end.delivery is Delivery.NOT_SENT
        can_be_asked = wants and refusal(self._answerer.capabilities, _PROBE) is None
        if isinstance(end, ProtocolFault) and can_be_asked and self._logins.may_ask(self._server, self._client):
            self._running = None
            self._asking = asyncio.get_running_loop().create_task(
                self._ask(end), name=f"{self._server}: asks to log in"
            )
        else:
            self._deliver(end)

    async def _ask(self, fault: ProtocolFault) -> None:
        left: ProtocolFault | None = fault
        try:
            async with self._logins.joined(self._server) as login:
                left = await self._logged_in(login, fault) if login is not None else fault
        except Exception:
            # Ours to mend; the call has its end all the same.
            _log.exception("%s: its client could not be asked to log in", self._server)
        self._running = self._begin(self._deliver) if left is None else None
        if self._running is None:
            self._deliver(left or fault)

    async def _logged_in(self, login: "OpenLogin", fault: ProtocolFault) -> ProtocolFault | None:
        """Have a person log in; None once they have, else the fault that is left."""
        answered: asyncio.Future[QuestionEnd] = asyncio.get_running_loop().create_future()

        def take(end: QuestionEnd) -> None:
            if not answered.done():
                answered.set_result(end)

        withdraw = self._answerer.ask(_question(login), take)
        try:
            await asyncio.wait((answered, login.ended), return_when=asyncio.FIRST_COMPLETED)
            if not login.ended.done() and not _is_accepted(answered.result()):
                self._logins.declined(self._server, self._client)
                return fault
            await asyncio.wait((login.ended,))
        finally:
            withdraw()
        why = "it was given up" if login.ended.cancelled() else login.ended.result()
        if why:
            left = ProtocolFault.not_sent(fault.kind, f"{fault}; no login came about: {why}", "auth_needed", fault)
            left.server = fault.server
            return left
        if isinstance(self._answerer, Notifies):
            self._answerer.tell(COMPLETE, {"elicitationId": login.id})
        return None


class _Accepted(msgspec.Struct, gc=False):
    action: str = ""


def _question(login: "OpenLogin") -> Question:
    message = (
        f"The server {login.server!r} wants you to log in again, at {login.issuer}. That lets it do no more than you "
        "approved when you last did. Open the address in a browser on this machine."
    )
    params = {"mode": "url", "elicitationId": login.id, "url": login.url, "message": message}
    return Question(login.server, "elicitation/create", msgspec.json.encode(params))


def _is_accepted(end: QuestionEnd) -> bool:
    try:
        return msgspec.json.decode(end.result or b"{}", type=_Accepted).action == ACCEPT
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


_PROBE: Final = Question("", "elicitation/create", b'{"mode":"url"}')
"""What a client must be able to be asked."""
