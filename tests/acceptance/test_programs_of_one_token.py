"""Programs of 2026-07-28 that share a token over HTTP, each on connections of its own, and what of theirs is whose."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.clients.era_client import CAPABILITIES
from support.clients.wire_http import ENVELOPE, META, MODERN
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, popen_forked, quarterdeck_json_forked
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.waiting import eventually


@pytest.fixture
def url(own_directories: Path, tmp_path: Path) -> Iterator[str]:
    """Of a serve with a server of the older era, which has started."""
    config = write_config(tmp_path / "mcp.json", s=row("tasking", "--legacy"))
    words = ("serve", "--config", str(config), "--http", "127.0.0.1:0", "--json")
    with no_leftovers(DEADLINE_S), LineChild(words, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        yield json.loads(child.read_line())["url"]
        child.process.terminate()
        assert child.process.wait(DEADLINE_S) == 0


def token(name: str) -> str:
    return str(quarterdeck_json_forked("token", "create", name)["token"])


def has_started() -> bool:
    return any(tool["name"] == "s__plain" for tool in quarterdeck_json_forked("tools")["tools"])


class Program:
    """One program, by its name, with connections that nobody else has."""

    def __init__(self, url: str, shown: str, name: str) -> None:
        info = {"name": name, "version": "1"}
        self._meta = {**ENVELOPE, f"{META}clientInfo": info, f"{META}clientCapabilities": CAPABILITIES}
        self._url = url
        accept = "application/json, text/event-stream"
        given = {"Authorization": f"Bearer {shown}", "Accept": accept, "Mcp-Protocol-Version": MODERN}
        self.http = httpx2.AsyncClient(headers=given, timeout=DEADLINE_S)

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {"Mcp-Method": method}
        if (named := params.get("name", params.get("taskId"))) is not None:
            headers["Mcp-Name"] = named
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": self._meta}}
        return {"url": self._url, "json": message, "headers": headers}

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S), self.http.stream("POST", **self._request(method, params)) as response:
            found = [message async for message in _messages(response)][-1]
        result: dict[str, Any] = found["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> str:
        return str((await self.ask("tools/call", name=tool, arguments=arguments))["content"][0]["text"])


async def _messages(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if (said := line.removeprefix("data:").strip()).startswith("{"):
            yield json.loads(said)


@asynccontextmanager
async def program(url: str, shown: str, name: str) -> AsyncIterator[Program]:
    made = Program(url, shown, name)
    async with made.http:
        yield made


async def test_a_program_that_was_asked_and_is_gone_holds_up_no_other_of_its_token(url: str) -> None:
    """A person who closed one window would wait five minutes in the other."""
    shown = token("ci")
    eventually(has_started, DEADLINE_S, "the server")
    async with program(url, shown, "two") as two:
        async with program(url, shown, "one") as one:
            both = await asyncio.gather(one.call("s__plain", way="pair"), two.call("s__plain", way="pair"))
            assert both == ["did it for None"] * 2, "nobody could tell whom it asked: from now on it works for one"
            asked = await one.ask("tools/call", name="s__plain", arguments={"way": "ask"})
            assert asked["resultType"] == "input_required"
        assert [await two.call("s__plain", text=text) for text in "ab"] == ["did a", "did b"]
        async with program(url, shown, "one") as again:
            (key,) = asked["inputRequests"]
            answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
            given = {"inputResponses": answers, "requestState": asked["requestState"]}
            done = await again.ask("tools/call", name="s__plain", arguments={"way": "ask"}, **given)
            assert done["content"][0]["text"] == "did it for Ada"
        assert await two.call("s__plain", text="c") == "did c"
