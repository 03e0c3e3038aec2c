"""The text of /metrics, as another program reads it."""

import asyncio
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.serves.products import ProductEndpoint, product_of
from support.waiting import until

from quarterdeck.common.events import Bus, CallEnded
from quarterdeck.ledger.events.events import Subject
from quarterdeck.running_product import Product
from quarterdeck.telemetry import metrics as module
from quarterdeck.telemetry.metrics import Metrics
from quarterdeck_protocol.configs import StreamableHttpServerConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_sandbox import Usage

HOSTILE = 'a"b\\c\nd{}</script>\u202e'


def of(*products: Product) -> Any:
    return lambda: [(f"key{number}", f"deck{number}", product) for number, product in enumerate(products)]


def read(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples by name and by the values of their labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = tuple(sample.labels.values())
            assert labels not in found.setdefault(sample.name, {}), "Prometheus refuses a scrape with one twice"
            found[sample.name][labels] = sample.value
    return found


async def test_what_is_served_is_prometheus_text_whatever_names_hold(tmp_path: Path) -> None:
    """One tool's name would end all metrics, or forge a figure."""
    remote = ProductEndpoint("far")
    remote.config = StreamableHttpServerConfig(id="far", url="https://far.example/mcp")
    bus = Bus()
    with product_of(
        tmp_path, ProductEndpoint("fs"), remote, ProductEndpoint("bad", phase=EndpointPhase.FAULTED)
    ) as product:
        metrics = Metrics(bus, of(product))
        try:
            metrics.begin()
            for server, tool in (("fs", HOSTILE), ("far", "read"), ("fs", HOSTILE)):
                bus.tell(
                    CallEnded(
                        deck="key0",
                        server=server,
                        tool=tool,
                        method="tools/call",
                        outcome="ok",
                        delivery="answered",
                        took_s=0.25,
                        transport="tcp",
                    )
                )
            found = read(await metrics.scrape())
        finally:
            await metrics.close()
    assert found["quarterdeck_servers"][("ready",)] == 2
    assert found["quarterdeck_servers"][("faulted",)] == 1
    assert found["quarterdeck_calls_total"] == {
        ("deck0", "fs", "ok", "answered"): 2,
        ("deck0", "far", "ok", "answered"): 1,
    }
    operation = "mcp_client_operation_duration_seconds"
    hostile, plain = ("deck0", "fs", "tools/call", HOSTILE, ""), ("deck0", "far", "tools/call", "read", "")
    assert found[f"{operation}_sum"] == {(*hostile, "pipe"): 0.5, (*plain, "tcp"): 0.25}
    assert found[f"{operation}_count"] == {(*hostile, "pipe"): 2, (*plain, "tcp"): 1}
    assert found[f"{operation}_bucket"][(*hostile, "pipe", "0.2")] == 0
    assert found[f"{operation}_bucket"][(*hostile, "pipe", "0.5")] == 2
    assert found[f"{operation}_bucket"][(*hostile, "pipe", "+Inf")] == 2
    assert not bus.is_heard, "a closed face costs nothing"


async def test_what_is_held_and_used_is_told_by_server_and_once_where_decks_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alert on held tools would never fire; or memory be counted once for each deck."""
    busy = ProductEndpoint("fs")
    busy.pid = os.getpid()
    use: Any = SimpleNamespace(watch=SimpleNamespace(present=Usage(4096, 1, 1.5)), status=None)
    busy.confined = use
    with product_of(tmp_path, busy) as one, product_of(tmp_path, busy) as other:
        monkeypatch.setattr(one.approvals, "held_of", lambda _: Counter({Subject.TOOL: 3}))
        monkeypatch.setattr(type(one.approvals), "held_launches", ("fs",))
        metrics = Metrics(Bus(), of(one, other))
        found = read(await metrics.scrape())
        await metrics.close()
    assert found["quarterdeck_server_memory_bytes"] == {("deck0", "fs"): 4096}
    assert found["quarterdeck_server_cpu_seconds_total"] == {("deck0", "fs"): 1.5}
    assert found["quarterdeck_servers"][("ready",)] == 1
    assert found["quarterdeck_held"] == {
        ("deck0", "fs", "tool"): 3,
        ("deck0", "fs", "launch"): 1,
        ("deck1", "fs", "launch"): 1,
    }


async def test_decks_of_one_configuration_have_figures_of_their_own(tmp_path: Path) -> None:
    """Calls would be missing where two clients have different environments, or a scrape have a row twice."""
    bus = Bus()
    with product_of(tmp_path, ProductEndpoint("fs")) as one, product_of(tmp_path, ProductEndpoint("fs")) as other:
        metrics = Metrics(bus, lambda: [("key0", "user", one), ("key1", "user", other)])
        metrics.begin()
        for deck in ("key0", "key0", "key1"):
            bus.tell(CallEnded(deck, "fs", "read", "tools/call", "ok", "answered"))
        found = read(await metrics.scrape())
        await metrics.close()
    counts = {labels[0]: count for labels, count in found["quarterdeck_calls_total"].items()}
    assert counts == {"user": 2, "user key1": 1}


async def test_a_process_that_outlives_its_server_is_an_orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What should never happen would happen unseen."""
    runs, state = True, psutil.STATUS_SLEEPING
    process = SimpleNamespace(is_running=lambda: runs, status=lambda: state)
    monkeypatch.setattr(psutil, "Process", lambda _: process)
    monkeypatch.setattr(module, "CACHED_S", 0.0)
    monkeypatch.setattr(module, "CLOSING_S", -1.0)
    server = ProductEndpoint("fs")
    server.pid = 4711
    with product_of(tmp_path, server) as product:
        metrics = Metrics(Bus(), of(product))

        async def orphans() -> float:
            return read(await metrics.scrape())["quarterdeck_orphans"][()]

        assert await orphans() == 0
        server.pid = None
        assert await orphans() == 1
        state = psutil.STATUS_ZOMBIE
        assert await orphans() == 0
        server.pid, state = 4711, psutil.STATUS_SLEEPING
        assert await orphans() == 0
        server.pid, runs = None, False
        assert await orphans() == 0
        await metrics.close()


async def test_whoever_scrapes_without_end_gets_the_last_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Prometheus that asks each 10 ms would take the time of calls."""
    looks = 0
    with product_of(tmp_path) as product:

        def decks() -> list[tuple[str, str, Product]]:
            nonlocal looks
            looks += 1
            return [("key", "", product)]

        metrics = Metrics(Bus(), decks)
        texts = await asyncio.gather(*(metrics.scrape() for _ in range(50)))
        assert (len({*texts}), looks) == (1, 1)
        monkeypatch.setattr(module, "CACHED_S", 0.0)
        await metrics.scrape()
        assert looks == 2
        await metrics.close()


async def test_events_are_counted_though_nobody_scrapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two scrapes those above the bound would be lost."""
    monkeypatch.setattr(module, "TAKE_S", 0.0)
    bus = Bus()
    with product_of(tmp_path) as product:
        metrics = Metrics(bus, of(product))
        metrics.begin()
        bus.tell(CallEnded(deck="key0", server="", tool="bash", method="tools/call", outcome="ok", delivery="answered"))
        await until(lambda: bool(metrics._tally.counters))
        await metrics.close()
        await metrics.close()
