"""Native tools over HTTP: each client has its own, and what it started ends with it.

All clients come to one `serve`, which every test leaves as it was.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from support.clients.http_clients import connected
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, popen_forked
from support.processes.kept import Reused
from support.processes.leftovers import assert_gone, descendants, no_leftovers, running_with
from support.processes.line_child import LineChild
from support.serves.native_serves import first_text, make_project, native, sessions_of
from support.waiting import eventually_async

from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.config.places.paths import workspace_paths


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tools work."""
    return make_project(tmp_path_factory.mktemp("http") / "workspace")


@pytest.fixture(scope="module")
def kept(workspace: Path) -> Iterator[Reused[str]]:
    """The URL of a serve, which ends with all below it."""
    config = write_config(workspace.parent / "mcp.json", srv=row("echo"))
    options = ["--config", str(config), *native(workspace), "--http", "127.0.0.1:0", "--json"]

    @contextmanager
    def start() -> Iterator[str]:
        with LineChild(("serve", *options), deadline_s=DEADLINE_S, popen=popen_forked) as child:
            yield json.loads(child.read_line())["url"]
            below = descendants(child.process.pid)
            child.process.terminate()
            assert child.process.wait(DEADLINE_S) == 0
        assert_gone(below)

    with (
        no_leftovers(DEADLINE_S),
        closing(Reused(start, lambda url: httpx2.post(url, json={}, timeout=DEADLINE_S).status_code == 401)) as shared,
    ):
        yield shared


@pytest.fixture
def url(kept: Reused[str]) -> str:
    return kept.get()


@asynccontextmanager
async def named(url: str, name: str = "test", mode: str = "auto") -> AsyncIterator[Client]:
    info = types.Implementation(name=name, version="1")
    async with asyncio.timeout(DEADLINE_S), connected(url, mode, read_token(token_path()), client_info=info) as client:
        yield client


@pytest.mark.nightly
async def test_two_http_clients_do_not_share_what_they_do(url: str) -> None:
    """One agent's plan would be another's, and each could stop the other's processes."""
    # What the clients without a session started runs on until the module's serve is told to end.
    async with named(url, "ada") as ada, named(url, "bob") as bob:
        await ada.call_tool("todo_set", {"items": [{"id": "1", "text": "mine alone", "status": "active"}]})
        await ada.call_tool("bg-process", {"action": "start", "command": "sleep 4714.25"})
        assert "mine alone" in first_text(await ada.call_tool("todo_read", {}))
        assert "mine alone" not in first_text(await bob.call_tool("todo_read", {}))
        assert "bg-1" in first_text(await ada.call_tool("bg-process", {"action": "list"}))
        assert "bg-1" not in first_text(await bob.call_tool("bg-process", {"action": "list"}))


async def test_a_legacy_http_session_ends_with_its_processes(url: str, workspace: Path) -> None:
    """What a client started would run for as long as the server does."""
    paths = workspace_paths(workspace)
    async with named(url, mode="legacy") as client:
        before = {each.directory for each in sessions_of(paths)} if paths.sessions.is_dir() else set()
        await client.call_tool("bg-process", {"action": "start", "command": "sleep 4715.25"})
        await eventually_async(lambda: running_with("sleep 4715.25"))
        new = {each.directory for each in sessions_of(paths)} - before
        assert new
    await eventually_async(lambda: not running_with("sleep 4715.25"))
    await eventually_async(lambda: not new & {each.directory for each in sessions_of(paths)})


async def test_a_workspace_that_is_gone_takes_no_server_along(url: str, workspace: Path) -> None:
    """One removed directory would take every tool away, or leave a client without a word."""
    async with named(url, "late") as client:
        with away(workspace):
            listed = await client.list_tools()
            assert {tool.name.partition("__")[0] for tool in listed.tools} == {"srv"}
            refused = await client.call_tool("read", {"path": "README.md"})
            assert refused.is_error
            assert f"{workspace} is not a directory" in first_text(refused)
            assert first_text(await client.call_tool("srv__echo", {"text": "calm"})) == "calm"


@contextmanager
def away(folder: Path) -> Iterator[None]:
    """Have it under another name for as long as the block."""
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    try:
        yield
    finally:
        elsewhere.rename(folder)
