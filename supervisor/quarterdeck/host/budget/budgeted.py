"""Hand a client its results within its budget, and what was left out of them when it reads it."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.host.results import bad_result
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

from .cutting import MAX_BYTES as MAX_RESULT_BYTES
from .cutting import chars_within, overlong
from .kept_results import MAX_BYTES, MAX_RESULTS, SCHEME, KeptResults

CUT: Final = frozenset({"tools/call", "tasks/result", "tasks/get"})
"""The requests that are answered with what a tool gave."""

_NESTED: Final = "result"
"""Where an answer to `tasks/get` has it."""


class _Uri(msgspec.Struct, gc=False):
    uri: str = ""


_uri: Final = msgspec.json.Decoder(_Uri)


def within_budget(
    results: KeptResults, client: str, method: str, has_schema: Callable[[], bool], deliver: Deliver
) -> Deliver:
    """What takes the end of a request in place of `deliver`, which gets it within the budget of the moment.

    Args:
        results: says the budget, and keeps what is cut.
        client: its key.
        method: of the request.
        has_schema: whether the tool has an output schema.
        deliver: takes the end.
    """
    max_tokens = results.max_tokens
    if method not in CUT or max_tokens is None:
        return deliver
    max_chars = chars_within(max_tokens)

    def cut(wire: WireResult) -> WireResult:
        found = overlong(wire, max_tokens, has_schema)
        if found is None:
            return wire
        uri = new_uri()
        whole = found.whole(uri)
        if results.keep(client, uri, whole, asyncio.get_running_loop().time()):
            return found.cut(f"the whole is the resource {uri}")
        return found.cut(f"the whole has {len(whole):,} bytes, and was not kept: at most {MAX_BYTES:,} are")

    def take(end: CallEnd) -> None:
        # No text has more characters than bytes: what is within the budget is not looked at.
        if isinstance(end, WireResult) and len(end.body) > max_chars and end.result_type == "complete":
            try:
                end = _cut_nested(end, cut) if method == "tasks/get" else cut(end)
            except BodyError as error:
                end = bad_result(error)
        deliver(end)

    return take


def _cut_nested(wire: WireResult, cut: Callable[[WireResult], WireResult]) -> WireResult:
    """The state of a task, with the result in it cut."""
    members = dict(wire.members if wire.members is not None else check_object(wire.body, max_bytes=MAX_RESULT_BYTES))
    body = bytes(members.get(_NESTED, b""))
    if not body.startswith(b"{"):
        return wire
    inner = WireResult(body, wire.era)
    shorter = cut(inner)
    if shorter is inner:
        return wire
    members[_NESTED] = Raw(shorter.body)
    return WireResult(msgspec.json.encode(members), wire.era, wire.is_error, wire.result_type)


def new_uri() -> str:
    """The URI of one more result, which nobody can guess."""
    from ulid import ULID  # for the first result that is too long

    return f"{SCHEME}{ULID()}"


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
