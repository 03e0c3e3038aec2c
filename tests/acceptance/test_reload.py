"""A `serve` that follows its configuration files while a client is connected."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import DEADLINE_S, quarterdeck, quarterdeck_json, row, serving, stderr_of, write_config
from support.leftovers import eventually, is_running, no_leftovers
from support.raw_client import RawStdioClient


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A state directory that no other test has used; nothing runs at the end."""
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as name, no_leftovers(DEADLINE_S):
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", f"{name}/state")
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", f"{name}/run")
        yield


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "mcp.json", kept=row("echo"), other=row("echo"))


def servers(config: Path) -> dict[str, dict[str, Any]]:
    """How the servers of the running `serve` are."""
    return {server["id"]: server for server in quarterdeck_json("ps", "-c", str(config))["servers"]}


def offering(client: RawStdioClient, *ids: str) -> Callable[[], bool]:
    """Whether the client is offered tools of just these servers."""
    return lambda: {tool["name"].partition("__")[0] for tool in client.list_tools()} == set(ids)


def ready(client: RawStdioClient, *ids: str) -> None:
    eventually(offering(client, *ids), DEADLINE_S, f"the tools of {ids}")


def logged(client: RawStdioClient, text: str) -> dict[str, Any]:
    """The first line of the log that says this."""

    def found() -> dict[str, Any] | None:
        lines = [json.loads(line) for line in stderr_of(client).splitlines(keepends=True) if line.endswith("\n")]
        return next((line for line in lines if text in line["event"]), None)

    line = eventually(found, DEADLINE_S, f"the log says {text!r}")
    assert line is not None
    return line


def test_servers_come_change_and_go_with_the_file_and_the_others_do_not_notice(config: Path) -> None:
    """A user would have to restart their client after each edit, or lose every server's state."""
    with serving(config) as client:
        client.initialize()
        ready(client, "kept", "other")
        before = servers(config)

        write_config(config, kept=row("echo"), other=row("echo"), new=row("echo"))
        client.notification("notifications/tools/list_changed", DEADLINE_S)
        ready(client, "kept", "other", "new")
        assert client.call("new__echo", text="hi")["content"][0]["text"] == "hi"

        write_config(config, kept=row("echo"), other=row("echo", call_timeout_s=7.0), new=row("echo"))
        logged(client, "changed: other")
        eventually(lambda: not is_running(before["other"]["pid"]), DEADLINE_S, "the old server has ended")
        ready(client, "kept", "other", "new")

        write_config(config, kept=row("echo"))
        ready(client, "kept")
        assert client.call("other__echo", text="hi")["isError"] is True

        [now] = servers(config).values()
        assert (now["pid"], now["restarts"]) == (before["kept"]["pid"], 0)
        assert not is_running(before["other"]["pid"])
        assert client.call("kept__echo", text="hi")["content"][0]["text"] == "hi"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"mcpServers": {"kept": ', "mcp.json"),
        ('{"mcpServers": {"good": {"command": "true"}, "half": {"command": "${NOT_SET_QD}"}}}', "NOT_SET_QD"),
        ('{"mcpServers": {"good": {"command": "true"}, "half": {"comand": "true"}}}', "comand"),
        ("[]", "mcp.json"),
    ],
    ids=["half written", "an unset variable", "a wrong key", "no object"],
)
def test_a_broken_file_is_refused_whole_and_nothing_restarts(config: Path, text: str, reason: str) -> None:
    """Saving a half-typed file would stop every server."""
    with serving(config) as client:
        client.initialize()
        ready(client, "kept", "other")
        before = servers(config)
        config.write_text(text)
        refusal = logged(client, "the changed configuration is refused, the old one stays: ")
        assert refusal["level"] == "error"
        assert reason in refusal["event"]
        checked = quarterdeck("config", "check", "-c", str(config))
        assert checked.returncode == 2
        assert reason in checked.stdout + checked.stderr

        after = servers(config)
        assert {server: each["pid"] for server, each in after.items()} == {
            server: each["pid"] for server, each in before.items()
        }
        assert client.call("other__echo", text="hi")["content"][0]["text"] == "hi"

        write_config(config, kept=row("echo"))
        ready(client, "kept")
        assert quarterdeck("config", "check", "-c", str(config)).returncode == 0
        assert servers(config)["kept"]["pid"] == before["kept"]["pid"]


def test_a_changed_command_is_held_until_a_person_approves_it(config: Path) -> None:
    """Whoever can write the file could have anything started."""
    with serving(config) as client:
        client.initialize()
        ready(client, "kept", "other")
        write_config(config, kept=row("echo"), other=row("modern"))
        ready(client, "kept")
        assert servers(config)["other"]["fault"]["code"] == "launch_held"
        assert "modern.py" in quarterdeck("trust", "diff", "other", "-c", str(config)).stdout
        assert quarterdeck("trust", "approve", "other", "--all", "-c", str(config)).returncode == 0
        eventually(lambda: servers(config)["other"]["phase"] == "ready", DEADLINE_S, "it is started")
