"""Requests of the server's: answered at once, or kept for our caller's answer, counted and with a deadline.  Pure."""

from typing import Final

from msgspec import Raw

from quarterdeck_protocol.limits import Deadlines
from quarterdeck_protocol.mcp import jsonrpc

from .events import Asked
from .lines import error_line, result_line

MAX_ASKS: Final = 64
"""Of a server's requests at once: a person answers them one by one."""

ASK_S: Final = 300.0
"""How long a request of the server's may wait for its answer, which a person may have to give."""

MAX_ASK_BYTES: Final = 8 * 1024 * 1024
"""Of a server's request: a conversation to be sampled from, with images in it."""

MAX_ID_CHARS: Final = 256
"""Of an id that the server chose: it is kept, and sent back."""

UNKNOWN_METHOD: Final = "this client did not declare that capability"

ServerId = int | str


class Asks:
    """See the module.  A request has two ids: the server's own, and ours (`ask_id`), which is never used twice."""

    def __init__(self, offers: frozenset[str]) -> None:
        self._offers = offers
        self._last = 0
        self.deadlines = Deadlines()
        """When a request has waited too long, by our ids."""
        self._theirs: dict[int, ServerId] = {}
        self._ours: dict[ServerId | None, int] = {}

    def receive(self, method: str, server_id: ServerId, params: Raw, now: float, *, may_ask: bool) -> Asked | bytes:
        """What the caller is to answer, or the line that answers it at once; a server that may not ask may ping."""
        if method == "ping":
            return result_line(server_id, b"{}")
        if not may_ask or method not in self._offers:
            return error_line(server_id, jsonrpc.METHOD_NOT_FOUND, UNKNOWN_METHOD)
        key = jsonrpc.correlation_key(server_id)
        if len(self._theirs) >= MAX_ASKS or key in self._ours:
            return error_line(server_id, jsonrpc.INVALID_REQUEST, "too many requests at once, or two with one id")
        try:
            checked = jsonrpc.params_without_envelope(
                jsonrpc.checked_object(bytes(params or b"{}"), max_bytes=MAX_ASK_BYTES)
            )
        except jsonrpc.BodyError as problem:
            return error_line(server_id, jsonrpc.INVALID_REQUEST, f"the params cannot be passed on: {problem}")
        self._last += 1
        self._theirs[self._last] = server_id
        self._ours[key] = self._last
        self.deadlines.add(self._last, now + ASK_S)
        return Asked(self._last, method, checked)

    def end(self, ask_id: int) -> ServerId | None:
        """Forget a request, and give the server's id of it; None when it has ended already."""
        server_id = self._theirs.pop(ask_id, None)
        if server_id is not None:
            del self._ours[jsonrpc.correlation_key(server_id)]
            self.deadlines.remove(ask_id)
        return server_id

    def cancelled(self, server_id: ServerId | None) -> int | None:
        """Forget a request that the server gave up, and give our id of it; None when there is none."""
        ask_id = self._ours.get(jsonrpc.correlation_key(server_id))
        if ask_id is not None:
            self.end(ask_id)
        return ask_id
