"""Tool calls towards a server: begun by a frame, ended once by a callback.  Pure.

Two ways, one shape (`CallPath`).  `RawCalls` writes JSON-RPC lines itself and hands the server's bytes on unbuilt; it
serves stdio.  `sdk_requests.SdkCalls` goes through the SDK's session; it serves everything else.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import Call
from quarterdeck_protocol.mcp.jsonrpc import BodyError, Message, SplitResult, split_result

FIRST_RAW_ID: Final = 1 << 40
"""Ids from here on are ours, this and a request's own number; the SDK counts from 1 and never gets here."""

MAX_ERROR_CHARS: Final = 4_000
"""A server's error text beyond it is cut."""


_ID: Final = re.compile(rb'"id"\s*:\s*"?(\d{1,19})\b')
_ID_WINDOW: Final = 256
"""Serialisers write the id first or last."""


class Ended(msgspec.Struct, frozen=True):
    """How a call ended: a result, or a fault."""

    outcome: SplitResult | FaultRecord


class CallPath(Protocol):
    """A way to run tools."""

    def begin(self, call: Call, arguments: bytes, done: Callable[[Ended], None]) -> None:
        """Start a call; `done` is called once unless `cancel` comes first."""

    def cancel(self, request_id: int, reason: str) -> bool:
        """Give up and tell the server; False when the call has ended already."""


class ErrorObject(msgspec.Struct):
    """A JSON-RPC error reply, the parts that matter."""

    code: int = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")


class RawCalls:
    """Calls as lines.  Sans-IO but for `write`, which must not block."""

    def __init__(self, write: Callable[[bytes], None], *, envelope: dict[str, object], max_bytes: int) -> None:
        """Serve one server.

        Args:
            write: takes one line with its end.
            envelope: `_meta` members that the protocol era asks of every request; empty in the legacy era.
            max_bytes: the largest result.
        """
        self._write = write
        self._stamp = json.dumps(envelope)[1:-1].encode()
        self._max_bytes = max_bytes
        self._pending: dict[int, Callable[[Ended], None]] = {}

    def begin(self, call: Call, arguments: bytes, done: Callable[[Ended], None]) -> None:
        """See `CallPath`."""
        raw_id = FIRST_RAW_ID + call.request_id
        self._pending[raw_id] = done
        own = call.meta.strip()[1:-1].strip()
        members = [own] if own else []
        if self._stamp:
            members.append(self._stamp)
        if call.progress:
            members.append(b'"progressToken":%d' % raw_id)
        meta = b',"_meta":{%s}' % b",".join(members) if members else b""
        self._write(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%s,"arguments":%s%s}}\n'
            % (raw_id, msgspec.json.encode(call.tool), arguments or b"{}", meta)
        )

    def cancel(self, request_id: int, reason: str) -> bool:
        """See `CallPath`; a late answer is dropped."""
        raw_id = FIRST_RAW_ID + request_id
        if self._pending.pop(raw_id, None) is None:
            return False
        params: dict[str, object] = {"requestId": raw_id, "reason": reason or "the caller gave up"}
        if self._stamp:
            params["_meta"] = msgspec.Raw(b"{%s}" % self._stamp)
        self._write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}\n' % msgspec.json.encode(params))
        return True

    def owner_of(self, token: int | str | None) -> int | None:
        """The request that a progress token or reply id belongs to, None for a foreign one."""
        return token - FIRST_RAW_ID if isinstance(token, int) and token in self._pending else None

    def is_ours(self, message_id: int | str | None) -> bool:
        """Whether a reply's id is from our range, whoever made it up."""
        return isinstance(message_id, int) and message_id >= FIRST_RAW_ID

    def answered(self, raw_id: int, message: Message) -> None:
        """Take a reply of our range; late and forged ones are dropped."""
        if (done := self._pending.pop(raw_id, None)) is not None:
            done(Ended(self._outcome(message)))

    def spoiled(self, line: bytes) -> None:
        """Take a line that is no message: a call that it was meant to answer ends here, not by timeout."""
        for key in ids_in(line):
            if (done := self._pending.pop(key, None)) is not None:
                done(Ended(bad_output("the answer is not a JSON-RPC message: broken, cut, or nested too deeply")))
                return

    def _outcome(self, message: Message) -> SplitResult | FaultRecord:
        result, error = bytes(message.result), bytes(message.error)
        if bool(result) == bool(error):
            return bad_output("the answer has " + ("both result and error" if result else "neither result nor error"))
        if error:
            return refused(error)
        try:
            return split_result(result, max_bytes=self._max_bytes)
        except BodyError as problem:
            return bad_output(str(problem))


def ids_in(line: bytes) -> Iterator[int]:
    """What a line that is no message may be the answer to: numbers that stand as an id near its beginning or end."""
    return (int(match[1]) for match in _ID.finditer(line[:_ID_WINDOW] + b" " + line[-_ID_WINDOW:]))


def refused(error: bytes) -> FaultRecord:
    """A JSON-RPC error reply as a fault: the server refused, the connection is fine."""
    try:
        parsed = msgspec.json.decode(error, type=ErrorObject)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bad_output("the error is not a JSON-RPC error object")
    return refusal(parsed.code, parsed.message, bytes(parsed.data))


def refusal(code: int, message: str, data: bytes = b"") -> FaultRecord:
    """See `refused`."""
    detail = f": {data.decode(errors='replace')}" if data and data != b"null" else ""
    text = f"{message or 'the server refused the call'} (JSON-RPC error {code}){detail}"[:MAX_ERROR_CHARS]
    return FaultRecord(FaultKind.TOOL_ERROR, text, code="reply_error", delivery=Delivery.ANSWERED)


def bad_output(reason: str) -> FaultRecord:
    """An answer that is none."""
    return FaultRecord(FaultKind.TOOL_ERROR, reason[:MAX_ERROR_CHARS], code="bad_output", delivery=Delivery.ANSWERED)
