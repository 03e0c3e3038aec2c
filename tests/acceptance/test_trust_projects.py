"""The servers of a project's files, which somebody else wrote, are not started before a person approves that."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.config.places import write_config
from support.processes.programs import SERVERS
from support.serves.changing_server import Author, Connected, connected
from support.serves.shared_serve import open_folder

MODES = ("baseline", "open")
"""How a project asks to be trusted, and what its server with that wish is called."""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with open_folder() as root:
        monkeypatch.setenv("HOME", str(root / "home"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "home" / ".config"))
        (root / "project").mkdir()  # beside the home: a directory that holds it is no project
        yield root / "project"


async def launches(client: Connected) -> dict[str, tuple[str, str | None, int | None]]:
    servers = (await client.command("ps"))["servers"]
    return {each["id"]: (each["phase"], (each["fault"] or {}).get("code"), each["pid"]) for each in servers}


async def test_a_projects_servers_are_not_started_before_a_person_approves_their_command(folder: Path) -> None:
    """Cloning a repository and opening it would run what its author likes, the more so if it asks to be trusted."""
    # A project's row may show its server nothing but the project.
    author = Author(folder, scripts=Path(shutil.copytree(SERVERS, folder / "servers")))
    project = folder / ".mcp.json"
    lent = {f"{mode}__lend" for mode in MODES}

    def write(*options: str) -> None:
        rows = {mode: author.row(*options, trust=mode) for mode in MODES}
        write_config(project, **rows)

    write()
    async with connected(None, folder) as client:
        assert await client.tools() == {}
        assert await launches(client) == dict.fromkeys(MODES, ("faulted", "launch_held", None))
        calls = {mode: await client.call(f"{mode}__lend", book="x") for mode in MODES}
        assert {mode for mode, (text, is_error) in calls.items() if is_error and f"{mode} is not started" in text} == {
            *MODES
        }, calls
        shown = {mode: str(await client.difference(mode)) for mode in MODES}
        assert {mode for mode in MODES if "turncoat.py" in shown[mode]} == {*MODES}, shown
        refused = await client.fails("trust", "approve", "--project")
        assert refused.returncode == 2, refused.stderr  # confirmation needed, and there is no terminal
        await client.command("trust", "approve", "--project", "--yes")
        await client.until(lambda tools: lent <= tools.keys(), "the project's servers")
        write("--modern")
        await client.until(lambda tools: not tools, "another command is not started")
        assert {code for _, code, _ in (await launches(client)).values()} == {"launch_held"}
        await client.command("trust", "approve", "--project", "--yes")
        await client.until(lambda tools: lent <= tools.keys(), "the other command")
        calls = {mode: await client.call(f"{mode}__lend", book="x") for mode in MODES}
        assert calls == dict.fromkeys(MODES, ("lend from me", False))
