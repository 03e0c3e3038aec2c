"""What metrics and traces cost a call, by turns with neither: one product in this process, whose faces are switched.

A client's lines go in and answers come out without a carrier, which would only hide what a face costs.
"""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from time import perf_counter, thread_time
from typing import Any, Final

from support.config.places import row, short_folder, write_config
from support.serves.products import ProductEndpoint, product_of

from quarterdeck.app import open_quarterdeck
from quarterdeck.common.events import Bus, CallEnded
from quarterdeck.config.load.own_keys import TelemetryKey
from quarterdeck.config.settings import Settings
from quarterdeck.host.session.session import Session
from quarterdeck.telemetry.faces import Telemetry
from quarterdeck.telemetry.metrics import CACHED_S, Metrics
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.server.session import ServerSession
from quarterdeck_protocol.tools import CancelToken, Client

from .finding import Finding, Target
from .peers import ECHO, ECHO_NAME, TEXT
from .rounds import Call, Effort, Sample, Table, alternate, p50_of, rate_of, repeat

METRICS_P50: Final = Target(required=1.01)
TRACES_P50: Final = Target(required=1.03)
METRICS_RATE: Final = Target(required=1 / 1.01, more_is_better=True)
TRACES_RATE: Final = Target(required=1 / 1.03, more_is_better=True)

SCRAPE: Final = Target(required=50.0)
TURN: Final = Target(required=5.0)
SERVERS: Final = 200

CALLS_AT_ONE: Final = 150
CALLS_AT_MANY: Final = 1500
MANY: Final = 100

_GREETING: Final = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}'
)


async def measure(effort: Effort) -> list[Finding]:
    table = await repeat(effort.repeats, lambda: _compare(effort.rounds))
    off_ms, metrics_ms, traces_ms, off_rate, metrics_rate, traces_rate = table
    return [
        Finding.of_rounds("call with metrics on, p50", "ms", METRICS_P50, metrics_ms, off_ms),
        Finding.of_rounds("call with metrics and traces on, p50", "ms", TRACES_P50, traces_ms, off_ms),
        Finding.of_rounds(f"{MANY} at once with metrics on", "calls/s", METRICS_RATE, metrics_rate, off_rate),
        Finding.of_rounds(f"{MANY} at once with metrics and traces on", "calls/s", TRACES_RATE, traces_rate, off_rate),
        *await _scrapes(effort.rounds),
    ]


async def _scrapes(rounds: int) -> list[Finding]:
    """Scrapes of servers in memory, each with a tool that was called, and the longest turn of the loop meanwhile."""
    bus, took_ms, longest_ms = Bus(), list[float](), list[float]()
    servers = [ProductEndpoint(f"server{number}") for number in range(SERVERS)]
    with short_folder() as folder, product_of(folder, *servers) as product:
        metrics = Metrics(bus, lambda: [("key", "user", product)])
        metrics.begin()
        for server in servers:
            told = {"deck": "key", "server": server.config.id, "tool": "read", "method": "tools/call"}
            bus.tell(CallEnded(outcome="ok", delivery="answered", queued_s=0.1, woke_s=1.0, took_s=0.2, **told))
        await metrics.scrape()
        for _ in range(3 * rounds):
            await asyncio.sleep(CACHED_S)
            turns = asyncio.create_task(_longest_turn())
            began = perf_counter()
            await metrics.scrape()
            took_ms.append((perf_counter() - began) * 1000)
            turns.cancel()
            longest_ms.append(await turns)
        await metrics.close()
    return [
        Finding(f"scrape of {SERVERS} servers", "ms", SCRAPE, median(took_ms)),
        Finding("longest turn of the loop meanwhile", "ms", TURN, median(longest_ms)),
    ]


async def _longest_turn() -> float:
    """The longest time that a turn of the loop computed, in milliseconds, until cancelled: a busy machine adds none."""
    longest, at = 0.0, thread_time()
    try:
        while True:
            await asyncio.sleep(0)
            longest, at = max(longest, thread_time() - at), thread_time()
    except asyncio.CancelledError:
        return longest * 1000


async def _compare(rounds: int) -> Table:
    bus = Bus()
    with _receiver() as url:
        async with _call(bus) as (call, product):

            @asynccontextmanager
            async def nothing() -> AsyncIterator[None]:
                yield

            @asynccontextmanager
            async def metrics() -> AsyncIterator[None]:
                found = Metrics(bus, lambda: [("", "", product)])
                found.begin()
                yield
                await found.close()

            @asynccontextmanager
            async def traces() -> AsyncIterator[None]:
                faces = Telemetry(bus, lambda: [("", "", product)])
                await faces.send(TelemetryKey(otlp=url), {})
                yield
                await faces.close()

            ways = (nothing, metrics, traces)
            return [
                *await alternate(rounds, *(_within(way, p50_of(call, CALLS_AT_ONE)) for way in ways)),
                *await alternate(rounds, *(_within(way, rate_of(call, CALLS_AT_MANY, MANY)) for way in ways)),
            ]


def _within(way: Callable[[], Any], sample: Sample) -> Sample:
    async def within() -> float:
        async with way():
            return await sample()

    return within


class _Outlet:
    """Takes answers."""

    is_congested = False

    def __init__(self) -> None:
        self.answered: dict[object, asyncio.Future[None]] = {}

    async def room(self) -> None:
        pass

    def tell(self, message: bytes) -> None:
        pass

    def keep(self, size: int) -> str:
        return ""

    def answer(self, request: Request, parts: tuple[Any, ...], code: int) -> None:
        assert b"xxxx" in b"".join(parts) or request.method == "initialize", b"".join(parts)
        if (waiting := self.answered.pop(request.key, None)) is not None:
            waiting.set_result(None)

    def drop(self, request: Request) -> None:
        pass


@asynccontextmanager
async def _call(bus: Bus) -> AsyncIterator[tuple[Call, Any]]:
    with short_folder() as folder:
        settings = Settings.load([write_config(folder / "servers.json", **{ECHO: row(ECHO)})])
        async with open_quarterdeck(settings, bus=bus) as product:
            await product.finished()
            host = product.create_host()
            loop, outlet = asyncio.get_running_loop(), _Outlet()
            core = ServerSession(loop.call_soon)
            session = Session(host, Client(is_local=True), core, CancelToken(), outlet=outlet)
            numbers = itertools.count(1)

            def ask(line: bytes) -> None:
                request = core.receive(line)
                assert isinstance(request, Request), request
                session.serve(request, outlet)

            ask(_GREETING)
            core.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            head = f'"method":"tools/call","params":{{"name":"{ECHO_NAME}","arguments":{{"text":"{TEXT}"}}}}}}'.encode()

            def call() -> Awaitable[None]:
                number = next(numbers)
                waiting = outlet.answered[number] = loop.create_future()
                ask(b'{"jsonrpc":"2.0","id":%d,%b' % (number, head))
                return waiting

            yield call, product
            session.leave()
            host.close()


@contextmanager
def _receiver() -> Iterator[str]:
    """Take everything, in a thread: most of what it costs is the sender's."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
