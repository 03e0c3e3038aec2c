"""A real agent's day: a repository explored, changed, tested, served, fetched from and put right, by a real client.

The repository is a copy of this project's own.  The client is the SDK's, over stdio and over HTTP.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.config.places import write_document
from support.processes.commands import command, quarterdeck_json, quarterdeck_json_forked
from support.processes.identities import PACKAGES, SOURCES, give_to_commands
from support.processes.leftovers import no_leftovers
from support.sandbox.machine_facts import installing_missing
from support.serves.native_serves import ALL

from quarterdeck.cli.configure.secret import read_token, token_path

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]

DAY_S: Final = 150.0
"""For some thirty calls, one of them a whole pytest, on a busy machine."""

NAMES: Final = "protocol/quarterdeck_protocol/names.py"
SOUND: Final = "MAX_SERVER_ID_CHARS: Final = 32"
BROKEN: Final = "MAX_SERVER_ID_CHARS: Final = 3"
TESTS: Final = "tests/protocol/test_names.py"

RUN_TESTS: Final = (
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH=protocol "
    f"python -B -m pytest -q -p no:cacheprovider -p anyio.pytest_plugin {TESTS} -k readable_id"
)
"""Those that the change breaks; plugins would take longer than they do."""

SERVE_FILES: Final = "exec python -u -m http.server 0 --bind 127.0.0.1"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A copy of this project, owned by an ordinary user: nothing that an agent asks for is run as root."""
    place = tmp_path / "repository"
    litter = shutil.ignore_patterns("__pycache__", ".*_cache", "*.pyc")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(SOURCES / name, place / name, ignore=litter)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(SOURCES / name, place / name)
    give_to_commands(place, *place.rglob("*"))
    with no_leftovers():
        yield place


class Agent:
    """A client's session, by what it does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[str] = []

    async def do(self, tool: str, **arguments: object) -> str:
        """Call a tool that must succeed; its text."""
        text, is_error = await self.attempt(tool, **arguments)
        assert not is_error, text
        return text

    async def fail(self, tool: str, **arguments: object) -> str:
        """Call a tool that must fail; its text."""
        text, is_error = await self.attempt(tool, **arguments)
        assert is_error, text
        return text

    async def attempt(self, tool: str, **arguments: object) -> tuple[str, bool]:
        """Call a tool; its text, and whether it failed."""
        result = await self.client.call_tool(tool, arguments, progress_callback=self._note)
        return "\n".join(block.text for block in result.content if block.type == "text"), bool(result.is_error)

    async def _note(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(message or "")


def arguments_of(repository: Path) -> list[str]:
    """The command line that serves it: everything on, one address of this machine's own allowed."""
    config = repository.parent / "mcp.json"
    native = {"sandbox": {"network": "full"}, "webfetch": {"allow": ["127.0.0.1"]}}
    write_document(config, mcpServers={}, native=native)
    return ["serve", "--config", str(config), "--profile", "all", "--workspace", str(repository)]


@asynccontextmanager
async def over_stdio(repository: Path) -> AsyncIterator[Agent]:
    program, *args = command(*arguments_of(repository))
    parameters = StdioServerParameters(command=program, args=args, env=environment())
    async with Client(stdio_client(parameters), cache=None) as client:
        yield Agent(client)


@asynccontextmanager
async def over_http(repository: Path) -> AsyncIterator[Agent]:
    argv = command(*arguments_of(repository), "--http", "127.0.0.1:0", "--json")
    async with AsyncExitStack() as stack:
        process = await anyio.open_process(argv, stderr=None, env=environment())
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
        assert process.stdout is not None
        url = json.loads(await process.stdout.receive())["url"]
        bearer = {"Authorization": f"Bearer {read_token(token_path())}"}
        http = await stack.enter_async_context(create_mcp_http_client(headers=bearer))
        client = Client(streamable_http_client(url, http_client=http), mode="legacy", cache=None)
        yield Agent(await stack.enter_async_context(client))
        await stack.aclose()


def environment() -> dict[str, str]:
    """Ours, with the interpreter that runs the tests before others."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("way", [over_stdio, over_http], ids=["stdio", "http"])
async def test_a_repository_is_explored_changed_tested_served_and_put_right(way: Any, repository: Path) -> None:
    """What an agent does all day would not work, or leave something behind."""
    if reason := installing_missing():
        pytest.skip(reason)
    with anyio.fail_after(DAY_S):
        async with way(repository) as agent:
            await explore(agent)
            await change(agent)
            await break_and_put_right(agent, repository)
            await serve_and_fetch(agent)
            await keep_track(agent)


async def explore(agent: Agent) -> None:
    tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
    assert list(tools) == ALL
    for name in ("read", "grep", "todo_read"):
        assert tools[name].annotations is not None
        assert tools[name].annotations.read_only_hint is True
    assert tools["bash"].annotations is not None
    assert tools["bash"].annotations.destructive_hint is True
    assert "supervisor" in await agent.do("ls")
    assert NAMES in await agent.do("find", query="names.py")
    assert re.search(
        rf"{NAMES}:\d+: {SOUND}", await agent.do("grep", pattern=r"^MAX_SERVER_ID_CHARS\b", path="protocol")
    )
    assert SOUND in await agent.do("read", path=NAMES)
    assert "outside" in await agent.fail("read", path="/etc/passwd")


async def change(agent: Agent) -> None:
    await agent.do("write", path="notes/today.md", content="# Today\n")
    assert "Today" in await agent.do("bash", command="cat notes/today.md")
    long = await agent.do("bash", command="seq 1 200000")
    [kept] = re.findall(r"the full text is in (\S+)\]", long)
    assert "123456" in await agent.do("read", path=kept, offset=123456, limit=3)
    assert agent.progress


async def break_and_put_right(agent: Agent, repository: Path) -> None:
    assert "passed" in await agent.do("bash", command=RUN_TESTS, timeoutMs=100_000)
    assert "-" + SOUND in await agent.do("edit", path=NAMES, oldText=SOUND, newText=BROKEN)
    assert "failed" in await agent.fail("bash", command=RUN_TESTS, timeoutMs=100_000)
    where = ("--workspace", str(repository))
    listed = await anyio.to_thread.run_sync(lambda: quarterdeck_json_forked("checkpoint", "list", *where))
    node = next(each["node"] for each in listed if each["node"].endswith("edit"))
    await anyio.to_thread.run_sync(lambda: quarterdeck_json("checkpoint", "restore", node, *where))
    assert SOUND in await agent.do("read", path=NAMES)
    assert "passed" in await agent.do("bash", command=RUN_TESTS, timeoutMs=100_000)


async def serve_and_fetch(agent: Agent) -> None:
    started = await agent.do("bg-process", action="start", command=SERVE_FILES)
    [job] = re.findall(r"bg-\d+", started)[:1]
    port = None
    while port is None:
        seen = await agent.do("bash", command="sleep 0.2") + await agent.do("bg-process", action="poll", id=job)
        port = next(iter(re.findall(r"port (\d+)", seen)), None)
    page = await agent.do("webfetch", url=f"http://127.0.0.1:{port}/README.md")
    assert "# Quarterdeck" in page
    assert "running" in await agent.do("bg-process", action="list")
    await agent.do("bg-process", action="stop", id=job)
    assert "cannot be reached" in await agent.fail("webfetch", url=f"http://127.0.0.1:{port}/")


async def keep_track(agent: Agent) -> None:
    await agent.do("todo_set", items=[{"id": "1", "text": "rest", "status": "active"}])
    assert "[~] (1) rest" in await agent.do("todo_read")
    await agent.do("memory", action="append", content="names.py holds the bounds")
    assert "holds the bounds" in await agent.do("memory", action="read")
    assert "enterPlanMode" in await agent.do("enter_plan_mode")
    assert "delegate" in (await agent.fail("task", objective="rest")).lower()
