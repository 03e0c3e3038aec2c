"""The public barrels: what they name, and that importing them costs nothing."""

from importlib.metadata import version

import pytest
from support.processes.running import loaded_by

import quarterdeck
from quarterdeck import deck, interop, kernel, ledger

BARRELS = (quarterdeck, deck, interop, kernel, ledger)

SEED_NAMES = """
    mount_protocol_bridge MountedProtocolBridge create_server_endpoint ServerEndpointImpl start_server_fleet
    ServerFleetImpl create_provider_host ProviderHost ProviderHostInfo normalize_schema ProtocolFault protocol_fault
    is_protocol_fault is_usable_phase is_terminal_phase qualify_tool_name QUALIFIER ServerEndpoint ServerFleet
    EndpointPhase FaultKind StdioServerConfig SseServerConfig ServerConfig TransportKind BridgeConfig RemoteToolRef
    RemoteTool RemoteCallResult EndpointStatus FleetStatus MountedBridge
"""
OUR_NAMES = """
    RunningProviderHost portable_schema Delivery Dossier StreamableHttpServerConfig CLIENT_NAME CLIENT_VERSION
"""
KERNEL_NAMES = """
    ToolSpec define_tool DefinedTool ToolRegistry UnknownToolError ToolContext Framework ToolResult TextContentBlock
    JsonContentBlock OutputBudget clamp Fs Shell ToolBox ToolRunner ToolDescriptor ToolCall ToolOutcome CancelToken
    WireResult make_local_context builtin_registry
"""
LEDGER_NAMES = """
    BridgeLedger EnrollRequest BridgeEntry BridgeOp LedgerSnapshot BridgeKey reduce_ledger BridgeCapability
    bridge_box_to_capabilities server_of_qualified bridge_content_key bridge_ulid_key qualify_bridge_name
    attach_bridge_capabilities detach_bridge AttachResult bridge_config bridge_capability_card load_mcp_config
    bridge_tool_names bridge_tool_counts bridge_status
"""

DECK_NAMES = """
    Capability Card CapabilityId capability_id CapabilityCard BuildFn Profile DeckContext DeckFramework CheckpointStore
    DelegateRunner SaasGatewayPort MemoryStore DeckFault DeckResult BuiltinCard BuiltinDescriptor BridgeBuilder
    builtin_bridge builtin_ids builtin_profiles builtin_descriptors builtin_cards build_builtin
    build_builtins_for_profile capability_cards capability_index capability_ids has_capability find_card card_profiles
    cards_for_profile provision_deck cards_for_deck_profile ToolDeck app_novel_cards todo_card daemon_card task_card
    saas_card memory_card enter_plan_mode_card exit_plan_mode_card maybe_wrap_checkpoint CheckpointingCard
    CHECKPOINTED_TOOLS plan_slug plan_file_path write_plan read_plan PLANS_DIRNAME

    DeckFaultKind DeckRunner DeckToolBox project_result NativeCard JsonSchema Delegation DelegateReport SaasAction
    SaasReply TodoItem TodoLedger TodoState TodoWeight InMemoryStore FileMemoryStore FileCheckpointStore NodeStore
    CheckpointNode RestoredPath RestoreOutcome UnknownNodeError
"""


def test_interop_names_everything_that_it_promises() -> None:
    """A user's import of a documented name would fail."""
    assert set(interop.__all__) == {*SEED_NAMES.split(), *OUR_NAMES.split()}


def test_kernel_names_everything_that_exists_of_its_promise() -> None:
    """A user's import of a documented name would fail."""
    assert set(kernel.__all__) == set(KERNEL_NAMES.split())


def test_ledger_names_everything_that_it_promises() -> None:
    """A user's import of a documented name would fail."""
    assert set(ledger.__all__) == set(LEDGER_NAMES.split())


def test_the_deck_names_everything_that_it_promises() -> None:
    """A user's import of a documented name would fail."""
    assert set(deck.__all__) == set(DECK_NAMES.split())


@pytest.mark.parametrize(("barrel", "name"), [(barrel, name) for barrel in BARRELS for name in barrel.__all__])
def test_every_name_resolves(barrel: object, name: str) -> None:
    """A home that moved would be noticed by users first."""
    assert getattr(barrel, name) is not None


@pytest.mark.process
@pytest.mark.parametrize("module", ["quarterdeck", "quarterdeck.deck", "quarterdeck.interop", "quarterdeck.kernel"])
def test_importing_a_barrel_loads_nothing_heavy(module: str) -> None:
    """Every start of the command line would wait for libraries that it may not use."""
    assert not loaded_by(f"import {module}", "-I") & {"mcp", "pydantic", "zmq", "anyio", "rich"}


def test_kinds_are_strings() -> None:
    """Users compare them with the documented strings."""
    assert interop.FaultKind.SPAWN_FAILED == "spawn_failed"
    assert interop.TransportKind.STREAMABLE_HTTP == "streamable_http"


def test_the_package_tells_its_version() -> None:
    """Bug reports would name no version."""
    assert quarterdeck.__version__ == version("quarterdeck")
