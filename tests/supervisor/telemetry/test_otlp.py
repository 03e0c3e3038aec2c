"""What goes to a receiver of OTLP, and that a bad receiver stops nothing."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.serves.products import ProductEndpoint, product_of
from support.waiting import until

from quarterdeck.common.events import Bus, CallEnded
from quarterdeck.config.load.own_keys import NO_TELEMETRY, TelemetryKey
from quarterdeck.telemetry import otlp
from quarterdeck.telemetry.faces import Telemetry
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.tools import ANONYMOUS, WireResult

pytestmark = pytest.mark.process

FS = StdioServerConfig(id="fs", command="fs")
DONE = WireResult(b"{}", "2025-11-25")


class Receiver(ThreadingHTTPServer):
    """Takes what is sent, or behaves badly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: dict[str, list[bytes]] = {}
        self.answer = b""
        self.status = 200
        self.is_endless = False
        self.is_left = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.setdefault(self.path, []).append(body)
        self.server.may_answer.wait(30)
        self.send_response(self.server.status)
        self.send_header("location", "/again")
        self.end_headers()
        try:
            self.wfile.write(self.server.answer)
            while self.server.is_endless:
                self.wfile.write(self.server.answer)
        except OSError:
            self.server.is_left.set()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.may_answer.set()
        server.shutdown()


def trace_one(bus: Bus) -> None:
    assert bus.tracer is not None
    trace = bus.tracer.begin(Request(7, b"7", "tools/call", "2025-11-25", "fs__read"), ANONYMOUS, str)
    assert trace is not None
    trace.sent(b"")
    trace.left(FS, "read", monotonic(), None, monotonic(), DONE)
    trace.ended(DONE)


async def test_traces_and_metrics_arrive_by_the_users_own_file(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A team's collector would get nothing, or what it cannot read."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    bus = Bus()
    with product_of(tmp_path, ProductEndpoint("fs")) as product:
        telemetry = Telemetry(bus, lambda: [("key", "user", product)])
        await telemetry.send(TelemetryKey(otlp=receiver.url), {})
        bus.tell(
            CallEnded(
                deck="key",
                server="fs",
                tool="read",
                method="tools/call",
                outcome="ok",
                delivery="answered",
                took_s=0.25,
            )
        )
        trace_one(bus)
        await until(
            lambda: any(b"mcp.client.operation.duration" in each for each in receiver.taken.get("/v1/metrics", ()))
        )
        await telemetry.close()
    assert (bus.tracer, bus.is_heard) == (None, False)
    [spans] = map(ExportTraceServiceRequest.FromString, receiver.taken["/v1/traces"])
    names = [span.name for span in spans.resource_spans[0].scope_spans[0].spans]
    assert sorted(names) == ["queue", "tools/call fs__read", "tools/call read", "worker"]
    [found] = map(ExportMetricsServiceRequest.FromString, receiver.taken["/v1/metrics"][-1:])
    metrics = {each.name: each for each in found.resource_metrics[0].scope_metrics[0].metrics}
    [point] = metrics["mcp.client.operation.duration"].histogram.data_points
    said = {each.key: each.value.string_value for each in point.attributes}
    assert (point.count, point.sum, metrics["mcp.client.operation.duration"].unit) == (1, 0.25, "s")
    assert said["gen_ai.tool.name"] == "read"
    assert said["quarterdeck.server"] == "fs"
    assert metrics["quarterdeck.calls"].sum.is_monotonic
    assert {"quarterdeck.servers", "quarterdeck.queue_wait"} <= metrics.keys()


@pytest.mark.parametrize("kind", ["away", "slow", "lying"])
async def test_a_receiver_that_is_away_slow_or_lies_stops_nothing(
    kind: str, receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls would wait for a collector, or the end of the daemon for its time-outs."""
    monkeypatch.setattr(otlp, "CLOSE_S", 0.2)
    bus, url = Bus(), receiver.url
    if kind == "away":
        url = "http://127.0.0.1:1"
    elif kind == "slow":
        receiver.may_answer.clear()
    else:
        receiver.answer, receiver.status = b"\xff" * 1000, 200
    telemetry = Telemetry(bus, list)
    await telemetry.send(TelemetryKey(otlp=url), {})
    for _ in range(15):
        trace_one(bus)
    async with asyncio.timeout(5.0):
        await telemetry.close()
    assert bus.tracer is None
    assert len([each for each in caplog.records if each.name.startswith("opentelemetry")]) <= 1, (
        "the log stays readable"
    )
    receiver.may_answer.set()
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith(("Otel", "OTLP"))])


@pytest.mark.parametrize("status", [200, 307])
async def test_an_answer_without_end_is_not_read(status: int, receiver: Receiver) -> None:
    """A collector that is not what it seems would fill the daemon's memory, by gigabytes in seconds."""
    receiver.answer, receiver.status, receiver.is_endless = b"x" * 65536, status, True
    bus = Bus()
    telemetry = Telemetry(bus, list)
    await telemetry.send(TelemetryKey(otlp=receiver.url), {})
    trace_one(bus)
    try:
        closing = asyncio.create_task(telemetry.close())
        assert await asyncio.to_thread(receiver.is_left.wait, 10.0)
    finally:
        receiver.is_endless = False
        await closing


async def test_nothing_is_sent_unless_somebody_says_so(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """A program that is run beside a collector would tell it what an agent does, unasked."""
    for environ in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}, {"OTEL_TRACES_EXPORTER": "console"}):
        bus = Bus()
        telemetry = Telemetry(bus, list)
        await telemetry.send(NO_TELEMETRY, environ)
        assert (bus.tracer, bus.is_heard) == (None, False)
        await telemetry.close()
    disabled = {"OTEL_SDK_DISABLED": "true"}
    await telemetry.send(TelemetryKey(otlp=receiver.url), disabled)
    assert bus.tracer is None
