"""Run one raw call from its request to its answer, whatever carries both.

Above it the transports, which read requests and write answers; below it the sources of tools and of what else servers
offer.  What a server said is spliced into the answer, never rebuilt.
"""

import logging
import math
from collections.abc import Callable
from typing import Protocol

import msgspec

from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.tools import CallEnd, PendingCall, ProgressNote, WireResult

from .caller import Caller
from .calls import shut_down
from .raw_calls import Key, WireRequest
from .results import bad_result, error_of, fault_parts, is_for_client, splice

Part = bytes | memoryview

_logger = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where a call's messages go, each of them one JSON value without a line end."""

    @property
    def is_congested(self) -> bool:
        """Whether its reader is too slow for what was written."""
        ...

    def tell(self, message: bytes) -> None:
        """Send a notification."""
        ...

    def answer(self, id_json: bytes, *parts: Part, error: int = 0) -> None:
        """Send the answer to this request, in parts; `error` is the code of the error that it is, 0 for a result."""
        ...


class WireCall:
    """A raw call, from its request to its answer on the wire; it ends once, answered or cancelled."""

    __slots__ = ("_call", "_close_log", "_is_over", "_on_end", "_outlet", "_request", "_server_info")

    def __init__(self, request: WireRequest, outlet: Outlet, server_info: bytes, on_end: Callable[[Key], None]):
        self._request = request
        self._outlet = outlet
        self._server_info = server_info if request.is_modern else None
        self._on_end = on_end
        self._call: PendingCall | None = None
        self._close_log: Callable[[], None] | None = None
        self._is_over = False

    @property
    def key(self) -> Key:
        """The key of its request."""
        return self._request.key

    @property
    def id_json(self) -> bytes:
        """The id of its request, as JSON."""
        return self._request.id_json

    def begin(self, caller: Caller) -> bool:
        """Start the call; False when the session has to run it."""
        request = self._request
        if request.progress_token:
            request = msgspec.structs.replace(request, on_progress=self._pass_on)
        try:
            self._call = caller.begin_raw(request, self._settle)
        except Exception:
            # Ours to mend; the session makes it an answer, here it would be silence.
            _logger.exception("the request %s %s could not begin", request.method, request.name)
        if self._call is not None and request.log_level and (logs := caller.content.logs) is not None:
            self._close_log = logs.open(caller.asking(request), request.log_level, self._tell_log)
        return self._call is not None

    def cancel(self, reason: str) -> None:
        """Give up; nothing more is written for this call."""
        if not self._is_over:
            self._is_over = True
            self._ended()
            if self._call is not None:
                self._call.cancel(reason)

    def end(self) -> None:
        """Give up because serving ends, and tell the client."""
        self._give_up(may_be_sent_later=False)

    def give_back(self) -> bool:
        """Give up for another process. Return whether that process can send it; if so, do not answer the client."""
        return self._give_up(may_be_sent_later=True)

    def _give_up(self, *, may_be_sent_later: bool) -> bool:
        if self._is_over:
            return False
        self._is_over = True
        delivery = self._call.cancel("serving ends") if self._call is not None else Delivery.NOT_SENT
        is_left = may_be_sent_later and delivery is Delivery.NOT_SENT
        if not is_left:
            self._answer_fault(shut_down(delivery))
        self._ended()
        return is_left

    def _settle(self, end: CallEnd) -> None:
        """Answer the client.

        Raises:
            BodyError: the body was refused, and the client told so; its worker let through what it must not.
        """
        if self._is_over:
            return
        self._is_over = True
        try:
            if isinstance(end, WireResult):
                self._answer(splice(end, self._server_info, self._request.method))
            else:
                self._answer_fault(end)
        except BodyError as error:
            self._answer_fault(bad_result(error))
            raise
        finally:
            self._ended()

    def _tell_log(self, notification: bytes) -> None:
        """Relay a log line; one that a slow client has no room for is dropped."""
        if not self._outlet.is_congested:
            self._outlet.tell(notification)

    def _ended(self) -> None:
        """It is over: tell whoever counts it."""
        if self._close_log is not None:
            self._close_log()
        self._on_end(self._request.key)

    def _pass_on(self, note: ProgressNote) -> None:
        """Relay a note; one that a slow client has no room for, or that is no number, is dropped."""
        if self._is_over or self._outlet.is_congested or not math.isfinite(note.progress):
            return
        params: dict[str, object] = {
            "progressToken": msgspec.Raw(self._request.progress_token),
            "progress": note.progress,
        }
        if note.total is not None:
            params["total"] = note.total
        if note.message is not None:
            params["message"] = note.message
        message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        self._outlet.tell(msgspec.json.encode(message))

    def _answer_fault(self, fault: ProtocolFault) -> None:
        parts, error = answer_of(fault, self._request, self._server_info)
        self._outlet.answer(self._request.id_json, *parts, error=error)

    def _answer(self, parts: tuple[Part, ...]) -> None:
        id_json = self._request.id_json
        self._outlet.answer(id_json, b'{"jsonrpc":"2.0","id":', id_json, b',"result":', *parts, b"}")


def answer_of(fault: ProtocolFault, request: WireRequest, server_info: bytes | None) -> tuple[tuple[Part, ...], int]:
    """The answer that a fault is, and its code: of a tool a result, for a model to read, of all else an error."""
    code = 0
    if request.method == "tools/call" and not is_for_client(fault):
        said: tuple[Part, ...] = (b',"result":', *fault_parts(fault, server_info if request.is_modern else None))
    else:
        error = error_of(fault, request.method, is_modern=request.is_modern)
        code = error["code"] if isinstance(error["code"], int) else 0
        said = (b',"error":', msgspec.json.encode(error))
    return (b'{"jsonrpc":"2.0","id":', request.id_json, *said, b"}"), code
