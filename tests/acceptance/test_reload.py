"""A `serve` that follows its configuration files while a client is connected."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, short_folder, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked, serving
from support.processes.kept import Reused
from support.processes.leftovers import is_running, no_leftovers
from support.waiting import eventually


@dataclass(frozen=True)
class Served:
    """A `serve`, its client, and whoever edits its configuration."""

    client: RawStdioClient
    config: Path

    def edit(self, **rows: object) -> None:
        """Have these servers, and no others."""
        write_config(self.config, **rows)

    def servers(self) -> dict[str, dict[str, Any]]:
        """How its servers are."""
        return {server["id"]: server for server in quarterdeck_json_forked("ps", "-c", str(self.config))["servers"]}

    def is_up(self) -> bool:
        """Whether all of them run: what they offered the last time is offered before that."""
        return {server["phase"] for server in self.servers().values()} == {"ready"}

    def offering(self, *ids: str) -> Callable[[], bool]:
        """Whether the client is offered tools of just these servers."""
        return lambda: {tool["name"].partition("__")[0] for tool in self.client.list_tools()} == set(ids)

    def ready(self, *ids: str) -> None:
        """Wait until it is."""
        eventually(self.offering(*ids), DEADLINE_S, f"the tools of {ids}")

    def approve(self, server: str) -> None:
        """Run the very command that the held server's fault names."""
        eventually(lambda: (self.servers().get(server) or {}).get("fault"), DEADLINE_S, f"{server} is held")
        fault = self.servers()[server]["fault"]
        assert fault["code"] == "launch_held"
        program, *words = shlex.split(fault["remedy"].rpartition("approve it with `")[2].removesuffix("`"))
        assert program == "quarterdeck"
        approved = quarterdeck_forked(*words)
        assert approved.returncode == 0, approved.stderr

    def written(self) -> int:
        """How long the log is."""
        return len(self.client.stderr_text())

    def logged(self, text: str, since: int = 0) -> dict[str, Any]:
        """The first line of the log that says this, once there is one; of what was written after it was so long."""

        def found() -> dict[str, Any] | None:
            lines = self.client.stderr_text()[since:].splitlines(keepends=True)
            whole = [json.loads(line) for line in lines if line.endswith("\n")]
            return next((line for line in whole if text in line["event"]), None)

        line = eventually(found, DEADLINE_S, f"the log says {text!r}")
        assert line is not None
        return line


@contextmanager
def started() -> Iterator[Served]:
    """Start it; nothing runs at its end."""
    with short_folder() as folder, no_leftovers(DEADLINE_S):
        config = write_config(
            folder / "mcp.json", kept=row("echo", start="at_once"), other=row("echo", start="at_once")
        )
        with serving(config, is_forked=True) as client:
            client.initialize()
            yield Served(client, config)


@pytest.fixture(scope="module")
def reused(own_directories: Path) -> Iterator[Reused[Served]]:
    """One `serve` for all tests."""
    reused = Reused(started, lambda served: bool(served.client.list_tools()))
    yield reused
    reused.close()


@pytest.fixture
def served(reused: Reused[Served]) -> Served:
    """It, as every test finds it: with two servers that are ready, and with no news for its client."""
    served = reused.get()
    served.edit(kept=row("echo", start="at_once"), other=row("echo", start="at_once"))
    served.ready("kept", "other")
    eventually(served.is_up, DEADLINE_S, "what is offered runs, too")
    served.client.notifications.clear()
    return served


def test_servers_come_change_and_go_with_the_file_and_the_others_do_not_notice(served: Served) -> None:
    """A user would have to restart their client after each edit, or lose every server's state."""
    client, before, written = served.client, served.servers(), served.written()

    served.edit(kept=row("echo", start="at_once"), other=row("echo", start="at_once"), new=row("echo", start="at_once"))
    served.approve("new")  # it may read a folder, which by default none may
    client.notification("notifications/tools/list_changed", DEADLINE_S)
    served.ready("kept", "other", "new")
    assert client.call("new__echo", text="hi")["content"][0]["text"] == "hi"

    served.edit(
        kept=row("echo", start="at_once"),
        other=row("echo", start="at_once", call_timeout_s=7.0),
        new=row("echo", start="at_once"),
    )
    served.logged("changed: other", written)
    eventually(lambda: not is_running(before["other"]["pid"]), DEADLINE_S, "the old server has ended")
    served.ready("kept", "other", "new")

    served.edit(kept=row("echo", start="at_once"))
    served.ready("kept")
    assert client.call("other__echo", text="hi")["isError"] is True

    [now] = served.servers().values()
    assert (now["pid"], now["restarts"]) == (before["kept"]["pid"], 0)
    assert not is_running(before["other"]["pid"])
    assert client.call("kept__echo", text="hi")["content"][0]["text"] == "hi"


def test_a_row_that_breaks_runs_on_beside_what_is_new_and_every_view_says_so(served: Served) -> None:
    """One bad row would freeze the running configuration, and only the log would say so."""
    client, before, written = served.client, served.servers(), served.written()
    served.edit(
        kept=row("echo", start="at_once"),
        other={"comand": "true"},
        bad={"command": 7},
        fresh=row("echo", start="at_once"),
    )
    assert served.logged("other runs as it was before", written)["level"] == "error"
    served.approve("fresh")
    served.ready("kept", "other", "fresh")
    assert client.call("other__echo", text="hi")["content"][0]["text"] == "hi"
    after = served.servers()
    assert (after["other"]["pid"], after["bad"]["fault"]["code"]) == (before["other"]["pid"], "config_invalid")
    whom = ("-c", str(served.config))
    banner = f"configuration: {served.config}: mcpServers.other"
    for words in (("ps", *whom), ("allow", "kept", "--dry-run", *whom), ("doctor", *whom)):
        shown = quarterdeck_forked(*words)
        said = "".join((shown.stdout + shown.stderr).split())
        assert "".join(banner.split()) in said, words
        assert "".join(["fix:", "correct", "the", "configuration", "where", "the", "message", "points"]) in said, words

    served.edit(kept=row("echo", start="at_once"), other=row("echo", start="at_once"))
    served.logged("the whole configuration can be used again", written)
    assert quarterdeck_json_forked("ps", *whom)["troubles"] == []
    assert served.servers()["other"]["pid"] == before["other"]["pid"]


def test_a_file_that_cannot_be_parsed_changes_nothing_until_it_is_mended(served: Served) -> None:
    """Saving a half-typed file would stop every server."""
    client, before, written, reason = served.client, served.servers(), served.written(), "mcp.json"
    served.config.write_text('{"mcpServers": {"kept": ')
    trouble = served.logged("it counts as it was before", written)
    assert trouble["level"] == "error"
    assert reason in trouble["event"]
    assert "it counts as it was before" in quarterdeck_forked("ps", "-c", str(served.config)).stdout
    checked = quarterdeck_forked("config", "check", "-c", str(served.config))
    assert checked.returncode == 2
    assert reason in checked.stdout + checked.stderr

    after = served.servers()
    assert {server: each["pid"] for server, each in after.items()} == {
        server: each["pid"] for server, each in before.items()
    }
    assert client.call("other__echo", text="hi")["content"][0]["text"] == "hi"

    served.edit(kept=row("echo", start="at_once"))
    served.ready("kept")
    assert quarterdeck_forked("config", "check", "-c", str(served.config)).returncode == 0
    assert served.servers()["kept"]["pid"] == before["kept"]["pid"]
