"""`saas-action`: find and run actions of connected services, where the host lends a gateway; else say what is missing.

A vendor's slugs pass through as they are.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Final, Literal

from msgspec import Meta

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.deck.contract import (
    Capability,
    CapabilityCard,
    DeckContext,
    JsonSchema,
    SaasAction,
    SaasGatewayPort,
    capability_id,
)
from quarterdeck.tools.deck.native_card import NativeCard
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, ToolSpec, define_tool, schema_of, typed
from quarterdeck_protocol.tools import ToolHints

NAME: Final = capability_id("saas-action")
TITLE: Final = "SaaS action"

STUB: Final = (
    "Nothing was done: this host is connected to no services (`DeckFramework.saas` is not set). "
    "Work without them, or ask the user to connect one."
)


class SaasArguments(Arguments, frozen=True):
    """Find actions, or run one."""

    action: Annotated[
        Literal["discover", "execute"], Meta(description="discover lists actions, execute runs the one in slug.")
    ]
    slug: (
        Annotated[str, Meta(min_length=1, description="For execute: the action, exactly as discover shows it.")] | None
    ) = None
    arguments: Annotated[dict[str, object], Meta(description="For execute: what the action takes.")] | None = None
    toolkits: Annotated[list[str], Meta(description="For discover: only actions of these services.")] | None = None
    query: Annotated[str, Meta(description="For discover: what is to be done; absent, every action.")] | None = None


def saas_card() -> CapabilityCard:
    """The catalogue's row."""
    return CapabilityCard(NAME, TITLE, "Find and run actions of connected services.", (Profile.ALL,), _build)


def _build(ctx: DeckContext) -> Capability:
    gateway = ctx.framework.saas

    async def run(arguments: SaasArguments, _: ToolContext) -> ToolResult:
        if gateway is None:
            return ToolResult.of_error(STUB)
        if arguments.action == "discover":
            return ToolResult.of_text(_list(await gateway.discover(arguments.query, arguments.toolkits or ())))
        if arguments.slug is None:
            return ToolResult.of_error("execute needs slug: the action to run, as discover shows it.")
        return await _execute(gateway, arguments.slug, arguments.arguments or {})

    return NativeCard(
        define_tool(
            ToolSpec(
                NAME,
                "Use services that the user has connected. First discover actions by what they do, then execute one "
                "by its slug.",
                _parameters(),
                typed(SaasArguments, run),
                title=TITLE,
                hints=ToolHints(),  # what an action does is the vendor's
            )
        )
    )


async def _execute(gateway: SaasGatewayPort, slug: str, arguments: dict[str, object]) -> ToolResult:
    reply = await gateway.execute(slug, arguments)
    if not reply.ok:
        return ToolResult.of_error(reply.error or f"{slug} failed, and the service does not say why.")
    return ToolResult.of_text(json.dumps(reply.data, indent=2, ensure_ascii=False, default=str))


def _list(actions: Sequence[SaasAction]) -> str:
    if not actions:
        return "No action matches; try other words, or discover without a query."
    return "\n".join(f"- {action.slug} — {' '.join(action.description.split())}" for action in actions)


@cache
def _parameters() -> JsonSchema:
    return schema_of(SaasArguments)
