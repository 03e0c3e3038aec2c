"""A call under way on the short way, as its caller holds it."""

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
