"""What was decided lasts: over a restart, while servers are slow, and on a full disk."""

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import DEADLINE_S, row, write_config
from support.leftovers import eventually_async, no_leftovers
from support.rehearsing import Author, Connected, connected

from quarterdeck.config.paths import state_dir

pytestmark = pytest.mark.anyio

FULL_BYTES = 16 * 1024
"""No file may grow beyond it: the log of a few lines still can, and the ledger, as on a full disk, cannot."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that a server may read whoever it runs as; nothing of the test is left at the end."""
    with tempfile.TemporaryDirectory(prefix="qd-last-", dir="/tmp") as name, no_leftovers(DEADLINE_S):
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def author(folder: Path) -> Author:
    return Author(folder)


class Gate:
    """A file without which the server answers nothing; it is there at first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open()

    def open(self) -> None:
        """Let the server start."""
        self.path.touch()

    def close(self) -> None:
        """Have it be slow from its next start on."""
        self.path.unlink()


@pytest.fixture
def gate(folder: Path) -> Gate:
    return Gate(folder / "gate")


@pytest.fixture
def config(folder: Path, author: Author, gate: Gate) -> Path:
    return write_config(folder / "mcp.json", turn=author.row("--wait", str(gate.path)))


async def enrolments(client: Connected) -> list[str]:
    """The keys under which tools joined, in order."""
    events = await client.ledger("log", "--kind", "enroll", "--reverse", "--lines", "1000")
    return [event["event"]["key"] for event in events]


async def test_a_restart_answers_at_once_from_what_was_approved_and_changes_no_key(
    folder: Path, config: Path, author: Author, gate: Gate
) -> None:
    """Each start would leave the client without tools until the slowest server is up, or with others than before."""
    async with connected(config, folder) as client:
        before = await client.until(lambda tools: "turn__lend" in tools, "the server")
        keys = await enrolments(client)
    gate.close()
    async with connected(config, folder) as client:
        assert await client.tools() == before
        [server] = (await client.command("ps"))["servers"]
        assert server["phase"] == "connecting"
        text, is_error = await client.call("turn__lend", book="x")
        assert is_error
        assert "turn is connecting" in text
        gate.open()
        await eventually_async(lambda: "turn is ready" in client.logged(), DEADLINE_S, "the server")
        assert await client.call("turn__lend", book="x") == ("lend from me", False)
        assert await client.tools() == before
        assert await enrolments(client) == keys


async def test_what_is_held_stays_held_over_a_restart_and_the_client_is_told(
    folder: Path, config: Path, author: Author, gate: Gate
) -> None:
    """A restart would be the way around every approval."""
    async with connected(config, folder) as client:
        await client.until(lambda tools: "turn__lend" in tools, "the server")
        assert not client.client.instructions
        author.tool()["description"] = "Another text."
        author.publish()
        await client.until(lambda tools: "turn__lend" not in tools, "the tool is caught")
    gate.close()
    async with connected(config, folder) as client:
        assert client.client.instructions is not None
        assert "1 tool is held" in client.client.instructions
        assert set(await client.tools()) == {"turn__weather"}
        gate.open()
        await eventually_async(lambda: "turn is ready" in client.logged(), DEADLINE_S, "the server")
        text, is_error = await client.call("turn__lend", book="x")
        assert is_error
        assert "quarterdeck trust approve turn lend" in text
        assert set(await client.tools()) == {"turn__weather"}
        await client.command("trust", "approve", "turn", "lend")
        await client.until(lambda tools: "turn__lend" in tools, "the tool is back")


async def test_a_server_that_changes_while_nobody_looks_is_caught_by_the_first_call(
    folder: Path, config: Path, author: Author, gate: Gate
) -> None:
    """The tools of the last time are offered before the server is asked: a call must not go by their approval."""
    async with connected(config, folder) as client:
        await client.until(lambda tools: "turn__lend" in tools, "the server")
    gate.close()
    author.tool()["description"] = "Another text."
    author.offer["says"] = "the other one"
    author.publish()
    async with connected(config, folder) as client:
        assert "turn__lend" in await client.tools()
        gate.open()
        text, is_error = await client.call("turn__lend", book="x")
        while "turn is connecting" in text:  # on a busy machine the first call gives up before the server is there
            text, is_error = await client.call("turn__lend", book="x")
        assert is_error
        assert "quarterdeck trust approve turn lend" in text
        await client.until(lambda tools: "turn__lend" not in tools, "the tool is caught")


def ledger_bytes() -> int:
    """The size of what the ledger appends to."""
    [log] = (state_dir() / "ledger").glob("*-wal")
    return log.stat().st_size


async def test_on_a_full_disk_what_was_approved_stays_and_what_is_new_waits(
    folder: Path, config: Path, author: Author
) -> None:
    """A full disk would take every tool away, or let in what no record admits."""
    config = write_config(folder / "mcp.json", turn=author.row(trust="open"), calm=row("echo"))
    async with connected(config, folder) as client:
        await client.until(lambda tools: {"turn__lend", "calm__echo"} <= tools.keys(), "the servers")
        assert ledger_bytes() > FULL_BYTES
        before = resource.prlimit(client.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(client.pid, resource.RLIMIT_FSIZE, (FULL_BYTES, before[1]))
        author.offer["tools"].append({**author.tool("weather"), "name": "late"})
        author.tool()["description"] = "Another text."
        author.publish()
        tools = await client.until(lambda tools: "turn__lend" not in tools, "the new form is held")
        assert {"turn__weather", "calm__echo"} <= tools.keys()
        assert "turn__late" not in tools
        assert await client.call("turn__weather") == ("weather from me", False)
        assert await client.call("calm__echo", text="calm") == ("calm", False)
        text, is_error = await client.call("turn__lend", book="x")
        assert is_error
        assert "is held" in text
        refused = await client.fails("trust", "block", "turn", "weather")
        assert "could not be written" in refused.stderr
        assert await client.call("turn__weather") == ("weather from me", False)
        resource.prlimit(client.pid, resource.RLIMIT_FSIZE, before)
        await client.until(lambda tools: {"turn__lend", "turn__late"} <= tools.keys(), "it is tried again")
        assert client.logged().count("is not recorded, and held as far as it is new") == 1
        assert "what turn offers is recorded again" in client.logged()
        [verified] = await client.ledger("verify")
        assert verified["intact"] is True
