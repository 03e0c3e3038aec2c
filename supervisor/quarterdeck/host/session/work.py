"""One request under way, from its beginning to its answer, whatever carries both.

A server's own result is spliced into the answer, never rebuilt.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from quarterdeck.host.caller import Caller
from quarterdeck.host.calls import shut_down
from quarterdeck.host.held_bytes import UNCOUNTED_BYTES
from quarterdeck.host.results import bad_result, error_of, fault_parts, is_for_client, refused_result, splice
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND, BodyError
from quarterdeck_protocol.mcp.server.answers import Part, enveloped, progress
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.server.session import ServerSession
from quarterdeck_protocol.tools import CallEnd, PendingCall, ProgressNote, WireResult

SUBSCRIBE: Final = "resources/subscribe"

_log = logging.getLogger("quarterdeck.host")


class Outlet(Protocol):
    """Where the messages of a request go, each of them one JSON value without a line end."""

    @property
    def is_congested(self) -> bool:
        """Whether its reader is too slow for what was written."""
        ...

    async def room(self) -> None:
        """Wait while congested."""
        ...

    def tell(self, message: bytes) -> None:
        """Send a message that is no answer."""
        ...

    def keep(self, size: int) -> str:
        """Keep an answer of so many bytes until it is read; empty when it was counted, else which bound it met."""
        ...

    def answer(self, request: Request, parts: tuple[Part, ...], code: int) -> None:
        """Send the answer to a request; `code` is that of the error that it is, 0 for a result."""
        ...

    def drop(self, request: Request) -> None:
        """A request is over without an answer."""
        ...


class Work(msgspec.Struct, eq=False):
    """A request that is answered, at once or once it was begun.

    Attributes:
        core: the session that the request is of.
        request: it.
        outlet: where its messages go.
        server_info: our identity as JSON.
    """

    core: ServerSession
    request: Request
    outlet: Outlet
    server_info: bytes

    def cancelled(self, reason: str) -> None:
        """The client gave it up, and the session has forgotten it: stop."""
        self._stop(reason)
        self.outlet.drop(self.request)
        self.request.work = None

    def cancel(self, reason: str) -> None:
        """Give it up without an answer."""
        if self.core.forget(self.request):
            self.cancelled(reason)

    def end(self) -> None:
        """Give it up because serving ends, and say so."""
        self.refuse(shut_down(self._stop("serving ends")))

    def give_back(self) -> bool:
        """Give it up for another process.  Return whether that one can begin it; if not, its client has an answer."""
        delivery = self._stop("serving ends")
        if delivery is Delivery.NOT_SENT:
            return self.core.forget(self.request)
        self.refuse(shut_down(delivery))
        return False

    def result(self, *parts: Part) -> None:
        """Answer with this result."""
        request = self.request
        if said := self.core.answer(request, parts):
            self.outlet.answer(request, said, 0)
            request.work = None  # each refers to the other: garbage that a collector would have to find

    def error(self, error: dict[str, object]) -> None:
        """Answer with this error."""
        if said := self.core.refuse(self.request, error):
            code = error["code"]
            self.outlet.answer(self.request, said, code if isinstance(code, int) else 0)
            self.request.work = None

    def refuse(self, fault: ProtocolFault) -> None:
        """Answer with a fault: of a tool a result, for a model to read, of all else an error."""
        request = self.request
        if request.method == "tools/call" and not self._is_for_program(fault):
            self.result(*fault_parts(fault, self.server_info if request.is_modern else None))
        else:
            self.error(error_of(fault, request.method, is_modern=request.is_modern))

    def fail(self) -> None:
        """Answer that we broke; the log has the exception that is being handled."""
        _log.exception("%s could not be answered", self.request.method)
        self.error({"code": INTERNAL_ERROR, "message": "Internal error"})

    def _is_for_program(self, fault: ProtocolFault) -> bool:
        return is_for_client(fault)

    def _stop(self, reason: str) -> Delivery:  # noqa: ARG002 - nothing is under way
        """Stop what is under way."""
        return Delivery.NOT_SENT


class OwnedWork(Work):
    """A request that its owner carries out, begun by `begin`."""

    caller: Caller
    running: PendingCall | None = None
    close_log: Callable[[], None] | None = None

    def begin(self) -> None:
        """Begin it; the request knows its work from now on."""
        request, caller = self.request, self.caller
        request.work = self
        if (tracer := caller.content.bus.tracer) is not None:
            request.trace = tracer.begin(request, caller.client, caller.content.redact)
        if request.progress_token:
            request.on_progress = self._pass_on
        try:
            self.running = caller.begin(request, self._settle)
        except Exception:
            self.fail()
            return
        if request.log_level and (logs := caller.content.logs) is not None:
            self.close_log = logs.open(caller.asking(request), request.log_level, self._pass_log)

    def _stop(self, reason: str) -> Delivery:
        running = self.running
        self._over()
        if self.request.trace is not None:
            self.request.trace.ended(None)
        return running.cancel(reason) if running is not None else Delivery.NOT_SENT

    def _settle(self, end: CallEnd) -> None:
        """Answer the client.

        Raises:
            BodyError: the body was refused, and the client told so; its worker let through what it must not.
        """
        request, client = self.request, self.caller.client
        self.running = request.on_progress = None
        if request.trace is not None:
            request.trace.ended(end)
        if self.close_log is not None:
            self._over()
        if not isinstance(end, WireResult):
            self._refuse_begun(end)
            return
        size = len(end.body)
        is_counted = size > UNCOUNTED_BYTES or client.allowance is not None
        if is_counted and (refused := refused_result(client, size, lambda _, size: self.outlet.keep(size))) is not None:
            self._refuse_begun(refused)
        elif request.method == SUBSCRIBE:
            self.result(b"{}")
        else:
            try:
                parts = splice(end, self.server_info if request.is_modern else None, request.method)
            except BodyError as error:
                self.refuse(bad_result(error))
                raise
            self.result(*parts)

    def _refuse_begun(self, fault: ProtocolFault) -> None:
        request, offers = self.request, self.caller.content.offers
        client, is_modern = self.caller.client, request.is_modern
        is_unknown = request.method.startswith("tasks/") and fault.code == "unknown_task"
        # Where no server has tasks, nobody has the method; but a task that was lost is said to be.
        if is_unknown and offers is not None and not offers.task_support(client).is_for(is_modern=is_modern):
            self.error({"code": METHOD_NOT_FOUND, "message": "Method not found", "data": request.method})
            return
        self.refuse(fault)

    def _is_for_program(self, fault: ProtocolFault) -> bool:
        return is_for_client(fault) or (bool(self.request.task) and self.caller.takes_task(self.request))

    def _pass_on(self, note: ProgressNote) -> None:
        """Relay a note; one that a slow client has no room for is dropped."""
        if not self.outlet.is_congested and (message := progress(self.request, note)):
            self.outlet.tell(message)

    def _pass_log(self, notification: bytes) -> None:
        """Relay a log line, likewise."""
        if not self.outlet.is_congested:
            self.outlet.tell(notification)

    def _over(self) -> None:
        self.running = self.request.on_progress = None
        if self.close_log is not None:
            self.close_log()
            self.close_log = None


class TaskWork(Work):
    """A request that a task of this process answers."""

    task: asyncio.Task[None] | None = None

    def begin(self, answer: Callable[["TaskWork"], Coroutine[Any, Any, None]]) -> None:
        """Begin `answer`, which answers; an exception of its is an error of ours.

        The request knows its work from now on.
        """
        self.request.work = self
        self.task = asyncio.get_running_loop().create_task(self._run(answer), name=self.request.method)

    def list_items(self, name: str, items: list[bytes]) -> None:
        """Answer with a list."""
        listed = b'"%b":[%b]' % (name.encode(), b",".join(items))
        if len(listed) > UNCOUNTED_BYTES and (refused := self.outlet.keep(len(listed))):
            why = f"the list is not kept: {refused}: read the answers that are there"
            self.refuse(ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "busy"))
        else:
            self.result(enveloped(self.request, listed, self.server_info, is_cacheable=True))

    def complete(self) -> None:
        """Answer with an empty result."""
        self.result(enveloped(self.request, b"", self.server_info))

    async def _run(self, answer: Callable[["TaskWork"], Coroutine[Any, Any, None]]) -> None:
        try:
            await self.outlet.room()
            await answer(self)
        except Exception:
            self.fail()

    def _stop(self, reason: str) -> Delivery:  # noqa: ARG002 - there is nobody to tell
        if self.task is not None:
            self.task.cancel()
        return Delivery.NOT_SENT
