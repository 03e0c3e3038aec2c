"""One server's life from start to end, over played processes: what ends it, and what is told."""

import asyncio

import msgspec
import pytest
from support.servers.greetings import LEGACY

from quarterdeck_protocol.faults import FaultKind
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_sandbox.program.launch import LaunchPlan

from .sessions import ended, listed, opened, stage

pytestmark = pytest.mark.usefixtures("impatient")


async def test_a_server_is_started_greeted_listed_and_called() -> None:
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


async def test_a_server_that_is_told_to_stop_ends_in_good_order() -> None:
    async with stage() as played:
        await opened(played)
        played.run.stop.set()
        await played.task
        assert played.lost == []
        assert played.process.returncode == 0


async def test_cancelling_a_life_leaves_nothing() -> None:
    async with stage() as played:
        await opened(played)
        played.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await played.task
        assert played.process.stopped


async def test_a_server_that_dies_is_told_before_it_is_buried_and_raised_after() -> None:
    async with stage() as played:
        await opened(played)
        played.process.complains(b"boom\n")
        played.process.dies(-11)
        fault = await played.fault()
        assert played.lost == [fault]
        assert (fault.kind, fault.code) == (FaultKind.TRANSPORT, "exited")
        assert fault.dossier is not None
        assert (fault.dossier.signal, fault.dossier.stderr_tail) == (11, "boom\n")
