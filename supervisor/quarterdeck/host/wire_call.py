"""Run one raw call from its request to its answer, whatever carries both.

Above it the transports, which read requests and write answers; below it the tools' source.  What a server said is
spliced into the answer, never rebuilt.
"""

import logging
import math
from collections.abc import Callable
from typing import Protocol

import msgspec

from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.tools import (
    ANONYMOUS,
    CallEnd,
    Client,
    PendingCall,
    ProgressNote,
    RawCall,
    ToolSource,
    WireResult,
)

from .calls import not_granted, shut_down
from .raw_calls import Key, RawRequest
from .results import bad_result, fault_parts, splice

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

    def answer(self, *parts: Part) -> None:
        """Send the answer, in parts."""
        ...


class WireCall:
    """A raw call, from its request to its answer on the wire; it ends once, answered or cancelled."""

    __slots__ = ("_call", "_is_over", "_on_end", "_outlet", "_request", "_server_info")

    def __init__(self, request: RawRequest, outlet: Outlet, server_info: bytes, on_end: Callable[[Key], None]):
        self._request = request
        self._outlet = outlet
        self._server_info = server_info if request.is_modern else None
        self._on_end = on_end
        self._call: PendingCall | None = None
        self._is_over = False

    def begin(self, box: ToolSource, client: Client = ANONYMOUS) -> bool:
        """Start the call for `client`; False when the session has to run it."""
        request = self._request
        if not_granted(box, client, request.name) is not None:
            return False
        on_progress = self._pass_on if request.progress_token else None
        call = RawCall(request.name, request.arguments, request.meta, on_progress=on_progress, client=client)
        try:
            self._call = box.begin(call, self._settle)
        except Exception:
            # Ours to mend; the session makes it an answer, here it would be silence.
            _logger.exception("the call of %s could not begin", request.name)
        return self._call is not None

    def cancel(self, reason: str) -> None:
        """Give up; nothing more is written for this call."""
        if not self._is_over:
            self._is_over = True
            self._on_end(self._request.key)
            if self._call is not None:
                self._call.cancel(reason)

    def end(self) -> None:
        """Give up because serving ends, and tell the client."""
        if not self._is_over:
            self._is_over = True
            delivery = self._call.cancel("serving ends") if self._call is not None else Delivery.NOT_SENT
            self._answer(fault_parts(shut_down(delivery), self._server_info))
            self._on_end(self._request.key)

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
                self._answer(splice(end, self._server_info))
            else:
                self._answer(fault_parts(end, self._server_info))
        except BodyError as error:
            self._answer(fault_parts(bad_result(error), self._server_info))
            raise
        finally:
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

    def _answer(self, parts: tuple[Part, ...]) -> None:
        self._outlet.answer(b'{"jsonrpc":"2.0","id":', self._request.id_json, b',"result":', *parts, b"}")
