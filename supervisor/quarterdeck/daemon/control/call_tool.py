"""Call a tool by name, for commands and embedding programs; MCP clients' calls go through `host`.

An unknown name gets the nearest one as a hint; a connecting server is awaited; held tools are refused.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from quarterdeck.common.tool_names import may_be_alias
from quarterdeck.fleet.workers.requests import ended
from quarterdeck.route.resolve import sent_arguments
from quarterdeck_protocol.contract import EndpointStatus, RemoteCallResult, is_usable_phase
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.names import QUALIFIER, did_you_mean, listed, nearest_tool
from quarterdeck_protocol.tools import ANONYMOUS, CancelToken, Client, RawCall, ToolCall, ToolDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quarterdeck.host.offers.decks import Decks
    from quarterdeck.running_product import Product

OWN_DECK: Final = "commands"
"""The client whose deck of native tools all these calls use: what one has started or read, the next finds."""

NO_TOOL: Final = "unknown_tool"
"""The code of a fault that says that no tool has the name."""


async def call_tool(
    product: "Product", name: str, arguments: bytes, *, wait_s: float | None, client: Client = ANONYMOUS
) -> RemoteCallResult:
    """Call a tool by `server__tool`, a native tool's name, or a short name that clients are shown; `arguments` is one
    JSON object. Wait for a connecting server for `wait_s` seconds, or as long as it may take for None.

    Raise ProtocolFault without a result: no such tool, a held one, a server that is not ready, a failed call.
    """
    router = product.router
    if may_be_alias(name):
        await product.settled()
        name = router.own(name)
    server, found, tool = name.partition(QUALIFIER)
    if not found and product.decks is not None:
        return await _call_native(product.decks, name, arguments, client)
    if not found or server not in product.status():
        raise no_such_tool(name, router.catalogue.tools)

    def is_known() -> bool:
        own = router.overrides_of(server).own(tool)
        return product.is_final(server) or own in product.approvals.offer(server).names

    await product.until(is_known, wait_s)
    served, offers = product.servers.endpoint(server), router.catalogue.servers.get(server)
    if served is None or offers is None or (not offers.tools and not is_usable_phase(served.phase)):
        raise _not_ready(product.status()[server])
    own, verdict = offers.overrides.own(tool), product.approvals.verdict(server)
    if own is not None and verdict is not None and (held := verdict.refusal(own)) is not None:
        raise held
    if name not in offers.calls:
        raise no_such_tool(name, router.catalogue.tools)
    called = offers.calls[name]
    sent = sent_arguments(called, arguments)
    if isinstance(sent, ProtocolFault):
        raise sent
    result = await ended(partial(served.begin, RawCall(called.own, sent, client=client)))
    assert result is not None  # every call begins
    return result


def aliases(product: "Product") -> dict[str, str]:
    """The shorter names that clients see, by the tools' own; only where the two differ."""
    catalogue = product.router.catalogue
    pairs = zip(catalogue.tools, catalogue.shown, strict=True) if not catalogue.alone else ()
    return {tool.name: shown.name for tool, shown in pairs if tool.name != shown.name}


def no_such_tool(name: str, tools: "Iterable[ToolDescriptor]") -> ProtocolFault:
    """The fault of a name that no tool has, with the one that was probably meant, else the first of those there are."""
    names = [tool.name for tool in tools]
    server, found, _ = name.partition(QUALIFIER)
    of_server = [each for each in names if each.startswith(f"{server}{QUALIFIER}")] if found else []
    whose = f"tools of {server}" if of_server else "tools"
    hint = did_you_mean(name, names, near=nearest_tool) or listed(of_server or names, whose)
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, f"there is no tool {name!r}{hint}", NO_TOOL)


async def _call_native(decks: "Decks", name: str, arguments: bytes, client: Client) -> RemoteCallResult:
    from quarterdeck.host.native_calls import native_end

    async with decks.borrow(OWN_DECK, is_bound=False) as box:
        if name not in box.native_names and not box.problem:
            raise no_such_tool(name, box.descriptors())
        call = ToolCall("command", name, msgspec.json.decode(arguments), client=client)
        return RemoteCallResult(await native_end(box, call, CancelToken()))


def _not_ready(status: EndpointStatus) -> ProtocolFault:
    why = status.fault
    fault = ProtocolFault(
        FaultKind.NOT_CONNECTED,
        f"{status.server} is {status.phase}" + (f": {why.message}" if why is not None else ""),
        code=why.code if why is not None else "not_connected",
        delivery=Delivery.NOT_SENT,
        dossier=why.dossier if why is not None else None,
        remedy=why.remedy_for(None) if why is not None else None,
    )
    fault.server = status.server
    return fault
