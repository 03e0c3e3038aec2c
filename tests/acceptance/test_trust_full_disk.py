"""What was decided lasts on a full disk, and what was not is not let in."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.config.places import row, write_config
from support.serves.changing_server import Author, connected
from support.serves.shared_serve import open_folder

from quarterdeck.config.places.paths import state_dir

FULL_BYTES = 16 * 1024
"""No file may grow beyond it: the log of a few lines still can, and the ledger, as on a full disk, cannot."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def ledger_bytes() -> int:
    [log] = (state_dir() / "ledger").glob("*-wal")
    return log.stat().st_size


@pytest.mark.nightly
async def test_on_a_full_disk_what_was_approved_stays_and_what_is_new_waits(folder: Path) -> None:
    """A full disk would take every tool away, or let in what no record admits."""
    author = Author(folder)
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
        assert client.logged().count("is not recorded, and anything new is held") == 1
        assert "what turn offers is recorded again" in client.logged()
        [verified] = await client.ledger("verify")
        assert verified["intact"] is True
