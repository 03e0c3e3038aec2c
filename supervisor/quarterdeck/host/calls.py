"""How requests end when serving does, and one request awaited: what every carrier needs."""

import asyncio
from collections.abc import Callable
from typing import Final

from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import CallEnd, CancelToken, Client, Deliver, PendingCall, ToolSource

GRACE_S: Final = 1.0
"""How long calls under way may still take once serving is told to end; the SDK's client kills what it started 2 s after
it asked it to end."""

MAX_NAME_CHARS: Final = 200
"""Of a tool's name that a client made up, in a message."""

ANSWER_S: Final = 1.0
"""How long the answers to all that was under way may take to be written after that; over HTTP, the next of them."""


class Drain:
    """How serving ends: calls under way have `within_s` more seconds, or until `hurry` is cancelled.

    Attributes:
        wished_s: the seconds that they have once the process is told to end; until then `GRACE_S`, as when one client
            or one deck ends.
    """

    def __init__(self, wished_s: float, within_s: float = GRACE_S) -> None:
        self.wished_s: Final = wished_s
        self.within_s = within_s
        self.hurry: Final = CancelToken()

    def begin(self) -> None:
        """Take note that the process was told to end."""
        self.within_s = self.wished_s


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
    if client.allows(box.own(tool)):
        return None
    message = client.refusal(f"the tool {tool[:MAX_NAME_CHARS]!r}")
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, "not_granted")


def alone(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, else `error` itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def end_of(begin: Callable[[Deliver], PendingCall]) -> CallEnd:
    """How the request that `begin` starts ends.  Cancelling the task gives it up."""
    ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
    running = begin(lambda end: None if ended.done() else ended.set_result(end))
    try:
        return await ended
    finally:
        if not ended.done() or ended.cancelled():
            running.cancel("the client gave it up")
