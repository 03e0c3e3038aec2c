"""What was decided lasts: over a restart, and while servers are slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from support.config.places import write_config
from support.processes.commands import DEADLINE_S
from support.processes.kept import Kept
from support.serves.changing_server import Author, Connected, Json, connected
from support.serves.shared_serve import open_folder
from support.waiting import eventually_async

pytestmark = pytest.mark.anyio

SERVERS: Final = ("steady", "held", "sly")
"""One for each test of a restart."""


@dataclass(frozen=True)
class Start:
    """What a client is told by a `serve`: in its greeting, and as its tools."""

    greeting: str | None
    tools: dict[str, Json]

    def of(self, server: str) -> dict[str, Json]:
        """The tools of one server."""
        return {name: tool for name, tool in self.tools.items() if name.startswith(f"{server}__")}


@dataclass(frozen=True)
class Restart:
    """A `serve` that was started a second time, with servers that answer nothing until they are let in.

    Attributes:
        first: the start before.
        second: this one, before any server was there.
        keys: those under which the tools of `steady` had joined before.
        phases: how the servers were at that moment.
        impatience: a call of `steady` from that moment, and how it ended.
    """

    client: Connected
    folder: Path
    first: Start
    second: Start
    keys: list[str]
    phases: dict[str, str]
    impatience: "asyncio.Task[tuple[str, bool]]"

    async def let_in(self, server: str) -> None:
        """Let a server answer, and wait for it."""
        self.open(server)
        await eventually_async(lambda: f"{server} is ready" in self.client.logged(), DEADLINE_S, "the server")

    def open(self, server: str) -> None:
        """Let a server answer."""
        gate_of(self.folder, server).touch()

    async def tools(self, server: str) -> dict[str, Json]:
        """What the client is shown of a server now."""
        return Start(None, await self.client.tools()).of(server)


def gate_of(folder: Path, server: str) -> Path:
    """The file without which a server answers nothing."""
    return folder / server / "gate"


async def enrolments(client: Connected, server: str) -> list[str]:
    """The keys under which a server's tools joined, in order."""
    events = await client.ledger("log", "--kind", "enroll", "--server", server, "--reverse", "--lines", "1000")
    return [event["event"]["key"] for event in events]


@asynccontextmanager
async def restarted() -> AsyncIterator[Restart]:
    """Start it twice, with the same configuration; see to it that the second time no server is quick."""
    with open_folder() as folder, pytest.MonkeyPatch.context() as patch:
        # A greeting tells what the last `serve` held, whatever its configuration was.
        patch.setenv("QUARTERDECK_STATE_DIR", str(folder / "state"))
        authors = {}
        for server in SERVERS:
            (folder / server).mkdir(mode=0o755)
            authors[server] = Author(folder / server)
            gate_of(folder, server).touch()
        rows = {each: author.row("--wait", str(gate_of(folder, each))) for each, author in authors.items()}
        config = write_config(folder / "mcp.json", **rows)
        lent = {f"{server}__lend" for server in SERVERS}
        async with connected(config, folder) as client:
            tools = await client.until(lambda tools: lent <= tools.keys(), "the servers")
            first = Start(client.client.instructions, tools)
            keys = await enrolments(client, "steady")
            authors["held"].tool()["description"] = "Another text."
            authors["held"].publish()
            await client.until(lambda tools: "held__lend" not in tools, "the tool is caught")
        for server in SERVERS:
            gate_of(folder, server).unlink()
        authors["sly"].tool()["description"] = "Another text."
        authors["sly"].offer["says"] = "the other one"
        authors["sly"].publish()
        (folder / "serve.log").unlink()
        async with connected(config, folder) as client:
            second = Start(client.client.instructions, await client.tools())
            phases = {each["id"]: each["phase"] for each in (await client.command("ps"))["servers"]}
            impatience = asyncio.create_task(client.call("steady__lend", book="x"))
            try:
                yield Restart(client, folder, first, second, keys, phases, impatience)
            finally:
                impatience.cancel()


@pytest.fixture(scope="module")
async def kept() -> AsyncIterator[Kept[Restart]]:
    """One restart, for all tests."""
    kept = Kept(restarted, lambda restart: restart.client.tools())
    yield kept
    await kept.close()


@pytest.fixture
async def restart(kept: Kept[Restart]) -> Restart:
    return await kept.get()


async def test_a_restart_answers_at_once_from_what_was_approved_and_changes_no_key(restart: Restart) -> None:
    """Each start would leave the client without tools until the slowest server is up, or with others than before."""
    before = restart.first.of("steady")
    assert restart.second.of("steady") == before
    assert restart.phases["steady"] == "connecting"
    await restart.let_in("steady")
    # A call that finds its server starting waits for it.
    assert await restart.impatience == ("lend from me", False)
    assert await restart.tools("steady") == before
    assert await enrolments(restart.client, "steady") == restart.keys


async def test_what_is_held_stays_held_over_a_restart_and_the_client_is_told(restart: Restart) -> None:
    """A restart would be the way around every approval."""
    assert restart.first.greeting is not None
    assert "held" not in restart.first.greeting.partition("Still starting")[0]
    assert restart.second.greeting is not None
    assert "1 tool is held" in restart.second.greeting
    assert set(restart.second.of("held")) == {"held__weather"}
    await restart.let_in("held")
    client = restart.client
    text, is_error = await client.call("held__lend", book="x")
    assert is_error
    assert "quarterdeck trust approve held lend" in text
    assert set(await restart.tools("held")) == {"held__weather"}
    await client.command("trust", "approve", "held", "lend")
    await client.until(lambda tools: "held__lend" in tools, "the tool is back")


async def test_a_server_that_changes_while_nobody_looks_is_caught_by_the_first_call(restart: Restart) -> None:
    """The tools of the last time are offered before the server is asked: a call must not go by their approval."""
    assert "sly__lend" in restart.second.tools
    client = restart.client
    restart.open("sly")
    text, is_error = await client.call("sly__lend", book="x")
    while "sly is connecting" in text:  # on a busy machine the first call gives up before the server is there
        text, is_error = await client.call("sly__lend", book="x")
    assert is_error
    assert "quarterdeck trust approve sly lend" in text
    await client.until(lambda tools: "sly__lend" not in tools, "the tool is caught")
