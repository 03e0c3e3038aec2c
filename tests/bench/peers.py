"""Both sides of a comparison, over the same echo server in the same era: the plain SDK client, and our toolbox."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from support.clients.raw_client import LEGACY_VERSION
from support.processes.programs import server_argv
from support.servers.real_endpoints import pretend

from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck.interop import QUALIFIER, BridgeConfig, ServerEndpointImpl
from quarterdeck.route.mount import mount_protocol_bridge
from quarterdeck.route.router import Router
from quarterdeck_protocol.tools import CallEnd, CancelToken, RawCall, ToolCall, WireResult

from .rounds import Call

TEXT: Final = "x" * 100
"""What is echoed: the size of a small question."""

ECHO: Final = "echo"
ECHO_NAME: Final = f"{ECHO}{QUALIFIER}{ECHO}"
"""The echo server's tool by its own name and by its name on the deck."""


@asynccontextmanager
async def plain_client() -> AsyncIterator[Client]:
    """The SDK's client connected to an echo server, its tools listed: it would list them at the first call."""
    command, *args = server_argv(ECHO)
    async with Client(stdio_client(StdioServerParameters(command=command, args=args)), mode="legacy") as client:
        assert client.protocol_version == LEGACY_VERSION
        await client.list_tools()
        yield client


def sdk_call(client: Client) -> Call:
    async def call() -> None:
        await client.call_tool(ECHO, {"text": TEXT})

    return call


@asynccontextmanager
async def preloaded() -> AsyncIterator[Runtime]:
    """The loop's runtime, kept for the block: what is opened in it shares one zygote, which is not started anew."""
    runtime = await Runtime.acquire()
    try:
        yield runtime
    finally:
        await runtime.release()


@asynccontextmanager
async def mounted() -> AsyncIterator[Router]:
    bridge = await mount_protocol_bridge(BridgeConfig(servers=(pretend(ECHO),)))
    try:
        yield bridge.box
    finally:
        await bridge.fleet.tear_down()


def endpoint_call(endpoint: ServerEndpointImpl) -> Call:
    arguments = b'{"text":"%s"}' % TEXT.encode()

    async def call() -> None:
        await endpoint.result_of(RawCall(ECHO, arguments))

    return call


def raw_call(box: Router) -> Call:
    arguments = b'{"text":"%s"}' % TEXT.encode()
    loop = asyncio.get_running_loop()

    async def call() -> None:
        settled: asyncio.Future[CallEnd] = loop.create_future()
        assert box.begin(RawCall(ECHO_NAME, arguments), settled.set_result) is not None
        assert isinstance(await settled, WireResult)

    return call


def toolbox_call(box: Router) -> Call:
    async def call() -> None:
        outcome = await box.runner.run(ToolCall("bench", ECHO_NAME, {"text": TEXT}), CancelToken())
        assert not outcome.is_error, outcome

    return call
