"""The stage of a rug pull: a server that turns its coat, a `serve` before it, a client that stays, a person beside."""

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from mcp.client.client import Client
from mcp_types import ToolListChangedNotification

from support.processes.commands import DEADLINE_S, is_found, popen_forked, quarterdeck_forked
from support.processes.forked_stdio import forked_stdio
from support.processes.programs import SERVERS
from support.waiting import eventually_async

Json = dict[str, Any]

PAUSE_S: Final = 0.1
"""Between two commands of a person who waits for something."""

TOOL: Final[Json] = {
    "name": "lend",
    "title": "Lend",
    "description": "Lend a book to a reader of the library.",
    "inputSchema": {"type": "object", "properties": {"book": {"type": "string"}}, "required": ["book"]},
    "outputSchema": {"type": "object", "properties": {"pid": {"type": "integer"}}, "required": ["pid"]},
    "annotations": {"readOnlyHint": True},
    "_meta": {"example.com/owner": "library"},
}

OTHER: Final[Json] = {"name": "weather", "description": "Tell the weather.", "inputSchema": {"type": "object"}}


class Author:
    """Who writes what a `turncoat.py` offers.

    Attributes:
        path: the file.
        offer: what it says, to be changed and then `publish`ed.
    """

    def __init__(self, folder: Path, *, scripts: Path = SERVERS) -> None:
        self.path: Final = folder / "offer.json"
        self._scripts = scripts
        self.offer: Json = {"instructions": "A library.", "tools": [copy.deepcopy(TOOL), copy.deepcopy(OTHER)]}
        self.publish()

    def tool(self, name: str = "lend") -> Json:
        tool: Json = next(tool for tool in self.offer["tools"] if tool["name"] == name)
        return tool

    def publish(self) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(self.offer))
        draft.replace(self.path)

    def row(self, *options: str, **fields: object) -> Json:
        argv = [str(self._scripts / "turncoat.py"), str(self.path), *options]
        # The folder, not the file: each change is another file under the same name.
        return {
            "command": sys.executable,
            "args": argv,
            "sandbox": {"read": [str(self._scripts), str(self.path.parent)]},
            **fields,
        }


class Connected:
    """A client of a `serve`, and the commands of a person who uses the same configuration at a terminal."""

    def __init__(self, client: Client, config: Path | None, cwd: Path, log: Path, pid: int) -> None:
        self.client: Final = client
        self.pid: Final = pid
        self._news = anyio.Event()
        self._whom = ("--config", str(config)) if config is not None else ()
        self._cwd = cwd
        self._log = log

    def hear(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def tools(self) -> dict[str, Json]:
        listed = await self.client.list_tools()
        return {tool.name: tool.model_dump(by_alias=True, exclude_none=True) for tool in listed.tools}

    async def until(self, is_so: Callable[[dict[str, Json]], bool], what: str) -> dict[str, Json]:
        """Look at the list, again after each notification and never without one, until it is so."""
        with anyio.fail_after(DEADLINE_S, reason=what):
            while True:
                news = self._news
                if is_so(tools := await self.tools()):
                    return tools
                await news.wait()

    async def call(self, name: str, **arguments: object) -> tuple[str, bool]:
        result = await self.client.call_tool(name, arguments)
        return "".join(block.text for block in result.content if block.type == "text"), bool(result.is_error)

    async def command(self, *arguments: str) -> Any:
        """What a successful command prints with `--json`; it is run where the `serve` was."""
        ended = await asyncio.to_thread(self._run, *arguments, *self._whom)
        assert ended.returncode == 0, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return json.loads(ended.stdout)

    async def ledger(self, *arguments: str) -> list[Any]:
        ended = await asyncio.to_thread(self._run, "ledger", *arguments)
        assert ended.returncode == 0, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return [json.loads(line) for line in ended.stdout.splitlines()]

    async def fails(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        ended = await asyncio.to_thread(self._run, *arguments, *self._whom)
        assert ended.returncode != 0, (arguments, ended.stdout)
        return ended

    async def difference(self, server: str) -> Json:
        [difference] = (await self.command("trust", "diff", server))["servers"]
        assert isinstance(difference, dict)
        return difference

    async def states(self, server: str) -> dict[str, str]:
        """What `trust list` says of a server: a tool's name, or the subject, and its state."""
        servers = (await self.command("trust", "list", "--all"))["servers"]
        [found] = [each for each in servers if each["server"] == server]
        return {item["name"] or item["subject"]: item["state"] for item in found["items"]}

    async def states_of(self, server: str, **wanted: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if (await self.states(server)).items() >= wanted.items():
                    return
                await asyncio.sleep(PAUSE_S)

    async def approve_start(self, server: str) -> None:
        """Approve how a server is started that came while the `serve` ran, and asks for more than the default."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                servers = (await self.command("ps"))["servers"]
                if any(each["id"] == server and "launch_held" in str(each["fault"]) for each in servers):
                    break
                await asyncio.sleep(PAUSE_S)
        await self.command("trust", "approve", server, "--all")

    def logged(self) -> str:
        return self._log.read_text()

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return quarterdeck_forked(*arguments, "--json", cwd=self._cwd)


@asynccontextmanager
async def connected(
    config: Path | None, folder: Path, *options: str, waits: bool = True, mode: str = "legacy"
) -> AsyncIterator[Connected]:
    """A stock client of a `serve` of this configuration; without one, of what is found in `folder`."""
    whom = ("--config", str(config)) if config is not None else ()
    words = ("serve", *whom, *options)
    log = folder / "serve.log"
    heard: list[Connected] = []

    async def listen(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            for each in heard:
                each.hear()

    with log.open("ab") as errors, popen_forked(words, cwd=folder, stderr=errors) as serve:
        async with Client(forked_stdio(serve), mode=mode, cache=None, message_handler=listen) as client:
            if waits:
                await eventually_async(lambda: is_found(serve.pid), DEADLINE_S, "a serve that can be found")
            heard.append(Connected(client, config, folder, log, serve.pid))
            yield heard[0]
