"""Run one `tools/call` over any tool source, to a result that the SDK's session can send.

A server's tool is a raw call here too, so that progress and cancellation work on every transport.
Every failure is a result with `isError`; only cancellation leaves as an exception.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import (
    ANONYMOUS,
    CallEnd,
    CancelToken,
    Client,
    Deliver,
    PendingCall,
    ProgressNote,
    RawCall,
    Report,
    ToolCall,
    ToolOutcome,
    ToolSource,
    WireResult,
)

from .results import (
    bad_result,
    fault_result,
    is_for_client,
    outcome_bytes,
    outcome_result,
    refused_result,
    text_result,
    whole_result,
)

PROGRESS_BACKLOG: Final = 64
"""Progress notes that wait for a slow client; more are dropped, the result never is."""

Tell = Callable[[ProgressNote], Awaitable[None]]
"""Sends one progress note to the client."""

_logger = logging.getLogger(__name__)

BeginCall = Callable[[Report | None, Deliver], PendingCall | None]
"""Begins a call as a raw one, with what takes its progress and its end."""

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


class ClientCall(msgspec.Struct, frozen=True):
    """What a client asked for.

    Attributes:
        is_modern: whether its client speaks 2026-07-28.
        takes_structures: whether its revision knows structured content.
        meta: the caller's own `_meta` as JSON, without envelope keys and progress token; empty for none.
        tell: sends progress notes, None when the client wants none.
        client: who the client is.
        hold: keeps a result until it is read, see `refused_result`; None where that is bounded otherwise.
        begin: begins it as a raw call; None for the box's own way.
        is_task: whether its client wants a task for a result: a fault is then for its program, not for a model.
    """

    id: str
    name: str
    is_modern: bool
    arguments: Mapping[str, object]
    meta: bytes = b""
    tell: Tell | None = None
    client: Client = ANONYMOUS
    hold: Callable[[Client, int], str] | None = None
    takes_structures: bool = True
    begin: BeginCall | None = None
    is_task: bool = False


async def run_call(box: ToolSource, call: ClientCall, drain: Drain | None = None) -> dict[str, object]:
    """Run `call` to its end, or to that of `drain`.

    Cancelling the awaiting task cancels the call where it runs: the server is told, a native tool's token switched.
    Progress that was taken is told before this returns.

    Raises:
        ProtocolFault: it ended in an error that is for the client's program.
    """
    drain = drain or Drain()
    refused = shut_down(Delivery.NOT_SENT) if drain.closing.cancelled else not_granted(box, call.client, call.name)
    if refused is not None:
        return _of_fault(refused, call)
    try:
        async with AsyncExitStack() as stack:
            on_progress = await relay_notes(stack, call.tell) if call.tell is not None else None
            if call.name not in box.native_names:
                result = await _run_raw(box, call, on_progress, drain)
                if result is not None:
                    return result
            outcome = await _run_native(box, call, on_progress, drain)
            if outcome is None:
                return fault_result(shut_down(Delivery.UNKNOWN))
            if call.hold is not None:
                too_much = refused_result(call.client, outcome_bytes(outcome), call.hold)
                if too_much is not None:
                    return fault_result(too_much)
            return outcome_result(outcome, is_modern=call.is_modern, takes_structures=call.takes_structures)
    except Exception as error:
        return _failure(call, alone(error))


def alone(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, else `error` itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _of_fault(fault: ProtocolFault, call: ClientCall) -> dict[str, object]:
    if call.is_task or is_for_client(fault):
        raise fault
    return fault_result(fault)


def _failure(call: ClientCall, error: BaseException) -> dict[str, object]:
    match error:
        case ProtocolFault():
            return _of_fault(error, call)
        case BodyError():
            return _of_fault(bad_result(error), call)
        case _:
            _logger.error("the tool %s raised", call.name, exc_info=error)
            return text_result(str(error) or type(error).__name__, is_error=True)


async def _run_raw(
    box: ToolSource, call: ClientCall, on_progress: Report | None, drain: Drain
) -> dict[str, object] | None:
    """The result of a server's tool; None when the box takes no raw call of it."""
    try:
        arguments = json.dumps(call.arguments, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        fault = ProtocolFault(
            FaultKind.TOOL_ERROR, f"the arguments are not JSON: {plain_words(error)}", code="bad_arguments"
        )
        return fault_result(fault)
    ended: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

    def deliver(end: CallEnd) -> None:
        if ended.done():
            return
        try:
            if isinstance(end, WireResult) and call.hold is not None:
                end = refused_result(call.client, len(end.body), call.hold) or end
            if isinstance(end, WireResult):
                ended.set_result(whole_result(end, is_modern=call.is_modern))
            elif call.is_task or is_for_client(end):
                ended.set_exception(end)
            else:
                ended.set_result(fault_result(end))
        except BodyError as error:
            ended.set_result(fault_result(bad_result(error)))
            raise

    if call.begin is not None:
        running = call.begin(on_progress, deliver)
    else:
        raw = RawCall(
            call.name,
            arguments,
            call.meta,
            on_progress=on_progress,
            client=call.client,
            is_modern=call.is_modern,
        )
        running = box.begin(raw, deliver)
    if running is None:
        return None

    def end() -> None:
        if not ended.done():
            ended.set_result(fault_result(shut_down(running.cancel("serving ends"))))

    forget = drain.ending.on_cancel(end)
    try:
        return await ended
    finally:
        forget()
        if not ended.done() or ended.cancelled():
            running.cancel("the client cancelled the call")


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


async def _run_native(box: ToolSource, call: ClientCall, report: Report | None, drain: Drain) -> ToolOutcome | None:
    """The outcome of a native tool; None when `drain` ended it."""
    token = CancelToken()
    asked = ToolCall(call.id, call.name, dict(call.arguments), report, call.client)
    outcomes: list[ToolOutcome] = []

    async def run() -> None:
        outcomes.append(await box.runner.run(asked, token))
        ended.set()

    ended = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        forget = drain.ending.on_cancel(ended.set)
        try:
            await ended.wait()
        finally:
            forget()
            # A runner that shields itself still hears of the cancellation, through its token.
            if not outcomes:
                token.cancel()
                tasks.cancel_scope.cancel()
    return outcomes[0] if outcomes else None
