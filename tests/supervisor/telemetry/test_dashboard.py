"""The dashboard's expressions, as a real Prometheus evaluates them over what we serve."""

import asyncio
import json
import re
import shutil
import socket
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx2
import pytest
from support.processes.line_child import LineChild
from support.serves.products import ProductEndpoint, product_of

from quarterdeck.common.events import Bus, CallEnded, ServerChanged, SessionEnded
from quarterdeck.ledger.events.events import Subject
from quarterdeck.telemetry import metrics as module
from quarterdeck.telemetry import tally
from quarterdeck.telemetry.faces import Telemetry
from quarterdeck_sandbox import Usage

DASHBOARD: Final = Path(__file__).parents[3] / "docs" / "grafana-dashboard.json"

CONFIG: Final = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs: [{{job_name: quarterdeck, static_configs: [{{targets: ["{target}"]}}]}}]
"""

VARIABLES: Final = {"$__rate_interval": "30s", "$deck": ".*", "$server": ".*"}


def expressions() -> list[str]:
    found = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
    return [re.sub(r"\$\w+", lambda name: VARIABLES[name[0]], each) for each in found]


def test_the_dashboard_names_metrics_that_there_are() -> None:
    """A panel would stay empty for ever."""
    families = [value.name for each in (module, tally) for value in vars(each).values() if is_family(value)]
    named = {word for each in expressions() for word in re.findall(r"\b(?:quarterdeck|mcp)_\w+", each)}
    assert {re.sub(r"_(?:bucket|count)$", "", name) for name in named} - {*families} == set()


def is_family(value: object) -> bool:
    return isinstance(value, module.Family)


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
async def test_a_real_prometheus_answers_each_expression_with_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dashboard that was never tried shows nothing, on the day that somebody needs it."""
    monkeypatch.setattr(module, "CACHED_S", 0.0)
    server = ProductEndpoint("fs")
    use: Any = SimpleNamespace(watch=SimpleNamespace(present=Usage(4096, 1, 1.5)), status=None)
    server.pid, server.confined = 1, use
    bus = Bus()
    with product_of(tmp_path / "run", server) as product:
        monkeypatch.setattr(product.approvals, "held_of", lambda _: Counter({Subject.TOOL: 3}))
        telemetry = Telemetry(bus, lambda: [("key", "user", product)])
        await telemetry.listen("127.0.0.1:0")
        target = telemetry.url.removeprefix("http://").removesuffix("/metrics")
        (tmp_path / "prometheus.yml").write_text(CONFIG.format(target=target))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        argv = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        with LineChild([*argv, f"--web.listen-address=127.0.0.1:{port}"], deadline_s=30.0):
            left = await _until_answered(f"http://127.0.0.1:{port}/api/v1/query", bus)
        await telemetry.close()
    assert left == {}


async def _until_answered(url: str, bus: Bus) -> dict[str, object]:
    """Ask each expression until it has figures; return those that have none after a minute, with the answer."""
    left: dict[str, object] = dict.fromkeys(expressions())
    until = time.monotonic() + 60.0
    async with httpx2.AsyncClient() as client:
        while left and time.monotonic() < until:
            _happen(bus)
            await asyncio.sleep(0.3)
            for each in tuple(left):
                try:
                    answer = (await client.get(url, params={"query": each})).json()
                except httpx2.TransportError as error:
                    answer = error
                else:
                    if answer["status"] == "success" and answer["data"]["result"]:
                        del left[each]
                        continue
                left[each] = answer
    return left


def _happen(bus: Bus) -> None:
    told: dict[str, Any] = {"deck": "key", "server": "fs", "tool": "read", "method": "tools/call"}
    bus.tell(CallEnded(outcome="ok", delivery="answered", queued_s=0.1, woke_s=2.0, took_s=0.2, **told))
    bus.tell(CallEnded(outcome="error", delivery="answered", took_s=0.2, denied="read /etc", **told))
    bus.tell(CallEnded(outcome="fault", code="busy", delivery="not_sent", queued_s=1.0, **told))
    for phase in ("connecting", "ready"):
        bus.tell(ServerChanged("key", "fs", phase, 0))
    bus.tell(SessionEnded("key", "tcp", 60.0))
