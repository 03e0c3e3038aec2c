"""Log what becomes of servers while a `serve` runs: ready, dead, started again, left alone."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from quarterdeck.app import Product
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase

_log = logging.getLogger("quarterdeck.serve")


@contextmanager
def changes_logged(product: Product) -> Iterator[None]:
    """Log each change of any server's phase or number of tools inside the block, and once how the broken ones are."""
    seen: dict[str, tuple[EndpointPhase, ProtocolFault | None, int]] = {}

    def look() -> None:
        for server, status in product.status().items():
            now = (status.phase, status.fault, status.tool_count)
            if seen.get(server) != now:
                seen[server] = now
                _tell(status)

    look()
    unwatch = product.approvals.watch(look)
    try:
        yield
    finally:
        unwatch()


def _tell(status: EndpointStatus) -> None:
    if status.phase is EndpointPhase.READY:
        restarts = f", restarts: {status.restarts}" if status.restarts else ""
        # None before its first list has come, which is the next change.
        tools = f", tools: {status.tool_count}" if status.tool_count else ""
        _log.info("%s is ready (pid %s%s%s)", status.server, status.pid, tools, restarts)
    elif status.phase is EndpointPhase.FAULTED and status.fault is not None:
        fault, server = status.fault, status.server
        code, remedy = fault.code or fault.kind, fault.remedy_for(server)
        _log.warning("%s is faulted: %s (%s): %s", server, fault.message, code, remedy)
