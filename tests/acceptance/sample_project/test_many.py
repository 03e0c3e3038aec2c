"""Two hundred tests of four servers, in each way in which a test can be written; then two bad days."""

import os
import signal
import sys
from pathlib import Path

import pytest
from protocol import sum_of
from supervisor import server_for

pytestmark = pytest.mark.mcp(scope="run")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.parametrize("number", range(160))
def test_plain(mcp_server, note, number):
    server = mcp_server(server_for(number))
    note(server.id, server.status.pid)
    assert sum_of(server.client().call_tool("add", {"a": number, "b": 1}).structured_content) == number + 1


@pytest.mark.asyncio
@pytest.mark.parametrize("number", range(20))
async def test_of_pytest_asyncio(mcp_server, number):
    client = mcp_server(server_for(number)).async_client()
    assert sum_of((await client.call_tool("add", {"a": number, "b": 1})).structured_content) == number + 1


@pytest.mark.anyio
@pytest.mark.parametrize("number", range(20))
async def test_of_anyio(mcp_server, number):
    client = mcp_server(server_for(number)).async_client()
    assert sum_of((await client.call_tool("add", {"a": number, "b": 1})).structured_content) == number + 1


def test_all_of_the_product_comes_from_this_environment():
    import quarterdeck
    import quarterdeck_pytest

    for module in (quarterdeck, quarterdeck_pytest):
        assert Path(module.__file__).is_relative_to(sys.prefix)


@pytest.mark.timeout(2, func_only=True)
def test_that_takes_too_long(mcp_server):
    mcp_server("north").client().call_tool("hang")


@pytest.mark.mcp("south", scope="test")
def test_whose_process_is_killed(mcp_server, note):
    status = mcp_server().status
    note("private", status.pid)
    note("private", status.worker_pid)
    os.kill(os.getpid(), signal.SIGKILL)
