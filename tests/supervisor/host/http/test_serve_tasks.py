"""Tasks over HTTP, by hand, in both eras: what is said of them, calls that become tasks, and requests about them."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from support.clients.http_clients import listening
from support.clients.wire_http import ENVELOPE, META, WireHttp, wired
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.task_servers import CALLS, older_server, older_state

from quarterdeck.route.router import Router
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.client.task_tokens import TaskProgress
from quarterdeck_protocol.mcp.tasks import EXTENSION, PROGRESS, RELATED, TaskSupport
from quarterdeck_protocol.offers import ServerNote

pytestmark = pytest.mark.process

TAKES = {**ENVELOPE, f"{META}clientCapabilities": {"extensions": {EXTENSION: {}}}}
RESULT = b'{"content":[],"_meta":{"%b":{"taskId":"1"}}}' % RELATED.encode()
ANSWERS = {
    "tools/call": b'{"task":{"taskId":"1","status":"working","x":[1.0]}}',
    "tasks/get": b'{"taskId":"1","status":"working"}',
    "tasks/cancel": b'{"taskId":"1","status":"cancelled"}',
    "tasks/result": RESULT,
}


@asynccontextmanager
async def wire(server: OfferServer, *, is_modern: bool = False) -> AsyncIterator[WireHttp]:
    router = Router(OfferFleet(server))
    async with listening(router, offers=router) as url, wired(url) as connection:
        await (connection.introduce() if is_modern else connection.greet())
        yield connection


async def asked(connection: WireHttp, method: str, meta: Any = None, **params: Any) -> dict[str, Any]:
    headers = {}
    if meta is not None:
        params["_meta"] = meta
        headers = {"Mcp_Method": method}
        if (named := params.get("name", params.get("taskId"))) is not None:
            headers["Mcp_Name"] = named
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await connection.ask(message, **headers)).answer


async def test_an_older_client_begins_a_task_asks_for_it_and_lists_it() -> None:
    """A call that is to be a task would be none, and its result never had."""
    server = OfferServer("a", tasks=CALLS, answers=dict(ANSWERS))
    async with wire(server) as connection:
        made = await asked(connection, "tools/call", name="a__work", arguments={"n": 1.0}, task={"ttl": 5})
        assert made["result"] == {"task": {"taskId": "1", "status": "working", "x": [1.0]}}
        assert server.asked[0].params == b'{"name":"work","arguments":{"n": 1.0},"task":{"ttl": 5}}'
        assert (await asked(connection, "tasks/get", taskId="1"))["result"]["status"] == "working"
        assert (await asked(connection, "tasks/result", taskId="1"))["result"]["_meta"] == {RELATED: {"taskId": "1"}}
        assert (await asked(connection, "tasks/list"))["result"] == {"tasks": [{"taskId": "1", "status": "working"}]}
        assert (await asked(connection, "tasks/cancel", taskId="1"))["result"]["status"] == "cancelled"
        assert (await asked(connection, "tasks/get", taskId="2"))["error"]["code"] == -32602
        assert (await asked(connection, "tasks/update", taskId="1"))["error"]["code"] == -32601


async def test_a_fault_of_a_task_is_an_error_and_of_a_call_a_result() -> None:
    """A client's program would take what a model is to read for a task."""
    refused = ProtocolFault(FaultKind.TOOL_ERROR, "it is held", code="tool_held")
    server = OfferServer("a", tasks=CALLS, fault=refused)
    async with wire(server) as connection:
        error = (await asked(connection, "tools/call", name="a__work", arguments={}, task={}))["error"]
        assert (error["code"], error["data"]["quarterdeck/fault"]["code"]) == (-32603, "tool_held")


@pytest.mark.parametrize("is_modern", [False, True])
async def test_where_no_server_has_tasks_there_are_no_methods_for_them(is_modern: bool) -> None:
    """A client would think that its task is gone, where there never could be one."""
    async with wire(OfferServer("a"), is_modern=is_modern) as connection:
        meta = TAKES if is_modern else None
        for method in ("tasks/get", "tasks/cancel", "tasks/result", "tasks/list", "tasks/update"):
            assert (await asked(connection, method, meta, taskId="1"))["error"]["code"] == -32601


async def test_a_client_is_told_of_tasks_where_a_server_has_them() -> None:
    """A client would never use them, or in vain."""
    info = {"name": "c", "version": "1"}
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    for support in (CALLS, TaskSupport.EXTENDS, CALLS | TaskSupport.EXTENDS):
        async with wire(OfferServer("a", tasks=support)) as connection:
            del connection.headers["Mcp-Session-Id"], connection.headers["Mcp-Protocol-Version"]
            said = (await asked(connection, "initialize", **greeting))["result"]["capabilities"]
            expected = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}} if CALLS in support else None
            assert (said.get("tasks"), said.get("extensions")) == (expected, None)
            await connection.introduce()
            said = (await asked(connection, "server/discover", ENVELOPE))["result"]["capabilities"]
            expected = {EXTENSION: {}} if TaskSupport.EXTENDS in support else None
            assert (said.get("tasks"), said.get("extensions")) == (None, expected)


async def test_a_newer_client_has_to_take_tasks_and_to_name_them_in_its_header() -> None:
    """A server would be asked by whom it may not answer, or a proxy send the request elsewhere."""
    server = OfferServer("a", tasks=TaskSupport.EXTENDS)
    async with wire(server, is_modern=True) as connection:
        refused = (await asked(connection, "tasks/get", ENVELOPE, taskId="1"))["error"]
        needed = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        assert (refused["code"], refused["data"]) == (-32021, needed)
        assert (await asked(connection, "tasks/get", TAKES, taskId="1"))["error"]["code"] == -32602
        message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "1", "_meta": TAKES}}
        answer = (await connection.ask(message, Mcp_Method="tasks/get", Mcp_Name="2")).answer
        assert answer["error"]["code"] == -32020
    assert server.asked == []


async def test_an_older_clients_stream_tells_how_far_its_own_task_is_once_the_call_is_answered() -> None:
    """A client would see nothing of what takes long, for the call's own stream has ended; or what is another's."""
    server = older_server()
    fleet = OfferFleet(server)
    router = Router(fleet)
    async with listening(router, offers=router) as url, AsyncExitStack() as stack:
        streams: dict[str, WireHttp] = {}
        for task in "12":
            session = await stack.enter_async_context(wired(url))
            await session.greet()
            stream = streams[task] = await stack.enter_async_context(wired(url, session))
            await stream.listen()
            server.answers["tools/call"] = b'{"task":%b}' % older_state(task=task, ttl=60_000)
            wish: dict[str, Any] = {"task": {}, "_meta": {"progressToken": f"token-{task}"}}
            made = await asked(session, "tools/call", name="a__work", arguments={}, **wish)
            assert made["result"]["task"]["taskId"] == task
        for task, call in zip("21", reversed(server.asked), strict=True):
            said = TaskProgress(task, 0.5, 1.0, "half").encoded()
            fleet.news(ServerNote("a", PROGRESS, said, frozenset((call.client.key,))))
        for task, stream in streams.items():
            told = json.loads((await stream.reader.readuntil(b"}\n")).rpartition(b"data: ")[2])
            note = {"progressToken": f"token-{task}", "progress": 0.5, "total": 1.0, "message": "half"}
            assert told["method"] == PROGRESS
            assert told["params"] == {**note, "_meta": {RELATED: {"taskId": task}}}
