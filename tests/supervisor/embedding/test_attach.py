"""Attaching servers to a ledger, and detaching them, with real ones."""

from collections.abc import AsyncIterator

import pytest
from support.processes.leftovers import no_leftovers
from support.servers.real_endpoints import opened, pretend
from support.tools.contexts import inert_context

from quarterdeck.config.places.paths import UnsafePathError
from quarterdeck.embedding import attach
from quarterdeck.embedding.attach import attach_bridge_capabilities, detach_bridge
from quarterdeck.ledger.values import (
    BridgeLedger,
    bridge_capability_card,
    bridge_config,
    bridge_status,
    bridge_tool_counts,
    bridge_tool_names,
)
from quarterdeck.tools.card_types import DeckContext, DeckFaultKind
from quarterdeck.tools.results import TextContentBlock
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's tests, so that they share a runtime and its zygote."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def neighbour(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[None]:
    """Everything that is written stays with the module; a server that is open all the time keeps the zygote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path_factory.mktemp("enroll") / "state"))
        async with opened(pretend("echo", server_id="neighbour")):
            yield


async def test_servers_are_attached_called_and_detached_one_by_one() -> None:
    """The ledger's whole life: a tool could not be enrolled, called or listed; or removing one server take all away."""
    broken = StdioServerConfig(id="broken", command="/no/such/command")
    configs = [pretend("echo", server_id="one"), pretend("echo", server_id="two"), broken]
    with no_leftovers():
        attached = await attach_bridge_capabilities(BridgeLedger.empty(), bridge_config(configs))
        left = attached.ledger
        try:
            assert attached.fault is None
            assert attached.enrolled == len(left.log) > 0
            assert dict(bridge_tool_counts(left)) == dict.fromkeys(("one", "two"), attached.enrolled // 2)
            assert attached.status["broken"].phase is EndpointPhase.FAULTED
            capability = next(each for each in left.live_capabilities() if each.name == "one__echo")
            result = await capability.run({"text": "hello"}, inert_context())
            assert result.content == (TextContentBlock("hello"),)
            card = bridge_capability_card(capability)
            assert (card.id, card.title, card.profiles) == (capability.name, capability.name, ())
            assert "'one'" in card.summary
            assert card.build(DeckContext("/")) is capability
            left = await detach_bridge(left, attached.fleet, ["one"])
            assert set(bridge_tool_counts(left)) == {"two"}
        finally:
            left = await detach_bridge(left, attached.fleet)
        assert bridge_tool_names(left) == []
        assert bridge_status(attached.fleet)["one"].phase is EndpointPhase.CLOSED
        assert len(left.log) == 2 * attached.enrolled


async def test_attaching_no_servers_changes_nothing() -> None:
    """A session without servers would not start."""
    ledger = BridgeLedger.empty()
    attached = await attach_bridge_capabilities(ledger, bridge_config([]))
    assert attached.ledger is ledger
    assert (dict(attached.status), attached.enrolled, attached.fault) == ({}, 0, None)
    assert await detach_bridge(ledger, attached.fleet) is ledger


async def test_a_mount_that_cannot_begin_is_told_as_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session would end with a traceback because of a directory's mode."""

    async def refuse(_: object) -> object:
        raise UnsafePathError("/somewhere may be used by others")

    monkeypatch.setattr(attach, "mount_protocol_bridge", refuse)
    attached = await attach_bridge_capabilities(BridgeLedger.empty(), bridge_config([]))
    assert attached.fault.kind is DeckFaultKind.BRIDGE
    assert "may be used by others" in attached.fault.message
    await detach_bridge(attached.ledger, attached.fleet)
