"""`serve --http --no-token`: what could call it from inside a sandbox is not started."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, popen_forked, quarterdeck_forked, quarterdeck_json_forked
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.processes.programs import SERVERS
from support.waiting import eventually


def with_network(network: str) -> dict[str, object]:
    return row("echo", sandbox={"read": [str(SERVERS)], "network": network})


@contextmanager
def served(config: Path) -> Iterator[str]:
    """A serve without a token; its URL."""
    words = ("serve", "--config", str(config), "--http", "127.0.0.1:0", "--no-token", "--json")
    with no_leftovers(DEADLINE_S), LineChild(words, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        yield json.loads(child.read_line())["url"]
        child.process.terminate()  # the end of its stdin is none of its own


def state(config: Path) -> dict[str, Any]:
    (server,) = quarterdeck_json_forked("ps", "-c", str(config))["servers"]
    return dict(server)


def code_of_fault(config: Path) -> str | None:
    """That of the one server's fault, while it has one."""
    return (state(config)["fault"] or {}).get("code")


def test_it_is_refused_where_a_server_or_a_native_command_reaches_this_machine(tmp_path: Path) -> None:
    """A confined server would call the tools of every other one, its own sandbox notwithstanding."""
    rows = {
        "open": with_network("full"),
        "closed": with_network("none"),
        "trusted": row("echo", sandbox={"preset": "trusted"}),
    }
    config = write_config(tmp_path / "mcp.json", **rows)
    native = {"native": {"sandbox": {"network": "full"}}}
    config.write_text(json.dumps({**json.loads(config.read_text()), **native}))
    words = ("serve", "-c", str(config), "--http", "127.0.0.1:0", "--no-token")
    ended = quarterdeck_forked(*words, "--profile", "survey", "--workspace", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "open, trusted, commands of native tools call every tool" in ended.stderr
    assert "leave --no-token out" in ended.stderr


@pytest.mark.nightly
def test_it_serves_beside_what_cannot_and_a_change_that_could_is_not_started(tmp_path: Path) -> None:
    """An edit of the file, or an approval, would open later what was closed at the start."""
    config = write_config(tmp_path / "mcp.json", srv=with_network("none"))
    with served(config) as url:
        assert httpx2.post(url, json={}).status_code != 401
        eventually(lambda: state(config)["phase"] == "ready", DEADLINE_S, "the server without a network")
        write_config(config, srv=with_network("full"))
        eventually(lambda: code_of_fault(config) == "launch_held", DEADLINE_S, "the row is held")
        approved = quarterdeck_forked("trust", "approve", "srv", "--all", "-c", str(config))
        assert approved.returncode == 0, approved.stderr
        eventually(lambda: code_of_fault(config) == "sandbox_refused", DEADLINE_S, "the row is refused")
        assert "without --no-token" in state(config)["fault"]["message"]
