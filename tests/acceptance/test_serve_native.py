"""`quarterdeck serve --profile`: native tools beside real servers, before real clients, and nothing left of either."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.commands import DEADLINE_S, command, quarterdeck_json, row, serving, stderr_of, write_config
from support.identities import Identity
from support.leftovers import assert_gone, descendants, eventually, eventually_async, no_leftovers, running_with
from support.line_child import LineChild
from support.raw_client import RawStdioClient

from quarterdeck.config.paths import SessionPaths, WorkspacePaths, workspace_paths

AUTHORING = ["read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"]
SURVEY = [*AUTHORING, "write", "edit", "bash", "process", "todo_set"]
ALL = [*SURVEY, "todo", "bg-process", "task", "saas-action", "memory", "enter_plan_mode", "exit_plan_mode"]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """A directory of an ordinary user's, whose commands may run; no process of the test is left at the end."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "README.md").write_text("# A project\n")
    Identity.USER.own(folder, folder / "README.md")
    with no_leftovers(DEADLINE_S):
        yield folder


def argv(workspace: Path, profile: str = "all", *more: str) -> list[str]:
    """A serve of native tools alone."""
    return command("serve", *native(workspace, profile), *more)


def native(workspace: Path, profile: str = "all") -> list[str]:
    return ["--profile", profile, "--workspace", str(workspace), "--allow-unsandboxed"]


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def sessions_of(paths: WorkspacePaths) -> list[SessionPaths]:
    return [paths.session(path.name) for path in sorted(paths.sessions.iterdir())]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_native_tools_come_before_the_servers_and_say_what_they_may_do(
    tmp_path: Path, workspace: Path, era: str
) -> None:
    """A client would ask its user before every look, or not before a change; or it would see only half of the tools."""
    config = write_config(tmp_path / "mcp.json", srv=row("echo"))
    with serving(config, *native(workspace)) as client:
        assert (client.initialize() if era == "legacy" else client.discover())["capabilities"]["tools"]["listChanged"]
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
        assert all(
            tool["title"] and tool["inputSchema"]["additionalProperties"] is False for tool in listed[: len(ALL)]
        )
        assert "# A project" in text_of(client.call("read", path="README.md"))
        assert text_of(client.call("srv__echo", text="theirs")) == "theirs"
        unknown = client.call("reed")
        assert unknown["isError"]
        assert "read" in text_of(unknown)
        assert client.junk == []


@pytest.mark.parametrize(("profile", "names"), [("authoring", AUTHORING), ("survey", SURVEY)])
def test_a_profile_alone_needs_no_configuration(workspace: Path, profile: str, names: list[str]) -> None:
    """A user without servers would have to write an empty file, or an agent that may only look could change files."""
    with RawStdioClient(argv(workspace, profile), deadline_s=DEADLINE_S) as client:
        assert client.initialize()["serverInfo"]["name"] == "quarterdeck"
        assert [tool["name"] for tool in client.list_tools()] == names
        assert client.call("memory", action="read")["isError"]
        assert (client.call("write", path="new.txt", content="x").get("isError") is True) == (profile == "authoring")
    assert (workspace / "new.txt").exists() == (profile == "survey")


def test_only_the_tools_that_were_named_are_offered(workspace: Path) -> None:
    """`--tools` would be decoration."""
    with RawStdioClient(argv(workspace, "all", "--tools", "todo,read"), deadline_s=DEADLINE_S) as client:
        client.initialize()
        assert [tool["name"] for tool in client.list_tools()] == ["read", "todo"]
        assert client.call("bash", command="touch oops")["isError"]
    assert not (workspace / "oops").exists()


def test_a_directory_that_was_allowed_can_be_changed_and_no_other(tmp_path: Path, workspace: Path) -> None:
    """An agent would reach files that its user never gave it, or not those that he did."""
    shared, private = tmp_path / "shared", tmp_path / "private"
    for folder in (shared, private):
        folder.mkdir()
        (folder / "file").write_text("hello")
        Identity.USER.own(folder, folder / "file")
    with RawStdioClient(argv(workspace, "survey", "--allow-dir", str(shared)), deadline_s=DEADLINE_S) as client:
        client.initialize()
        assert "hello" in text_of(client.call("read", path=str(shared / "file")))
        assert not client.call("write", path=str(shared / "new"), content="x").get("isError")
        assert not client.call("bash", command=f"echo more >> {shared}/file").get("isError")
        refused = client.call("read", path=str(private / "file"))
        assert refused["isError"]
        assert str(workspace) in text_of(refused)
    assert (shared / "file").read_text() == "hellomore\n"


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_progress_of_a_command_arrives_while_it_runs(workspace: Path, era: str) -> None:
    """A person would think that a long build hangs."""
    with RawStdioClient(argv(workspace, "survey"), deadline_s=DEADLINE_S) as client:
        client.initialize() if era == "legacy" else client.discover()
        script = "echo first; while ! [ -e go ]; do sleep 0.02; done; echo last"
        params = {"name": "bash", "arguments": {"command": script}, "_meta": {"progressToken": "t"}}
        asked = client.send("tools/call", params)
        note = client.notification("notifications/progress")["params"]
        assert note["progressToken"] == "t"
        (workspace / "go").write_text("")
        result = client.reply(asked)["result"]
        assert "first" in text_of(result)
        assert "last" in text_of(result)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_command_that_is_cancelled_is_gone_with_all_that_it_started(workspace: Path, era: str) -> None:
    """A user who stops an agent would not stop what it started."""
    with RawStdioClient(argv(workspace, "survey"), deadline_s=DEADLINE_S) as client:
        client.initialize() if era == "legacy" else client.discover()
        arguments = {"command": "trap '' TERM; (setsid sleep 4711.25 &); sleep 4711.25"}
        asked = client.send("tools/call", {"name": "bash", "arguments": arguments})
        eventually(lambda: len(running_with("sleep 4711.25")) >= 2, DEADLINE_S)
        client.cancel(asked)
        eventually(lambda: not running_with("sleep 4711.25"), DEADLINE_S)
        assert not client.call("ls").get("isError")


def test_a_signal_ends_the_serve_and_the_command_that_runs(workspace: Path) -> None:
    """A service manager would have to kill it, and the command would run on."""
    with RawStdioClient(argv(workspace, "survey"), deadline_s=DEADLINE_S) as client:
        client.initialize()
        client.send("tools/call", {"name": "bash", "arguments": {"command": "trap '' TERM; sleep 4718.25"}})
        eventually(lambda: running_with("sleep 4718.25"), DEADLINE_S)
        client.process.terminate()
        assert client.process.wait(DEADLINE_S) == 0
        assert "Traceback" not in stderr_of(client)
    assert not running_with("sleep 4718.25")
    assert sessions_of(workspace_paths(workspace)) == []


def test_what_is_cut_can_be_read_on_in_the_file_that_the_notice_names(workspace: Path) -> None:
    """A model would see the middle of a log never."""
    with RawStdioClient(argv(workspace, "survey"), deadline_s=DEADLINE_S) as client:
        client.initialize()
        cut = text_of(client.call("bash", command="seq 1 40000"))
        path = cut.partition("the full text is in ")[2].partition("]")[0]
        assert "bytes left out" in cut
        assert "20000" in text_of(client.call("read", path=path, offset=20001, limit=3))
        assert client.call("write", path=path, content="")["isError"]
    assert not Path(path).exists()


def test_a_session_ends_with_nothing_left_but_what_can_be_undone(workspace: Path) -> None:
    """Servers that an agent started would hold their ports, and a disk would fill; or an edit could not be undone."""
    paths = workspace_paths(workspace)
    with RawStdioClient(argv(workspace), deadline_s=DEADLINE_S) as client:
        client.initialize()
        for tool in ("bg-process", "process"):
            started = client.call(tool, action="start", command="echo up; (setsid sleep 4712.25 &); exec sleep 4712.25")
            assert not started.get("isError"), started
        client.call("write", path="README.md", content="overwritten")
        client.call("read", path="README.md")
        client.call("write", path="README.md", content="# Another\n")
        client.call("memory", action="append", content="a note")
        eventually(lambda: len(running_with("sleep 4712.25")) >= 4, DEADLINE_S)
        below = descendants(client.process.pid)
        (live,) = sessions_of(paths)
        assert live.captures.is_dir()
        client.close_stdin()
        assert client.process.wait(DEADLINE_S) == 0
    assert_gone(below)
    assert not running_with("sleep 4712.25")
    (kept,) = sessions_of(paths)
    assert sorted(path.name for path in kept.directory.iterdir()) == ["checkpoints", "lock", "memory.md"]
    assert not (workspace / ".indusvx-bg").exists()


def test_a_killed_serve_leaves_no_command_and_the_next_one_tidies(workspace: Path) -> None:
    """Commands would run on without an owner, and outputs pile up."""
    with RawStdioClient(argv(workspace), deadline_s=DEADLINE_S) as client:
        client.initialize()
        client.call("bg-process", action="start", command="echo up; exec sleep 4713.25")
        eventually(lambda: running_with("sleep 4713.25"), DEADLINE_S)
        client.call("memory", action="append", content="a note")
        below = descendants(client.process.pid)
        client.process.kill()
        client.process.wait()
    assert_gone(below)
    (left,) = sessions_of(workspace_paths(workspace))
    assert left.captures.is_dir()
    with RawStdioClient(argv(workspace), deadline_s=DEADLINE_S) as client:
        client.initialize()
        client.list_tools()
        assert not left.captures.exists()
        assert left.memory.read_text() == "a note"


def test_a_workspace_that_is_gone_takes_no_server_along(tmp_path: Path, workspace: Path) -> None:
    """One removed directory would take every tool away, or leave a client without a word."""
    config = write_config(tmp_path / "mcp.json", srv=row("echo"))
    with serving(config, *native(workspace)) as client:
        client.initialize()
        shutil.rmtree(workspace)
        assert {tool["name"].partition("__")[0] for tool in client.list_tools()} == {"srv"}
        refused = client.call("read", path="README.md")
        assert refused["isError"]
        assert f"{workspace} is no directory" in text_of(refused)
        assert text_of(client.call("srv__echo", text="calm")) == "calm"


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_stock_client_uses_native_tools(workspace: Path, mode: str) -> None:
    """The Python SDK's users could not."""
    program, *args = argv(workspace)
    parameters = StdioServerParameters(command=program, args=args, env=dict(os.environ))
    seen: list[str | None] = []

    async def remember(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with (
        asyncio.timeout(DEADLINE_S),
        Client(stdio_client(parameters), mode=mode, cache=None) as client,
    ):
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ALL
        hints = listed.tools[0].annotations
        assert hints is not None
        assert hints.read_only_hint is True
        await client.call_tool("todo_set", {"items": [{"id": "1", "text": "look", "status": "active"}]})
        assert "look" in first_text(await client.call_tool("todo_read", {}))
        ran = await client.call_tool("bash", {"command": "cat README.md"}, progress_callback=remember)
        assert "# A project" in first_text(ran)
    assert seen


def first_text(result: types.CallToolResult) -> str:
    (block, *_) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@asynccontextmanager
async def listening(workspace: Path) -> AsyncIterator[tuple[str, str]]:
    """URL and token of a serve over HTTP, which has ended, with all below it, at the end."""
    with LineChild(argv(workspace, "all", "--http", "127.0.0.1:0", "--json"), deadline_s=DEADLINE_S) as child:
        url = json.loads(await asyncio.to_thread(child.read_line))["url"]
        token = (await asyncio.to_thread(quarterdeck_json, "token", "show"))["token"]
        async with asyncio.timeout(DEADLINE_S):
            yield url, token
        below = descendants(child.process.pid)
        child.process.terminate()
        assert await asyncio.to_thread(child.process.wait, DEADLINE_S) == 0
    await asyncio.to_thread(assert_gone, below)


@asynccontextmanager
async def connected(where: tuple[str, str], mode: str, name: str = "test") -> AsyncIterator[Client]:
    url, token = where
    info = types.Implementation(name=name, version="1")
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None, client_info=info) as client,
    ):
        yield client


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_two_http_clients_do_not_share_what_they_do(workspace: Path, mode: str) -> None:
    """One agent's plan would be another's, and each could stop the other's processes."""
    async with (
        listening(workspace) as where,
        connected(where, mode, "ada") as ada,
        connected(where, mode, "bob") as bob,
    ):
        await ada.call_tool("todo_set", {"items": [{"id": "1", "text": "mine alone", "status": "active"}]})
        await ada.call_tool("bg-process", {"action": "start", "command": "sleep 4714.25"})
        assert "mine alone" in first_text(await ada.call_tool("todo_read", {}))
        assert "mine alone" not in first_text(await bob.call_tool("todo_read", {}))
        assert "bg-1" in first_text(await ada.call_tool("bg-process", {"action": "list"}))
        assert "bg-1" not in first_text(await bob.call_tool("bg-process", {"action": "list"}))


@pytest.mark.anyio
async def test_a_legacy_http_session_ends_with_its_processes(workspace: Path) -> None:
    """What a client started would run for as long as the server does."""
    async with listening(workspace) as where:
        async with connected(where, "legacy") as client:
            await client.call_tool("bg-process", {"action": "start", "command": "sleep 4715.25"})
            await eventually_async(lambda: running_with("sleep 4715.25"))
        await eventually_async(lambda: not running_with("sleep 4715.25"))
        await eventually_async(lambda: not sessions_of(workspace_paths(workspace)))


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_over_http_progress_arrives_and_cancelling_ends_the_command(workspace: Path, mode: str) -> None:
    """Both would work for local clients only."""
    seen = asyncio.Event()

    async def remember(progress: float, total: float | None, message: str | None) -> None:
        seen.set()

    async with listening(workspace) as where, connected(where, mode) as client:
        running = asyncio.create_task(
            client.call_tool("bash", {"command": "echo on; sleep 4716.25"}, progress_callback=remember)
        )
        await seen.wait()
        assert running_with("sleep 4716.25")
        running.cancel()
        await asyncio.wait([running])
        await eventually_async(lambda: not running_with("sleep 4716.25"))


def in_workspace(workspace: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command in a user's project."""
    return subprocess.run(
        command(*arguments), cwd=workspace, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_commands_use_native_tools_without_any_configuration(workspace: Path) -> None:
    """To try a tool, a user would have to write a file and start a server."""
    read = in_workspace(workspace, "call", "read", '{"path": "README.md"}', "--profile", "authoring")
    assert (read.returncode, read.stderr) == (0, "")
    assert "# A project" in read.stdout
    failed = in_workspace(workspace, "call", "read", '{"path": "missing"}', "--profile", "authoring")
    assert failed.returncode == 1
    unknown = in_workspace(workspace, "call", "bash", '{"command": "true"}', "--profile", "authoring")
    assert unknown.returncode == 3
    listed = in_workspace(workspace, "tools", "--profile", "authoring", "--json")
    tools = json.loads(listed.stdout)["tools"]
    assert [tool["name"] for tool in tools] == AUTHORING
    assert tools[0]["definition"]["annotations"]["readOnlyHint"] is True
    assert in_workspace(workspace, "call", "read").returncode == 2


def test_commands_find_the_serve_of_their_workspace(workspace: Path) -> None:
    """What one command starts no other could stop, or a command that may only look would change files."""
    options = ["--profile", "all"]
    with RawStdioClient(argv(workspace), deadline_s=DEADLINE_S) as client:
        client.initialize()
        client.list_tools()
        start = '{"action": "start", "command": "sleep 4717.25"}'
        assert "bg-1" in in_workspace(workspace, "call", "bg-process", start, *options).stdout
        assert running_with("sleep 4717.25")
        listed = in_workspace(workspace, "call", "bg-process", '{"action": "list"}', *options)
        assert "bg-1 [running]" in listed.stdout
        assert "bg-1" not in text_of(client.call("bg-process", action="list"))
        of_its_own = in_workspace(workspace, "call", "bg-process", '{"action": "list"}', *options, "--own")
        assert "bg-1" not in of_its_own.stdout
        looking = in_workspace(workspace, "call", "bg-process", '{"action": "list"}', "--profile", "authoring")
        assert looking.returncode == 3
        client.close_stdin()
        assert client.process.wait(DEADLINE_S) == 0
    assert not running_with("sleep 4717.25")
