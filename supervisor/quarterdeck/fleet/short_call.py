"""A call on the short way, as its caller holds it: under way, or refused."""

import asyncio
from dataclasses import dataclass

from quarterdeck.fleet.handle import WorkerHandle


@dataclass(frozen=True, slots=True)
class EndpointCall:
    """See `ShortCall`."""

    handle: WorkerHandle
    request_id: int

    def cancel(self, reason: str = "") -> None:
        """Give up: the server is told, nothing is delivered any more."""
        self.handle.cancel(self.request_id, reason)


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """See `ShortCall`; it never left, and the loop's next turn delivers why."""

    delivery: asyncio.Handle

    def cancel(self, reason: str = "") -> None:  # noqa: ARG002 - there is nobody to tell
        """Give up: nothing is delivered any more."""
        self.delivery.cancel()
