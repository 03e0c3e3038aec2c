"""What a confined program could have written is not the user's word: in a running `serve`, and at the next start."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, short_folder, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked, serving
from support.processes.leftovers import no_leftovers
from support.waiting import eventually


@pytest.fixture
def folder(own_directories: Path) -> Iterator[Path]:
    """A workspace that holds its own configuration; nothing runs at the end."""
    with short_folder() as folder, no_leftovers(DEADLINE_S):
        yield folder


def serve(config: Path) -> Any:
    """A `serve` whose native tools may write the folder of its configuration."""
    return serving(config, "--profile", "survey", "--workspace", str(config.parent), is_forked=True)


def faults(config: Path) -> dict[str, dict[str, Any] | None]:
    """Why each server of the running `serve` is not up; None for one that is."""
    servers = quarterdeck_json_forked("ps", "-c", str(config))["servers"]
    return {each["id"]: each["fault"] or (None if each["phase"] == "ready" else {}) for each in servers}


def held(config: Path, server: str) -> str:
    """What is said of a server whose start is held, once it is."""

    def said() -> str:
        fault = faults(config).get(server) or {}
        return f"{fault['message']}: {fault['remedy']}" if fault.get("code") == "launch_held" else ""

    return eventually(said, DEADLINE_S, f"{server} is held") or ""


def run_remedy(message: str) -> None:
    """The command that a message names, word for word."""
    program, *words = shlex.split(message.rpartition("approve it with `")[2].partition("`")[0])
    assert program == "quarterdeck"
    ended = quarterdeck_forked(*words)
    assert ended.returncode == 0, ended.stderr


def up(config: Path, *servers: str) -> None:
    """Wait until these are ready."""
    eventually(lambda: all(faults(config).get(each, {}) is None for each in servers), DEADLINE_S, f"{servers} are up")


def greeted(client: RawStdioClient) -> None:
    client.initialize()


def test_a_row_that_a_session_could_have_added_waits_now_and_after_a_restart_until_it_is_approved(
    folder: Path,
) -> None:
    """A `bash` of the session would write itself a server without a sandbox."""
    kept = row("echo", env={"A": "1"}, start="at_once")
    loose = row("echo", sandbox={"preset": "trusted"}, start="at_once")
    config = write_config(folder / "mcp.json", kept=kept)
    with serve(config) as client:
        greeted(client)
        up(config, "kept")  # the first sight: nothing could have written it
        write_config(config, kept=kept, plain=row("echo"), loose=loose)
        for server in ("plain", "loose"):
            assert str(config) in held(config, server)
    with serve(config) as client:
        greeted(client)
        up(config, "kept")
        message = held(config, "loose")
        assert held(config, "plain")
        run_remedy(message)
        up(config, "kept", "loose")
    write_config(config, kept={**kept, "env": {"A": "2"}}, loose=loose)
    with serve(config) as client:
        greeted(client)
        up(config, "loose")
        run_remedy(held(config, "kept"))  # another value of a name that was there counts too
        up(config, "kept", "loose")
