"""Clients that others wrote, through doors and over HTTP, three at a time against one daemon."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import pytest
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, command, quarterdeck_forked, quarterdeck_json_forked
from support.processes.leftovers import no_leftovers
from support.servers.real_servers import Installed, install_npm_clients, install_python_client

from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import daemon_dir

pytestmark = pytest.mark.anyio

AT_ONCE: Final = 3

CALLS: Final = 5

SERVED: Final = "served"

PYTHON: Final = """\
import asyncio, json, sys
from contextlib import AsyncExitStack
target, name, calls = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])

async def main():
    async with AsyncExitStack() as stack:
        session = await connect(stack)
        listed = await session.list_tools()
        assert "s__echo" in [tool.name for tool in getattr(listed, "tools", listed)]
        for number in range(calls):
            text = f"{name} {number}"
            result = await session.call_tool("s__echo", {"text": text})
            assert [block.text for block in result.content] == [text]
    print("served")
"""

MCP_1: Final = """
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

async def connect(stack):
    if "url" in target:
        transport = streamablehttp_client(target["url"], headers=target["headers"])
    else:
        transport = stdio_client(StdioServerParameters(**target))
    read, write, *_ = await stack.enter_async_context(transport)
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()
    return session

asyncio.run(main())
"""

FASTMCP: Final = """
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

async def connect(stack):
    transport = StreamableHttpTransport if "url" in target else StdioTransport
    return await stack.enter_async_context(Client(transport(**target)))

asyncio.run(main())
"""

TYPESCRIPT: Final = """
const [sdk, given, name, calls] = process.argv.slice(1);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const target = JSON.parse(given);
const client = new Client({ name: "typescript", version: "1" });
await client.connect(target.url
  ? new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers: target.headers } })
  : new StdioClientTransport(target));
const { tools } = await client.listTools();
if (!tools.some((tool) => tool.name === "s__echo")) throw new Error(JSON.stringify(tools));
for (let number = 0; number < calls; number++) {
  const text = `${name} ${number}`;
  const result = await client.callTool({ name: "s__echo", arguments: { text } });
  if (result.content.length !== 1 || result.content[0].text !== text) throw new Error(JSON.stringify(result));
}
await client.close();
console.log("served");
"""


@pytest.fixture(scope="module")
def targets(own_directories: Path) -> Iterator[dict[str, dict[str, object]]]:
    """How the daemon is reached, through a door and over HTTP; nothing is left of it."""
    with no_leftovers(DEADLINE_S), pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        patch.setenv("HOME", str(own_directories / "home"))
        patch.setenv("XDG_CONFIG_HOME", str(own_directories / "config"))
        write_config(own_directories / "config" / "quarterdeck" / "mcp.json", s=row("echo"))
        url = quarterdeck_json_forked("up", "--http", "127.0.0.1:0")["http"]["url"]
        token = quarterdeck_json_forked("token", "create", "theirs")["token"]
        program, *args = command("serve")
        try:
            yield {
                "door": {"command": program, "args": args, "env": dict(os.environ)},
                "http": {"url": url, "headers": {"Authorization": f"Bearer {token}"}},
            }
        finally:
            quarterdeck_forked("down")


def argv(client: str, target: dict[str, object], name: str, basetemp: Path) -> tuple[list[str], str]:
    """A client's command line, and what has to be in what it prints."""
    words = [json.dumps(target), name, str(CALLS)]
    if client in ("mcp", "fastmcp"):
        (python,) = found(install_python_client(client, basetemp))
        return [python, "-W", "ignore", "-c", PYTHON + (MCP_1 if client == "mcp" else FASTMCP), *words], SERVED
    node, sdk, inspector = found(install_npm_clients(basetemp))
    if client == "typescript":
        return [node, "--input-type=module", "--eval", TYPESCRIPT, sdk, *words], SERVED
    asked = ["--method", "tools/call", "--tool-name", "s__echo", "--tool-arg", f"text={name}"]
    if "url" not in target:
        return [node, inspector, *command("serve"), *asked], f'"text": "{name}"'
    header = ["--header", f"Authorization: {target['headers']['Authorization']}"]  # type: ignore[index]
    return [node, inspector, str(target["url"]), "--transport", "http", *asked, *header], f'"text": "{name}"'


def found(installed: Installed) -> tuple[str, ...]:
    """What was installed; without it the test is skipped."""
    if installed.missing:
        pytest.skip(installed.missing)
    return installed.argv


async def run(words: list[str], expected: str) -> None:
    """Run a client to its end, which is what it has to be."""
    done = await anyio.run_process(words, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    assert expected in done.stdout.decode(), said


@pytest.mark.parametrize("client", ["mcp", "fastmcp", "typescript", "inspector"])
async def test_clients_of_others_are_served_through_doors_and_over_http(
    client: str, targets: dict[str, dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What our own client reads, another maker's may not: its users would have no tools, or others' answers."""
    basetemp = tmp_path_factory.getbasetemp()
    for way, target in targets.items():
        lines = [argv(client, target, f"{client} {way} {number}", basetemp) for number in range(AT_ONCE)]
        with anyio.fail_after(3 * DEADLINE_S):
            await asyncio.gather(*(run(*line) for line in lines))
    status = await asyncio.to_thread(ask_daemon, daemon_dir(), Order.STATUS)
    assert {(deck.servers, deck.ready) for deck in status.decks} == {(1, 1)}
    assert len(status.servers) == 1, "all share it"
