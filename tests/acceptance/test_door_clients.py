"""Stock clients through doors, as editors and agents have them: of both eras at once, and one for each call."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from support.clients.raw_client import LEGACY_VERSION, MODERN_VERSION
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, command, quarterdeck_json_forked
from support.serves.daemons import daemon_status, doors

from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import DaemonStatus, Order
from quarterdeck.daemon.place import daemon_dir

CALLS: Final = 20

AT_ONCE: Final = 3
"""Sessions of one agent, each for one call; each is a process.  One more follows them."""


@pytest.fixture
def config(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """One server, behind a daemon of which nothing is left at the end."""
    with doors():
        quarterdeck_json_forked("up")
        yield write_config(tmp_path / "mcp.json", s=row("echo"))
        assert daemon_status() is not None


def status() -> DaemonStatus:
    return ask_daemon(daemon_dir(), Order.STATUS)


@asynccontextmanager
async def stock_client(config: Path, mode: str) -> AsyncIterator[Client]:
    """The SDK's client, which starts a `serve` as any client does."""
    program, *args = command("serve", "--config", str(config), *PATIENT)
    server = stdio_client(StdioServerParameters(command=program, args=args, env=dict(os.environ)))
    async with Client(server, mode=mode) as client:
        yield client


async def echo(client: Client, text: str) -> None:
    result = await client.call_tool("s__echo", {"text": text})
    assert [block.text for block in result.content] == [text]


async def test_stock_clients_of_both_eras_share_one_server(config: Path) -> None:
    """One maker's client would work and the next one's not, or get an answer that is another's."""
    modes = ("legacy", "auto", MODERN_VERSION)
    with anyio.fail_after(DEADLINE_S):
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(stock_client(config, mode)) for mode in modes]
            assert [client.protocol_version for client in clients] == [LEGACY_VERSION, MODERN_VERSION, MODERN_VERSION]
            asked = [
                (client, f"{mode} {number}")
                for client, mode in zip(clients, modes, strict=True)
                for number in range(CALLS)
            ]
            await asyncio.gather(*(echo(client, text) for client, text in asked))
            found = await asyncio.to_thread(status)
            assert len({client.deck for client in found.clients}) == 1
            assert [(deck.servers, deck.ready) for deck in found.decks] == [(1, 1)]
            assert len(found.clients) == len(modes)


async def test_a_session_for_each_call_is_served_however_many_at_once(config: Path) -> None:
    """LangChain's adapters open one for each call: two of three calls at once died."""

    async def call(number: int) -> None:
        async with stock_client(config, "legacy") as client:
            await echo(client, f"session {number}")

    with anyio.fail_after(DEADLINE_S):
        await asyncio.gather(*map(call, range(AT_ONCE)))
        await call(AT_ONCE)
    found = await asyncio.to_thread(status)
    assert [deck.ready for deck in found.decks] == [1]
