"""What a client is told about one call.  Pure.

The result of a server's tool passes whole; a native outcome becomes text, and a structure beside it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, BodyError, check_depth, check_object
from quarterdeck_protocol.tools import Client, ToolOutcome, WireResult

FAULT_META_KEY: Final = "quarterdeck/fault"
"""`_meta` key of a fault's result: kind, code and delivery, so that a program need not read the text."""

SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
"""`_meta` key under which a 2026-07-28 result says who answers."""

SPLICE_MAX_BYTES: Final = 1024 * 1024 * 1024
"""The largest `max_result_bytes` that a configuration may name; a server's own limit was enforced before."""

CACHEABLE: Final = frozenset({"resources/read"})
"""Whose results of 2026-07-28 say how long they hold, of those that pass as bytes."""

_HINTS: Final[Mapping[str, object]] = {"ttlMs": 0, "cacheScope": "private"}
"""What we say of results whose server does not."""

_ERRORS: Final = {
    "unknown_prompt": INVALID_PARAMS,
    "unknown_task": INVALID_PARAMS,
    "bad_arguments": INVALID_PARAMS,
    "not_resumable": INVALID_PARAMS,
}

_MISSING: Final = {False: -32002, True: INVALID_PARAMS}
"""Of a resource that is not there, by whether its client is one of 2026-07-28."""

_FOR_CLIENTS: Final = frozenset({-32042, -32021})
"""A URL that has to be opened first; a capability that the client does not have."""

_NEWEST: Final = Revision.R2026_07_28
_STRUCTURED: Final = "structuredContent"
_EMPTY: Final = Raw(b"{}")


def text_result(*texts: str, is_error: bool) -> dict[str, object]:
    """A result of text blocks; what UTF-8 cannot say is escaped."""
    return {"content": [{"type": "text", "text": _sayable(text)} for text in texts], "isError": is_error}


def _sayable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _sayable_value(value: object) -> object:
    match value:
        case str():
            return _sayable(value)
        case Mapping():
            return {_sayable(str(name)): _sayable_value(each) for name, each in value.items()}
        case list() | tuple():
            return [_sayable_value(each) for each in value]
        case _:
            return value


def fault_result(fault: ProtocolFault) -> dict[str, object]:
    """A fault as a result that a model can read: what happened, and what can be done about it."""
    text = f"{fault.message}\nFix: {fault.remedy}" if fault.remedy else fault.message
    about = {"kind": fault.kind.value, "code": fault.code, "delivery": fault.delivery.value}
    return {**text_result(text, is_error=True), "_meta": {FAULT_META_KEY: about}}


def bad_result(reason: object) -> ProtocolFault:
    """The fault of a body that may not reach a client."""
    return ProtocolFault(FaultKind.TOOL_ERROR, f"the server's result cannot be passed on: {reason}", code="bad_result")


def refused_result(client: Client, size: int, hold: Callable[[Client, int], str]) -> ProtocolFault | None:
    """The fault in place of a result that is too much for its client; None for one that `hold` counts.

    Args:
        client: whose it is.
        size: of the result, bytes.
        hold: keeps so much until it is read; empty when it was counted, else which bound it met.
    """
    most = client.allowance.max_result_bytes if client.allowance is not None else None
    if most is not None and size > most:
        message = f"the result has {size:,} bytes, of {most:,} that the token {client.name!r} allows"
        code = "result_too_large"
    elif refused := hold(client, size):
        message = f"the result of {size:,} bytes is not kept: {refused}: read the answers that are there"
        code = "busy"
    else:
        return None
    return ProtocolFault(FaultKind.TOOL_ERROR, message, code=code, delivery=Delivery.ANSWERED)


def render(output: object) -> str:
    """A native output as text: a string verbatim, nothing as nothing, all else as JSON."""
    if isinstance(output, str):
        return output
    if output is None:
        return ""
    try:
        return json.dumps(output, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return str(output)


def outcome_result(outcome: ToolOutcome, *, is_modern: bool, takes_structures: bool = True) -> dict[str, object]:
    """An outcome as a result: its `wire` whole when there is one, else its `output` as text.

    Of several blocks each is a text: a model reads them as their tool wrote them.  What a success has structured stands
    beside them, for a client that `takes_structures`.

    Raises:
        BodyError: the wire's body is nothing that a client could be sent.
    """
    if outcome.wire is not None:
        result = whole_result(outcome.wire, is_modern=is_modern)
    else:
        result = text_result(*map(render, outcome.parts or (outcome.output,)), is_error=outcome.is_error)
    if outcome.structured is not None and takes_structures and not outcome.is_error:
        result[_STRUCTURED] = _sayable_value(outcome.structured)
    return result


def whole_result(wire: WireResult, *, is_modern: bool) -> dict[str, object]:
    """A server's own result, built.

    Args:
        wire: what the server said.
        is_modern: whether the client speaks 2026-07-28.

    Raises:
        BodyError: it is not one JSON object, or nests deeper than serialisers allow.
    """
    _members(wire)
    check_depth(wire.body)
    try:
        result = msgspec.json.decode(wire.body, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise BodyError("not one JSON object", error) from None
    is_too_new = not is_modern and wire.era == _NEWEST
    if is_too_new and not isinstance(result.get(_STRUCTURED, {}), dict):
        del result[_STRUCTURED]
    return result if wire.result_type == "complete" or not is_modern else {"resultType": wire.result_type, **result}


def splice(wire: WireResult, server_info: bytes | None, method: str = "tools/call") -> tuple[bytes | memoryview, ...]:
    """The parts of a result object around a server's own bytes, which are checked and not built.

    Args:
        wire: the server's result without its era's envelope.
        server_info: our `Implementation` as JSON for a 2026-07-28 client, None for a legacy one.
        method: what it answers.

    Raises:
        BodyError: the body may not enter a client's stream; its worker let something through that it must not.
    """
    body, members = wire.body, _members(wire)
    if server_info is None:
        if wire.era != _NEWEST or not (left_out := _too_new(members)):
            return (body,)
        return (msgspec.json.encode({name: value for name, value in members.items() if name not in left_out}),)
    hints = _HINTS if method in CACHEABLE and wire.result_type == "complete" and "ttlMs" not in members else {}
    if "_meta" in members or hints:
        meta = _stamped(members.get("_meta", _EMPTY), server_info)
        return (msgspec.json.encode({"resultType": wire.result_type, **hints, **members, "_meta": meta}),)
    result_type = msgspec.json.encode(wire.result_type)
    head = b'{"resultType":%b,"_meta":{"%b":%b}' % (result_type, SERVER_INFO_KEY.encode(), server_info)
    if not members:
        return (head, b"}")
    return (head, b",", memoryview(body)[body.index(b"{") + 1 :])


def error_of(fault: ProtocolFault, method: str, *, is_modern: bool) -> dict[str, object]:
    """A fault as a JSON-RPC error: what a server said as it said it, ours with what can be done about it.

    A resource that is not there has another code in each era, and its client gets that of its own.
    """
    if (reply := fault.reply) is not None:
        is_missing = method == "resources/read" and reply.code in _MISSING.values()
        code = _MISSING[is_modern] if is_missing else reply.code
        error: dict[str, object] = {"code": code, "message": _sayable(reply.message)}
        return error | ({"data": Raw(reply.data)} if reply.data else {})
    code = _MISSING[is_modern] if fault.code == "unknown_resource" else _ERRORS.get(fault.code or "", INTERNAL_ERROR)
    text = f"{fault.message}\nFix: {fault.remedy}" if fault.remedy else fault.message
    about = {"kind": fault.kind.value, "code": fault.code, "delivery": fault.delivery.value}
    return {"code": code, "message": _sayable(text), "data": {FAULT_META_KEY: about}}


def is_for_client(fault: ProtocolFault) -> bool:
    """Whether the error that ended a call is for the client's program, not for a model."""
    return fault.code == "not_resumable" or (fault.reply is not None and fault.reply.code in _FOR_CLIENTS)


def fault_parts(fault: ProtocolFault, server_info: bytes | None) -> tuple[bytes | memoryview, ...]:
    """The parts of a fault's result object; `server_info` as for `splice`."""
    return splice(WireResult(msgspec.json.encode(fault_result(fault)), Revision.R2025_11_25), server_info)


def _members(wire: WireResult) -> Mapping[str, Raw]:
    members = wire.members if wire.members is not None else check_object(wire.body, max_bytes=SPLICE_MAX_BYTES)
    if "resultType" in members:
        raise BodyError("a result still carries its era's envelope")
    return members


def _too_new(members: Mapping[str, Raw]) -> frozenset[str]:
    """Return the members of a result of 2026-07-28 that a legacy revision does not know, or forbids.

    It allows no structured content but an object.
    """
    names = members.keys() & {"ttlMs", "cacheScope"}
    if not bytes(members.get(_STRUCTURED, _EMPTY)).startswith(b"{"):
        names |= {_STRUCTURED}
    return frozenset(names)


def _stamped(meta: Raw, server_info: bytes) -> Raw:
    try:
        members = msgspec.json.decode(meta, type=dict[str, Raw] | None) or {}
    except msgspec.DecodeError:
        # Neither object nor null: the server's own doing, which its client may judge.
        return meta
    members[SERVER_INFO_KEY] = Raw(server_info)
    return Raw(msgspec.json.encode(members))
