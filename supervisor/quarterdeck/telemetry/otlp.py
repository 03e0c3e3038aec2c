"""Send metrics and traces by OTLP over HTTP, where the configuration or OpenTelemetry's own variables say so.

Nothing waits for the receiver: what it does not take in time is dropped.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from io import BytesIO
from time import monotonic, time_ns
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from quarterdeck.common.shielding import cancelled
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION

from .metrics import Rows
from .tally import CONVENTIONS, Family, Kind
from .tally import Histogram as Counted
from .traces import RequestTracer

INTERVAL_MS: Final = 60_000
"""Between two exports of metrics, by OpenTelemetry's specification."""

CLOSE_S: Final = 2.0
"""How long what is left may take to be sent at the end."""

AGAIN_S: Final = 60.0
"""Before the SDK's next words are logged: it says each retry, and a receiver may be away for days."""

_TALKERS: Final = (OTLPMetricExporter.__module__, OTLPSpanExporter.__module__, "opentelemetry.sdk._shared_internal")

_UNITS: Final = {"s": "_seconds", "By": "_bytes"}
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE

_log = logging.getLogger("quarterdeck.telemetry")

Collect = Callable[[], Awaitable[list[tuple[Family, Rows]]]]


class Otlp:
    """Sends until it is closed.

    Attributes:
        tracer: makes traces of requests; None where only metrics are sent.
    """

    def __init__(self, collect: Collect | None, endpoint: str, *, traces: bool, content: bool) -> None:
        """Begin.

        Args:
            collect: gives metrics; None to send none.
            endpoint: base URL of the receiver; empty for that of the environment, or of the specification.
            traces: whether traces are sent.
            content: see `RequestTracer`.
        """
        base = endpoint.rstrip("/")
        for name in _TALKERS:
            logging.getLogger(name).addFilter(_seldom)  # for good: the SDK's threads may outlive us
        self.tracer: RequestTracer | None = None
        self._resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME") or CLIENT_NAME})
        self._processor: BatchSpanProcessor | None = None
        self._exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        if traces:
            spans = OTLPSpanExporter(f"{base}/v1/traces" if base else None, session=_session())
            self._exporters.append(spans)
            self._processor = BatchSpanProcessor(spans)
            self.tracer = RequestTracer(self._processor, self._resource, CLIENT_VERSION, content=content)
        self._began_ns = time_ns()
        self._exporter: OTLPMetricExporter | None = None
        self._sending: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        if collect is not None:
            self._exporter = OTLPMetricExporter(f"{base}/v1/metrics" if base else None, session=_session())
            self._exporters.append(self._exporter)
            self._sending = asyncio.get_running_loop().create_task(self._send(collect), name="OTLP metrics")

    async def close(self) -> None:
        """Send what is left, as far as that takes less than `CLOSE_S`, and stop."""
        if self._sending is not None:
            await cancelled(self._sending)
        if self.tracer is not None:
            self.tracer.close()
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def end() -> None:
            if self._processor is not None:
                self._processor.force_flush(int(CLOSE_S * 500))
                self._processor.shutdown()  # type: ignore[no-untyped-call]
            if self._exporter is not None:
                self._exporter.shutdown()
            try:
                loop.call_soon_threadsafe(ended.set)
            except RuntimeError:
                pass  # it took too long, and the loop has ended

        # Not in the pool of the loop, whose end waits for all its threads.
        threading.Thread(target=end, daemon=True, name="OTLP end").start()
        try:
            async with asyncio.timeout(CLOSE_S):
                await ended.wait()
        except TimeoutError:
            _log.warning("not all traces and metrics were sent before the end")
            for exporter in self._exporters:
                exporter.shutdown()  # else its threads would go on to try

    async def _send(self, collect: Collect) -> None:
        try:
            pause_s = int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or INTERVAL_MS) / 1000
        except ValueError:
            pause_s = INTERVAL_MS / 1000
        assert self._exporter is not None
        while True:
            await asyncio.sleep(max(pause_s, 0.1))
            if self._thread is not None and self._thread.is_alive():
                continue  # the receiver has not even taken the last ones
            data = self._data_of(await collect())
            self._thread = threading.Thread(
                target=self._exporter.export, args=(data,), daemon=True, name="OTLP metrics"
            )
            self._thread.start()

    def _data_of(self, families: list[tuple[Family, Rows]]) -> MetricsData:
        now = time_ns()
        metrics = [
            Metric(name_of(family), family.help, family.unit, self._points(family, rows, now))
            for family, rows in families
        ]
        scope = InstrumentationScope("quarterdeck", CLIENT_VERSION, CONVENTIONS)
        return MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(scope, metrics, CONVENTIONS)], CONVENTIONS)])

    def _points(self, family: Family, rows: Rows, now: int) -> Sum | Gauge | Histogram:
        began, numbers, histograms = self._began_ns, list[NumberDataPoint](), list[HistogramDataPoint]()
        names = [_attribute(label) for label in family.labels]
        for labels, value in rows.items():
            said = dict(zip(names, labels, strict=True))
            if isinstance(value, Counted):
                counts = list(value.counts)
                histograms.append(
                    HistogramDataPoint(
                        said, began, now, sum(counts), value.total, counts, family.bounds, float("nan"), float("nan")
                    )
                )
            else:
                numbers.append(NumberDataPoint(said, began, now, value))
        if family.kind is Kind.HISTOGRAM:
            return Histogram(histograms, _CUMULATIVE)
        return Sum(numbers, _CUMULATIVE, is_monotonic=True) if family.kind is Kind.COUNTER else Gauge(numbers)


class _HeadsOnly(HTTPAdapter):
    """Reads no body of an answer: a receiver may send one without end, which `requests` would keep."""

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        answer = super().send(request, *args, **options)
        answer.raw.close()
        answer.raw = BytesIO()
        return answer


def _session() -> Session:
    session = Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _HeadsOnly())
    return session


class _Seldom(logging.Filter):
    """Lets one record pass in `AGAIN_S`."""

    _until = float("-inf")

    def filter(self, _: logging.LogRecord) -> bool:
        now = monotonic()
        is_due = now >= self._until
        if is_due:
            self._until = now + AGAIN_S
        return is_due


_seldom: Final = _Seldom()


def name_of(family: Family) -> str:
    """A metric's name as OpenTelemetry has it: without what Prometheus adds to it."""
    short = family.name.removesuffix("_total").removesuffix(_UNITS.get(family.unit, "_"))
    return family.otel or short.replace("quarterdeck_", "quarterdeck.", 1)


def _attribute(label: str) -> str:
    known = {"mcp_method_name", "gen_ai_tool_name", "error_type", "network_transport"}
    dotted = label.replace("gen_ai", "gen-ai").replace("_", ".").replace("gen-ai", "gen_ai")
    return dotted if label in known else f"quarterdeck.{label}"
