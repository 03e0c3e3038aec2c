"""How requests end when serving does, and one request awaited: what every carrier needs."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import (
    CallEnd,
    CancelToken,
    Client,
    Deliver,
    PendingCall,
    ProgressNote,
    Report,
    ToolSource,
    WireResult,
)

PROGRESS_BACKLOG: Final = 64
"""Progress notes that wait for a slow client; more are dropped, the result never is."""

Tell = Callable[[ProgressNote], Awaitable[None]]
"""Sends one progress note to the client."""

GRACE_S: Final = 1.0
"""How long calls under way may still take once serving is told to end; the SDK's client kills what it started 2 s after
it asked it to end."""

MAX_NAME_CHARS: Final = 200
"""Of a tool's name that a client made up, in a message."""

ANSWER_S: Final = 1.0
"""How long the answers to all that was under way may take to be written after that; over HTTP, the next of them."""


class Drain:
    """How the calls of one server end when serving does.

    Attributes:
        closing: switched when no further call is begun.
        ending: switched when those that are still under way are answered with a fault.
    """

    def __init__(self) -> None:
        self.closing: Final = CancelToken()
        self.ending: Final = CancelToken()

    def follow(self, other: "Drain") -> None:
        """Have this one be switched with another, which may have been already."""
        other.closing.on_cancel(self.closing.cancel)
        other.ending.on_cancel(self.ending.cancel)


def shut_down(delivery: Delivery) -> ProtocolFault:
    """The fault of a call that was not answered before serving ended."""
    if delivery is Delivery.NOT_SENT:
        message = "quarterdeck is shutting down: the call was not sent"
        return ProtocolFault(FaultKind.NOT_CONNECTED, message, code="shutting_down", delivery=delivery)
    message = "quarterdeck is shutting down: the call was sent, and not answered in time"
    return ProtocolFault(FaultKind.TOOL_ERROR, message, code="shutting_down", delivery=delivery)


def not_granted(box: ToolSource, client: Client, tool: str) -> ProtocolFault | None:
    """The fault of a call that its client may not make, whether there is such a tool or not; None for one that it may.

    Args:
        box: which knows the tool's own name.
        client: who asks.
        tool: as the client calls it.
    """
    if client.allowance is None or client.allows(box.own(tool)):
        return None
    message = client.refusal(f"the tool {tool[:MAX_NAME_CHARS]!r}")
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, "not_granted")


def alone(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, else `error` itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def relay_notes(stack: AsyncExitStack, tell: Tell) -> Report:
    """What takes progress notes from the event loop; those that it took are sent before `stack` is left."""
    send, receive = anyio.create_memory_object_stream[ProgressNote](PROGRESS_BACKLOG)
    tasks = await stack.enter_async_context(anyio.create_task_group())
    tasks.start_soon(_send_notes, receive, tell)
    stack.callback(send.close)

    def note(progress: ProgressNote) -> None:
        try:
            send.send_nowait(progress)
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            # The client reads slowly or the call has ended: a note is worth less than memory.
            pass

    return note


async def _send_notes(notes: MemoryObjectReceiveStream[ProgressNote], tell: Tell) -> None:
    async with notes:
        async for note in notes:
            await tell(note)


async def end_of(begin: Callable[[Deliver], PendingCall | None], drain: Drain) -> WireResult | ProtocolFault:
    """How the request that `begin` starts ends, at the latest with serving.  Cancelling the task gives it up."""
    if drain.closing.cancelled:
        return shut_down(Delivery.NOT_SENT)
    ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()

    def deliver(end: CallEnd) -> None:
        if not ended.done():
            ended.set_result(end)

    running = begin(deliver)
    if running is None:
        return shut_down(Delivery.NOT_SENT)
    forget = drain.ending.on_cancel(lambda: deliver(shut_down(running.cancel("serving ends"))))
    try:
        return await ended
    finally:
        forget()
        if not ended.done() or ended.cancelled():
            running.cancel("the client gave it up")
