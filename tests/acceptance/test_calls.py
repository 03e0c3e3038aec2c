"""Calls as they should be: answers, errors, cancellation, deadlines, progress, log lines, changes, in both eras."""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.processes.programs import server_argv
from support.servers.real_endpoints import (
    BACKSTOP_S,
    UNCONFINED,
    assert_fault,
    fault_of,
    opened,
    pretend,
    say,
    stdio_config,
    text_of,
)
from support.waiting import eventually_async

from quarterdeck.interop import BridgeConfig, ServerEndpointImpl, mount_protocol_bridge
from quarterdeck_protocol.configs import ToolFilter
from quarterdeck_protocol.tools import CancelToken, ProgressNote, ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

ERAS = {"echo": "2025-11-25", "modern": "2026-07-28"}


@pytest.fixture(scope="module", params=ERAS)
async def server(request: pytest.FixtureRequest, neighbour: ServerEndpointImpl) -> AsyncIterator[ServerEndpointImpl]:
    """One good server of each era, shared by the tests that leave it as it was."""
    async with opened(pretend(request.param, server_id=f"good-{request.param}")) as endpoint:
        yield endpoint


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """A server's script, for tests that need one of their own."""
    script: str = request.param
    return script


def log_of(root: Path, endpoint: ServerEndpointImpl) -> str:
    """What the server wrote to stderr so far."""
    (path,) = root.glob(f"state/servers/*/{endpoint.config.id}/stderr.log")
    return path.read_text()


async def invoke(endpoint: ServerEndpointImpl, tool: str, **arguments: Any) -> Any:
    with anyio.fail_after(BACKSTOP_S):
        return await endpoint.invoke(tool, arguments)


async def test_a_server_is_greeted_in_its_own_era(server: ServerEndpointImpl) -> None:
    """Half the world speaks each."""
    status = server.status()
    assert status.era == ERAS[server.config.id.removeprefix("good-")]
    assert status.isolated
    assert status.pid != status.worker_pid


async def test_a_result_arrives_whole(server: ServerEndpointImpl) -> None:
    """Blocks of every kind, structured content, meta, nulls, fields that nobody knows; and no envelope."""
    result = await invoke(server, "blocks")
    assert len(result.content) == 6
    assert result.structured_content["big"] == 12345678901234567890
    assert result.value["x-future"] == {"null": None, "list": [None, 1.0]}
    assert result.meta == {"example.com/block": {"null": None}}
    assert "resultType" not in result.value
    assert not result.is_error


async def test_a_server_lists_its_tools_with_definitions_as_it_wrote_them(server: ServerEndpointImpl) -> None:
    """What a client is shown must be what the server said."""
    tools = {tool.ref.name: tool.descriptor for tool in await server.list_tools()}
    assert {"echo", "add", "slow"} <= set(tools)
    assert tools["echo"].name == f"{server.config.id}__echo"
    assert b"x-future" in (tools["echo"].definition or b"")
    assert await server.list_tools() is await server.list_tools()


async def test_a_tools_own_error_is_a_result(server: ServerEndpointImpl) -> None:
    """The model is to read it; nothing is wrong with the server."""
    result = await invoke(server, "iserror", text="no such file")
    assert result.is_error
    assert text_of(result) == "no such file"


async def test_an_error_reply_goes_to_its_caller_alone(server: ServerEndpointImpl) -> None:
    """The server refused this call, and takes the next."""
    fault = await fault_of(server.invoke("fail", {"code": -32602, "message": "bad wolf", "data": {"why": "because"}}))
    assert_fault(fault, "tool_error", "reply_error", "answered", "bad wolf", "-32602", "because")
    unknown = await fault_of(server.invoke("no_such_tool"))
    assert_fault(unknown, "tool_error", "reply_error", "answered", "Unknown tool: no_such_tool")
    await say(server)
    assert server.phase == "ready"


async def test_a_cancelled_call_is_cancelled_at_the_server(server: ServerEndpointImpl, own_directories: Path) -> None:
    """It would else work on for nobody."""
    seen = log_of(own_directories, server).count("cancelled")
    with anyio.move_on_after(0.05):
        await server.invoke("hang")
    await eventually_async(lambda: log_of(own_directories, server).count("cancelled") == seen + 1)
    await say(server)


async def test_a_late_call_ends_at_its_deadline_and_the_server_is_told(
    server: ServerEndpointImpl, own_directories: Path
) -> None:
    """The caller's shorter wish counts; the endpoint stays."""
    seen = log_of(own_directories, server).count("cancelled")
    fault = await fault_of(server.call("hang", b"{}", timeout_s=0.1))
    assert_fault(fault, "timeout", "call_timeout", "unknown", "hang did not answer within 0.1 s")
    await eventually_async(lambda: log_of(own_directories, server).count("cancelled") == seen + 1)
    await say(server)
    assert server.phase == "ready"


async def test_a_callers_wish_cannot_outlast_the_configuration(era: str) -> None:
    """The user's limit holds, whatever a client asks."""
    async with opened(pretend(era, call_timeout_s=0.1)) as endpoint:
        fault = await fault_of(endpoint.call("hang", b"{}", timeout_s=60.0))
        assert_fault(fault, "timeout", "call_timeout", "unknown", "within 0.1 s")


async def test_calls_run_side_by_side(server: ServerEndpointImpl) -> None:
    """A slow one must not hold up the quick ones, nor be given their answers."""
    ended: list[str] = []

    async def call(tool: str, **arguments: Any) -> None:
        ended.append(text_of(await invoke(server, tool, **arguments)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call("slow", seconds=0.3))
        for n in range(50):
            tasks.start_soon(lambda n=n: call("echo", text=str(n)))
    assert Counter(ended) == Counter([*map(str, range(50)), "slept 0.3 s"])
    assert ended[-1] == "slept 0.3 s"


async def test_progress_reaches_who_asked_for_it(server: ServerEndpointImpl) -> None:
    """In order, and before the answer."""
    notes: list[ProgressNote] = []
    with anyio.fail_after(BACKSTOP_S):
        await server.call("progress", b'{"n": 5}', on_progress=notes.append)
    assert notes == [ProgressNote(step, 5, f"step {step}") for step in range(1, 6)]
    with anyio.fail_after(BACKSTOP_S):
        await server.call("progress", b'{"n": 5}')
    assert len(notes) == 5


async def test_a_large_result_passes_in_one_piece(server: ServerEndpointImpl) -> None:
    """Files and pictures are megabytes."""
    assert len(text_of(await invoke(server, "big", bytes=20_000_000))) == 20_000_000


async def test_arguments_pass_as_they_are(server: ServerEndpointImpl) -> None:
    """Any text that JSON can carry, and what is not an object becomes an empty one."""
    for text in ("", 'quote " backslash \\ tab \t newline \n', "é \U0001f600 \u2028", "x" * 300_000):
        await say(server, text)
    with anyio.fail_after(BACKSTOP_S):
        assert (await server.invoke("iserror", "not an object")).is_error


async def test_the_callers_own_meta_reaches_the_server(tmp_path: Path) -> None:
    """Clients send trace ids and the like; they may not forge our envelope's keys away."""
    async with opened(tapped("echo", tmp_path / "lines")) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.call("echo", b'{"text":"hello"}', meta=b'{"example.com/trace":"t-1"}')
    assert '"_meta":{"example.com/trace":"t-1"}' in (tmp_path / "lines").read_text()


async def test_arguments_that_are_no_json_are_refused_here(server: ServerEndpointImpl) -> None:
    """Nothing is sent: the caller may repair and repeat."""
    fault = await fault_of(server.invoke("echo", {"text": object()}))
    assert_fault(fault, "tool_error", "bad_arguments", "not_sent", "not JSON")


async def test_serious_log_lines_of_a_server_reach_our_log(
    server: ServerEndpointImpl, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning that only the worker sees helps nobody."""
    await invoke(server, "log", text="disk full", level="error")
    await eventually_async(lambda: "disk full" in caplog.text)
    assert server.config.id in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING


async def test_a_changed_list_is_fetched_anew(era: str) -> None:
    """Clients would else call tools that are gone, and never see new ones."""
    async with opened(pretend(era)) as endpoint:
        before = await endpoint.list_tools()
        changes: list[int] = []
        endpoint.watch(lambda: changes.append(len(endpoint.tools())))
        added = text_of(await invoke(endpoint, "change"))
        await eventually_async(lambda: len(endpoint.tools()) == len(before) + 1)
        assert endpoint.tools()[-1].ref.name == added
        assert changes == [len(before) + 1]
        assert await endpoint.list_tools() is endpoint.tools()


async def test_a_filter_hides_tools_and_refuses_their_calls(era: str) -> None:
    """What is denied must not be reachable by guessing its name."""
    tools = ToolFilter(allow=("e*", "add"), deny=("env",))
    async with opened(pretend(era, tools=tools)) as endpoint:
        assert [tool.ref.name for tool in await endpoint.list_tools()] == ["echo", "add"]
        for hidden in ("env", "pid"):
            fault = await fault_of(endpoint.invoke(hidden))
            assert_fault(fault, "tool_error", "unknown_tool", "not_sent", hidden)
        await say(endpoint)


async def test_a_question_to_the_user_is_a_fault_that_says_so() -> None:
    """Nobody here can answer it; the model must learn what is missing."""
    async with opened(pretend("modern")) as endpoint:
        fault = await fault_of(endpoint.invoke("input_required"))
        assert_fault(fault, "tool_error", "input_required", "answered", "input_required")
        await say(endpoint)


async def test_an_era_is_remembered_and_not_probed_again(tmp_path: Path) -> None:
    """A restart should cost one round trip less, and a server that never answers a probe five seconds less."""
    lines = tmp_path / "lines"
    for _ in range(2):
        async with opened(tapped("echo", lines)) as endpoint:
            await say(endpoint)
    said = lines.read_text()
    assert said.count('"server/discover"') == 1
    assert said.count('"initialize"') == 2


async def test_an_endpoint_that_is_not_ready_says_so_at_once() -> None:
    """A fault that says `not_sent` may be repeated elsewhere."""
    async with opened(pretend("echo", server_id="gone")) as endpoint:
        await endpoint.close()
        await endpoint.close()
        for awaited in (endpoint.invoke("echo", {"text": "x"}), endpoint.list_tools(), endpoint.open()):
            assert_fault(await fault_of(awaited), "not_connected", "not_connected", "not_sent", "gone is closed")


async def test_a_mounted_box_offers_every_good_server_and_says_why_a_bad_one_is_missing() -> None:
    """One wrong row of a configuration must not empty the deck."""
    servers = (
        stdio_config("bad", ["no-such-command"]),
        pretend("echo", server_id="one"),
        pretend("modern", server_id="two"),
    )
    with anyio.fail_after(BACKSTOP_S):
        mounted = await mount_protocol_bridge(BridgeConfig(servers=servers))
    try:
        names = [descriptor.name for descriptor in mounted.box.descriptors()]
        assert {name.partition("__")[0] for name in names} == {"one", "two"}
        assert names.index("one__echo") < names.index("two__echo")
        with anyio.fail_after(BACKSTOP_S):
            answer = await mounted.box.run(ToolCall("1", "two__echo", {"text": "hello"}), CancelToken())
            missing = await mounted.box.run(ToolCall("2", "bad__echo", {}), CancelToken())
        assert (answer.output, answer.is_error) == ("hello", False)
        assert missing.is_error
        assert "no-such-command is not on the server's PATH" in str(missing.output)
        assert [*mounted.fleet.status()] == ["bad", "one", "two"]
    finally:
        with anyio.fail_after(BACKSTOP_S):
            await mounted.fleet.tear_down()


def tapped(name: str, copy: Path) -> Any:
    """A pretend server whose stdin is copied to a file."""
    command = f"tee -a {copy} | exec {' '.join(server_argv(name))}"
    return stdio_config("tapped", ["sh", "-c", command], sandbox=UNCONFINED)
