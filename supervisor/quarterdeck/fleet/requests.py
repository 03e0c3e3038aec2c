"""Ask a worker one thing and wait for it, or learn that it was not even asked."""

import asyncio

from quarterdeck.fleet.handle import WorkerHandle
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.frames import Answer, Close, Failed, List, Open, Reply
from quarterdeck_protocol.link import Refusal


async def ask(handle: WorkerHandle, frame: Open | List | Close, body: bytes = b"") -> tuple[Answer, bytes]:
    """The good end of a request; cancelling the task gives the request up.

    Raises:
        ProtocolFault: it had a bad one, or was refused.
    """
    arrived: asyncio.Future[tuple[Reply, bytes]] = asyncio.get_running_loop().create_future()

    def on_reply(reply: Reply, body: bytes) -> None:
        if not arrived.done():
            arrived.set_result((reply, body))

    refusal = handle.ask(frame, body, on_reply)
    if refusal is not None:
        if handle.lost is not None:
            raise ProtocolFault.from_record(handle.lost)
        raise refused(refusal)
    try:
        reply, answer_body = await arrived
    except asyncio.CancelledError:
        handle.cancel(frame.request_id, "the caller gave up")
        raise
    if isinstance(reply, Failed):
        raise ProtocolFault.from_record(reply.fault)
    return reply, answer_body


def refused(refusal: Refusal) -> ProtocolFault:
    """Why a request was not taken; nothing of it was sent."""
    if refusal is Refusal.BUSY:
        return ProtocolFault(
            FaultKind.TOOL_ERROR, "too many calls wait already", code="busy", delivery=Delivery.NOT_SENT
        )
    if refusal is Refusal.UNSENDABLE:
        return ProtocolFault(
            FaultKind.TOOL_ERROR,
            "this call cannot be sent: it is too large, or some of its text is not Unicode",
            code="bad_arguments",
            delivery=Delivery.NOT_SENT,
        )
    return ProtocolFault(
        FaultKind.NOT_CONNECTED, "the worker is gone", code="not_connected", delivery=Delivery.NOT_SENT
    )
