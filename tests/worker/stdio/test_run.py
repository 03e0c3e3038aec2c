"""One server's life from start to end, over played processes: what ends it, and what is told."""

import asyncio

import msgspec
import pytest
from support.servers.greetings import DISCOVERED, LEGACY, MODERN, JsonObject
from support.waiting import turns

from quarterdeck_protocol.faults import FaultKind
from quarterdeck_protocol.link.frames import Call, ListChanged, Log, Progress
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_sandbox.program.launch import LaunchPlan

from .sessions import ANSWERS, ended, listed, opened, stage

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


async def test_a_server_is_started_greeted_listed_and_called() -> None:
    """Nothing would work."""
    async with stage() as played:
        server = await opened(played)
        assert played.plans == [LaunchPlan("/bin/sh", ("/bin/sh", "-c", "x"), {"A": "1"}, "/")]
        assert (server.card.era, server.card.pid, server.card.name) == (LEGACY, 4711, "scripted")
        tools = await listed(played)
        assert isinstance(tools, SplitResult)
        assert tools.body == b'[{"name": "echo", "inputSchema": {"type": "object"}}]'
        outcome = await ended(played)
        assert isinstance(outcome, SplitResult)
        assert msgspec.json.decode(outcome.body)["asked"] == {"name": "echo", "arguments": {"a": 1}}
        assert played.run.diagnose() is not None
        assert played.lost == []


async def test_a_modern_servers_calls_carry_its_envelope() -> None:
    """A modern server would refuse every call."""
    async with stage({**ANSWERS, "server/discover": DISCOVERED}, era=MODERN) as played:
        await opened(played)
        outcome = await ended(played)
        assert isinstance(outcome, SplitResult)
        meta = msgspec.json.decode(outcome.body)["asked"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "quarterdeck"


async def test_a_server_that_is_told_to_stop_ends_in_good_order() -> None:
    """A closed server would be told as a crash."""
    async with stage() as played:
        await opened(played)
        played.run.stop.set()
        await played.task
        assert played.lost == []
        assert played.process.returncode == 0


async def test_cancelling_a_life_leaves_nothing() -> None:
    """A worker that ends would leave its server."""
    async with stage() as played:
        await opened(played)
        played.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await played.task
        assert played.process.stopped


async def test_a_server_that_dies_is_told_before_it_is_buried_and_raised_after() -> None:
    """Callers would wait while a process tree is killed, or the end be told as an orderly one."""
    async with stage() as played:
        await opened(played)
        played.process.complains(b"boom\n")
        played.process.dies(-11)
        fault = await played.fault()
        assert played.lost == [fault]
        assert (fault.kind, fault.code) == (FaultKind.TRANSPORT, "exited")
        assert fault.dossier is not None
        assert (fault.dossier.signal, fault.dossier.stderr_tail) == (11, "boom\n")


async def test_news_flow_once_it_is_open() -> None:
    """A client would not see progress, log lines or new tools."""
    async with stage({**ANSWERS, "tools/call": None}) as played:
        server = await opened(played)
        server.call(Call(7, 30.0, "echo", progress=True), b"{}")
        while not any("progressToken" in str(message) for message in played.process.asked):
            await turns(1)
        token = played.process.asked[-1]["params"]["_meta"]["progressToken"]
        played.process.says(
            {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}},
            {"method": "notifications/message", "params": {"level": "info", "data": "hm"}},
            {"method": "notifications/tools/list_changed"},
        )
        while len(played.news) < 3:
            await turns(1)
        assert played.news == [Progress(7, 1.0), Log("info", ""), ListChanged()]


async def test_a_modern_server_that_cannot_be_listened_to_stays_open() -> None:
    """A server that announces more than it does would be thrown away."""
    asked: list[JsonObject] = []
    modern: JsonObject = {"result": {**DISCOVERED["result"], "capabilities": {"tools": {"listChanged": True}}}}

    def refuses(params: JsonObject) -> JsonObject:
        asked.append(params)
        return {"error": {"code": -32601, "message": "no"}}

    async with stage({**ANSWERS, "server/discover": modern, "subscriptions/listen": refuses}, era=MODERN) as played:
        server = await opened(played)
        assert server.card.announces == ("tools",)
        while not asked:
            await turns(1)
        await turns()
        assert not played.task.done()
        assert isinstance(await ended(played), SplitResult)
