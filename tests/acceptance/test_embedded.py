"""A session that the embedding program made itself: the same endpoint, without a process of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from support.processes.leftovers import descendants, no_leftovers
from support.processes.programs import server_argv
from support.servers.real_endpoints import BACKSTOP_S, assert_fault, fault_of, opened, say, text_of
from support.waiting import eventually_async

from quarterdeck.interop import StdioServerConfig, create_server_endpoint
from quarterdeck_protocol.configs import RestartPolicy
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.tools import ProgressNote

pytestmark = pytest.mark.anyio

CONFIG = StdioServerConfig(id="own", command="unused")

Factory = Callable[[], AbstractAsyncContextManager[ClientSession]]


class OwnServer:
    """A server in this process, and what became of its calls."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.hang_up: Callable[[], None] = lambda: None

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:
        """Four tools that are listed, and one that is not."""
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("echo", "hang", "fail", "steps")]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Do what the tool's name says, then give the text back."""
        match params.name:
            case "fail":
                raise MCPError(-32602, "bad wolf")
            case "steps":
                await context.session.report_progress(1, 2, "half")
            case "hang":
                try:
                    await anyio.sleep_forever()
                finally:
                    self.cancelled.append(params.name)
            case "hang_up":
                self.hang_up()
                await anyio.sleep_forever()
        text = str((params.arguments or {}).get("text", ""))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ClientSession]:
        """A session with it, greeted; what `session_factory` asks for."""
        server = Server("own", version="1", on_list_tools=self.list_tools, on_call_tool=self.call_tool)
        async with (
            create_client_server_memory_streams() as ((read, write), (server_read, server_write)),
            anyio.create_task_group() as tasks,
        ):
            self.hang_up = server_write.close
            tasks.start_soon(server.run, server_read, server_write, server.create_initialization_options())
            async with ClientSession(read, write) as session:
                await session.initialize()
                yield session
            tasks.cancel_scope.cancel()


async def test_a_session_of_ones_own_serves_like_any_server() -> None:
    """Programs that embed us have servers in the same process."""
    before = descendants()
    async with opened(CONFIG, OwnServer().session) as endpoint:
        status = endpoint.status()
        assert (status.phase, status.isolated, status.worker_pid) == ("ready", False, None)
        assert [tool.ref.name for tool in await endpoint.list_tools()] == ["echo", "hang", "fail", "steps"]
        await say(endpoint)
        assert descendants() == before
    assert endpoint.phase == "closed"


async def test_its_progress_errors_and_deadlines_are_those_of_any_server() -> None:
    """Nobody should have to know which kind it is."""
    notes: list[ProgressNote] = []
    async with opened(CONFIG, OwnServer().session) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.call("steps", b"{}", on_progress=notes.append)
        assert notes == [ProgressNote(1, 2, "half")]
        fault = await fault_of(endpoint.invoke("fail"))
        assert_fault(fault, "tool_error", "reply_error", "answered", "bad wolf")
        late = await fault_of(endpoint.call("hang", b"{}", timeout_s=0.1))
        assert_fault(late, "timeout", "call_timeout", "unknown", "within 0.1 s")
        await say(endpoint)


async def test_cancelling_a_call_cancels_it_there() -> None:
    """As for any server."""
    server = OwnServer()
    async with opened(CONFIG, server.session) as endpoint:
        with anyio.move_on_after(0.05):
            await endpoint.invoke("hang")
        await eventually_async(lambda: server.cancelled == ["hang"])
        await say(endpoint)


async def test_a_lost_session_is_a_transport_fault_without_a_dossier() -> None:
    """No process died, so there is none to tell of."""
    async with opened(CONFIG, OwnServer().session) as endpoint:
        fault = await fault_of(endpoint.invoke("hang_up"))
        assert_fault(fault, "tool_error", "server_lost", "unknown")
        await eventually_async(lambda: endpoint.phase == "faulted")
        loss = endpoint.status().fault
        assert loss is not None
        assert_fault(loss, "transport", "server_lost", "unknown")
        assert loss.dossier is None


async def test_a_factory_that_fails_fails_the_open_with_its_words() -> None:
    """The embedding program's own error is the explanation."""

    @asynccontextmanager
    async def factory() -> AsyncIterator[ClientSession]:
        raise ConnectionRefusedError("no such vault")
        yield

    endpoint = create_server_endpoint(CONFIG, factory)
    fault = await fault_of(endpoint.open())
    assert_fault(fault, "spawn_failed", "spawn_failed", "not_sent", "no such vault")
    await endpoint.close()
    assert endpoint.phase == "faulted"


async def test_a_factory_that_hangs_is_given_up_at_the_deadline() -> None:
    """As any server that never answers."""

    @asynccontextmanager
    async def factory() -> AsyncIterator[ClientSession]:
        await anyio.sleep_forever()
        yield

    endpoint = create_server_endpoint(CONFIG.model_copy(update={"connect_timeout_s": 0.2}), factory)
    fault = await fault_of(endpoint.open())
    assert_fault(fault, "timeout", "handshake_timeout", "not_sent", "within 0.2 s")
    await endpoint.close()


async def test_closing_leaves_the_factorys_context_in_its_own_task() -> None:
    """The SDK's scopes must be left where they were entered."""
    tasks: list[asyncio.Task[Any] | None] = []
    server = OwnServer()

    @asynccontextmanager
    async def factory() -> AsyncIterator[ClientSession]:
        tasks.append(asyncio.current_task())
        try:
            async with server.session() as session:
                yield session
        finally:
            tasks.append(asyncio.current_task())

    async with opened(CONFIG, factory):
        pass
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


async def test_a_stock_stdio_session_may_be_lent() -> None:
    """What a program has already connected needs no second process."""

    @asynccontextmanager
    async def factory() -> AsyncIterator[ClientSession]:
        command, *args = server_argv("echo")
        async with (
            stdio_client(StdioServerParameters(command=command, args=args)) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            yield session

    with no_leftovers():
        async with opened(CONFIG, factory) as endpoint:
            with anyio.fail_after(BACKSTOP_S):
                assert len(await endpoint.list_tools()) == 15
                assert text_of(await endpoint.invoke("add", {"a": 1, "b": 2})) == "3"
            assert endpoint.status().era == "2025-11-25"


@pytest.mark.parametrize("settings", [{"cwd": "/"}, {"restart": RestartPolicy()}, {"sandbox": SandboxPolicy()}])
def test_what_only_a_worker_can_give_is_refused(settings: dict[str, Any]) -> None:
    """Whoever asks for a directory or a restart must learn that there is none."""
    config = StdioServerConfig(id="own", command="unused", **settings)
    with pytest.raises(ValueError, match=f"{next(iter(settings))} does not apply to a session made in this process"):
        create_server_endpoint(config, OwnServer().session)
