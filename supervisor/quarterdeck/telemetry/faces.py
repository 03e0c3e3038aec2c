"""Where a process shows what it does: `/metrics` by request and at an address of its own, and OTLP.

What a face needs is imported when it is first used.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from quarterdeck.common.events import Bus
from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import cancelled
from quarterdeck.host.http.options import HttpOptions, listen, split_address
from quarterdeck_protocol.faults import ProtocolFault

if TYPE_CHECKING:
    import socket

    from .metrics import Decks, Metrics

PORT: Final = 9464
"""Where exporters for Prometheus listen by OpenTelemetry's specification."""

_log = logging.getLogger("quarterdeck.telemetry")


def listen_for_scrapes(address: str) -> "tuple[socket.socket, HttpOptions]":
    """Listen for scrapers at `HOST:PORT` on loopback, where no token is asked for.  Blocking.

    Raises:
        ValueError: it is no address.
        ProtocolFault: `transport`: it is not on loopback, or cannot be had.
    """
    bind, port = split_address(address, PORT)
    options = HttpOptions(bind=bind, port=port)
    return listen(options), options


class Telemetry:
    """The faces of one process.

    Attributes:
        url: where metrics are served without a token; empty for nowhere.
        problem: why they are not, as was wished; empty for none.
    """

    def __init__(self, bus: Bus, decks: "Decks") -> None:
        self.url = self.problem = ""
        self._bus = bus
        self._decks = decks
        self._metrics: Metrics | None = None
        self._serving: asyncio.Task[None] | None = None

    async def scrape(self) -> bytes:
        """Return all metrics as text for Prometheus; counting begins with the first call."""
        return await (await self._counting()).scrape()

    async def listen(self, address: str) -> None:
        """Serve metrics at this address, in place of another one; `problem` says why not."""
        try:
            await self.serve_at(*await asyncio.to_thread(listen_for_scrapes, address))
        except (ValueError, ProtocolFault) as error:
            remedy = f"; {error.remedy}" if isinstance(error, ProtocolFault) and error.remedy else ""
            self.problem = f"{error}{remedy}"
            _log.error("no metrics at %s: %s", address, self.problem)

    async def serve_at(self, listener: "socket.socket", options: HttpOptions) -> None:
        """Serve metrics on a listening socket, in place of another one."""
        await self._stop()
        (await self._counting()).begin()
        await imported("quarterdeck.host.http.serve")
        from quarterdeck.host.http.admission import METRICS_PATH
        from quarterdeck.host.http.serve import serve_metrics

        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_started(address: str, port: int) -> None:
            started.set_result(f"http://{f'[{address}]' if ':' in address else address}:{port}{METRICS_PATH}")

        self._serving = asyncio.create_task(serve_metrics(self.scrape, options, listener, on_started), name="metrics")
        waiting: set[asyncio.Future[Any]] = {self._serving, started}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            self.url, self.problem = started.result(), ""
            _log.info("metrics are at %s, for every program of this machine", self.url)
        else:
            self._serving.result()

    async def close(self) -> None:
        """Show nothing any more.  Repeatable."""
        await self._stop()
        if self._metrics is not None:
            await self._metrics.close()

    async def _stop(self) -> None:
        if self._serving is not None:
            await cancelled(self._serving)
            self._serving, self.url = None, ""

    async def _counting(self) -> "Metrics":
        if self._metrics is None:
            await imported("quarterdeck.telemetry.metrics")
            from .metrics import Metrics

            self._metrics = self._metrics or Metrics(self._bus, self._decks)
        return self._metrics
