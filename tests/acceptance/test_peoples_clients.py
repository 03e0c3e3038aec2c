"""Clients that others wrote, through doors and over HTTP, three at a time against one daemon."""

import asyncio
import json
import os
import sys
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

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]

AT_ONCE: Final = 3

CALLS: Final = 5

SERVED: Final = "served"

TOLD: Final = {
    "listed": True,
    "read": "This is the content of the static text resource.",
    "prompt": "Prompt with arguments: arg1='a', arg2='b'",
    "completed": ["par", "paris", "park"],
    "asked": "Ada",
}
"""What a client tells of a server that has more than tools, and asks who is there; the line of JSON that it prints."""

PYTHON: Final = """\
import asyncio, json, sys
from contextlib import AsyncExitStack
target, name, calls, clients = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def be_served(name):
    async with AsyncExitStack() as stack:
        session = await connect(stack)
        listed = await session.list_tools()
        assert "s__echo" in [tool.name for tool in getattr(listed, "tools", listed)]
        for number in range(calls):
            text = f"{name} {number}"
            result = await session.call_tool("s__echo", {"text": text})
            assert [block.text for block in result.content] == [text]

async def main():
    await asyncio.gather(*(be_served(f"{name} {number}") for number in range(clients)))
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
    session = await stack.enter_async_context(ClientSession(read, write, **callbacks))
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

OFFERS: Final = """\
import asyncio, json, sys
from contextlib import AsyncExitStack
target, era = json.loads(sys.argv[1]), sys.argv[2]

async def main():
    async with AsyncExitStack() as stack:
        session = await connect(stack)
        resources, prompts = await session.list_resources(), await session.list_prompts()
        listed = {str(each.uri) for each in getattr(resources, "resources", resources)}
        named = {each.name for each in getattr(prompts, "prompts", prompts)}
        read = await session.read_resource("test://static-text")
        given = {"arg1": "a", "arg2": "b"}
        prompt = await session.get_prompt("all__test_prompt_with_arguments", given)
        ref = PromptReference(type="ref/prompt", name="all__test_prompt_with_arguments")
        completed = await session.complete(ref, {"name": "arg1", "value": "par"})
        asked = await session.call_tool("all__test_input_required_result_elicitation", {})
        print(json.dumps({
            "listed": "test://static-text" in listed and "all__test_prompt_with_arguments" in named,
            "read": getattr(read, "contents", read)[0].text,
            "prompt": prompt.messages[0].content.text,
            "completed": getattr(completed, "completion", completed).values[:3],
            "asked": "Ada" if "'Ada'" in asked.content[0].text else asked.content[0].text,
        }))
"""

OFFERS_MCP_1: Final = (
    """
from mcp.types import ElicitResult, PromptReference

async def ask(context, params):
    return ElicitResult(action="accept", content={"name": "Ada"})

callbacks = {"elicitation_callback": ask}
"""
    + MCP_1
)

OFFERS_MCP_2: Final = """
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import ElicitResult, PromptReference

async def ask(context, params):
    return ElicitResult(action="accept", content={"name": "Ada"})

async def connect(stack):
    if "url" in target:
        http = await stack.enter_async_context(create_mcp_http_client(headers=target["headers"]))
        transport = streamable_http_client(target["url"], http_client=http)
    else:
        transport = stdio_client(StdioServerParameters(**target))
    return await stack.enter_async_context(Client(transport, mode=era, elicitation_callback=ask, cache=None))

asyncio.run(main())
"""

OFFERS_FASTMCP: Final = """
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp.types import PromptReference

async def ask(message, response_type, params, context):
    return ElicitResult(action="accept", content={"name": "Ada"})

async def connect(stack):
    transport = StreamableHttpTransport if "url" in target else StdioTransport
    return await stack.enter_async_context(Client(transport(**target), elicitation_handler=ask))

asyncio.run(main())
"""

OFFERS_TYPESCRIPT: Final = """
const [sdk, given] = process.argv.slice(1);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const { ElicitRequestSchema } = await import(`${sdk}/dist/esm/types.js`);
const target = JSON.parse(given);
const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: { name: "Ada" } }));
await client.connect(target.url
  ? new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers: target.headers } })
  : new StdioClientTransport(target));
const name = "all__test_prompt_with_arguments";
const { resources } = await client.listResources();
const { prompts } = await client.listPrompts();
const read = await client.readResource({ uri: "test://static-text" });
const prompt = await client.getPrompt({ name, arguments: { arg1: "a", arg2: "b" } });
const ref = { type: "ref/prompt", name };
const { completion } = await client.complete({ ref, argument: { name: "arg1", value: "par" } });
const asked = await client.callTool({ name: "all__test_input_required_result_elicitation", arguments: {} });
const { text } = asked.content[0];
console.log(JSON.stringify({
  listed: resources.some((each) => each.uri === "test://static-text") && prompts.some((each) => each.name === name),
  read: read.contents[0].text,
  prompt: prompt.messages[0].content.text,
  completed: completion.values.slice(0, 3),
  asked: text.includes("'Ada'") ? "Ada" : text,
}));
await client.close();
"""

INSPECTED: Final = {
    "resources/list": ('"uri": "test://static-text"',),
    "resources/read": ("content of the static text resource", "--uri", "test://static-text"),
    "prompts/list": ('"name": "all__test_simple_prompt"',),
    "prompts/get": ("a simple prompt for testing", "--prompt-name", "all__test_simple_prompt"),
}
"""What the Inspector's command line can do of it: what it shows, and what it has to be told."""

TYPESCRIPT: Final = """
const [sdk, given, name, calls, clients] = process.argv.slice(1);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const target = JSON.parse(given);
async function beServed(name) {
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
}
await Promise.all([...Array(Number(clients)).keys()].map((number) => beServed(`${name} ${number}`)));
console.log("served");
"""


@pytest.fixture(scope="module")
def targets(own_directories: Path) -> Iterator[dict[str, dict[str, object]]]:
    """How the daemon is reached, through a door and over HTTP; nothing is left of it."""
    with no_leftovers(DEADLINE_S), pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        patch.setenv("HOME", str(own_directories / "home"))
        patch.setenv("XDG_CONFIG_HOME", str(own_directories / "config"))
        config = own_directories / "config" / "quarterdeck" / "mcp.json"
        write_config(config, s=row("echo"), all=row("conformance"))
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


def argvs(client: str, target: dict[str, object], name: str, basetemp: Path) -> list[tuple[list[str], str]]:
    """The command lines of so many clients at once, and what has to be in what each prints.

    Those that are programs of ours have all of them in one process: most of what one costs is loading the client.
    """
    words = [json.dumps(target), name, str(CALLS), str(AT_ONCE)]
    if client in ("mcp", "fastmcp"):
        (python,) = found(install_python_client(client, basetemp))
        connect = "callbacks = {}" + MCP_1 if client == "mcp" else FASTMCP
        return [([python, "-W", "ignore", "-c", PYTHON + connect, *words], SERVED)]
    node, sdk, inspector = found(install_npm_clients(basetemp))
    if client == "typescript":
        return [([node, "--input-type=module", "--eval", TYPESCRIPT, sdk, *words], SERVED)]
    texts = [f"{name} {number}" for number in range(AT_ONCE)]
    asked = ("--tool-name", "s__echo", "--tool-arg")
    return [
        (inspect(node, inspector, target, "tools/call", *asked, f"text={text}"), f'"text": "{text}"') for text in texts
    ]


def inspect(node: str, inspector: str, target: dict[str, object], method: str, *asked: str) -> list[str]:
    """The command line of the Inspector for one request."""
    if "url" not in target:
        return [node, inspector, *command("serve"), "--method", method, *asked]
    header = ["--header", f"Authorization: {target['headers']['Authorization']}"]  # type: ignore[index]
    return [node, inspector, str(target["url"]), "--transport", "http", "--method", method, *asked, *header]


def offers_argv(client: str, target: dict[str, object], basetemp: Path) -> list[str]:
    """The command line of a client that tries what there is beside tools."""
    given, (kind, _, era) = json.dumps(target), client.partition(", ")
    if kind == "typescript":
        node, sdk, _ = found(install_npm_clients(basetemp))
        return [node, "--input-type=module", "--eval", OFFERS_TYPESCRIPT, sdk, given]
    if kind == "mcp 2":
        return [sys.executable, "-W", "ignore", "-c", OFFERS + OFFERS_MCP_2, given, era]
    (python,) = found(install_python_client(kind, basetemp))
    connect = OFFERS_MCP_1 if kind == "mcp" else OFFERS_FASTMCP
    return [python, "-W", "ignore", "-c", OFFERS + connect, given, era]


def found(installed: Installed) -> tuple[str, ...]:
    """What was installed; without it the test is skipped."""
    if installed.missing:
        pytest.skip(installed.missing)
    return installed.argv


async def run(words: list[str], expected: str) -> str:
    """Run a client to its end, which is what it has to be; what it printed."""
    done = await anyio.run_process(words, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    assert expected in done.stdout.decode(), said
    return done.stdout.decode()


@pytest.mark.parametrize("client", ["mcp", "fastmcp", "typescript", "inspector"])
async def test_clients_of_others_are_served_through_doors_and_over_http(
    client: str, targets: dict[str, dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What our own client reads, another maker's may not: its users would have no tools, or others' answers."""
    basetemp = tmp_path_factory.getbasetemp()
    for way, target in targets.items():
        with anyio.fail_after(3 * DEADLINE_S):
            await asyncio.gather(*(run(*line) for line in argvs(client, target, f"{client} {way}", basetemp)))
    status = await asyncio.to_thread(ask_daemon, daemon_dir(), Order.STATUS)
    assert {(deck.servers, deck.ready) for deck in status.decks} == {(2, 2)}
    assert len(status.servers) == 2, "all share them"


@pytest.mark.parametrize("client", ["mcp", "mcp 2, legacy", "mcp 2, auto", "fastmcp", "typescript"])
async def test_clients_of_others_have_what_there_is_beside_tools_and_answer_what_they_are_asked(
    client: str, targets: dict[str, dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What passes raw JSON, the models of another maker's client may refuse."""
    for target in targets.values():
        with anyio.fail_after(DEADLINE_S):
            printed = await run(offers_argv(client, target, tmp_path_factory.getbasetemp()), "{")
        assert json.loads(printed.splitlines()[-1]) == TOLD


async def test_the_inspector_shows_resources_and_prompts(
    targets: dict[str, dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The first thing that one tries with a new server would show none."""
    node, _, inspector = found(install_npm_clients(tmp_path_factory.getbasetemp()))
    for target in targets.values():
        for method, (shown, *asked) in INSPECTED.items():
            with anyio.fail_after(DEADLINE_S):
                await run(inspect(node, inspector, target, method, *asked), shown)
