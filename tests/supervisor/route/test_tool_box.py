"""Mount and the live box, over a fleet in memory."""

import sys
from types import ModuleType

import anyio
import msgspec
import pytest
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet, call_result
from support.tools.allowances import OnlyReads

from quarterdeck.route import tool_box
from quarterdeck.route.mount import mount_protocol_bridge
from quarterdeck.route.router import Router
from quarterdeck.route.tool_box import fault_text, project_answer
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock
from quarterdeck_protocol.configs import BridgeConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.tools import CancelToken, Client, ToolCall, ToolOutcome


def names_of(box: Router) -> list[str]:
    return [descriptor.name for descriptor in box.descriptors()]


async def run(box: Router, name: str, arguments: object = None, cancel: CancelToken | None = None) -> ToolOutcome:
    return await box.runner.run(ToolCall("call-1", name, arguments), cancel or CancelToken())


def use_fleet(monkeypatch: pytest.MonkeyPatch, fleet: FakeFleet) -> None:
    async def start_server_fleet(config: BridgeConfig) -> FakeFleet:
        return fleet

    module = ModuleType("quarterdeck.fleet.fleet")
    module.start_server_fleet = start_server_fleet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "quarterdeck.fleet.fleet", module)


async def test_the_servers_result_goes_along_whole() -> None:
    """A client would lose structured content, metadata and images to the projection."""
    value = {"content": [{"type": "text", "text": "no"}], "structuredContent": {"n": 1}, "isError": True, "x": None}

    async def answer(tool: str, arguments: object) -> object:
        return call_result(value)

    outcome = await run(Router(FakeFleet(FakeEndpoint("fs", "read", answer=answer))), "fs__read")
    assert outcome.is_error
    assert outcome.output == "no"
    assert msgspec.json.decode(outcome.wire.body) == value


@pytest.mark.parametrize("size", [10, tool_box.INLINE_DECODE_BYTES + 1])
async def test_a_result_of_any_size_is_projected(size: int) -> None:
    """Results above the threshold are decoded in a thread and must come out the same."""

    async def answer(tool: str, arguments: object) -> object:
        return call_result({"content": [{"type": "text", "text": "x" * size}]})

    outcome = await run(Router(FakeFleet(FakeEndpoint("fs", "read", answer=answer))), "fs__read")
    assert outcome.output == "x" * size


def test_every_block_is_projected_and_none_is_lost() -> None:
    """Images and odd blocks would vanish on their way to a model, or arrive as a Python repr."""
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    odd = {"type": "text", "text": 5}
    result = project_answer(call_result({"content": [{"type": "text", "text": "a"}, image, odd, None, 7]}))
    assert result.content == (
        TextContentBlock("a"),
        JsonContentBlock(image),
        JsonContentBlock(odd),
        JsonContentBlock(None),
        JsonContentBlock(7),
    )


@pytest.mark.parametrize("value", [{}, {"content": "text"}, {"content": None}])
def test_a_result_without_a_content_list_has_no_blocks(value: dict[str, object]) -> None:
    """A sloppy server would break the call instead of answering nothing."""
    assert project_answer(call_result(value)).content == ()


async def test_the_nearest_name_that_its_client_may_use_is_suggested() -> None:
    """A model that misspelt a name could not correct itself; or learn what there is beside its group."""
    box = Router(FakeFleet(FakeEndpoint("fs", "readable", "write")))
    for name, hint in (("fs__reedable", ": did you mean 'fs__readable'?"), ("fs__wriite", ".")):
        call = ToolCall("1", name, {}, client=Client("c", "c", OnlyReads()))
        outcome = await box.runner.run(call, CancelToken())
        assert outcome.output == f"There is no tool called {name!r}{hint}"


@pytest.mark.parametrize("name", ["", "fs", "__read", "other__read", "fs__", "fs__nothing_like_it"])
async def test_any_other_unknown_name_is_an_outcome_too(name: str) -> None:
    """A call must never raise for the name it was given."""
    outcome = await run(Router(FakeFleet(FakeEndpoint("fs", "read"))), name)
    assert outcome.is_error
    assert repr(name) in str(outcome.output)


async def test_a_tool_of_a_server_that_is_down_is_not_called_unknown() -> None:
    """A model that saw the tool a moment ago would give up on it instead of trying again."""
    fault = ProtocolFault(FaultKind.TRANSPORT, "the process exited with 3", code="exited")
    fleet = FakeFleet(FakeEndpoint("fs", "read", phase=EndpointPhase.FAULTED, fault=fault))
    outcome = await run(Router(fleet), "fs__read")
    assert outcome.is_error
    assert str(outcome.output).startswith("fs__read: server 'fs' is faulted: the process exited with 3 (not_connected")


async def test_a_call_asks_for_the_endpoint_of_its_moment() -> None:
    """After a restart a call would go to the dead generation, or to a server that was removed."""
    fleet = FakeFleet(FakeEndpoint("fs", "read"))
    box = Router(fleet)
    assert not (await run(box, "fs__read")).is_error
    fleet.by_id["fs"].phase = EndpointPhase.FAULTED
    assert (await run(box, "fs__read")).is_error
    fleet.by_id["fs"] = FakeEndpoint("fs", "read")
    assert not (await run(box, "fs__read")).is_error
    del fleet.by_id["fs"]
    fleet.tell("fs")
    assert (await run(box, "fs__read")).output == "There is no tool called 'fs__read'."


async def test_input_is_the_servers_to_judge_and_is_read_as_models_mean_it() -> None:
    """A server that takes more than it says could not be given it, or would get a string for an object."""
    box = Router(FakeFleet(FakeEndpoint("fs", "read__all")))
    assert (await run(box, "fs__read__all", '{"path": 5}')).output == 'read__all {"path":5}'


async def test_a_call_that_is_cancelled_already_reaches_no_server() -> None:
    """A tool would have its effect after the user said stop."""
    cancel = CancelToken()
    cancel.cancel()

    async def answer(tool: str, arguments: object) -> object:
        raise AssertionError

    outcome = await run(Router(FakeFleet(FakeEndpoint("fs", "read", answer=answer))), "fs__read", cancel=cancel)
    assert outcome == ToolOutcome("call-1", "fs__read was cancelled before it began.", is_error=True)


async def test_a_fault_becomes_an_outcome_that_says_what_to_do() -> None:
    """A model would see a stack trace, or nothing at all."""

    async def answer(tool: str, arguments: object) -> object:
        raise ProtocolFault(FaultKind.TIMEOUT, "no answer within 3 s", code="call_timeout")

    outcome = await run(Router(FakeFleet(FakeEndpoint("fs", "read", answer=answer))), "fs__read")
    assert outcome == ToolOutcome(
        "call-1",
        "fs__read: no answer within 3 s (call_timeout). Fix: raise call_timeout_s, or ask for less",
        is_error=True,
    )


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (ProtocolFault(FaultKind.TOOL_ERROR, "no"), "t: no (tool_error)"),
        (ProtocolFault(FaultKind.TOOL_ERROR, "no", code="of_tomorrow"), "t: no (of_tomorrow)"),
    ],
)
def test_a_fault_without_a_remedy_is_told_without_one(fault: ProtocolFault, text: str) -> None:
    """The text would end in None."""
    assert fault_text("t", fault) == text


async def test_the_cancel_token_cancels_the_call_under_way() -> None:
    """A client's cancellation would leave the server working."""
    cancel = CancelToken()
    ended: list[str] = []

    async def answer(tool: str, arguments: object) -> object:
        cancel.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(tool)

    box = Router(FakeFleet(FakeEndpoint("fs", "read", answer=answer)))
    outcome = await run(box, "fs__read", cancel=cancel)
    assert outcome.is_error
    assert "cancelled" in str(outcome.output)
    await anyio.wait_all_tasks_blocked()
    assert ended == ["read"]


@pytest.mark.parametrize("with_token", [False, True], ids=["alone", "together with its token"])
async def test_cancelling_the_awaiting_task_passes_through(*, with_token: bool) -> None:
    """A cancelled session would hang on its calls, or take the cancellation for a result."""
    cancel = CancelToken()
    started = anyio.Event()
    outcomes: list[ToolOutcome] = []

    async def answer(tool: str, arguments: object) -> object:
        started.set()
        await anyio.sleep_forever()

    async def call() -> None:
        outcomes.append(await run(box, "fs__read", cancel=cancel))

    box = Router(FakeFleet(FakeEndpoint("fs", "read", answer=answer)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await started.wait()
        if with_token:
            cancel.cancel()
        tasks.cancel_scope.cancel()
    assert outcomes == []
    cancel.cancel()  # nothing of the call is left registered


async def test_mount_skips_servers_that_are_not_ready_or_cannot_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad server would empty the others."""
    broken = FakeEndpoint("broken")
    broken.list_fault = ProtocolFault(FaultKind.PROTOCOL, "not a list")
    down = FakeEndpoint("down", "x", phase=EndpointPhase.FAULTED)
    down.list_fault = ProtocolFault(FaultKind.NOT_CONNECTED, "down")
    fleet = FakeFleet(down, broken, FakeEndpoint("fs", "read"))
    use_fleet(monkeypatch, fleet)
    mounted = await mount_protocol_bridge(BridgeConfig())
    assert names_of(mounted.box) == ["fs__read"]
    assert mounted.fleet is fleet
    assert not fleet.torn_down


async def test_a_cancelled_mount_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers would outlive the program that gave up waiting for them."""
    fleet = FakeFleet(FakeEndpoint("fs"))
    use_fleet(monkeypatch, fleet)
    with anyio.CancelScope() as scope:

        async def list_tools() -> object:
            scope.cancel()
            await anyio.sleep_forever()

        monkeypatch.setattr(fleet.by_id["fs"], "list_tools", list_tools)
        await mount_protocol_bridge(BridgeConfig())
    assert scope.cancelled_caught
    assert fleet.torn_down
