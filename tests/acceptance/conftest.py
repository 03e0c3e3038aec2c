"""What the acceptance tests share: directories of their own, a neighbour that must not notice, nothing left behind."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from support.config.places import short_folder, use_places
from support.processes.commands import forks as our_forks
from support.processes.forks import Forks
from support.processes.leftovers import Newcomers, running_with
from support.processes.programs import SERVERS, server_argv
from support.servers.real_endpoints import BACKSTOP_S, pretend
from support.serves.daemons import doors
from support.waiting import eventually_async

from quarterdeck.interop import ServerEndpointImpl, create_server_endpoint
from quarterdeck_pytest import McpServer, ProtocolFault

collect_ignore = ["sample_project"]
"""It is run by `test_sample_project`, in an environment of its own."""

NEIGHBOUR_CALL_S = 30.0
"""What a neighbour's call may take on a busy machine; a server that disturbs it makes it wait for ever."""

PATIENT_S = 120.0
"""For the start of one that the whole run shares."""

BETWEEN_CALLS_S = 0.1
"""A neighbour that is called without a pause costs three processes' time in all tests beside it."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for a module's tests, so that they share a runtime and its zygote."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def own_directories() -> Iterator[Path]:
    """State and runtime directories that nobody else has; short, because a socket's path is."""
    with short_folder() as root, pytest.MonkeyPatch.context() as patch:
        use_places(patch, root)
        yield root


@pytest.fixture
def by_the_daemon(own_directories: Path) -> Iterator[None]:
    """Serves are doors; no daemon is left after the test, and nothing of one."""
    with doors():
        yield


@pytest.fixture(scope="session")
def forks() -> Forks:
    """Commands of ours at the price of a fork, as any identity; see `support.processes.forks`."""
    return our_forks()


@pytest.fixture(scope="module")
async def neighbour(own_directories: Path, anyio_backend: str) -> AsyncIterator[ServerEndpointImpl]:
    """A well-behaved server that is open for as long as the module's tests run."""
    endpoint = create_server_endpoint(pretend("echo", server_id="neighbour", call_timeout_s=NEIGHBOUR_CALL_S))
    await endpoint.open()
    yield endpoint
    await endpoint.close()


@pytest.fixture
async def undisturbed(neighbour: ServerEndpointImpl, tmp_path: Path) -> AsyncIterator[ServerEndpointImpl]:
    """Require that the neighbour answers all through the test, and that no process of the test is left."""
    newcomers = Newcomers()
    done = asyncio.Event()

    async def chat() -> int:
        calls = 0
        while not done.is_set():
            result = await neighbour.invoke("add", {"a": calls, "b": 1})
            calls += 1
            assert result.structured_content == {"sum": calls}
            with anyio.move_on_after(BETWEEN_CALLS_S):
                await done.wait()
        return calls

    chatting = asyncio.create_task(chat())
    yield neighbour
    done.set()
    async with asyncio.timeout(BACKSTOP_S):
        assert await chatting > 0
    await eventually_async(newcomers.are_gone, what="the end of what the test started")
    assert not running_with(str(tmp_path))


@pytest.fixture
def quiet_beside(mcp_server: Callable[..., McpServer]) -> Iterator[None]:
    """Require that a neighbour, of the same supervisor as the servers of `mcp_server`, answers all through the test."""
    policy = {"read": [str(SERVERS)]}
    neighbour = mcp_server(server_argv("echo"), policy=policy, scope="run", timeout=PATIENT_S).client()
    is_over = threading.Event()

    def chat() -> int:
        calls = 0
        while not calls or not is_over.wait(BETWEEN_CALLS_S):
            result = neighbour.call_tool("add", {"a": calls, "b": 1}, timeout=NEIGHBOUR_CALL_S)
            calls += 1
            assert result.structured_content == {"sum": calls}
        return calls

    with ThreadPoolExecutor(1) as pool:
        chatting = pool.submit(chat)
        yield
        is_over.set()
    assert chatting.result() > 0


@pytest.fixture
def fault_at_start(mcp_server: Callable[..., McpServer]) -> Callable[..., ProtocolFault]:
    """The fault that a server's start ends in; takes what `mcp_server` takes."""

    def start(server: object, **said: object) -> ProtocolFault:
        with pytest.raises(ProtocolFault) as raised:
            mcp_server(server, **said)
        return raised.value

    return start
