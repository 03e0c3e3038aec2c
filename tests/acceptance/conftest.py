"""What the acceptance tests share: directories of their own, a neighbour that must not notice, nothing left behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from support.config.places import short_folder, use_places
from support.processes.commands import forks as our_forks
from support.processes.forks import Forks
from support.processes.leftovers import Newcomers, running_with
from support.servers.real_endpoints import BACKSTOP_S, pretend
from support.waiting import eventually_async

from quarterdeck.interop import ServerEndpointImpl, create_server_endpoint

collect_ignore = ["sample_project"]
"""It is run by `test_sample_project`, in an environment of its own."""

NEIGHBOUR_CALL_S = 30.0
"""What a neighbour's call may take on a busy machine; a server that disturbs it makes it wait for ever."""

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
