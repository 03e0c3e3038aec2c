"""One call on the short way, from its request to its answer on the wire."""

import logging
import math
from collections.abc import Callable

import msgspec

from quarterdeck.host.calls import shut_down
from quarterdeck.host.results import bad_result, fault_parts, splice
from quarterdeck.host.shortway import ShortRequest
from quarterdeck.host.sink import Part, Sink
from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.jsonrpc import BodyError
from quarterdeck_protocol.tools import ProgressNote, Settled, ShortCall, ShortWay, WireResult

_logger = logging.getLogger(__name__)


class Flight:
    """A call under way; it ends once, answered or cancelled."""

    __slots__ = ("_call", "_is_over", "_on_over", "_request", "_server_info", "_sink")

    def __init__(self, request: ShortRequest, sink: Sink, server_info: bytes, on_over: Callable[[int | str], None]):
        self._request = request
        self._sink = sink
        self._server_info = server_info if request.is_modern else None
        self._on_over = on_over
        self._call: ShortCall | None = None
        self._is_over = False

    def begin(self, way: ShortWay) -> bool:
        """Start the call; False when it has to go the long way."""
        request = self._request
        on_progress = self._pass_on if request.progress_token else None
        try:
            self._call = way.begin(
                request.name, request.arguments, self._settle, meta=request.meta, on_progress=on_progress
            )
        except Exception:
            # Ours to mend; on the long way it becomes an answer, here it would be silence.
            _logger.exception("the call of %s could not begin", request.name)
        return self._call is not None

    def cancel(self, reason: str) -> None:
        """Give up; nothing more is written for this call."""
        if not self._is_over:
            self._end()
            if self._call is not None:
                self._call.cancel(reason)

    def end(self) -> None:
        """Give up because serving ends, and tell the client."""
        if not self._is_over:
            self._end()
            delivery = self._call.cancel("serving ends") if self._call is not None else Delivery.NOT_SENT
            self._answer(fault_parts(shut_down(delivery), self._server_info))

    def _settle(self, settled: Settled) -> None:
        """Answer the client.

        Raises:
            BodyError: the body was refused, and the client told so; its worker let through what it must not.
        """
        if self._is_over:
            return
        self._end()
        if not isinstance(settled, WireResult):
            self._answer(fault_parts(settled, self._server_info))
            return
        try:
            self._answer(splice(settled, self._server_info))
        except BodyError as error:
            self._answer(fault_parts(bad_result(error), self._server_info))
            raise

    def _pass_on(self, note: ProgressNote) -> None:
        """Relay a note; one that a slow client has no room for, or that is no number, is dropped."""
        if self._is_over or self._sink.is_congested or not math.isfinite(note.progress):
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
        self._sink.write(msgspec.json.encode(message), b"\n")

    def _answer(self, parts: tuple[Part, ...]) -> None:
        self._sink.write(b'{"jsonrpc":"2.0","id":', self._request.id_json, b',"result":', *parts, b"}\n")

    def _end(self) -> None:
        self._is_over = True
        self._on_over(self._request.key)
