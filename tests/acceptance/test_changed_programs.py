"""A local server whose script changes between two starts: told, or held, until a person approves it."""

from pathlib import Path
from typing import Any

import pytest
from support.config.places import write_config
from support.processes.commands import DEADLINE_S
from support.processes.programs import SERVERS
from support.serves.changing_server import Author, Connected, connected
from support.serves.shared_serve import open_folder
from support.waiting import eventually_async

SCRIPT = f"""
import runpy, sys
sys.path.insert(0, {str(SERVERS)!r})
runpy.run_path({str(SERVERS / "turncoat.py")!r}, run_name="__main__")
"""

TOLD = "its program changed since approved"


async def test_a_changed_script_is_told_under_baseline_held_under_strict_and_quiet_once_it_is_approved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server could do something else behind its approved definitions, and nobody would know since when."""
    with open_folder() as folder:
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(folder / "state"))
        rows: dict[str, dict[str, Any]] = {}
        scripts: dict[str, Path] = {}
        for mode in ("baseline", "strict", "open"):
            (folder / mode).mkdir(mode=0o755)
            scripts[mode] = folder / mode / "server.py"
            scripts[mode].write_text(SCRIPT)
            rows[mode] = Author(folder / mode).row(trust=mode, start="at_once")
            rows[mode]["args"][0] = str(scripts[mode])
        config = write_config(folder / "mcp.json", **rows)

        async def changed(client: Connected) -> dict[str, list[str]]:
            return {each["id"]: each["changed"] for each in (await client.command("ps"))["servers"]}

        async with connected(config, folder) as client:
            await client.until(lambda tools: "baseline__lend" in tools, "the first start")
            await client.states_of("strict", program="approved", lend="new")
            await client.command("trust", "approve", "strict", "--all")
            await client.until(lambda tools: "strict__lend" in tools, "what is approved")
            assert await changed(client) == {"baseline": [], "strict": [], "open": []}
        for script in scripts.values():
            script.write_text(f"{script.read_text()}\n# another version\n")
        (folder / "serve.log").unlink()
        async with connected(config, folder) as client:
            assert await client.call("baseline__lend", book="x") == ("lend from me", False)
            assert await client.call("open__lend", book="x") == ("lend from me", False)
            text, is_error = await client.call("strict__lend", book="x")
            assert is_error
            assert f"quarterdeck trust approve strict -c {config} --all" in text
            told = {mode: [str(scripts[mode])] for mode in ("baseline", "strict")}
            assert await changed(client) == {**told, "open": []}
            assert client.logged().count(f"baseline: {TOLD}: {scripts['baseline']}") == 1
            assert f"open: {TOLD}" not in client.logged()
            [change] = (await client.difference("strict"))["changes"]
            assert (change["subject"], change["severity"]) == ("program", "breaking")
            for mode in told:
                await client.command("trust", "approve", mode, "--all")
            await client.until(lambda tools: "strict__lend" in tools, "the start after the approval")
            await eventually_async(lambda: "strict is ready" in client.logged(), DEADLINE_S, "the start")
            assert await client.call("strict__lend", book="x") == ("lend from me", False)
            assert await changed(client) == {"baseline": [], "strict": [], "open": []}
        (folder / "serve.log").unlink()
        async with connected(config, folder) as client:
            for mode in rows:
                assert await client.call(f"{mode}__lend", book="x") == ("lend from me", False)
            assert TOLD not in client.logged()
