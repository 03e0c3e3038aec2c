"""The task clients of the SDKs, which others wrote: each has tasks of servers of its era, and answers of the others."""

import json
import os
from collections.abc import Iterator
from typing import Final

import anyio
import pytest
from support.clients.raw_client import JsonObject
from support.config.places import row
from support.processes.commands import DEADLINE_S, PATIENT, command
from support.servers.real_servers import install_npm_clients, install_python_client
from support.serves.daemons import doors_at_home

from .test_peoples_clients import found

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]


TOLD: Final = {"working": "input_required", "asked": "did it for Ada", "held": "did held", "cancelled": "cancelled"}
"""What a client prints of a task that asks, of a newer server's tool for tasks alone, and of a task that it cancels."""

PYTHON: Final = """\
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, ElicitResult
target = json.loads(sys.argv[1])

async def ask(context, params):
    return ElicitResult(action="accept", content={"name": "Ada"})

async def main():
    async with stdio_client(StdioServerParameters(**target)) as streams:
        async with ClientSession(*streams, elicitation_callback=ask) as session:
            await session.initialize()
            while not [tool for tool in (await session.list_tools()).tools if tool.name == "old__asks"]:
                await asyncio.sleep(0.05)
            tasks = session.experimental
            made = await tasks.call_tool_as_task("old__asks", {}, ttl=60_000)
            task = made.task.taskId
            state = await tasks.get_task(task)
            asked = await tasks.get_task_result(task, CallToolResult)
            async for ended in tasks.poll_task(task):
                pass
            assert ended.status == "completed", ended
            assert task in [each.taskId for each in (await tasks.list_tasks()).tasks]
            held = await session.call_tool("new__only", {"text": "held", "way": "soon"})
            other = await tasks.call_tool_as_task("old__work", {}, ttl=60_000)
            cancelled = await tasks.cancel_task(other.task.taskId)
            print(json.dumps({
                "working": state.status,
                "asked": asked.content[0].text,
                "held": held.content[0].text,
                "cancelled": cancelled.status,
            }))

asyncio.run(main())
"""

TYPESCRIPT: Final = """
const [sdk, given] = process.argv.slice(1);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { CallToolResultSchema, ElicitRequestSchema } = await import(`${sdk}/dist/esm/types.js`);
const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: { name: "Ada" } }));
await client.connect(new StdioClientTransport(JSON.parse(given)));
while (!(await client.listTools()).tools.some((tool) => tool.name === "old__asks"))
  await new Promise((resolve) => setTimeout(resolve, 50));
const tasks = client.experimental.tasks;
const seen = [];
let asked, id;
for await (const message of tasks.callToolStream(
  { name: "old__asks", arguments: {} }, CallToolResultSchema, { task: { ttl: 60000 } })) {
  if (message.type === "taskCreated") id = message.task.taskId;
  if (message.type === "taskStatus") seen.push(message.task.status);
  if (message.type === "result") asked = message.result.content[0].text;
  if (message.type === "error") throw message.error;
}
const { tasks: listed } = await tasks.listTasks();
if (!listed.some((each) => each.taskId === id && each.status === "completed")) throw new Error(JSON.stringify(listed));
const held = { name: "new__only", arguments: { text: "held", way: "soon" } };
const done = await client.request({ method: "tools/call", params: held }, CallToolResultSchema);
let cancelled;
for await (const message of tasks.callToolStream(
  { name: "old__work", arguments: {} }, CallToolResultSchema, { task: { ttl: 60000 } })) {
  if (message.type !== "taskCreated") continue;
  cancelled = await tasks.cancelTask(message.task.taskId);
  break;
}
console.log(JSON.stringify({
  working: seen[0], asked, held: done.content[0].text, cancelled: cancelled.status,
}));
await client.close();
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JsonObject]:
    """How a client starts its door to one daemon; nothing is left of that."""
    servers = {"old": row("tasking", "--legacy"), "new": row("tasking", protocol="2026-07-28")}
    folder = tmp_path_factory.mktemp("tasks")
    with doors_at_home(folder, **servers):
        program, *args = command("serve", *PATIENT)
        yield {"command": program, "args": args, "env": dict(os.environ), "cwd": str(folder)}


@pytest.mark.parametrize("client", ["python", "typescript"])
async def test_a_task_client_of_an_sdk_has_tasks_of_its_own_era_and_answers_of_the_other(
    client: str, target: JsonObject, own_directories: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What our own client takes for a task, an SDK's strict models may refuse; or it would poll for ever."""
    basetemp = tmp_path_factory.getbasetemp()
    if client == "python":
        (python,) = found(install_python_client("mcp", basetemp))
        words = [python, "-W", "ignore", "-c", PYTHON, json.dumps(target)]
    else:
        node, sdk, _ = found(install_npm_clients(basetemp))
        words = [node, "--input-type=module", "--eval", TYPESCRIPT, sdk, json.dumps(target)]
    with anyio.fail_after(3 * DEADLINE_S):
        done = await anyio.run_process(words, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    assert json.loads(done.stdout) == TOLD, said
