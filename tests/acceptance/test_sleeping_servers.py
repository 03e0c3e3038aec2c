"""Servers that sleep until they are called: listed without a process, compared before a call, asleep again after."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from support.config.places import write_config
from support.processes.commands import DEADLINE_S
from support.processes.http_servers import forked_http_server
from support.serves.changing_server import Author, Connected, connected
from support.serves.shared_serve import open_folder
from support.waiting import eventually_async


async def state_of(client: Connected, server: str) -> dict[str, Any]:
    servers = (await client.command("ps"))["servers"]
    return next(each for each in servers if each["id"] == server)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with open_folder() as made:
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(made / "state"))
        yield made


@pytest.fixture
def author(folder: Path) -> Author:
    (folder / "library").mkdir(mode=0o755)
    return Author(folder / "library")


async def test_an_approved_server_sleeps_until_it_is_called_and_its_changed_tool_is_held_then(
    folder: Path, author: Author
) -> None:
    """A configured server would run for nothing, be missing from the list, or change its tools while nobody looks."""
    config = write_config(folder / "mcp.json", library=author.row(start="on_call"))
    async with connected(config, folder) as client:
        tools = await client.until(lambda tools: "library__lend" in tools, "the first look at the server")
    author.tool()["description"] = "Another text."
    author.publish()
    (folder / "serve.log").unlink()
    async with connected(config, folder) as client:
        assert await client.tools() == tools
        asleep = await state_of(client, "library")
        assert (asleep["phase"], asleep["pid"], asleep["worker_pid"], asleep["tools"]) == ("asleep", None, None, 2)
        assert "library is ready" not in client.logged()
        text, is_error = await client.call("library__lend", book="x")
        assert is_error
        assert "quarterdeck trust approve library lend" in text
        assert await client.call("library__weather") == ("weather from me", False)
        await client.until(lambda tools: "library__lend" not in tools, "the changed tool is caught")
        assert (await state_of(client, "library"))["phase"] == "ready"


async def test_a_server_whose_program_is_unchanged_sleeps_without_being_told_to(folder: Path) -> None:
    """Each server would run for nothing unless its user had found a key for it, or sleep though its code changed."""
    rows, authors = {}, {}
    for server in ("same", "changed"):
        (folder / server).mkdir(mode=0o755)
        authors[server] = Author(folder / server)
        rows[server] = authors[server].row()
    config = write_config(folder / "mcp.json", **rows)
    async with connected(config, folder) as client:
        await client.until(lambda tools: {"same__lend", "changed__lend"} <= tools.keys(), "the first look")
    authors["changed"].publish()  # the same text, in another file
    authors["changed"].path.write_text("  " + authors["changed"].path.read_text())
    async with connected(config, folder) as client:
        assert {"same__lend", "changed__lend"} <= (await client.tools()).keys()
        assert await client.call("changed__lend", book="x") == ("lend from me", False)
        assert (await state_of(client, "same"))["phase"] == "asleep"
        assert (await state_of(client, "changed"))["phase"] == "ready"
        assert await client.call("same__lend", book="x") == ("lend from me", False)


async def test_a_server_by_hand_falls_asleep_and_wakes(folder: Path, author: Author) -> None:
    """A user could not stop a server that uses memory, or see whether it starts."""
    config = write_config(folder / "mcp.json", library=author.row())
    async with connected(config, folder) as client:
        tools = await client.until(lambda tools: "library__lend" in tools, "the server")
        assert (await client.command("sleep", "library"))["server"]["phase"] == "asleep"
        await eventually_async(lambda: "library is asleep" in client.logged(), DEADLINE_S, "the log")
        assert await client.tools() == tools
        assert (await client.command("wake", "library"))["server"]["phase"] == "ready"
        await client.command("sleep", "library")
        assert await client.call("library__lend", book="x") == ("lend from me", False)


@pytest.mark.nightly
async def test_a_server_that_cannot_be_started_any_longer_says_so_to_its_caller(folder: Path, author: Author) -> None:
    """A caller would wait for a server that is gone until the deadline of its call."""
    config = write_config(folder / "mcp.json", library=author.row(start="on_call"))
    async with connected(config, folder) as client:
        await client.until(lambda tools: "library__lend" in tools, "the first look at the server")
    author.path.unlink()
    async with connected(config, folder) as client:
        text, is_error = await client.call("library__lend", book="x")
        assert is_error
        assert "exited_at_handshake" in text or "library is faulted" in text
        state = await state_of(client, "library")
        assert (state["phase"], state["fault"] is not None) == ("asleep", True)
        author.publish()
        assert await client.call("library__lend", book="x") == ("lend from me", False)


async def test_a_server_falls_asleep_when_it_was_not_called_for_as_long_as_its_row_says(
    folder: Path, author: Author
) -> None:
    """A client that stays open for days would keep each server that it ever called in memory."""
    row = author.row(start="on_call", idle_stop_s=0.5)
    config = write_config(folder / "mcp.json", library=row)
    async with connected(config, folder) as client:
        await client.until(lambda tools: "library__lend" in tools, "the first look at the server")
        await eventually_async(lambda: "library is asleep" in client.logged(), DEADLINE_S, "the first sleep")
        async with anyio.create_task_group() as calls:
            for _ in range(100):
                calls.start_soon(lends, client)
        assert client.logged().count("library is ready") == 2, "one start for the first look, one for all calls"
        await eventually_async(lambda: client.logged().count("library is asleep") == 2, DEADLINE_S, "asleep again")


async def test_a_remote_server_is_not_connected_to_before_a_call(folder: Path) -> None:
    """Each start of a client would connect to every remote server, and show no tools of one that is away."""
    with ExitStack() as first:
        url = first.enter_context(forked_http_server())
        config = write_config(folder / "mcp.json", far={"type": "http", "url": url})
        async with connected(config, folder) as client:
            tools = await client.until(lambda tools: "far__echo" in tools, "the first look at the server")
        first.close()
        async with connected(config, folder) as client:
            assert await client.tools() == tools
            assert (await state_of(client, "far"))["phase"] == "asleep"
            text, is_error = await client.call("far__echo", text="x")
            assert is_error
            assert "far is faulted" in text
            with forked_http_server("--port", str(urlsplit(url).port)):
                assert await client.call("far__echo", text="x") == ("x", False)


async def lends(client: Connected) -> None:
    assert await client.call("library__lend", book="x") == ("lend from me", False)
