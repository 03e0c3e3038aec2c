"""What the demonstration runs on: a `quarterdeck serve` of its own, a stock MCP client and its control socket.

All of it lives in a temporary directory, and is gone at the end.  What happens is reported as events.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import psutil
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from quarterdeck.config.places.paths import configuration_digest
from quarterdeck.config.places.runtime_directory import find_serving
from quarterdeck.control.client import ask
from quarterdeck.control.protocol import Ps, ServerList, ServerView
from quarterdeck_protocol.faults import Dossier


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """One thing that is reported."""


class Scene(Event, frozen=True, tag="scene"):
    """A chapter begins."""

    title: str


class Fact(Event, frozen=True, tag="fact"):
    """Something happened."""

    text: str


class Quote(Event, frozen=True, tag="quote"):
    """What the client was told, word for word."""

    text: str


class Death(Event, frozen=True, tag="death"):
    """What is known of how a server died."""

    server: str
    dossier: Dossier


class Table(Event, frozen=True, tag="table"):
    """Rows of one shape."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Promise(Event, frozen=True, tag="promise"):
    """Something that we promise, and whether it was kept."""

    text: str
    is_kept: bool


class End(Event, frozen=True, tag="end"):
    """The last one: how many promises were kept, and how long it all took."""

    kept: int
    broken: int
    took_s: float


AnyEvent = Scene | Fact | Quote | Death | Table | Promise | End


HANG_S: Final = 1.5
"""The deadline of a call to the server that hangs: long enough to see, short enough to wait for."""

PATIENCE_S: Final = 10.0
"""For a restart, and for the end of every process."""

POLL_S: Final = 0.02

SERVERS: Final = ("tidy", "stuck", "fragile")


class DemoError(Exception):
    """The demonstration cannot go on."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the client got for a call, and after how long."""

    text: str
    is_error: bool
    took_s: float


class Setup:
    """The running `serve` and its client; made by `open_setup`."""

    def __init__(self, client: Client, runtime_root: Path, digest: str) -> None:
        self._client = client
        self._runtime_root = runtime_root
        self._digest = digest

    async def tools(self) -> tuple[tuple[str, str], ...]:
        """Names and descriptions, as the client sees them."""
        listed = await self._client.list_tools()
        return tuple((tool.name, tool.description or "") for tool in listed.tools)

    async def call(self, tool: str, on_progress: Callable[[], None] | None = None, **arguments: object) -> Reply:
        """Call a tool through the client."""

        async def progressed(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            if on_progress is not None:
                on_progress()

        began = time.perf_counter()
        result = await self._client.call_tool(tool, arguments, progress_callback=progressed if on_progress else None)
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        return Reply(text, bool(result.is_error), time.perf_counter() - began)

    async def servers(self) -> dict[str, ServerView]:
        """What `quarterdeck ps` says."""
        directory = find_serving(self._digest, self._runtime_root)
        if directory is None:
            raise DemoError("the serve of the demonstration has ended")
        answer = await asyncio.to_thread(ask, directory, Ps())
        assert isinstance(answer, ServerList)
        return {server.id: server for server in answer.servers}

    async def until(self, server: str, is_so: Callable[[ServerView], bool]) -> ServerView:
        """The state of a server once it is so, or after `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        # It happens in another process, which tells nobody.
        while not is_so(view := (await self.servers())[server]) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return view

    def processes(self) -> list[psutil.Process]:
        """Every process below this one: serve, zygote, workers, servers."""
        return psutil.Process().children(recursive=True)


@asynccontextmanager
async def open_setup() -> AsyncIterator[Setup]:
    """Start it all; the client has connected when the body begins.

    Raises:
        DemoError: it cannot be started.
    """
    # /tmp itself: the TMPDIR of the moment may be too long for a socket's path.
    with tempfile.TemporaryDirectory(prefix="quarterdeck-demo-", dir="/tmp") as folder:
        base = Path(folder)
        config = base / "servers.json"
        config.write_text(json.dumps({"mcpServers": {server: _row(server) for server in SERVERS}}))
        env = {name: value for name, value in os.environ.items() if not name.startswith("QUARTERDECK_")}
        env |= {"QUARTERDECK_STATE_DIR": str(base / "state"), "QUARTERDECK_RUNTIME_DIR": str(base / "run")}
        serve = StdioServerParameters(
            command=sys.executable,
            # The servers are ours, so that they may run where nothing confines them: it is told.
            args=["-m", "quarterdeck.cli", "serve", "--config", str(config), "--allow-unsandboxed"],
            env=env,
        )
        failure: DemoError | None = None
        with (base / "serve.log").open("w+") as log:
            async with AsyncExitStack() as stack:
                try:
                    client = await stack.enter_async_context(Client(stdio_client(serve, errlog=log), cache=None))
                except Exception as error:
                    log.seek(0)
                    raise DemoError(f"`quarterdeck serve` does not start: {log.read().strip() or error}") from error
                try:
                    yield Setup(client, base / "run", configuration_digest([config]))
                except DemoError as error:
                    # Kept from the client's task groups, which would wrap it.
                    failure = error
        if failure is not None:
            raise failure


def _row(server: str) -> dict[str, object]:
    # A server has a HOME of its own, where an interpreter finds no packages that its user has installed.
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    row: dict[str, object] = {
        "command": sys.executable,
        "args": ["-m", "quarterdeck.demo.servers", server],
        "env": env,
    }
    return row | ({"call_timeout_s": HANG_S} if server == "stuck" else {})
