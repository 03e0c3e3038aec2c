"""Catalogues of servers that a test writes."""

import msgspec
from support.tools.offer_fleet import OfferServer

from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config.overrides import NO_OVERRIDES, ServerOverrides
from quarterdeck.route.catalogue import NOTHING, Catalogue, look, merged
from quarterdeck_protocol.offers import Listing


def catalogue_of(
    *servers: OfferServer,
    before: Catalogue = NOTHING,
    alone: str = "",
    budget: NameBudget | None = None,
    overrides: dict[str, ServerOverrides] | None = None,
) -> Catalogue:
    said = overrides or {}
    found = {
        each.id: look(each, said.get(each.id, NO_OVERRIDES), before.servers.get(each.id))  # type: ignore[arg-type]
        for each in servers
    }
    return merged(found, before, alone=alone, budget=budget)


def server_of(name: str, *tools: str, **options: object) -> OfferServer:
    definitions = {tool: definition(tool) for tool in tools}
    return OfferServer(name, tools=definitions, **options)  # type: ignore[arg-type]


def definition(name: str, **more: object) -> bytes:
    return msgspec.json.encode({"name": name, "inputSchema": {"type": "object"}, **more})


def overrides(**keys: object) -> ServerOverrides:
    return ServerOverrides.model_validate(keys)


def names(catalogue: Catalogue) -> list[str]:
    return [each.name for each in catalogue.shown]


def publics(catalogue: Catalogue, listing: Listing) -> list[str]:
    return [each.public for each in catalogue.lists[listing]]
