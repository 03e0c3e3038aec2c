"""What was decided lasts over a restart, while servers are slow and changed meanwhile."""

from pathlib import Path
from typing import Final

import pytest
from support.config.places import write_config
from support.processes.commands import DEADLINE_S
from support.serves.changing_server import Author, connected
from support.serves.shared_serve import open_folder
from support.waiting import eventually_async

SERVERS: Final = ("steady", "held", "sly")
"""One that stays as it was, one that was caught before the restart, and one that changes while nobody looks."""


def gate_of(folder: Path, server: str) -> Path:
    return folder / server / "gate"


async def test_a_restart_lists_what_was_approved_at_once_and_holds_what_was_held_or_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each start would leave the client without tools, or be the way around every approval."""
    with open_folder() as folder:
        # A greeting tells what the last `serve` held, whatever its configuration was.
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(folder / "state"))
        authors = {}
        for server in SERVERS:
            (folder / server).mkdir(mode=0o755)
            authors[server] = Author(folder / server)
            gate_of(folder, server).touch()
        rows = {
            each: author.row("--wait", str(gate_of(folder, each)), start="at_once") for each, author in authors.items()
        }
        config = write_config(folder / "mcp.json", **rows)
        async with connected(config, folder) as client:
            lent = {f"{server}__lend" for server in SERVERS}
            first = await client.until(lambda tools: lent <= tools.keys(), "the servers")
            authors["held"].tool()["description"] = "Another text."
            authors["held"].publish()
            await client.until(lambda tools: "held__lend" not in tools, "the tool is caught")
        for server in SERVERS:
            gate_of(folder, server).unlink()
        authors["sly"].tool()["description"] = "Another text."
        authors["sly"].publish()
        (folder / "serve.log").unlink()
        async with connected(config, folder) as client:
            assert "1 tool is held" in (client.client.instructions or "")
            assert await client.tools() == {name: tool for name, tool in first.items() if name != "held__lend"}
            for server in SERVERS:
                gate_of(folder, server).touch()
                await eventually_async(lambda s=server: f"{s} is ready" in client.logged(), DEADLINE_S, "the server")
            assert await client.call("steady__lend", book="x") == ("lend from me", False)
            for server in ("held", "sly"):
                text, is_error = await client.call(f"{server}__lend", book="x")
                assert is_error
                assert f"quarterdeck trust approve {server} lend" in text
            await client.until(lambda tools: "sly__lend" not in tools, "the tool is caught")
            await client.command("trust", "approve", "held", "lend")
            await client.until(lambda tools: "held__lend" in tools, "the tool is back")
