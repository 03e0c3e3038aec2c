"""What an endpoint does beside calls: attempts to open it, bounds and filters, meta, eras, our log, mounting."""

import logging
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
    hostile,
    opened,
    pretend,
    say,
    stdio_config,
)
from support.waiting import eventually_async

from quarterdeck.interop import BridgeConfig, create_server_endpoint, mount_protocol_bridge
from quarterdeck_protocol.configs import ToolFilter
from quarterdeck_protocol.tools import CancelToken, ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

SHORT_S = 0.5
"""What is waited for a server that never answers."""


@pytest.fixture(params=["echo", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    """A server's script, of each era."""
    script: str = request.param
    return script


async def test_all_who_wait_for_one_attempt_get_its_one_fault() -> None:
    """Each would else see another error, or start another process."""
    endpoint = create_server_endpoint(hostile("never_answers", connect_timeout_s=SHORT_S))
    faults = []

    async def join() -> None:
        faults.append(await fault_of(endpoint.open()))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(join)
    faults.append(await fault_of(endpoint.open()))
    assert len({id(fault) for fault in faults}) == 1
    await endpoint.close()
    assert endpoint.phase == "faulted"


async def test_closing_ends_an_attempt_and_tells_who_waited() -> None:
    """Otherwise a program that stops would wait out the connect timeout of a hanging server."""
    endpoint = create_server_endpoint(hostile("never_answers"))
    with anyio.fail_after(BACKSTOP_S):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                assert_fault(await fault_of(endpoint.open()), "not_connected", "not_connected", "not_sent")

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await endpoint.close()
    assert endpoint.phase == "closed"
    assert_fault(await fault_of(endpoint.open()), "not_connected", "not_connected", "not_sent", "is closed")


async def test_a_caller_who_gives_up_leaves_the_attempt_to_the_others() -> None:
    """One cancelled request must not take down everybody's connection."""
    endpoint = create_server_endpoint(pretend("echo"))
    with anyio.fail_after(BACKSTOP_S):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await endpoint.open()
        await endpoint.open()
    await say(endpoint)
    await endpoint.close()


async def test_a_callers_wish_cannot_outlast_the_configuration(era: str) -> None:
    """The user's limit holds, whatever a client asks."""
    async with opened(pretend(era, call_timeout_s=0.1)) as endpoint:
        fault = await fault_of(endpoint.call("hang", b"{}", timeout_s=60.0))
        assert_fault(fault, "timeout", "call_timeout", "unknown", "within 0.1 s")


async def test_the_callers_own_meta_reaches_the_server(tmp_path: Path) -> None:
    """Clients send trace ids and the like; they may not forge our envelope's keys away."""
    async with opened(tapped("echo", tmp_path / "lines")) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.call("echo", b'{"text":"hello"}', meta=b'{"example.com/trace":"t-1"}')
    assert '"_meta":{"example.com/trace":"t-1"}' in (tmp_path / "lines").read_text()


async def test_arguments_that_are_no_json_are_refused_here() -> None:
    """Nothing is sent: the caller may repair and repeat; what is not an object becomes an empty one."""
    async with opened(pretend("echo")) as endpoint:
        fault = await fault_of(endpoint.invoke("echo", {"text": object()}))
        assert_fault(fault, "tool_error", "bad_arguments", "not_sent", "not JSON")
        with anyio.fail_after(BACKSTOP_S):
            assert (await endpoint.invoke("iserror", "not an object")).is_error


async def test_serious_log_lines_of_a_server_reach_our_log(era: str, caplog: pytest.LogCaptureFixture) -> None:
    """A warning that only the worker sees helps nobody."""
    async with opened(pretend(era)) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.invoke("log", {"text": "disk full", "level": "error"})
        await eventually_async(lambda: "disk full" in caplog.text)
    [record] = [record for record in caplog.records if "disk full" in record.getMessage()]
    assert endpoint.config.id in record.getMessage()
    assert record.levelno == logging.WARNING


async def test_a_filter_hides_tools_and_refuses_their_calls(era: str) -> None:
    """What is denied must not be reachable by guessing its name."""
    tools = ToolFilter(allow=("e*", "add"), deny=("env",))
    async with opened(pretend(era, tools=tools)) as endpoint:
        assert [tool.ref.name for tool in await endpoint.list_tools()] == ["echo", "add"]
        for hidden in ("env", "pid"):
            fault = await fault_of(endpoint.invoke(hidden))
            assert_fault(fault, "tool_error", "unknown_tool", "not_sent", hidden)
        await say(endpoint)


async def test_a_legacy_server_is_sent_no_request_that_it_does_not_know(tmp_path: Path) -> None:
    """Its log would open with complaints about a request that none of its clients made."""
    lines = tmp_path / "lines"
    async with opened(tapped("echo", lines)) as endpoint:
        await say(endpoint)
    said = lines.read_text()
    assert '"server/discover"' not in said
    assert said.count('"initialize"') == 1


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
