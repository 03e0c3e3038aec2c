"""The deck: which tools a session has, native and grafted, and the box that calls them."""

# ruff: noqa: PLC0414 - the redundant alias is how a typed package re-exports (PEP 484)

from typing import TYPE_CHECKING, Final

from quarterdeck.common.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.config.native_names import Profile as Profile
    from quarterdeck.tools.cards import app_novel_cards as app_novel_cards
    from quarterdeck.tools.cards.bg_process import daemon_card as daemon_card
    from quarterdeck.tools.cards.memory import FileMemoryStore as FileMemoryStore
    from quarterdeck.tools.cards.memory import InMemoryStore as InMemoryStore
    from quarterdeck.tools.cards.memory import memory_card as memory_card
    from quarterdeck.tools.cards.plan import PLANS_DIRNAME as PLANS_DIRNAME
    from quarterdeck.tools.cards.plan import enter_plan_mode_card as enter_plan_mode_card
    from quarterdeck.tools.cards.plan import exit_plan_mode_card as exit_plan_mode_card
    from quarterdeck.tools.cards.plan import plan_file_path as plan_file_path
    from quarterdeck.tools.cards.plan import plan_slug as plan_slug
    from quarterdeck.tools.cards.plan import read_plan as read_plan
    from quarterdeck.tools.cards.plan import write_plan as write_plan
    from quarterdeck.tools.cards.saas import saas_card as saas_card
    from quarterdeck.tools.cards.task import task_card as task_card
    from quarterdeck.tools.cards.todo import TodoItem as TodoItem
    from quarterdeck.tools.cards.todo import TodoLedger as TodoLedger
    from quarterdeck.tools.cards.todo import TodoState as TodoState
    from quarterdeck.tools.cards.todo import TodoWeight as TodoWeight
    from quarterdeck.tools.cards.todo import todo_card as todo_card
    from quarterdeck.tools.checkpoint.card import CHECKPOINTED_TOOLS as CHECKPOINTED_TOOLS
    from quarterdeck.tools.checkpoint.card import CheckpointingCard as CheckpointingCard
    from quarterdeck.tools.checkpoint.card import NodeStore as NodeStore
    from quarterdeck.tools.checkpoint.card import maybe_wrap_checkpoint as maybe_wrap_checkpoint
    from quarterdeck.tools.checkpoint.index import CheckpointNode as CheckpointNode
    from quarterdeck.tools.checkpoint.index import UnknownNodeError as UnknownNodeError
    from quarterdeck.tools.checkpoint.restore import RestoredPath as RestoredPath
    from quarterdeck.tools.checkpoint.restore import RestoreOutcome as RestoreOutcome
    from quarterdeck.tools.checkpoint.store import FileCheckpointStore as FileCheckpointStore
    from quarterdeck.tools.deck.builtin_tools import BridgeBuilder as BridgeBuilder
    from quarterdeck.tools.deck.builtin_tools import BuiltinCard as BuiltinCard
    from quarterdeck.tools.deck.builtin_tools import BuiltinDescriptor as BuiltinDescriptor
    from quarterdeck.tools.deck.builtin_tools import build_builtin as build_builtin
    from quarterdeck.tools.deck.builtin_tools import build_builtins_for_profile as build_builtins_for_profile
    from quarterdeck.tools.deck.builtin_tools import builtin_bridge as builtin_bridge
    from quarterdeck.tools.deck.builtin_tools import builtin_cards as builtin_cards
    from quarterdeck.tools.deck.builtin_tools import builtin_descriptors as builtin_descriptors
    from quarterdeck.tools.deck.builtin_tools import builtin_ids as builtin_ids
    from quarterdeck.tools.deck.builtin_tools import builtin_profiles as builtin_profiles
    from quarterdeck.tools.deck.catalog import capability_cards as capability_cards
    from quarterdeck.tools.deck.catalog import capability_ids as capability_ids
    from quarterdeck.tools.deck.catalog import capability_index as capability_index
    from quarterdeck.tools.deck.catalog import card_profiles as card_profiles
    from quarterdeck.tools.deck.catalog import cards_for_profile as cards_for_profile
    from quarterdeck.tools.deck.catalog import find_card as find_card
    from quarterdeck.tools.deck.catalog import has_capability as has_capability
    from quarterdeck.tools.deck.contract import BuildFn as BuildFn
    from quarterdeck.tools.deck.contract import Capability as Capability
    from quarterdeck.tools.deck.contract import CapabilityCard as CapabilityCard
    from quarterdeck.tools.deck.contract import CapabilityId as CapabilityId
    from quarterdeck.tools.deck.contract import Card as Card
    from quarterdeck.tools.deck.contract import CheckpointStore as CheckpointStore
    from quarterdeck.tools.deck.contract import DeckContext as DeckContext
    from quarterdeck.tools.deck.contract import DeckFault as DeckFault
    from quarterdeck.tools.deck.contract import DeckFaultKind as DeckFaultKind
    from quarterdeck.tools.deck.contract import DeckFramework as DeckFramework
    from quarterdeck.tools.deck.contract import DeckResult as DeckResult
    from quarterdeck.tools.deck.contract import DelegateReport as DelegateReport
    from quarterdeck.tools.deck.contract import DelegateRunner as DelegateRunner
    from quarterdeck.tools.deck.contract import Delegation as Delegation
    from quarterdeck.tools.deck.contract import JsonSchema as JsonSchema
    from quarterdeck.tools.deck.contract import MemoryStore as MemoryStore
    from quarterdeck.tools.deck.contract import SaasAction as SaasAction
    from quarterdeck.tools.deck.contract import SaasGatewayPort as SaasGatewayPort
    from quarterdeck.tools.deck.contract import SaasReply as SaasReply
    from quarterdeck.tools.deck.contract import capability_id as capability_id
    from quarterdeck.tools.deck.native_card import NativeCard as NativeCard
    from quarterdeck.tools.deck.provision import DeckRunner as DeckRunner
    from quarterdeck.tools.deck.provision import DeckToolBox as DeckToolBox
    from quarterdeck.tools.deck.provision import ToolDeck as ToolDeck
    from quarterdeck.tools.deck.provision import cards_for_deck_profile as cards_for_deck_profile
    from quarterdeck.tools.deck.provision import project_result as project_result
    from quarterdeck.tools.deck.provision import provision_deck as provision_deck

_HOMES: Final = {
    "BridgeBuilder": "quarterdeck.tools.deck.builtin_tools",
    "BuildFn": "quarterdeck.tools.deck.contract",
    "BuiltinCard": "quarterdeck.tools.deck.builtin_tools",
    "BuiltinDescriptor": "quarterdeck.tools.deck.builtin_tools",
    "CHECKPOINTED_TOOLS": "quarterdeck.tools.checkpoint.card",
    "Capability": "quarterdeck.tools.deck.contract",
    "CapabilityCard": "quarterdeck.tools.deck.contract",
    "CapabilityId": "quarterdeck.tools.deck.contract",
    "Card": "quarterdeck.tools.deck.contract",
    "CheckpointNode": "quarterdeck.tools.checkpoint.index",
    "CheckpointStore": "quarterdeck.tools.deck.contract",
    "CheckpointingCard": "quarterdeck.tools.checkpoint.card",
    "DeckContext": "quarterdeck.tools.deck.contract",
    "DeckFault": "quarterdeck.tools.deck.contract",
    "DeckFaultKind": "quarterdeck.tools.deck.contract",
    "DeckFramework": "quarterdeck.tools.deck.contract",
    "DeckResult": "quarterdeck.tools.deck.contract",
    "DeckRunner": "quarterdeck.tools.deck.provision",
    "DeckToolBox": "quarterdeck.tools.deck.provision",
    "DelegateReport": "quarterdeck.tools.deck.contract",
    "DelegateRunner": "quarterdeck.tools.deck.contract",
    "Delegation": "quarterdeck.tools.deck.contract",
    "FileCheckpointStore": "quarterdeck.tools.checkpoint.store",
    "FileMemoryStore": "quarterdeck.tools.cards.memory",
    "InMemoryStore": "quarterdeck.tools.cards.memory",
    "JsonSchema": "quarterdeck.tools.deck.contract",
    "MemoryStore": "quarterdeck.tools.deck.contract",
    "NativeCard": "quarterdeck.tools.deck.native_card",
    "NodeStore": "quarterdeck.tools.checkpoint.card",
    "PLANS_DIRNAME": "quarterdeck.tools.cards.plan",
    "Profile": "quarterdeck.config.native_names",
    "RestoreOutcome": "quarterdeck.tools.checkpoint.restore",
    "RestoredPath": "quarterdeck.tools.checkpoint.restore",
    "SaasAction": "quarterdeck.tools.deck.contract",
    "SaasGatewayPort": "quarterdeck.tools.deck.contract",
    "SaasReply": "quarterdeck.tools.deck.contract",
    "TodoItem": "quarterdeck.tools.cards.todo",
    "TodoLedger": "quarterdeck.tools.cards.todo",
    "TodoState": "quarterdeck.tools.cards.todo",
    "TodoWeight": "quarterdeck.tools.cards.todo",
    "ToolDeck": "quarterdeck.tools.deck.provision",
    "UnknownNodeError": "quarterdeck.tools.checkpoint.index",
    "app_novel_cards": "quarterdeck.tools.cards",
    "build_builtin": "quarterdeck.tools.deck.builtin_tools",
    "build_builtins_for_profile": "quarterdeck.tools.deck.builtin_tools",
    "builtin_bridge": "quarterdeck.tools.deck.builtin_tools",
    "builtin_cards": "quarterdeck.tools.deck.builtin_tools",
    "builtin_descriptors": "quarterdeck.tools.deck.builtin_tools",
    "builtin_ids": "quarterdeck.tools.deck.builtin_tools",
    "builtin_profiles": "quarterdeck.tools.deck.builtin_tools",
    "capability_cards": "quarterdeck.tools.deck.catalog",
    "capability_id": "quarterdeck.tools.deck.contract",
    "capability_ids": "quarterdeck.tools.deck.catalog",
    "capability_index": "quarterdeck.tools.deck.catalog",
    "card_profiles": "quarterdeck.tools.deck.catalog",
    "cards_for_deck_profile": "quarterdeck.tools.deck.provision",
    "cards_for_profile": "quarterdeck.tools.deck.catalog",
    "daemon_card": "quarterdeck.tools.cards.bg_process",
    "enter_plan_mode_card": "quarterdeck.tools.cards.plan",
    "exit_plan_mode_card": "quarterdeck.tools.cards.plan",
    "find_card": "quarterdeck.tools.deck.catalog",
    "has_capability": "quarterdeck.tools.deck.catalog",
    "maybe_wrap_checkpoint": "quarterdeck.tools.checkpoint.card",
    "memory_card": "quarterdeck.tools.cards.memory",
    "plan_file_path": "quarterdeck.tools.cards.plan",
    "plan_slug": "quarterdeck.tools.cards.plan",
    "project_result": "quarterdeck.tools.deck.provision",
    "provision_deck": "quarterdeck.tools.deck.provision",
    "read_plan": "quarterdeck.tools.cards.plan",
    "saas_card": "quarterdeck.tools.cards.saas",
    "task_card": "quarterdeck.tools.cards.task",
    "todo_card": "quarterdeck.tools.cards.todo",
    "write_plan": "quarterdeck.tools.cards.plan",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
