"""Native tools beside a real server in one `quarterdeck serve`: what a client sees of them, and does.

The tests share a `serve`, which each leaves as it was.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, serving
from support.processes.kept import Reused
from support.processes.leftovers import no_leftovers, running_with
from support.serves.native_serves import ALL, AUTHORING, make_project, native, text_of
from support.waiting import eventually


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tools work."""
    return make_project(tmp_path_factory.mktemp("native") / "workspace")


@pytest.fixture(scope="module")
def kept(workspace: Path) -> Iterator[Reused[RawStdioClient]]:
    """A client with a `serve` of its own; nothing is left of either at the end."""
    config = write_config(workspace.parent / "mcp.json", srv=row("echo"))

    @contextmanager
    def start() -> Iterator[RawStdioClient]:
        with serving(config, *native(workspace), is_forked=True) as client:
            greeted = client.initialize()
            assert greeted["capabilities"]["tools"]["listChanged"]
            assert "srv__echo" in {tool["name"] for tool in client.list_tools()}
            yield client

    with no_leftovers(DEADLINE_S), closing(Reused(start, is_well)) as shared:
        yield shared


def is_well(client: RawStdioClient) -> bool:
    return text_of(client.call("srv__echo", text="well")) == "well" and client.junk == []


@pytest.fixture
def client(kept: Reused[RawStdioClient]) -> Iterator[RawStdioClient]:
    """The module's, with its server ready; no process of the test is left at the end."""
    client = kept.get()
    assert is_well(client)
    client.notifications.clear()
    with no_leftovers(DEADLINE_S):
        yield client


def test_native_tools_come_before_the_servers_and_say_what_they_may_do(client: RawStdioClient) -> None:
    """A client would ask its user before every look, or not before a change; or it would see only half of the tools."""
    listed = client.list_tools()
    names = [tool["name"] for tool in listed]
    assert names[: len(ALL)] == ALL
    assert {name.partition("__")[0] for name in names[len(ALL) :]} == {"srv"}
    by_name = {tool["name"]: tool for tool in listed}
    for name in AUTHORING:
        assert by_name[name]["annotations"]["readOnlyHint"] is True, name
    for name in ("write", "edit", "bash", "process", "bg-process"):
        hints = by_name[name]["annotations"]
        assert (hints["readOnlyHint"], hints["destructiveHint"]) == (False, True), name
    assert by_name["read"]["annotations"]["openWorldHint"] is False
    assert by_name["webfetch"]["annotations"]["openWorldHint"] is True
    assert all(tool["title"] and tool["inputSchema"]["additionalProperties"] is False for tool in listed[: len(ALL)])
    assert "# A project" in text_of(client.call("read", path="README.md"))
    assert text_of(client.call("srv__echo", text="theirs")) == "theirs"
    unknown = client.call("reed")
    assert unknown["isError"]
    assert "read" in text_of(unknown)
    assert client.junk == []


def test_a_command_that_is_cancelled_is_gone_with_all_that_it_started(client: RawStdioClient) -> None:
    """A user who stops an agent would not stop what it started."""
    arguments = {"command": "trap '' TERM; (setsid sleep 4711.25 &); sleep 4711.25"}
    asked = client.send("tools/call", {"name": "bash", "arguments": arguments})
    eventually(lambda: len(running_with("sleep 4711.25")) >= 2, DEADLINE_S)
    client.cancel(asked)
    eventually(lambda: not running_with("sleep 4711.25"), DEADLINE_S)
    assert not client.call("ls").get("isError")
