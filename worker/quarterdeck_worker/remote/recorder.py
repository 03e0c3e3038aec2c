"""What a remote server's HTTP said that the SDK does not pass on, for whoever tells a user of it."""

import secrets
import time
from collections.abc import Callable
from typing import Final

import anyio
import httpx2
import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from quarterdeck_protocol.faults import FaultRecord

from .authorization import wanted_scopes
from .bodies import media_type
from .refusals import Refusal, pause_asked

MAX_KEPT: Final = 1_000
"""Faults that wait for who asks for them: a call that was given up does not."""


class StatusRecorder:
    """What HTTP said that the SDK does not pass on, and the faults of requests that it refused.

    Attributes:
        refusal: the last one; None before the first.
        rejected: set when the session is over, once whoever was told so has heard it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.refusal: Refusal | None = None
        self.rejected = anyio.Event()
        self.is_greeted = False
        self.has_session = False
        self._clock = clock
        self._quiet_until = 0.0
        self._faults: dict[str, FaultRecord] = {}

    @property
    def status(self) -> int | None:
        """The last bad one."""
        return self.refusal.status if self.refusal is not None else None

    def restart(self) -> None:
        """Another transport is tried."""
        self.refusal = None

    def greeted(self, *, has_session: bool) -> None:
        """From here on, what is refused is the fault of one request; with a session, 404 says that it is over."""
        self.is_greeted = True
        self.has_session = has_session

    async def listen(self, response: httpx2.Response) -> None:
        """Remember a bad answer."""
        refusal = refusal_of(response)
        if refusal.status >= 400 or refusal.is_page:
            self.refusal = refusal
            if refusal.pause_s is not None:
                self._quiet_until = self._clock() + refusal.pause_s

    @property
    def pause_left_s(self) -> float:
        """For how long the server still wants to be left alone."""
        return max(0.0, self._quiet_until - self._clock())

    @property
    def wants_credentials(self) -> bool:
        """Whether the server refused us for want of a login."""
        return self.status == 401

    @property
    def is_another_transport(self) -> bool:
        """Whether the refusal is what a legacy SSE server says to a POST."""
        return self.status in (400, 404, 405)

    def keep(self, fault: FaultRecord) -> str:
        """A key for the fault, for the one who is to have it."""
        if len(self._faults) >= MAX_KEPT:
            del self._faults[next(iter(self._faults))]
        key = secrets.token_hex(16)
        self._faults[key] = fault
        return key

    def reply_of(self, fault: FaultRecord) -> bytes:
        """An error reply that brings the fault to whoever asked."""
        error = {"code": INTERNAL_ERROR, "message": fault.message, "data": self.keep(fault)}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})

    def fault_of(self, error: MCPError) -> FaultRecord | None:
        """The fault behind an error reply of ours; None for a server's own."""
        return self._faults.pop(error.error.data, None) if isinstance(error.error.data, str) else None


ENDS_SESSION: Final = frozenset({"auth_needed", "session_gone"})
"""Faults after which no request of the session has a chance."""

BROKEN: Final = frozenset({"connect_failed", "server_lost"})
"""Faults after which it is to be seen whether the server is there at all."""

TRANSIENT: Final = BROKEN | {"rate_limited", "request_timeout", "server_error", "server_unavailable"}
"""Faults that may be over a little later."""


def refusal_of(response: httpx2.Response) -> Refusal:
    """What the head of an answer says."""
    kind = media_type(response)
    asked = response.headers.get("retry-after") if response.status_code in (429, 503) else None
    pause_s = pause_asked(asked, time.time()) if asked is not None else None
    return Refusal(response.status_code, kind, pause_s=pause_s, wanted_scopes=wanted_scopes(response))
