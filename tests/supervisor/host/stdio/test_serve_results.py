"""Whole results as clients of both eras read them, over lines and over HTTP: each its own, until its session ends."""

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from support.clients.http_clients import listening, token_of
from support.clients.wire_http import ENVELOPE, META, WireHttp, wired
from support.tools.offer_fleet import OfferFleet
from support.tools.task_servers import newer_server, newer_state, older_server, older_state
from support.waiting import until

from quarterdeck.host.budget.kept_results import SCHEME, KeptResults
from quarterdeck.route.router import Router
from quarterdeck_protocol.mcp.tasks import EXTENSION

from .host_pipes import ERAS, client_of

pytestmark = pytest.mark.process

TAKES = {"extensions": {EXTENSION: {}}}
LONG = "x" * 500
RESULT = {"content": [{"type": "text", "text": LONG}]}
GONE = "call the tool again"


def server_of(era: str) -> Any:
    if era == "modern":
        return newer_server(get=newer_state("completed", result=RESULT))
    return older_server(get=older_state("completed"), result=msgspec.json.encode(RESULT))


def uri_in(result: dict[str, Any]) -> str:
    said = str(result["content"][0]["text"])
    assert len(said) < 200
    return SCHEME + said.partition(SCHEME)[2].partition("]")[0]


@ERAS
async def test_the_result_of_a_task_is_cut_over_lines_and_goes_with_its_client(era: str) -> None:
    """A tool would get past the budget by a task, or what it gave stay for as long as we serve."""
    results, able = KeptResults(10), TAKES if era == "modern" else {}
    async with client_of(server_of(era), era=era, able=able, results=results) as (client, _):
        uri = uri_in(await ended(client, era))
        [content] = (await client.ask(5, "resources/read", uri=uri))["result"]["contents"]
        assert content["text"] == LONG
        assert GONE in (await client.ask(6, "resources/read", uri=f"{SCHEME}other"))["error"]["message"]
    await until(lambda: not results.total_bytes)


async def ended(client: Any, era: str) -> dict[str, Any]:
    if era == "legacy":
        made = (await client.ask(1, "tools/call", name="a__work", arguments={}, task={"ttl": 5}))["result"]["task"]
        result: dict[str, Any] = (await client.ask(2, "tasks/result", taskId=made["taskId"]))["result"]
        return result
    made = (await client.ask(1, "tools/call", name="a__work", arguments={}))["result"]
    state = (await client.ask(2, "tasks/get", taskId=made["taskId"]))["result"]
    assert state["status"] == "completed"
    listed = {"notifications": {"taskIds": [made["taskId"]]}}
    await client.send(client.request("l", "subscriptions/listen", **listed))
    await client.receive()
    told = await client.receive()
    assert told["method"] == "notifications/tasks"
    assert uri_in(told["params"]["result"]) != uri_in(state["result"])
    cut: dict[str, Any] = state["result"]
    return cut


async def asked(wire: WireHttp, era: str, method: str, **params: Any) -> dict[str, Any]:
    headers = {}
    if era == "modern":
        params["_meta"] = {**ENVELOPE, f"{META}clientCapabilities": TAKES}
        headers = {"Mcp_Method": method, "Mcp_Name": params.get("name", params.get("taskId", params.get("uri")))}
    return (await wire.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, **headers)).answer


@ERAS
async def test_the_result_of_a_task_is_cut_over_http_and_is_its_clients_alone(era: str, tmp_path: Path) -> None:
    """A token, or another session of the same, would read what was answered to somebody else."""
    owner, results = "t" * 40, KeptResults(10)
    token = token_of(tmp_path / "tokens.json")
    offers = Router(OfferFleet(server_of(era)))
    kept = {"results": results, "token": owner, "tokens": tmp_path / "tokens.json"}
    async with listening(offers, offers=offers, **kept) as url, wired(url) as wire, wired(url) as other:
        wire.headers["Authorization"] = f"Bearer {owner}"
        other.headers["Authorization"] = f"Bearer {token if era == 'modern' else owner}"
        for each in (wire, other):
            await (each.greet() if era == "legacy" else each.introduce())
        task = {"task": {"ttl": 5}} if era == "legacy" else {}
        made = (await asked(wire, era, "tools/call", name="a__work", arguments={}, **task))["result"]
        if era == "legacy":
            found = (await asked(wire, era, "tasks/result", taskId=made["task"]["taskId"]))["result"]
        else:
            found = (await asked(wire, era, "tasks/get", taskId=made["taskId"]))["result"]["result"]
        uri = uri_in(found)
        [content] = (await asked(wire, era, "resources/read", uri=uri))["result"]["contents"]
        assert content["text"] == LONG
        assert GONE in (await asked(other, era, "resources/read", uri=uri))["error"]["message"]
        if era == "legacy":
            async with httpx2.AsyncClient() as http:
                await http.delete(url, headers=wire.headers)
            await until(lambda: not results.total_bytes)
