"""Requests of a worker that are awaited, the awaiting of raw calls, and calls that are not made."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.events import Refusal
from quarterdeck_protocol.link.frames import Close, Failed, Forward, List, Open, Reply
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, RawCall

from .handle import WorkerHandle


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
