"""Hand a client its results within its budget, and what was left out of them when it reads it."""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.host.results import bad_result
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.mcp.tasks import CREATED
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

from .cutting import MAX_BYTES as MAX_RESULT_BYTES
from .cutting import chars_within, overlong
from .kept_results import MAX_BYTES, MAX_RESULTS, SCHEME, KeptResults

CUT: Final = frozenset({"tools/call", "tasks/result", "tasks/get"})
"""The requests that are answered with what a tool gave."""

_ENDS: Final = frozenset({"complete", CREATED})
"""The types of results that may have it; others ask for more."""

LOOK_S: Final = 300.0
"""Between two looks for results that are too old: those stay so much longer at most."""

_NESTED: Final = "result"
"""Where the state of a task of 2026-07-28 has it."""


class _Uri(msgspec.Struct, gc=False):
    uri: str = ""


_uri: Final = msgspec.json.Decoder(_Uri)


def within_budget(
    results: KeptResults, max_tokens: int, client: str, method: str, has_schema: Callable[[], bool], deliver: Deliver
) -> Deliver:
    """What takes the end of a request in place of `deliver`, which gets it within a budget.

    Args:
        results: keeps what is cut.
        max_tokens: the budget.
        client: its key.
        method: of the request, one of `CUT`.
        has_schema: whether the tool has an output schema.
        deliver: takes the end.
    """
    max_chars = chars_within(max_tokens)
    cut = partial(_cut, results, client, max_tokens, has_schema)

    def take(end: CallEnd) -> None:
        # No text has more characters than bytes: what is within the budget is not looked at.
        if isinstance(end, WireResult) and len(end.body) > max_chars and end.result_type in _ENDS:
            is_state = method == "tasks/get" or end.result_type == CREATED
            try:
                end = _cut_state(end, cut) if is_state else cut(end)
            except BodyError as error:
                end = bad_result(error)
        deliver(end)

    return take


def state_within_budget(results: KeptResults, client: str, state: bytes, has_schema: Callable[[], bool]) -> bytes:
    """The state of a task, one JSON object that may have its result in it, as a stream of its client is told it.

    Raises:
        BodyError: its result cannot be read.
    """
    if results.max_tokens is None or len(state) <= chars_within(results.max_tokens):
        return state
    cut = partial(_cut, results, client, results.max_tokens, has_schema)
    return _cut_state(WireResult(state, Revision.R2026_07_28), cut).body


def _cut(
    results: KeptResults, client: str, max_tokens: int, has_schema: Callable[[], bool], wire: WireResult
) -> WireResult:
    """What a tool gave, within the budget; the whole is kept where it can be."""
    found = overlong(wire, max_tokens, has_schema)
    if found is None:
        return wire
    uri, loop = new_uri(), asyncio.get_running_loop()
    if found.size <= MAX_BYTES and results.keep(client, uri, found.whole(uri), loop.time()):
        _expire_later(results, loop)
        return found.cut(f"the whole is the resource {uri}")
    return found.cut(f"the whole was not kept: it is longer than {MAX_BYTES:,} bytes")


def _expire_later(results: KeptResults, loop: asyncio.AbstractEventLoop) -> None:
    """See to it that what is too old goes though nobody asks any more; one timer for all of it."""

    def expire() -> None:
        results.expire(loop.time())
        results.is_timed = False
        if results.total_bytes:
            _expire_later(results, loop)

    if not results.is_timed:
        results.is_timed = True
        loop.call_later(LOOK_S, expire)


def _cut_state(wire: WireResult, cut: Callable[[WireResult], WireResult]) -> WireResult:
    """The state of a task, with the result in it cut."""
    members = dict(wire.members if wire.members is not None else check_object(wire.body, max_bytes=MAX_RESULT_BYTES))
    body = bytes(members.get(_NESTED, b""))
    if not body.startswith(b"{"):
        return wire
    inner = WireResult(body, wire.era)
    shorter = cut(inner)
    if shorter is inner:
        return wire
    return msgspec.structs.replace(
        wire, body=msgspec.json.encode({**members, _NESTED: Raw(shorter.body)}), members=None
    )


def new_uri() -> str:
    """The URI of one more result, which nobody can guess: not even who knows the one before."""
    return f"{SCHEME}{secrets.token_urlsafe(16)}"


def named_result(arguments: bytes) -> str:
    """The URI of a kept result that the params of `resources/read` name; empty where they name another resource."""
    if SCHEME.encode() not in arguments.replace(b"\\/", b"/"):
        return ""
    try:
        uri = _uri.decode(arguments).uri
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return uri if uri.startswith(SCHEME) else ""


def begin_read(results: KeptResults, client: str, uri: str, deliver: Deliver) -> PendingCall:
    """Answer a client's `resources/read` of a kept result; one that is gone is a fault that says so."""
    loop = asyncio.get_running_loop()
    body = results.read(client, uri, loop.time())
    end: CallEnd = gone(uri) if body is None else WireResult(body, Revision.R2025_11_25)
    return _Read(loop.call_soon(deliver, end))


def gone(uri: str) -> ProtocolFault:
    """The fault of a result that is not there."""
    message = (
        f"the result {uri[:100]} is not there: the last {MAX_RESULTS} results that were cut for a session are kept, "
        f"{MAX_BYTES:,} bytes of them, until it ends, and for an hour at most; call the tool again"
    )
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, "unknown_resource")


class _Read(PendingCall):
    """A read that is answered with the loop's next turn."""

    def __init__(self, handle: asyncio.Handle) -> None:
        self._handle = handle

    def cancel(self, reason: str = "") -> Delivery:  # noqa: ARG002 - nobody is told
        """See `PendingCall`."""
        self._handle.cancel()
        return Delivery.NOT_SENT
