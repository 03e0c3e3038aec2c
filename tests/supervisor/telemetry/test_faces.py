"""Where metrics are served, and that a wrong wish is said."""

import asyncio
import logging
import socket
from pathlib import Path

import httpx2
import pytest
from support.serves.products import product_of

from quarterdeck.common.events import Bus
from quarterdeck.telemetry.faces import Telemetry

pytestmark = pytest.mark.process


async def status(url: str, **headers: str) -> tuple[int, str]:
    async with httpx2.AsyncClient() as client:
        answer = await client.get(url, headers=headers)
        return answer.status_code, answer.text


async def test_an_address_of_its_own_serves_metrics_and_counts_from_its_start(tmp_path: Path) -> None:
    """What happened before the first scrape would be missing; or tools be called there without a token."""
    bus = Bus()
    with product_of(tmp_path) as product:
        telemetry = Telemetry(bus, lambda: [("", "", product)])
        assert not bus.is_heard
        await telemetry.listen("127.0.0.1:0")
        assert bus.is_heard
        first = telemetry.url
        code, text = await status(first)
        assert (code, "quarterdeck_servers" in text) == (200, True)
        assert (await status(first.replace("/metrics", "/mcp")))[0] == 404
        assert (await status(first, host="evil.example"))[0] == 421
        await telemetry.listen("127.0.0.1:0")
        assert telemetry.url != first
        with pytest.raises(httpx2.ConnectError):
            await status(first)
        await telemetry.close()
        assert (telemetry.url, bus.is_heard) == ("", False)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "nowhere.invalid:1", "127.0.0.1:99999", "taken"])
async def test_metrics_that_cannot_be_served_are_said_and_stop_nothing(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Other machines could read who calls what; or a daemon not start, for a port that is taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.ERROR):
        telemetry = Telemetry(Bus(), list)
        await telemetry.listen(address if address != "taken" else f"127.0.0.1:{taken.getsockname()[1]}")
        assert telemetry.problem
        assert not telemetry.url
        assert "no metrics at" in caplog.text
        await telemetry.close()
        await asyncio.sleep(0)
