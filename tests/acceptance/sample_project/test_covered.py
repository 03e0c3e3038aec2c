"""Tests that run the user's modules: their coverage is asserted by whoever runs them."""

import pytest
from protocol import sum_of
from supervisor import SERVERS, server_for
from worker import app


@pytest.mark.parametrize("number", range(len(SERVERS)))
async def test_coroutine_without_a_mark(mcp_server, number):
    client = mcp_server(server_for(number), scope="run").async_client()
    assert sum_of((await client.call_tool("add", {"a": number, "b": 1})).structured_content) == number + 1


@pytest.mark.parametrize("number", [1, 2])
def test_object(mcp_server, number):
    assert mcp_server(app).client().call_tool("double", {"number": number}).structured_content == {"result": 2 * number}
