"""The daemon on HTTP: many decks at one address, by path and by token, and what becomes of sessions when one ends."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from support.clients.http_clients import connected
from support.config.places import row, write_config, write_document
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked
from support.serves.daemons import door, doors_at_home, own_file
from support.waiting import eventually_async

from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.daemon.client import ask_daemon, wait_until_gone
from quarterdeck.daemon.messages import DaemonStatus, Order
from quarterdeck.daemon.place import daemon_dir, start_lock

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture
def folder(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """A home with a configuration, and a project's file beside it; no daemon is left at the end."""
    write_config(tmp_path / "api" / "mcp.json", theirs=row("echo"))
    with doors_at_home(tmp_path, mine=row("echo")):
        yield tmp_path


def url_of_up(*words: str) -> str:
    url = quarterdeck_json_forked("up", "--http", "127.0.0.1:0", *words, "--json")["http"]["url"]
    assert isinstance(url, str)
    return url


def token(name: str, *limits: str) -> str:
    made = quarterdeck_json_forked("token", "create", name, *limits)["token"]
    assert isinstance(made, str)
    return made


async def servers_of(client: Client) -> set[str]:
    return {tool.name.partition("__")[0] for tool in (await client.list_tools()).tools}


def posted(url: str, shown: str, **headers: str) -> httpx2.Response:
    given = {"Authorization": f"Bearer {shown}", "Accept": "application/json, text/event-stream", **headers}
    return httpx2.post(url, json=LIST, headers=given, timeout=DEADLINE_S)


def status() -> DaemonStatus:
    return ask_daemon(daemon_dir(), Order.STATUS)


async def test_decks_are_reached_by_path_and_by_token_and_each_by_its_own_alone(folder: Path) -> None:
    """Every project would need a port and a process of its own; or a token for one would open them all."""
    url, owner = url_of_up(), read_token(token_path())
    config = folder / "api" / "mcp.json"
    bound, free = token("ci", "--deck", str(config)), token("free")
    by_path = url.replace("/mcp", "/decks/api/mcp")
    for where, shown, server in (
        (url, owner, "mine"),
        (by_path, owner, "theirs"),
        (url, bound, "theirs"),
        (by_path, bound, "theirs"),
        (url, free, "mine"),
    ):
        async with connected(where, "legacy", shown) as client:
            assert await servers_of(client) == {server}
            result = await client.call_tool(f"{server}__echo", {"text": where})
            assert result.content[0].text == where  # type: ignore[union-attr]

    def refusal(path: str, shown: str) -> tuple[int, str]:
        answer = posted(url.replace("/mcp", path), shown)
        return answer.status_code, answer.json()["error"]

    assert refusal("/decks/user/mcp", bound) == (403, "the token 'ci' may not use the deck 'user'")
    assert refusal("/decks/api/mcp", free) == (403, "the token 'free' may not use the deck 'api'")
    assert refusal("/decks/none/mcp", free)[0] == 403
    assert refusal("/decks/none/mcp", owner)[0] == 404
    assert "quarterdeck status" in refusal("/decks/none/mcp", owner)[1]

    async with connected(by_path, "legacy", bound) as client:
        await client.list_tools()
        [shown_client] = [each for each in status().clients if each.calls == 0 and each.token == "ci"][-1:]
        decks = {deck.key: deck.name for deck in status().decks}
        assert (decks[shown_client.deck], shown_client.pid) == ("api", 0)
        assert sorted(decks.values()) == ["api", "user"]
        words = quarterdeck_forked("status").stdout
    assert url in words
    assert "token ci" in words


@pytest.mark.nightly
async def test_a_revoked_token_ends_what_it_opened_and_a_changed_file_is_followed(folder: Path) -> None:
    """A program that was shut out would go on; or every session would have to be opened anew after a change."""
    write_config(own_file(folder), mine=row("echo"), more=row("echo"))
    url = url_of_up()
    kept, ended = token("kept"), token("ended")
    async with connected(url, "legacy", kept) as client:
        assert await servers_of(client) == {"mine", "more"}
        write_config(own_file(folder), mine=row("echo"))
        await eventually_async(lambda: {deck.servers for deck in status().decks} == {1}, DEADLINE_S)
        assert await servers_of(client) == {"mine"}
        session = await opened(url, ended)
        under_way = asyncio.create_task(asyncio.to_thread(posted_call, url, ended, session))
        await eventually_async(lambda: [each for each in status().clients if each.calls and each.token == "ended"])
        assert quarterdeck_forked("token", "revoke", "ended").returncode == 0
        answer = await under_way
        assert "was revoked" in answer.text
        assert posted(url, ended, **session).status_code == 401
        assert not (await client.call_tool("mine__echo", {"text": "still"})).is_error


async def opened(url: str, shown: str) -> dict[str, str]:
    """The header of a session of a client that is not the SDK's."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    headers = {"Authorization": f"Bearer {shown}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http:
        session = {"Mcp-Session-Id": (await http.post(url, json=hello)).headers["mcp-session-id"]}
        greeted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await http.post(url, json=greeted, headers=session)).status_code == 202
    return session


def posted_call(url: str, shown: str, session: dict[str, str]) -> httpx2.Response:
    """The answer to a call that nobody answers before something ends."""
    call: dict[str, Any] = {"name": "mine__slow", "arguments": {"seconds": 60}}
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call}
    headers = {"Authorization": f"Bearer {shown}", "Accept": "application/json, text/event-stream", **session}
    return httpx2.post(url, json=body, headers=headers, timeout=DEADLINE_S)


@pytest.mark.nightly
async def test_what_ends_is_said_and_who_comes_back_is_served(folder: Path) -> None:
    """A client would wait for ever for its answer, or be told nothing that it can act upon."""
    url, owner = url_of_up(), read_token(token_path())
    session = await opened(url, owner)
    under_way = asyncio.create_task(asyncio.to_thread(posted_call, url, owner, session))
    await eventually_async(lambda: [each for each in status().clients if each.calls])
    assert quarterdeck_forked("up", "--replace").returncode == 0
    answer = await under_way
    assert "shutting down" in answer.text
    assert '"delivery":"unknown"' in answer.text.replace(" ", "")
    replaced = status()
    assert replaced.stays
    assert replaced.http.url == url
    own_file(folder).unlink()
    away = posted(url, owner, **session)
    assert away.status_code == 503
    assert "the deck 'user' cannot be served: no configuration is given, and none is found" in away.json()["error"]
    write_config(own_file(folder), mine=row("echo"))
    gone = posted(url, owner, **session)
    assert gone.status_code == 404
    assert "Session not found" in gone.text
    os.kill(replaced.pid, signal.SIGKILL)
    assert await asyncio.to_thread(wait_until_gone, replaced.pid)
    assert quarterdeck_json_forked("up")["http"]["url"] == url
    async with connected(url, "legacy", owner) as client:
        assert await servers_of(client) == {"mine"}


@pytest.mark.nightly
def test_what_keeps_the_daemon_from_listening_is_said(folder: Path) -> None:
    """A person would believe that it listens, and look for the mistake in each client."""
    url = url_of_up()
    port = url.split(":")[2].partition("/")[0]
    elsewhere = quarterdeck_forked("up", "--http", "127.0.0.1:1")
    assert (elsewhere.returncode, f"it listens at {url} already" in elsewhere.stderr) == (2, True)
    assert quarterdeck_forked("down").returncode == 0
    with socket.create_server(("127.0.0.1", int(port))):
        taken = quarterdeck_forked("up", "--http", f"127.0.0.1:{port}")
        assert (taken.returncode, "another program listens on this port" in taken.stderr) == (2, True)
        assert "another program" in quarterdeck_forked("status").stdout
    # It may have tried again meanwhile, and listen.
    assert url_of_up("--replace").startswith("http://127.0.0.1:")
    assert quarterdeck_forked("up", "--http", "nowhere:x").returncode == 2
    quarterdeck_forked("down")

    write_document(own_file(folder), mcpServers={}, http={"adress": "127.0.0.1:1"})
    broken = quarterdeck_forked("up")
    assert broken.returncode == 2
    assert "did you mean 'address'" in broken.stderr
    quarterdeck_forked("down")
    write_document(own_file(folder), mcpServers={}, http=f"127.0.0.1:{port}")
    listening = quarterdeck_json_forked("up")
    assert (listening["stays"], listening["http"]["url"]) == (True, url)
    assert quarterdeck_forked("up", "--http", "127.0.0.1:0").returncode == 2
    wanted = url_of_up("--replace")
    assert wanted != url, "the key of the file counted for more than the command"
    assert quarterdeck_json_forked("up")["http"]["url"] == wanted


def opened_sockets(url: str, stopped: threading.Event) -> Iterator[bool]:
    """Whether each connection that is tried until then is let into the queue."""
    where = httpx2.URL(url)
    while not stopped.is_set():
        try:
            socket.create_connection((where.host, where.port or 0), timeout=DEADLINE_S).close()
            yield True
        except ConnectionRefusedError:
            yield False


@pytest.mark.nightly
def test_a_client_that_comes_while_no_daemon_lives_is_served_by_the_next_one(folder: Path) -> None:
    """Every client over HTTP would be refused for as long as another daemon takes to start."""
    url, owner = url_of_up(), read_token(token_path())
    with door(own_file(folder)) as client:
        client.initialize()
        client.list_tools()
        # What needs the SDK, which the next daemon imports beside HTTP: two imports at once are a deadlock.
        client.send("logging/setLevel", {"level": "info"})
        pid = status().pid
        with start_lock(daemon_dir()):  # nothing starts another daemon in here
            os.kill(pid, signal.SIGKILL)
            assert wait_until_gone(pid)
            waiting = socket.create_connection((httpx2.URL(url).host, httpx2.URL(url).port or 0))
        with waiting:
            answer = posted(url, owner, **{"Mcp-Session-Id": "gone"})
            assert answer.status_code == 404  # a session of the daemon that died
        assert status().http is not None
        assert status().pid != pid


def test_no_client_is_refused_while_the_daemon_is_replaced(folder: Path) -> None:
    """An upgrade would be seen by every client over HTTP, though a daemon was there before and is there after."""
    url = url_of_up()
    stopped, found = threading.Event(), list[bool]()
    knocking = threading.Thread(target=lambda: found.extend(opened_sockets(url, stopped)))
    knocking.start()
    try:
        assert quarterdeck_forked("up", "--replace").returncode == 0
    finally:
        stopped.set()
        knocking.join()
    assert len(found) > 1
    assert all(found)
