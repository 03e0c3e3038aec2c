"""The first list of tools, while servers still start or install themselves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from support.clients.era_client import Era, EraClient
from support.clients.http_clients import connected
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, popen_forked, quarterdeck_json_forked, serving
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.processes.programs import server_argv
from support.waiting import eventually

from quarterdeck.cli.configure.secret import read_token, token_path

RUNNER: Final = """#!/bin/sh
if [ ! -e "$HOME/.fetched" ]; then
    : > "$HOME/.fetched"
    exec sleep 600
fi
while [ ! -e {gate} ]; do sleep 0.1; done
exec {server}
"""
"""Called `npx`: its first start takes longer than anybody waits, as that of a large package does, and its second one as
long as the test says."""

WAITS: Final = """#!/bin/sh
while [ ! -e {gate} ]; do sleep 0.1; done
exec {server}
"""

CHANGED: Final = "notifications/tools/list_changed"


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    runner = tmp_path / "npx"
    runner.write_text(RUNNER.format(gate=tmp_path / "gate", server=" ".join(server_argv("echo"))))
    runner.chmod(0o755)
    slow = {"command": str(runner), "args": ["-y", "server"], "connect_timeout_s": 5, "sandbox": {"preset": "trusted"}}
    slow["seal"] = False  # it stands for a runner that is not understood
    with no_leftovers(DEADLINE_S):
        yield write_config(tmp_path / "mcp.json", slow=slow, quick=row("echo"))


def test_a_server_that_installs_itself_is_named_tried_again_and_announced(config: Path) -> None:
    """Clients that list once would stay without its tools, and its first start would end in an error."""
    with serving(config, "--settle", "0", is_forked=True) as client:
        told = client.initialize()["instructions"]
        assert "Still starting: slow, quick; their tools are announced" in told
        assert not [tool for tool in client.list_tools() if tool["name"].startswith("slow__")]
        eventually(lambda: status(config, "slow")["phase"] == "installing", DEADLINE_S, "installing")
        config.with_name("gate").touch()
        while not any(tool["name"].startswith("slow__") for tool in client.list_tools()):
            client.notification(CHANGED)
        assert client.call("slow__echo", text="hello")["content"] == [{"type": "text", "text": "hello"}]
        assert status(config, "slow")["restarts"] == 1


def test_the_first_list_is_answered_at_once_when_all_are_ready(tmp_path: Path) -> None:
    """Every client would wait for a time that is meant for the slow."""
    config = write_config(tmp_path / "mcp.json", quick=row("echo"))
    with no_leftovers(DEADLINE_S), serving(config, "--settle", "3600", is_forked=True) as client:
        client.initialize()
        assert client.list_tools()


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Path]:
    """A server that was never listed, and starts when the file `gate` is there."""
    program = tmp_path / "slow"
    program.write_text(WAITS.format(gate=tmp_path / "gate", server=" ".join(server_argv("echo"))))
    program.chmod(0o755)
    with no_leftovers(DEADLINE_S):
        yield program


@pytest.mark.parametrize("words", ["serve", "run"])
def test_the_first_list_waits_for_a_server_that_was_never_listed(gated: Path, words: str) -> None:
    """A client that lists once would have none of its tools until its next start."""
    if words == "serve":
        config = write_config(
            gated.with_name("mcp.json"),
            slow={"command": str(gated), "sandbox": {"preset": "trusted"}},
            quick=row("echo"),
        )
        argv, names = ["serve", "--own", "--config", str(config)], {"slow__echo", "quick__echo"}
    else:
        argv, names = ["run", "--own", "--preset", "trusted", "--", str(gated)], {"echo"}
    client = EraClient(argv, Era.OLD, deadline_s=DEADLINE_S, popen=popen_forked)
    try:
        number = client.send("tools/list")
        gated.with_name("gate").touch()
        listed = {tool["name"] for tool in client.reply(number)["result"]["tools"]}
        assert names <= listed
    finally:
        client.close()


async def test_the_first_list_over_http_waits_too_and_a_known_server_never_delays_it(gated: Path) -> None:
    """A client over HTTP would have no tools; or each later start wait as long as the first."""
    config = write_config(gated.with_name("mcp.json"), slow={"command": str(gated), "sandbox": {"preset": "trusted"}})
    words = ("serve", "--own", "--config", str(config), "--http", "127.0.0.1:0", "--json")
    for is_first in (True, False):
        with LineChild(words, deadline_s=DEADLINE_S, popen=popen_forked) as child:
            url = json.loads(child.read_line())["url"]
            async with (
                connected(url, "legacy", read_token(token_path())) as session,
                anyio.create_task_group() as tasks,
            ):
                if is_first:
                    tasks.start_soon(anyio.to_thread.run_sync, gated.with_name("gate").touch)
                listed = {tool.name for tool in (await session.list_tools()).tools}
            assert "slow__echo" in listed
            child.process.terminate()
            assert child.process.wait(DEADLINE_S) == 0
        gated.with_name("gate").unlink(missing_ok=True)


def status(config: Path, server: str) -> dict[str, Any]:
    servers = quarterdeck_json_forked("ps", "--config", str(config))["servers"]
    return dict(next(each for each in servers if each["id"] == server))
