"""The calls of one server, each begun when `core.turns` gives it to the server.

Above it the server's gate, where every call begins and which says what beginning one is.
"""

import asyncio
import logging
from collections.abc import Hashable
from math import inf
from time import monotonic
from typing import Final, Protocol

from quarterdeck_protocol.faults import FaultKind, ProtocolFault

from .core.turns import MAX_WAITING, MAX_WAITING_BYTES, Place, Turns

_REFUSALS: Final = {
    Place.TOO_MANY: f"{MAX_WAITING:,} calls of this client wait for the server already",
    Place.TOO_LARGE: f"the calls of this client that wait for the server hold {MAX_WAITING_BYTES:,} bytes already",
}

_LIMITS: Final = {Place.TOO_MANY: "calls that wait", Place.TOO_LARGE: "bytes that wait"}

DEADLINE: Final = "time to wait"
"""The limit that a call meets whose turn does not come before its deadline."""

_RESOLUTION_S: Final = 0.001
"""Of the loop's timers, which may come early by as much."""

_log = logging.getLogger("quarterdeck.fleet")


class QueuedCall(Hashable, Protocol):
    """A call that can wait for its turn; told apart by identity."""

    def start(self) -> None:
        """Begin it: it has its turn."""

    def fail(self, fault: ProtocolFault) -> None:
        """End it: it has none."""


class CallQueue:
    """See the module.  Times are those of the loop, monotonic."""

    def __init__(self) -> None:
        """No call is under way."""
        self._turns: Turns[QueuedCall] = Turns()
        self._refused = dict.fromkeys((*_LIMITS.values(), DEADLINE), 0)
        self._giving: asyncio.Handle | None = None
        self._expiring: asyncio.TimerHandle | None = None

    def add(self, client: Hashable, call: QueuedCall, size_bytes: int, until: float) -> ProtocolFault | None:
        """Start a call of `client` now, or when it has its turn; why not, where too much waits already.

        One that still waits at `until` is failed.  Each that was not refused is to `leave`, once.
        """
        place = self._turns.ask(client, call, size_bytes, until)
        if place is Place.GIVEN:
            try:
                call.start()
            except BaseException:
                self.leave(call)
                raise
        elif place is Place.WAITS:
            self._expire_at(until)
        else:
            self._refused[_LIMITS[place]] += 1
            return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, _REFUSALS[place], "busy")
        return None

    def leave(self, call: QueuedCall, answered_at: float | None = None) -> None:
        """A call has ended, or was given up; its place is another's with the loop's next turn.  Harmless when repeated.

        `answered_at` is when the server gave its result; None for any other end.

        Not at once: a server that is lost ends all its calls, and only then is known to be lost.
        """
        self._turns.end(call, answered_at)
        self._give_soon()

    def asks_client(self, call: QueuedCall) -> None:
        """The call's server has asked its client something: see `Turns.asks_client`."""
        self._turns.asks_client(call)
        self._give_soon()

    def is_answered(self, call: QueuedCall) -> None:
        """The server goes on with the call."""
        self._turns.is_answered(call)

    def be_exclusive(self) -> None:
        """From now on have calls of one client at a time; see `Turns.be_exclusive`."""
        self._turns.be_exclusive()

    @property
    def is_exclusive(self) -> bool:
        """Whether it has calls of one client at a time."""
        return self._turns.is_exclusive

    @property
    def load(self) -> tuple[int, int]:
        """How many calls the server has, and how many wait for it."""
        return self._turns.given, self._turns.waiting

    @property
    def refused(self) -> dict[str, int]:
        """Which limit refused how many calls, those that did."""
        return {limit: count for limit, count in self._refused.items() if count}

    def waiting_of(self, client: Hashable) -> int:
        """How many calls of this client wait."""
        return self._turns.waiting_of(client)

    def _give_soon(self) -> None:
        if self._giving is None and self._turns.waiting:
            self._giving = asyncio.get_running_loop().call_soon(self._give)

    def _give(self) -> None:
        self._giving = None
        for call in self._turns.give():
            try:
                call.start()
            except Exception as error:
                # Ours to mend; whoever asked would wait for ever.
                _log.exception("a call that had waited could not begin")
                call.fail(ProtocolFault.not_sent(FaultKind.TOOL_ERROR, f"the call could not begin: {error}", "closed"))

    def _expire_at(self, when: float) -> None:
        if self._expiring is not None:
            if self._expiring.when() <= when:
                return
            self._expiring.cancel()
        self._expiring = asyncio.get_running_loop().call_at(when, self._expire)

    def _expire(self) -> None:
        self._expiring = None
        for call in self._turns.expire(monotonic() + _RESOLUTION_S):
            self._refused[DEADLINE] += 1
            words = "its deadline passed while it waited for others to end"
            call.fail(ProtocolFault.not_sent(FaultKind.TIMEOUT, words, "busy"))
        if (when := self._turns.expires_at) < inf:
            self._expire_at(when)
