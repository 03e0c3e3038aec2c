"""Raw calls of one worker's server: begin one, wait for one, refuse one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw, Struct

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.link.frames import Call, Failed, Reply
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_result
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, RawCall, WireResult

from .handle import WorkerHandle, refused

SHORTEST_S: Final = 0.001
"""The deadline of a call whose caller has no time left; the link takes none that has passed."""


class EndpointCall(Struct, frozen=True):
    """See `PendingCall`."""

    handle: WorkerHandle
    request_id: int

    def cancel(self, reason: str = "") -> Delivery:
        """Give up: the server is told, nothing is delivered any more."""
        self.handle.cancel(self.request_id, reason)
        return Delivery.UNKNOWN


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """See `PendingCall`; it never left, and the loop's next turn delivers why."""

    delivery: asyncio.Handle

    def cancel(self, reason: str = "") -> Delivery:  # noqa: ARG002 - there is nobody to tell
        """Give up: nothing is delivered any more."""
        self.delivery.cancel()
        return Delivery.NOT_SENT


def refuse(deliver: Deliver, fault: ProtocolFault) -> RefusedCall:
    """A call that is not made, and why."""
    return RefusedCall(asyncio.get_running_loop().call_soon(deliver, fault))


async def ended(begin: Callable[[Deliver], PendingCall | None]) -> RemoteCallResult | None:
    """The result of the call that `begin` starts; None when it starts none.  Cancelling the task cancels the call.

    Raises:
        ProtocolFault: it had no result.
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
    return RemoteCallResult(end, end.is_error)


def arguments_json(args: object) -> bytes:
    """The arguments of a call as JSON; what is no dict is none.

    Raises:
        ProtocolFault: `tool_error`, they cannot be said in JSON.
    """
    try:
        return msgspec.json.encode(args if isinstance(args, dict) else {})
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolFault(
            FaultKind.TOOL_ERROR,
            f"the arguments are not JSON: {plain_words(error)}",
            error,
            code="bad_arguments",
            delivery=Delivery.NOT_SENT,
        ) from error


def begin_call(handle: WorkerHandle, config: ServerConfig, call: RawCall, deliver: Deliver) -> PendingCall:
    """Ask `handle` to run a tool; see `ToolSource.begin`."""
    frame = Call(handle.next_id(), _limit(config, call.timeout_s), call.tool, call.on_progress is not None, call.meta)

    def on_reply(reply: Reply, body: bytes) -> None:
        end = _end_of(handle, config, reply, body)
        if isinstance(end, ProtocolFault):
            end.server = config.id
        deliver(end)

    refusal = handle.ask(frame, call.arguments, on_reply, call.on_progress)
    if refusal is not None:
        fault = refused(refusal)
        fault.server = config.id
        return refuse(deliver, fault)
    return EndpointCall(handle, frame.request_id)


def _limit(config: ServerConfig, wish_s: float | None) -> float:
    """The shorter of the caller's wish and ours; a wish that is past ends at once, after all has gone its way."""
    limit = config.call_timeout_s
    return limit if wish_s is None or not wish_s < limit else max(wish_s, SHORTEST_S)


def _end_of(handle: WorkerHandle, config: ServerConfig, reply: Reply, body: bytes) -> CallEnd:
    if isinstance(reply, Failed):
        return ProtocolFault.from_record(reply.fault)
    try:
        members = check_result(body, max_bytes=config.max_result_bytes)
        if "resultType" in members:
            raise BodyError("the era's envelope was left on it")
    except BodyError as error:
        # A worker checks what it forwards; one that does not is not ours any more.
        handle.violated(f"a result that may not be passed on: {error}")
        return ProtocolFault(FaultKind.TOOL_ERROR, f"the result is broken: {error}", code="protocol_violation")
    if reply.result_type != "complete":
        return ProtocolFault(
            FaultKind.TOOL_ERROR,
            f"the server answered {reply.result_type!r} instead of a result",
            code="input_required",
            delivery=Delivery.ANSWERED,
        )
    return WireResult(body, reply.era, members.get("isError") == _TRUE, members)


_TRUE: Final = Raw(b"true")
