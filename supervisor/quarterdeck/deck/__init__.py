"""The deck: which tools a session has, native and grafted, and the box that calls them."""

from typing import TYPE_CHECKING, Final

from quarterdeck.lazy import lazy_barrel

if TYPE_CHECKING:
    from .box import DeckRunner as DeckRunner
    from .box import DeckToolBox as DeckToolBox
    from .box import project_result as project_result
    from .builtin import BridgeBuilder as BridgeBuilder
    from .builtin import BuiltinCard as BuiltinCard
    from .builtin import BuiltinDescriptor as BuiltinDescriptor
    from .builtin import build_builtin as build_builtin
    from .builtin import build_builtins_for_profile as build_builtins_for_profile
    from .builtin import builtin_bridge as builtin_bridge
    from .builtin import builtin_cards as builtin_cards
    from .builtin import builtin_descriptors as builtin_descriptors
    from .builtin import builtin_ids as builtin_ids
    from .builtin import builtin_profiles as builtin_profiles
    from .cards import app_novel_cards as app_novel_cards
    from .cards.bg_process import daemon_card as daemon_card
    from .cards.memory import FileMemoryStore as FileMemoryStore
    from .cards.memory import InMemoryStore as InMemoryStore
    from .cards.memory import memory_card as memory_card
    from .cards.plan import PLANS_DIRNAME as PLANS_DIRNAME
    from .cards.plan import enter_plan_mode_card as enter_plan_mode_card
    from .cards.plan import exit_plan_mode_card as exit_plan_mode_card
    from .cards.plan import plan_file_path as plan_file_path
    from .cards.plan import plan_slug as plan_slug
    from .cards.plan import read_plan as read_plan
    from .cards.plan import write_plan as write_plan
    from .cards.saas import saas_card as saas_card
    from .cards.task import task_card as task_card
    from .cards.todo import TodoItem as TodoItem
    from .cards.todo import TodoLedger as TodoLedger
    from .cards.todo import TodoState as TodoState
    from .cards.todo import TodoWeight as TodoWeight
    from .cards.todo import todo_card as todo_card
    from .catalog import capability_cards as capability_cards
    from .catalog import capability_ids as capability_ids
    from .catalog import capability_index as capability_index
    from .catalog import card_profiles as card_profiles
    from .catalog import cards_for_profile as cards_for_profile
    from .catalog import find_card as find_card
    from .catalog import has_capability as has_capability
    from .checkpoint import CHECKPOINTED_TOOLS as CHECKPOINTED_TOOLS
    from .checkpoint import CheckpointingCard as CheckpointingCard
    from .checkpoint import NodeStore as NodeStore
    from .checkpoint import maybe_wrap_checkpoint as maybe_wrap_checkpoint
    from .checkpoint_files import FileCheckpointStore as FileCheckpointStore
    from .checkpoint_index import CheckpointNode as CheckpointNode
    from .checkpoint_index import UnknownNodeError as UnknownNodeError
    from .checkpoint_restore import RestoredPath as RestoredPath
    from .checkpoint_restore import RestoreOutcome as RestoreOutcome
    from .contract import BuildFn as BuildFn
    from .contract import Capability as Capability
    from .contract import CapabilityCard as CapabilityCard
    from .contract import CapabilityId as CapabilityId
    from .contract import Card as Card
    from .contract import CheckpointStore as CheckpointStore
    from .contract import DeckContext as DeckContext
    from .contract import DeckFault as DeckFault
    from .contract import DeckFaultKind as DeckFaultKind
    from .contract import DeckFramework as DeckFramework
    from .contract import DeckResult as DeckResult
    from .contract import DelegateReport as DelegateReport
    from .contract import DelegateRunner as DelegateRunner
    from .contract import Delegation as Delegation
    from .contract import JsonSchema as JsonSchema
    from .contract import MemoryStore as MemoryStore
    from .contract import Profile as Profile
    from .contract import SaasAction as SaasAction
    from .contract import SaasGatewayPort as SaasGatewayPort
    from .contract import SaasReply as SaasReply
    from .contract import capability_id as capability_id
    from .native import NativeCard as NativeCard
    from .provision import ToolDeck as ToolDeck
    from .provision import cards_for_deck_profile as cards_for_deck_profile
    from .provision import provision_deck as provision_deck

_HOMES: Final = {
    "BridgeBuilder": "quarterdeck.deck.builtin",
    "BuildFn": "quarterdeck.deck.contract",
    "BuiltinCard": "quarterdeck.deck.builtin",
    "BuiltinDescriptor": "quarterdeck.deck.builtin",
    "CHECKPOINTED_TOOLS": "quarterdeck.deck.checkpoint",
    "Capability": "quarterdeck.deck.contract",
    "CapabilityCard": "quarterdeck.deck.contract",
    "CapabilityId": "quarterdeck.deck.contract",
    "Card": "quarterdeck.deck.contract",
    "CheckpointNode": "quarterdeck.deck.checkpoint_index",
    "CheckpointStore": "quarterdeck.deck.contract",
    "CheckpointingCard": "quarterdeck.deck.checkpoint",
    "DeckContext": "quarterdeck.deck.contract",
    "DeckFault": "quarterdeck.deck.contract",
    "DeckFaultKind": "quarterdeck.deck.contract",
    "DeckFramework": "quarterdeck.deck.contract",
    "DeckResult": "quarterdeck.deck.contract",
    "DeckRunner": "quarterdeck.deck.box",
    "DeckToolBox": "quarterdeck.deck.box",
    "DelegateReport": "quarterdeck.deck.contract",
    "DelegateRunner": "quarterdeck.deck.contract",
    "Delegation": "quarterdeck.deck.contract",
    "FileCheckpointStore": "quarterdeck.deck.checkpoint_files",
    "FileMemoryStore": "quarterdeck.deck.cards.memory",
    "InMemoryStore": "quarterdeck.deck.cards.memory",
    "JsonSchema": "quarterdeck.deck.contract",
    "MemoryStore": "quarterdeck.deck.contract",
    "NativeCard": "quarterdeck.deck.native",
    "NodeStore": "quarterdeck.deck.checkpoint",
    "PLANS_DIRNAME": "quarterdeck.deck.cards.plan",
    "Profile": "quarterdeck.deck.contract",
    "RestoreOutcome": "quarterdeck.deck.checkpoint_restore",
    "RestoredPath": "quarterdeck.deck.checkpoint_restore",
    "SaasAction": "quarterdeck.deck.contract",
    "SaasGatewayPort": "quarterdeck.deck.contract",
    "SaasReply": "quarterdeck.deck.contract",
    "TodoItem": "quarterdeck.deck.cards.todo",
    "TodoLedger": "quarterdeck.deck.cards.todo",
    "TodoState": "quarterdeck.deck.cards.todo",
    "TodoWeight": "quarterdeck.deck.cards.todo",
    "ToolDeck": "quarterdeck.deck.provision",
    "UnknownNodeError": "quarterdeck.deck.checkpoint_index",
    "app_novel_cards": "quarterdeck.deck.cards",
    "build_builtin": "quarterdeck.deck.builtin",
    "build_builtins_for_profile": "quarterdeck.deck.builtin",
    "builtin_bridge": "quarterdeck.deck.builtin",
    "builtin_cards": "quarterdeck.deck.builtin",
    "builtin_descriptors": "quarterdeck.deck.builtin",
    "builtin_ids": "quarterdeck.deck.builtin",
    "builtin_profiles": "quarterdeck.deck.builtin",
    "capability_cards": "quarterdeck.deck.catalog",
    "capability_id": "quarterdeck.deck.contract",
    "capability_ids": "quarterdeck.deck.catalog",
    "capability_index": "quarterdeck.deck.catalog",
    "card_profiles": "quarterdeck.deck.catalog",
    "cards_for_deck_profile": "quarterdeck.deck.provision",
    "cards_for_profile": "quarterdeck.deck.catalog",
    "daemon_card": "quarterdeck.deck.cards.bg_process",
    "enter_plan_mode_card": "quarterdeck.deck.cards.plan",
    "exit_plan_mode_card": "quarterdeck.deck.cards.plan",
    "find_card": "quarterdeck.deck.catalog",
    "has_capability": "quarterdeck.deck.catalog",
    "maybe_wrap_checkpoint": "quarterdeck.deck.checkpoint",
    "memory_card": "quarterdeck.deck.cards.memory",
    "plan_file_path": "quarterdeck.deck.cards.plan",
    "plan_slug": "quarterdeck.deck.cards.plan",
    "project_result": "quarterdeck.deck.box",
    "provision_deck": "quarterdeck.deck.provision",
    "read_plan": "quarterdeck.deck.cards.plan",
    "saas_card": "quarterdeck.deck.cards.saas",
    "task_card": "quarterdeck.deck.cards.task",
    "todo_card": "quarterdeck.deck.cards.todo",
    "write_plan": "quarterdeck.deck.cards.plan",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
