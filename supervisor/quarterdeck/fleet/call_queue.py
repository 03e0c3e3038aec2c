"""The calls of one server, each begun when `core.turns` gives it to the server."""

import asyncio
import logging
from collections.abc import Hashable
from math import inf
from time import monotonic
from typing import Final, Protocol

from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.tools import Client

from .core.long_waits import TOLD_AFTER_S, LongWaits
from .core.turns import GIVEN, MAX_WAITING, MAX_WAITING_BYTES, Place, Turns

_REFUSALS: Final = {
    Place.TOO_MANY: f"{MAX_WAITING:,} calls of this client wait for the server already",
    Place.TOO_LARGE: f"the calls of this client that wait for the server hold {MAX_WAITING_BYTES:,} bytes already",
}

_LIMITS: Final = {Place.TOO_MANY: "calls that wait", Place.TOO_LARGE: "bytes that wait"}

DEADLINE: Final = "time to wait"
"""The limit that a call meets whose turn does not come before its deadline."""

_RESOLUTION_S: Final = 0.001
"""Seconds by which the loop's timers may come early."""

_log = logging.getLogger("quarterdeck.fleet")


class QueuedCall(Hashable, Protocol):
    """A call that can wait for its turn; told apart by identity."""

    def start(self) -> None:
        """Begin it: it has its turn."""

    def fail(self, fault: ProtocolFault) -> None:
        """End it: it has none."""


class CallQueue(Turns[QueuedCall]):
    """The calls of one server. Times come from the loop's monotonic clock.

    Attributes:
        asked: the client during whose call the server first asked a question, or None.
        speaks_newer: whether it speaks 2026-07-28 besides the legacy era; None while unknown.
        prefers_newer: whether its process must speak 2026-07-28 if it can.
    """

    def __init__(self, server: str = "") -> None:
        super().__init__()
        self.asked: Client | None = None
        self.is_used = False
        self.speaks_newer: bool | None = None
        self.prefers_newer = False
        self._server = server
        self._waits: LongWaits[QueuedCall] = LongWaits()
        self._telling: asyncio.TimerHandle | None = None
        self._refused = dict.fromkeys((*_LIMITS.values(), DEADLINE), 0)
        self._giving: asyncio.Handle | None = None
        self._expiring: asyncio.TimerHandle | None = None

    def add(self, client: Hashable, call: QueuedCall, size_bytes: int, until: float) -> ProtocolFault | None:
        """Start a call of `client` now or at its turn; return why not if too much waits already.

        A call that still waits at `until` is failed. Each call that was not refused must `leave`, once.
        """
        place = self.ask(client, call, size_bytes, until)
        if place is GIVEN:
            try:
                call.start()
            except BaseException:
                self.leave(call)
                raise
        elif place is Place.WAITS:
            self._expire_at(until)
            self._has_to_wait(call)
        else:
            self._refused[_LIMITS[place]] += 1
            return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, _REFUSALS[place], "busy")
        return None

    def leave(self, call: QueuedCall, answered_at: float | None = None) -> None:
        """End a call and give its place away in the loop's next turn; harmless when repeated. Not at once: a lost
        server ends all its calls, and only then is known to be lost. `answered_at` is when the server gave its result;
        None for any other end.
        """
        self.end(call, answered_at)
        if self._waits:
            self._waits.pop(call, None)
        if self._places and self._giving is None:
            self._giving = asyncio.get_running_loop().call_soon(self._give)

    def note_question(self, client: Client) -> None:
        """Remember that the server asks its clients, and the client of its first question."""
        if self.asked is None:
            self.asked = client
            _log.info("%s asks its clients: each session has a process of its own from now on", self._server)

    def wait_for_start(self, call: QueuedCall) -> None:
        """Count a call that has its turn as waiting until `has_started`: its server is still starting."""
        self._has_to_wait(call, is_start=True)

    def has_started(self, call: QueuedCall) -> None:
        """Stop counting a call as waiting: its server has it."""
        if self._waits:
            self._waits.pop(call, None)

    @property
    def long_waits(self) -> str:
        """Return which clients wait longer than `TOLD_AFTER_S` and why, for people; empty if no call does."""
        return self._waits.words(self._server, monotonic(), self.given)

    @property
    def load(self) -> tuple[int, int]:
        """The numbers of calls that the server has, and that wait for it."""
        return self.given, self.waiting

    @property
    def refused(self) -> dict[str, int]:
        """The number of calls that each limit refused, for limits that did."""
        return {limit: count for limit, count in self._refused.items() if count}

    def _give(self) -> None:
        self._giving = None
        for call in self.give():
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
        for call in self.expire(monotonic() + _RESOLUTION_S):
            self._waits.pop(call, None)
            self._refused[DEADLINE] += 1
            words = "its deadline passed while it waited for others to end"
            call.fail(ProtocolFault.not_sent(FaultKind.TIMEOUT, words, "busy"))
        if (when := self.expires_at) < inf:
            self._expire_at(when)

    def _has_to_wait(self, call: QueuedCall, *, is_start: bool = False) -> None:
        self._waits.begin(call, monotonic(), is_start=is_start)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(TOLD_AFTER_S, self._tell_waits)

    def _tell_waits(self) -> None:
        self._telling = None
        now = monotonic() + _RESOLUTION_S
        if self._waits.is_news(now):
            _log.warning("%s", self._waits.words(self._server, now, self.given))
        if self._waits:
            self._telling = asyncio.get_running_loop().call_later(TOLD_AFTER_S, self._tell_waits)
