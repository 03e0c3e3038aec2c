"""What is asked of one worker: requests that are awaited, and raw calls of its server's tools."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct

from quarterdeck.fleet.core.completion import bounded_completion
from quarterdeck.fleet.core.linked_uris import LINK_MARK
from quarterdeck.fleet.core.rounds import INPUT_REQUIRED
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.events import Refusal
from quarterdeck_protocol.link.frames import Answer, Call, Close, Failed, Forward, List, Open, Reply
from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_result
from quarterdeck_protocol.mcp.tasks import CREATED, takes_tasks
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, RawCall, WireResult

from .handle import Asker, WorkerHandle

SHORTEST_S: Final = 0.001
"""The deadline of a call whose caller has no time left: it is sent and ends at once, for the link takes no past one."""

_TRUE: Final = Raw(b"true")


async def ask(handle: WorkerHandle, frame: Open | List | Forward | Close, body: bytes = b"") -> bytes:
    """Return the reply to a request; cancelling the task cancels it. Raise ProtocolFault if it failed or is refused."""
    arrived: asyncio.Future[tuple[Reply, bytes]] = asyncio.get_running_loop().create_future()

    def on_reply(reply: Reply, body: bytes) -> None:
        if not arrived.done():
            arrived.set_result((reply, body))

    if (refusal := handle.ask(frame, body, on_reply)) is not None:
        raise ProtocolFault.from_record(handle.lost) if handle.lost is not None else refused(refusal)
    try:
        reply, answer = await arrived
    except asyncio.CancelledError:
        handle.cancel(frame.request_id, "the caller gave up")
        raise
    if isinstance(reply, Failed):
        raise ProtocolFault.from_record(reply.fault)
    return answer


_REFUSED: Final = {
    Refusal.BUSY: FaultRecord(FaultKind.TOOL_ERROR, "too many calls wait already", "busy", Delivery.NOT_SENT),
    Refusal.DEAD: FaultRecord(FaultKind.NOT_CONNECTED, "the worker is gone", "not_connected", Delivery.NOT_SENT),
    Refusal.UNSENDABLE: FaultRecord(
        FaultKind.TOOL_ERROR,
        "this call cannot be sent: it is too large, or some of its text is not Unicode",
        "bad_arguments",
        Delivery.NOT_SENT,
    ),
}


def refused(refusal: Refusal) -> ProtocolFault:
    """Return why a request was not taken; nothing of it was sent."""
    return ProtocolFault.from_record(_REFUSED[refusal])


# Calls


class RefusedCall(msgspec.Struct, frozen=True):
    """See `PendingCall`; it never left, and the loop's next turn delivers why."""

    delivery: asyncio.Handle

    def cancel(self, reason: str = "") -> Delivery:  # noqa: ARG002 - there is nobody to tell
        """Give up: nothing is delivered any more."""
        self.delivery.cancel()
        return Delivery.NOT_SENT


def refuse(deliver: Deliver, fault: ProtocolFault) -> RefusedCall:
    """Return a call that is not made, and deliver why."""
    return RefusedCall(asyncio.get_running_loop().call_soon(deliver, fault))


async def ended(begin: Callable[[Deliver], PendingCall | None]) -> RemoteCallResult | None:
    """Return the result of the call that `begin` starts, or None if it starts none. Cancelling the task cancels the
    call.

    Raise ProtocolFault if the call had no result.
    """
    arrived: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()

    def deliver(end: CallEnd) -> None:
        if not arrived.done():
            arrived.set_result(end)

    running = begin(deliver)
    if running is None:
        return None
    try:
        end = await arrived
    except asyncio.CancelledError:
        running.cancel("the caller gave up")
        raise
    if isinstance(end, ProtocolFault):
        raise end
    return RemoteCallResult(end)


def arguments_json(args: object) -> bytes:
    """Return a call's arguments as JSON, `{}` for no dict. Raise ProtocolFault (`tool_error`) for other values."""
    try:
        return msgspec.json.encode(args if isinstance(args, dict) else {})
    except (TypeError, ValueError, RecursionError) as error:
        why = f"the arguments are not JSON: {plain_words(error)}"
        raise ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "bad_arguments", error) from error


class Questions(Protocol):
    """A server's questions while requests are in progress."""

    any_asked: bool

    def request_ended(self, handle: WorkerHandle, request_id: int) -> None:
        """End the questions of a request that has ended."""


class EndpointCall(Struct, frozen=True):
    """A client's request at a worker; see `PendingCall`."""

    handle: WorkerHandle
    request_id: int
    config: ServerConfig
    asker: Asker
    questions: Questions | None
    deliver: Deliver

    def cancel(self, reason: str = "") -> Delivery:
        """Give up: tell the server, and deliver nothing."""
        self.handle.cancel(self.request_id, reason)
        if self.questions is not None and self.questions.any_asked:
            self.questions.request_ended(self.handle, self.request_id)
        return Delivery.UNKNOWN

    def end(self, reply: Reply, body: bytes) -> None:
        """Deliver the server's result, if it may be passed on, or a fault."""
        if self.questions is not None and self.questions.any_asked:
            self.questions.request_ended(self.handle, self.request_id)
        if isinstance(reply, Failed):
            self._fail(ProtocolFault.from_record(reply.fault))
            return
        try:
            members = check_result(body, max_bytes=self.config.max_result_bytes)
            if "resultType" in members:
                raise BodyError("the era's envelope was left on it")
        except BodyError as error:
            # A worker checks what it forwards; one that does not is not ours any more.
            self.handle.violated(f"a result that may not be passed on: {error}")
            self._fail(ProtocolFault(FaultKind.TOOL_ERROR, f"the result is broken: {error}", code="protocol_violation"))
            return
        if reply.result_type != "complete" and (fault := self._unexpected(reply)) is not None:
            self._fail(fault)
            return
        if LINK_MARK in body:
            self.handle.linked.note(body)
        is_error = members.get("isError") == _TRUE
        self.deliver(WireResult(body, reply.era, is_error, reply.result_type, members))

    def _fail(self, fault: ProtocolFault) -> None:
        fault.server = self.config.id
        self.deliver(fault)

    def _unexpected(self, reply: Answer) -> ProtocolFault | None:
        """Return why a result of this type is not passed on, or None."""
        asker = self.asker
        if reply.result_type == INPUT_REQUIRED and asker.answerer is None:
            why, code = f"the server answered {reply.result_type!r} instead of a result", INPUT_REQUIRED
        elif reply.result_type == CREATED and not _takes_task(reply.era, asker):
            why, code = f"{self.config.id} made a task of a request whose client takes none", "bad_result"
        else:
            return None
        return ProtocolFault(FaultKind.TOOL_ERROR, why, code=code, delivery=Delivery.ANSWERED)


def begin_request(
    handle: WorkerHandle, config: ServerConfig, asker: Asker, questions: Questions | None, deliver: Deliver
) -> PendingCall:
    """Ask `handle` to run a tool or to pass any other request on; see `LiveEndpoint`. `questions` are a legacy
    server's; one of 2026-07-28 is told what this caller can be asked.
    """
    request_id, limit_s, wish_s = handle.next_id(), config.call_timeout_s, asker.timeout_s
    if wish_s is not None and wish_s < limit_s:
        limit_s = max(wish_s, SHORTEST_S)
    told: tuple[bool, bytes] | tuple[bool, bytes, bytes, str] = asker.on_progress is not None, asker.meta
    if questions is None:
        told = *told, asker.answerer.capabilities if asker.answerer is not None else b"", asker.log_level
    frame: Call | Forward
    if isinstance(asker, RawCall):
        frame, body = Call(request_id, limit_s, asker.tool, *told), asker.arguments
    else:
        frame, body = Forward(request_id, limit_s, asker.method, *told), asker.params
    call = EndpointCall(handle, request_id, config, asker, questions, deliver)
    refusal = handle.ask(frame, body, call.end, asker)
    if refusal is None:
        return call
    fault = refused(refusal)
    fault.server = config.id
    return refuse(deliver, fault)


def as_request(call: RawCall, *, takes_task: bool = False) -> RawRequest:
    """Return a call as a request with all its members; with `task` only where the server may make one of the call."""
    members: dict[str, object] = {"name": call.tool, "arguments": msgspec.Raw(call.arguments or b"{}")}
    if call.answers:
        members |= msgspec.json.decode(call.answers, type=dict[str, msgspec.Raw])
    if takes_task and call.task:
        members["task"] = msgspec.Raw(call.task)
    return RawRequest(
        "tools/call",
        msgspec.json.encode(members),
        call.meta,
        call.timeout_s,
        call.on_progress,
        call.client,
        call.answerer,
        call.log_level,
        call.progress_token if takes_task and call.task else b"",
        call.is_modern,
    )


def not_made(server: str, why: str, code: str) -> ProtocolFault:
    """Return the fault of a client's request that is not made of this server."""
    fault = ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, code)
    fault.server = server
    return fault


def _takes_task(era: str, asker: Asker) -> bool:
    is_call = isinstance(asker, RawCall) or (isinstance(asker, RawRequest) and asker.method == "tools/call")
    return is_modern(era) and is_call and asker.answerer is not None and takes_tasks(asker.answerer.capabilities)


def deliver_completion(deliver: Deliver, end: CallEnd) -> None:
    """Deliver the end of a completion, with no more values than clients may be given."""
    if isinstance(end, WireResult) and (bounded := bounded_completion(end.body)) is not end.body:
        end = WireResult(bounded, end.era, end.is_error, end.result_type)
    deliver(end)
