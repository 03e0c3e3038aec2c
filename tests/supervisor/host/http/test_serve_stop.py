"""Ending a server over HTTP: what is under way is answered, and nothing new is begun."""

import asyncio
import contextlib
from functools import partial

import anyio
import anyio.lowlevel
import pytest
from support.clients.http_clients import call_raw, connected, listening
from support.tools.tool_boxes import LiveBox, hold
from support.waiting import until

from quarterdeck.host.calls import Drain
from quarterdeck.host.http import http_host as http
from quarterdeck.host.http import serve

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture
def stopping(monkeypatch):
    """Set once a stop has begun: nothing new is taken from then on."""
    begun, drain_all = asyncio.Event(), http._drain

    async def note(drain, requests):
        drain.closing.on_cancel(begun.set)
        await drain_all(drain, requests)

    monkeypatch.setattr(http, "_drain", note)
    return begun


async def call_once(url, mode, results):
    """Add the result of one call, if it comes: how a client learns of the loss of its session is its own affair."""
    with contextlib.suppress(Exception):
        async with connected(url, mode) as client:
            results.append(await call_raw(client, "s__t", {}))


@ERAS
async def test_stopping_ends_streams_and_calls_that_are_open(mode, monkeypatch):
    """A stop that waits for its clients is none; and a client would get an empty answer, or none."""
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
    """A restart of the deck would lose results that were nearly there."""
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


async def test_a_stop_waits_for_answers_as_long_as_they_come(monkeypatch):
    """On a busy machine the last ones of hundreds of calls would be cut off: 200, and nothing in it."""
    monkeypatch.setattr(http, "GRACE_S", 0)
    monkeypatch.setattr(http, "ANSWER_S", 0.01)
    drain, answered = Drain(), []
    due = [anyio.Event() for _ in range(6)]

    async def answer_late(scope, receive, send):
        await due[scope["number"]].wait()
        answered.append(scope["number"])

    class OneByOne(http._Requests):
        """One more answer leaves each time that it is waited for them."""

        async def answered(self):
            left = self.left
            if drain.ending.cancelled:
                due[-left].set()
                with anyio.CancelScope(shield=True):
                    await until(lambda: self.left < left)
            await super().answered()

    requests = OneByOne(answer_late)
    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(requests, {"type": "http", "method": "POST", "number": number}, None, None)
        await anyio.lowlevel.checkpoint()
        await http._drain(drain, requests)
        tasks.cancel_scope.cancel()
    assert answered == list(range(6))


async def test_a_call_that_comes_while_serving_ends_is_refused_and_may_be_repeated(monkeypatch, stopping):
    """It would be begun to be given up a moment later, and nobody would know what it did."""
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
