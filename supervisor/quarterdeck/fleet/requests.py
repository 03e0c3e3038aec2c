"""What is asked of one worker: requests that are awaited, raw calls of its server's tools, and the list of them."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

import msgspec
from msgspec import Raw, Struct

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteCallResult, RemoteTool
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.events import Refusal
from quarterdeck_protocol.link.frames import Call, Close, Failed, List, Open, Reply
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_result
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, RawCall, WireResult

from .core.toolset import Toolset, ToolsetError, parse_tools
from .handle import WorkerHandle

SHORTEST_S: Final = 0.001
"""The deadline of a call whose caller has no time left; the link takes none that has passed."""

REFRESH_S: Final = 1.0
"""Between two lists that the server asked for by `list_changed`: a storm of those costs one list a second."""

DECODE_IN_THREAD_BYTES: Final = 256 * 1024
"""Larger lists are decoded beside the loop."""

_log = logging.getLogger("quarterdeck.fleet")

_TRUE: Final = Raw(b"true")


async def ask(handle: WorkerHandle, frame: Open | List | Close, body: bytes = b"") -> bytes:
    """What a request is answered with; cancelling the task gives the request up.

    Raises:
        ProtocolFault: it had a bad end, or was refused.
    """
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
    """Why a request was not taken; nothing of it was sent."""
    return ProtocolFault.from_record(_REFUSED[refusal])


# Calls


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
    return RemoteCallResult(end)


def arguments_json(args: object) -> bytes:
    """The arguments of a call as JSON; what is no dict is none.

    Raises:
        ProtocolFault: `tool_error`, they cannot be said in JSON.
    """
    try:
        return msgspec.json.encode(args if isinstance(args, dict) else {})
    except (TypeError, ValueError, RecursionError) as error:
        why = f"the arguments are not JSON: {plain_words(error)}"
        raise ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "bad_arguments", error) from error


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


# The list of tools


class ToolList:
    """The last list of one endpoint's server.

    Attributes:
        tools: the same tuple until they change.
        has_come: whether any list has come: before it, having no tools means nothing.
    """

    def __init__(self, config: ServerConfig, *, is_wanted: Callable[[], bool], on_change: Callable[[], None]) -> None:
        """Nothing is listed yet.

        Args:
            config: of the server.
            is_wanted: whether its list is still of use to anybody.
            on_change: called after each list with other tools than the one before.
        """
        self.tools: tuple[RemoteTool, ...] = ()
        self.has_come = False
        self._config = config
        self._is_wanted = is_wanted
        self._on_change = on_change
        self._digest = b""
        self._toolset = Toolset((), ())
        self._refresh: asyncio.TimerHandle | None = None
        self._refreshed_at = -inf

    def follow(self, other: "ToolList") -> None:
        """Know what another generation of the same server has listed: the same bytes are the same tools."""
        self._digest, self._toolset = other._digest, other._toolset  # noqa: SLF001 - of its own kind

    async def fetch(self, handle: WorkerHandle) -> None:
        """List the tools.

        Raises:
            ProtocolFault: `protocol` or `timeout`.
        """
        try:
            body = await ask(handle, List(handle.next_id(), self._config.list_timeout_s))
            toolset = await self._read(body)
        except ToolsetError as error:
            raise ProtocolFault(FaultKind.PROTOCOL, str(error), error, code="bad_output") from error
        except ProtocolFault as fault:
            if fault.kind is not FaultKind.TIMEOUT:
                fault.kind = FaultKind.PROTOCOL
            raise
        for warning in toolset.warnings:
            _log.warning("%s", warning)
        self.has_come = True
        if toolset.tools is not self.tools and toolset.tools != self.tools:
            self.tools = toolset.tools
            self._on_change()

    async def _read(self, body: bytes) -> Toolset:
        """The tools of a list; those of the last one, when that had the same bytes."""
        digest = hashlib.blake2b(body, digest_size=32).digest()
        if digest == self._digest:
            return self._toolset
        if len(body) > DECODE_IN_THREAD_BYTES:
            until = time.monotonic() + self._config.list_timeout_s
            # A thread cannot be called off, and would keep a process that ends.
            toolset = await asyncio.to_thread(
                parse_tools, self._config, body, lambda: self._is_wanted() and time.monotonic() < until
            )
        else:
            toolset = parse_tools(self._config, body)
        self._digest, self._toolset = digest, toolset
        return toolset

    def refresh_soon(self, refresh: Callable[[], None]) -> None:
        """Call `refresh`, which is to `fetch`, once for all asks within `REFRESH_S`."""
        if self._refresh is None:
            delay_s = max(0.0, self._refreshed_at + REFRESH_S - time.monotonic())
            self._refresh = asyncio.get_running_loop().call_later(delay_s, self._refresh_now, refresh)

    def stop(self) -> None:
        """Refresh no more."""
        if self._refresh is not None:
            self._refresh.cancel()
            self._refresh = None

    def _refresh_now(self, refresh: Callable[[], None]) -> None:
        self._refresh = None
        if self._is_wanted():
            self._refreshed_at = time.monotonic()
            refresh()
