"""Ending a server over HTTP: what is under way is answered, and nothing new is begun."""

import asyncio
import contextlib
from functools import partial

import anyio
import pytest
from support.clients.http_clients import call_raw, connected, listening
from support.tools.tool_boxes import LiveBox, hold

from quarterdeck.host.http import http_host as http
from quarterdeck.host.http import serve
from quarterdeck_protocol.tools import CancelToken

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture
def stopping(monkeypatch):
    """Set once a stop has begun: nothing new is taken from then on."""
    begun = asyncio.Event()

    class Told(CancelToken):
        """Tells of it."""

        def __init__(self):
            super().__init__()
            self.on_cancel(begun.set)

    monkeypatch.setattr(http, "CancelToken", Told)
    return begun


async def call_once(url, mode, results):
    """Add the result of one call, if it comes: how a client learns of the loss of its session is its own affair."""
    with contextlib.suppress(Exception):
        async with connected(url, mode) as client:
            results.append(await call_raw(client, "s__t", {}))


@ERAS
async def test_stopping_ends_streams_and_calls_that_are_open(mode, monkeypatch):
    monkeypatch.setattr(serve, "STOP_S", 0)
    monkeypatch.setattr(http, "GRACE_S", 0)
    box, results = LiveBox(), []
    box.graft("s__t", hold)

    async with anyio.create_task_group() as tasks:
        async with listening(box) as url:
            tasks.start_soon(call_once, url, mode, results)
            begun = await box.next_begun()
        assert await begun.cancelled
        tasks.cancel_scope.cancel()
    assert box.watchers == 0
    (result,) = results
    assert result["isError"]
    fault = result["_meta"]["quarterdeck/fault"]
    assert fault == {"kind": "tool_error", "code": "shutting_down", "delivery": "unknown"}


@ERAS
async def test_a_stop_gives_calls_that_are_under_way_a_moment_to_end(mode, monkeypatch, stopping):
    monkeypatch.setattr(http, "GRACE_S", 60)
    box, results = LiveBox(), []
    box.graft("s__t", hold)

    async def settle(begun):
        await stopping.wait()
        begun.settle({"content": []})

    async with anyio.create_task_group() as tasks, listening(box) as url:
        tasks.start_soon(call_once, url, mode, results)
        tasks.start_soon(settle, await box.next_begun())
    assert [result["content"] for result in results] == [[]]
    assert "isError" not in results[0]


async def test_a_call_that_comes_while_serving_ends_is_refused_and_may_be_repeated(monkeypatch, stopping):
    monkeypatch.setattr(http, "GRACE_S", 60)
    box, results, calling = LiveBox(), [], anyio.Event()
    box.graft("s__t", hold)

    async def late_client(url):
        async with connected(url, "auto") as client, anyio.create_task_group() as calls:
            calls.start_soon(partial(call_raw, client, "s__t", {}))
            begun = await box.next_begun()
            calling.set()
            await stopping.wait()
            results.append(await call_raw(client, "s__t", {}))
            begun.settle({"content": []})

    async with anyio.create_task_group() as tasks, listening(box) as url:
        tasks.start_soon(late_client, url)
        await calling.wait()
    (result,) = results
    fault = result["_meta"]["quarterdeck/fault"]
    assert fault == {"kind": "not_connected", "code": "shutting_down", "delivery": "not_sent"}
