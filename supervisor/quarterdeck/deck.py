"""The public names of the deck: which native tools a session has, their cards, and the box that calls them."""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.common.tool_names import Profile as Profile
    from quarterdeck.embedding.deck import (
        PLANS_DIRNAME as PLANS_DIRNAME,
        BridgeBuilder as BridgeBuilder,
        BuiltinCard as BuiltinCard,
        BuiltinDescriptor as BuiltinDescriptor,
        NativeCard as NativeCard,
        app_novel_cards as app_novel_cards,
        build_builtin as build_builtin,
        build_builtins_for_profile as build_builtins_for_profile,
        builtin_bridge as builtin_bridge,
        builtin_cards as builtin_cards,
        builtin_descriptors as builtin_descriptors,
        builtin_ids as builtin_ids,
        builtin_profiles as builtin_profiles,
        capability_index as capability_index,
        card_profiles as card_profiles,
        cards_for_deck_profile as cards_for_deck_profile,
        daemon_card as daemon_card,
        enter_plan_mode_card as enter_plan_mode_card,
        exit_plan_mode_card as exit_plan_mode_card,
        has_capability as has_capability,
        memory_card as memory_card,
        plan_file_path as plan_file_path,
        plan_slug as plan_slug,
        project_result as project_result,
        read_plan as read_plan,
        saas_card as saas_card,
        task_card as task_card,
        todo_card as todo_card,
        write_plan as write_plan,
    )
    from quarterdeck.tools.card_types import (
        BuildFn as BuildFn,
        Capability as Capability,
        CapabilityCard as CapabilityCard,
        CapabilityId as CapabilityId,
        Card as Card,
        CheckpointStore as CheckpointStore,
        DeckContext as DeckContext,
        DeckFault as DeckFault,
        DeckFaultKind as DeckFaultKind,
        DeckFramework as DeckFramework,
        DeckResult as DeckResult,
        DelegateReport as DelegateReport,
        DelegateRunner as DelegateRunner,
        Delegation as Delegation,
        JsonSchema as JsonSchema,
        MemoryStore as MemoryStore,
        SaasAction as SaasAction,
        SaasGatewayPort as SaasGatewayPort,
        SaasReply as SaasReply,
        capability_id as capability_id,
    )
    from quarterdeck.tools.cards.checklist import (
        TodoItem as TodoItem,
        TodoLedger as TodoLedger,
        TodoState as TodoState,
        TodoWeight as TodoWeight,
    )
    from quarterdeck.tools.cards.memory import FileMemoryStore as FileMemoryStore, InMemoryStore as InMemoryStore
    from quarterdeck.tools.catalogue import (
        ToolDeck as ToolDeck,
        capability_cards as capability_cards,
        capability_ids as capability_ids,
        cards_for_profile as cards_for_profile,
        find_card as find_card,
        provision_deck as provision_deck,
    )
    from quarterdeck.tools.checkpoint.card import (
        CHECKPOINTED_TOOLS as CHECKPOINTED_TOOLS,
        CheckpointingCard as CheckpointingCard,
        NodeStore as NodeStore,
        maybe_wrap_checkpoint as maybe_wrap_checkpoint,
    )
    from quarterdeck.tools.checkpoint.index import (
        CheckpointNode as CheckpointNode,
        UnknownNodeError as UnknownNodeError,
    )
    from quarterdeck.tools.checkpoint.restore import RestoredPath as RestoredPath, RestoreOutcome as RestoreOutcome
    from quarterdeck.tools.checkpoint.store import FileCheckpointStore as FileCheckpointStore
    from quarterdeck.tools.runner import DeckRunner as DeckRunner, DeckToolBox as DeckToolBox

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)
