"""The first list of tools, while servers still start or install themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_json_forked, serving
from support.processes.leftovers import no_leftovers
from support.processes.programs import server_argv
from support.waiting import eventually

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

CHANGED: Final = "notifications/tools/list_changed"


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """A server that its runner has to fetch, and one that is there."""
    runner = tmp_path / "npx"
    runner.write_text(RUNNER.format(gate=tmp_path / "gate", server=" ".join(server_argv("echo"))))
    runner.chmod(0o755)
    slow = {
        "command": str(runner),
        "args": ["-y", "server"],
        "connect_timeout_s": 5,
        "sandbox": {"preset": "trusted"},
    }
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


def status(config: Path, server: str) -> dict[str, Any]:
    """What `ps` says of a server."""
    servers = quarterdeck_json_forked("ps", "--config", str(config))["servers"]
    return dict(next(each for each in servers if each["id"] == server))
