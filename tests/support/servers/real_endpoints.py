"""Real endpoints over the pretend servers, for the acceptance tests: configurations, opening, catching faults."""

import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from quarterdeck.interop import (
    Delivery,
    FaultKind,
    ProtocolFault,
    RemoteCallResult,
    ServerConfig,
    ServerEndpointImpl,
    StdioServerConfig,
    create_server_endpoint,
)
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Preset
from support.processes.programs import SERVERS, server_argv

BACKSTOP_S: Final = 30.0
"""Beyond every deadline that a test sets: it ends a test that hangs, and judges no speed."""


SHOWS_SCRIPTS: Final = SandboxPolicy(read=(str(SERVERS),))
"""The ordinary sandbox for a pretend server."""

UNCONFINED: Final = SandboxPolicy(preset=Preset.TRUSTED)
"""For a server that has to meet the test outside: files that both write, process ids that both read."""


def stdio_config(server_id: str, argv: list[str], **settings: Any) -> StdioServerConfig:
    """A stdio server of this command line; `settings` are more keys of its configuration."""
    return StdioServerConfig(id=server_id, command=argv[0], args=tuple(argv[1:]), **settings)


def pretend(name: str, *arguments: str, server_id: str | None = None, **settings: Any) -> StdioServerConfig:
    """A pretend server, by default with its script's name as its id; its sandbox shows it the scripts."""
    settings.setdefault("sandbox", SHOWS_SCRIPTS)
    return stdio_config(server_id or name, server_argv(name, *arguments), **settings)


def hostile(mode: str, *arguments: str, **settings: Any) -> StdioServerConfig:
    return pretend("hostile", mode, *arguments, server_id=mode.replace("_", "-"), **settings)


def python_config(server_id: str, program: str, **settings: Any) -> StdioServerConfig:
    return stdio_config(server_id, [sys.executable, "-c", program], **settings)


@asynccontextmanager
async def opened(config: ServerConfig, *factory: Any) -> AsyncIterator[ServerEndpointImpl]:
    """An open endpoint, by a session's factory where one is given; closed with the block whatever happened in it."""
    endpoint = create_server_endpoint(config, *factory)
    try:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.open()
        yield endpoint
    finally:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.close()


async def fault_of(awaited: Awaitable[object]) -> ProtocolFault:
    with pytest.raises(ProtocolFault) as caught, anyio.fail_after(BACKSTOP_S):
        await awaited
    return caught.value


async def fault_at_open(config: ServerConfig) -> ProtocolFault:
    """The fault that a new endpoint's `open` ends in; it is closed again."""
    endpoint = create_server_endpoint(config)
    try:
        fault = await fault_of(endpoint.open())
        assert endpoint.phase == "faulted"
        assert endpoint.status().fault is fault
        return fault
    finally:
        await endpoint.close()


def assert_fault(fault: ProtocolFault, kind: FaultKind | str, code: str, delivery: Delivery | str, *words: str) -> None:
    """Require a fault's site, its stable code with a remedy, its delivery, and words in its message."""
    assert (fault.kind, fault.code, fault.delivery) == (kind, code, delivery), fault.message
    assert fault.remedy
    for word in words:
        assert word in fault.message


async def say(endpoint: ServerEndpointImpl, text: str = "hello") -> None:
    with anyio.fail_after(BACKSTOP_S):
        assert text_of(await endpoint.invoke("echo", {"text": text})) == text


def text_of(result: RemoteCallResult) -> str:
    (block,) = result.content
    assert isinstance(block, dict)
    text: str = block["text"]
    return text


def pids_of(endpoint: ServerEndpointImpl) -> tuple[int, int]:
    status = endpoint.status()
    assert status.pid is not None
    assert status.worker_pid is not None
    return status.pid, status.worker_pid
