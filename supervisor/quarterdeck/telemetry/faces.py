"""Where a process shows what it does: `/metrics` by request and at an address of its own, and OTLP.

What a face needs is imported when it is first used.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from quarterdeck.common.events import Bus
from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import cancelled
from quarterdeck.config.load.own_keys import TelemetryKey
from quarterdeck.host.http.options import HttpOptions, listen, split_address
from quarterdeck_protocol.faults import ProtocolFault

if TYPE_CHECKING:
    import socket

    from .metrics import Decks, Metrics
    from .otlp import Otlp

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


NOWHERE: Final = "none"
"""As `OTEL_TRACES_EXPORTER` for nowhere: unlike with other programs, ours without it."""


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
        self._otlp: Otlp | None = None

    async def send(self, told: TelemetryKey, environ: Mapping[str, str]) -> None:
        """Send traces and metrics by OTLP, if the user's file or OpenTelemetry's variables say so."""
        asked = {
            signal: bool(told.otlp) or "otlp" in environ.get(f"OTEL_{signal}_EXPORTER", NOWHERE).split(",")
            for signal in ("TRACES", "METRICS")
        }
        if not any(asked.values()) or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return
        try:
            await imported("quarterdeck.telemetry.otlp")
        except ImportError as error:
            _log.error("no OTLP: %s: install quarterdeck[otel]", error)
            return
        from .otlp import Otlp

        metrics = await self._counting() if asked["METRICS"] else None
        if metrics is not None:
            metrics.begin()
        collect = metrics.collect if metrics is not None else None
        self._otlp = Otlp(collect, told.otlp, traces=asked["TRACES"], content=told.content)
        self._bus.tracer = self._otlp.tracer
        _log.info("traces and metrics go to %s by OTLP", told.otlp or "where the environment says")

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
        self._bus.tracer = None
        if self._otlp is not None:
            await self._otlp.close()
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
