"""A server that each client has for itself, over HTTP: whose secrets and home it gets, and when it ends."""

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.clients.http_clients import connected
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import (
    DEADLINE_S,
    PATIENT,
    popen_forked,
    quarterdeck_forked,
    quarterdeck_json_forked,
)
from support.processes.leftovers import assert_gone, no_leftovers
from support.processes.line_child import LineChild

from quarterdeck.config.secrets.store import SecretStore
from quarterdeck.host.results import FAULT_META_KEY

CALLS = 10_000
AT_ONCE = 20


@pytest.fixture
def config(own_directories: Path, tmp_path: Path) -> Path:
    SecretStore().set("KEY", "owners", in_file=True)
    SecretStore(client="anna").set("KEY", "annas", in_file=True)
    return write_config(tmp_path / "mcp.json", s=row("echo", scope="client", env={"KEY": "${keyring:KEY}"}))


@pytest.fixture
def url(config: Path) -> Iterator[str]:
    words = ("serve", "--config", str(config), *PATIENT, "--http", "127.0.0.1:0", "--json")
    with no_leftovers(DEADLINE_S), LineChild(words, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        yield json.loads(child.read_line())["url"]
        child.process.terminate()
        assert child.process.wait(DEADLINE_S) == 0


def token(name: str) -> str:
    made = quarterdeck_json_forked("token", "create", name)["token"]
    assert isinstance(made, str)
    return made


async def given(client: Any) -> tuple[str, str]:
    """The secret and the home of the process that answers this client."""
    found = (await client.call_tool("s__env", {})).structured_content
    return found["KEY"], found["HOME"]


def processes(config: Path) -> dict[str, int]:
    """The process of each client, as `ps` shows them."""
    [server] = quarterdeck_json_forked("ps", "-c", str(config))["servers"]
    return {each["client"]: each["pid"] for each in server["of_sessions"] if each["phase"] == "ready"}


async def test_each_client_has_a_process_with_its_own_secret_until_its_token_is_revoked(url: str, config: Path) -> None:
    """Bob would act at a service as Anna, or as whoever set the server up; or go on after he was shut out."""
    anna, bob = token("anna"), token("bob")
    async with connected(url, "legacy", anna) as one, connected(url, "legacy", bob) as other:
        for each in (one, other):
            await each.list_tools()
        key, home = await given(one)
        assert (key, home.split("/")[-3:]) == ("annas", ["clients", "anna", "home"])
        refused = await other.call_tool("s__env", {})
        assert refused.meta[FAULT_META_KEY]["code"] == "missing_client_secret"
        assert refused.content[0].text.endswith("Fix: quarterdeck secret set KEY --client bob")
        assert processes(config).keys() == {"anna"}

        SecretStore(client="bob").set("KEY", "bobs", in_file=True)
        with anyio.fail_after(DEADLINE_S):
            for _ in count():
                if not (await other.call_tool("s__echo", {"text": "x"})).is_error:
                    break
                await anyio.sleep(0.1)
        assert (await given(other))[0] == "bobs"
        before = processes(config)
        assert before.keys() == {"anna", "bob"}

        SecretStore(client="anna").set("KEY", "annas new one", in_file=True)
        assert_gone([before["anna"]], DEADLINE_S)
        assert await given(one) == ("annas new one", home)
        now = processes(config)
        assert now["bob"] == before["bob"]

        assert quarterdeck_forked("token", "revoke", "bob").returncode == 0
        assert_gone([now["bob"]], DEADLINE_S)
        assert processes(config) == {"anna": now["anna"]}


def test_a_client_on_stdio_is_called_as_it_is_told(config: Path) -> None:
    """An editor would use its user's secrets where a colleague's were meant."""
    argv = ("serve", "--own", "--config", str(config), *PATIENT, "--as", "anna")
    with RawStdioClient(argv, deadline_s=DEADLINE_S, popen=popen_forked) as client:
        client.initialize()
        client.list_tools()
        assert client.call("s__env")["structuredContent"]["KEY"] == "annas"


@pytest.mark.nightly
async def test_of_ten_thousand_calls_none_gets_anothers_secret(url: str, config: Path) -> None:
    """Under load, now and then, one person's agent would act as another."""
    SecretStore(client="bob").set("KEY", "bobs", in_file=True)
    tokens = {"annas": token("anna"), "bobs": token("bob")}
    crossed: list[tuple[str, str]] = []
    async with AsyncExitStack() as stack:
        clients = [
            (wanted, await stack.enter_async_context(connected(url, mode, shown)))
            for wanted, shown in tokens.items()
            for mode in ("legacy", "auto")
        ]
        for _, each in clients:
            await each.list_tools()

        async def call(wanted: str, client: Any) -> None:
            for _ in range(CALLS // AT_ONCE):
                found, _ = await given(client)
                if found != wanted:
                    crossed.append((wanted, found))

        async with anyio.create_task_group() as tasks:
            for place in range(AT_ONCE):
                wanted, client = clients[place % len(clients)]
                tasks.start_soon(call, wanted, client)
        assert crossed == []
        before = processes(config)
        assert before.keys() == {"anna", "bob"}
        assert quarterdeck_forked("token", "revoke", "bob").returncode == 0
        assert_gone([before["bob"]], DEADLINE_S)
        async with connected(url, "auto", token("bob")) as again:
            assert (await given(again))[0] == "bobs"
