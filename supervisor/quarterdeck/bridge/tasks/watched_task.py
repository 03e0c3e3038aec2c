"""A task that a stream of its client tells of: looked at until it has ended, each state that is another one told."""

import asyncio
from collections.abc import Callable

from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.task_eras import ENDED, LONGEST_POLL_S, read_state
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall

from .chain import Pace
from .page import GONE


class WatchedTask:
    """See the module."""

    def __init__(
        self,
        look: RawRequest,
        begin: Callable[[RawRequest, Deliver], PendingCall],
        tell: Callable[[bytes], None],
        pace: Pace,
    ) -> None:
        """Begin to look.

        Args:
            look: the client's own request for the state.
            begin: makes it.
            tell: takes a state, one JSON object.
            pace: of all tasks that are looked at.
        """
        self._look = look
        self._begin = begin
        self._tell = tell
        self._pace = pace
        self._told = b""
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        pace.active += 1
        self._pending: PendingCall | None = begin(look, self._take)

    def look_now(self) -> None:
        """Its server says that it is another one."""
        if self._timer is not None:
            self._timer.cancel()
            self._again()

    def close(self) -> None:
        """Look no more; repeatable."""
        if not self._is_over:
            self._is_over = True
            self._pace.active -= 1
            if self._timer is not None:
                self._timer.cancel()
            if self._pending is not None:
                self._pending.cancel("nobody listens any more")

    def _again(self) -> None:
        self._timer = None
        self._pending = self._begin(self._look, self._take)

    def _take(self, end: CallEnd) -> None:
        if self._is_over:
            return
        self._pending = None
        wish_s = LONGEST_POLL_S
        if isinstance(end, ProtocolFault):
            if end.code in GONE or end.reply is not None:
                self.close()
                return
        else:
            try:
                state = read_state(end.body)
            except BodyError:
                self.close()
                return
            if end.body != self._told:
                self._told = end.body
                self._tell(end.body)
            if state.status in ENDED:
                self.close()
                return
            wish_s = state.poll_s
        self._timer = asyncio.get_running_loop().call_later(self._pace.delay_s(wish_s), self._again)
