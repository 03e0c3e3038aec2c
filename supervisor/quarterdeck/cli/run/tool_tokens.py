"""What a deck's tools cost a model that is given them all, tool by tool, by server and by group.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from quarterdeck.common.tokens import TOKENIZER, tokens_of_tool
from quarterdeck.common.words import counted
from quarterdeck.control.protocol import ToolList, ToolView

MANY_TOOLS: Final = 40
"""More of them, and models choose a wrong one more often."""

MANY_TOKENS: Final = 10_000
"""More of them are a noticeable part of a context before it is used."""

NATIVE: Final = "native tools"
"""What stands in the place of a server's id for those that are no server's."""


class Cost(msgspec.Struct, frozen=True):
    """How many tools there are of one name, a tool's, a server's or a group's, and what they cost together."""

    name: str
    tools: int
    tokens: int


class TokenReport(msgspec.Struct, frozen=True):
    """What all costs.

    Attributes:
        tokenizer: by which tokens were counted.
        tools: the dearest first; so are the others.
        warning: why it is much, and what helps; empty where it is not.
    """

    tokenizer: str
    total: Cost
    servers: tuple[Cost, ...]
    groups: tuple[Cost, ...]
    tools: tuple[Cost, ...]
    warning: str = ""


def token_report(answer: ToolList) -> TokenReport:
    """What the tools of an answer cost."""
    costs = {tool.name: tokens_of_tool(_as_shown(tool)) for tool in answer.tools}
    by_server: dict[str, list[str]] = {}
    for tool in answer.tools:
        by_server.setdefault(tool.server or NATIVE, []).append(tool.name)
    total = _cost("all", costs, costs)
    by_group = _sorted(_cost(group, names, costs) for group, names in answer.groups.items())
    servers = _sorted(_cost(server, names, costs) for server, names in by_server.items())
    return TokenReport(
        tokenizer=TOKENIZER,
        total=total,
        servers=servers,
        groups=by_group,
        tools=_sorted(_cost(name, (name,), costs) for name in costs),
        warning=_warning(total, servers, by_group),
    )


def _as_shown(tool: ToolView) -> Mapping[str, object]:
    """The tool object under the name that models are given."""
    try:
        definition = msgspec.json.decode(tool.definition, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        definition = {}
    return {**definition, "name": tool.alias or tool.name}


def _cost(name: str, tools: Iterable[str], costs: Mapping[str, int]) -> Cost:
    counted = [costs[tool] for tool in tools]
    return Cost(name, len(counted), sum(counted))


def _sorted(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    return tuple(sorted(costs, key=lambda cost: (-cost.tokens, cost.name)))


def _is_much(cost: Cost) -> bool:
    return cost.tools > MANY_TOOLS or cost.tokens > MANY_TOKENS


def _warning(total: Cost, servers: Sequence[Cost], groups: Sequence[Cost]) -> str:
    """Why it is much, and what helps: the largest group that is not much, and the dearest server, by their names."""
    if not _is_much(total):
        return ""
    fitting = [group for group in groups if group.tools and not _is_much(group)]
    part = f"serve --group {fitting[0].name} those of that group" if fitting else "serve --group NAME a group of them"
    dearest = next((server for server in servers if server.name != NATIVE), None)
    hide = f', and "hide" in the row of {dearest.name} takes out what nobody needs' if dearest is not None else ""
    return (
        f"{counted(total.tools, 'tool')} of {total.tokens:,} tokens: that is much for a model (more "
        f"than {MANY_TOOLS} tools or {MANY_TOKENS:,} tokens): serve --search shows it two tools "
        f"that find and call the others, {part}{hide}"
    )
