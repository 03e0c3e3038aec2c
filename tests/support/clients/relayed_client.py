"""A relay over a child's stdio, blocking and loop-free: what it makes of a real server's lines."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from quarterdeck_protocol.mcp.client import Client, Relay, events
from support.processes.line_child import LineChild


class RelayedClient(LineChild):
    """The child, greeted by a relay; `told` is all that the relay has said and nobody has taken."""

    def __init__(self, argv: Sequence[str], *, max_bytes: int = 64 << 20, **members: Any) -> None:
        """Start the child and greet it.

        Args:
            argv: its command line.
            max_bytes: the largest result.
            members: what else the relay is made with.

        Raises:
            OSError: it cannot be started.
            TimeoutError, PeerClosedError: as `end_of`.
        """
        super().__init__(argv)
        self.told: list[events.Event] = []
        self._last = 0
        self.relay = Relay(Client("relayed", "1"), now=time.monotonic(), max_bytes=max_bytes, **members)
        try:
            self.until(lambda event: isinstance(event, events.Greeted | events.GreetingFailed))
        except BaseException:
            self.close()
            raise

    def request(self, method: str, params: bytes = b"", **members: Any) -> events.Event:
        """The end of a request; see `Relay.request`."""
        self._last += 1
        assert self.relay.request(self._last, method, params, **members) is None
        return self.end_of(self._last)

    def call(self, tool: str, arguments: bytes = b"{}", **members: Any) -> events.Event:
        """The end of a call; see `Relay.call`."""
        self._last += 1
        assert self.relay.call(self._last, tool, arguments, **members) is None
        return self.end_of(self._last)

    def list_all(self, method: str) -> events.Event:
        """The end of a list; see `Relay.list_all`."""
        self._last += 1
        assert self.relay.list_all(self._last, method, time.monotonic()) is None
        return self.end_of(self._last)

    def end_of(self, request_id: int) -> events.Event:
        """How a request ends.

        Raises:
            TimeoutError: it does not end within the deadline.
            PeerClosedError: the child's pipe ended first.
        """
        ends = events.Answered | events.Refused | events.Spoiled | events.Listed | events.ListingFailed
        return self.until(lambda event: isinstance(event, ends) and event.request_id == request_id)

    def until(self, wanted: Callable[[events.Event], bool]) -> events.Event:
        """The first event like this, carrying lines until it is told, and taken out of `told`.

        Raises:
            TimeoutError, PeerClosedError: as `end_of`.
        """
        deadline = time.monotonic() + self.deadline_s
        new = self.told  # of what is told, each is looked at once: a server may flood
        while (found := next(filter(wanted, new), None)) is None:
            self._write_out()
            new = list(self.relay.receive(self.read_line(until=deadline), time.monotonic()))
            self.told += new
        self.told.remove(found)
        self._write_out()
        return found

    def _write_out(self) -> None:
        if lines := self.relay.take():
            self.write(lines)
