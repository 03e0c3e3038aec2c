"""Answer a request with a running product: for the control socket, and for commands that start servers themselves."""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from quarterdeck.app import Product
from quarterdeck.host.publish import native_form
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.offers import describe_held
from quarterdeck.trust.judge.verdicts import Decision, StaleDecisionError
from quarterdeck_protocol.configs import CLOSE_GRACE_S
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.names import did_you_mean, server_of_qualified
from quarterdeck_protocol.phases import EndpointPhase, is_usable_phase

from .call_tool import NO_TOOL, OWN_DECK, aliases, call_tool
from .protocol import (
    Answer,
    Call,
    Decide,
    Decided,
    DecisionView,
    Fault,
    Inspect,
    ListingList,
    Listings,
    ListingView,
    LogFile,
    LogPath,
    Ps,
    Refusal,
    Refused,
    Request,
    Restart,
    Restarted,
    Result,
    ServerList,
    ToolList,
    Tools,
    ToolView,
)
from .views import view_fault, view_inspection, view_servers

RESTART_SLACK_S: Final = 3 * CLOSE_GRACE_S + 10.0
"""Beyond its connect deadline, what a restart may take: the old server's end, and a turn among the others."""

BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


async def answer(product: Product, request: Request) -> Answer:
    """What `deck` answers; cancelling it cancels a call under way."""
    match request:
        case Ps():
            return ServerList(await view_servers(product, product.status().values()))
        case Tools():
            return await _list_tools(product)
        case Call(name, arguments):
            return await _call(product, name, bytes(arguments))
        case Restart(server):
            return await _restart(product, server)
        case LogPath(server):
            if server not in product.status():
                return _no_server(product, server)
            return LogFile(str(product.log_path(server)))
        case Listings():
            return await _list_all(product)
        case Decide(decisions):
            return await _decide(product, decisions)
        case Inspect(server):
            status = product.status().get(server)
            if status is None:
                return _no_server(product, server)
            return view_inspection(product, status, (await view_servers(product, [status]))[0])
        case _:
            assert_never(request)


async def _list_tools(product: Product) -> ToolList:
    await product.settled()
    short_names = aliases(product)
    tools = await _native_tools(product) + tuple(
        ToolView(
            tool.descriptor.name,
            tool.ref.server,
            tool.descriptor.description,
            msgspec.Raw(tool.descriptor.definition or b"null"),
            short_names.get(tool.descriptor.name, ""),
        )
        for endpoint in product.gate.endpoints()
        for tool in endpoint.offered()
    )
    absent = [status for status in product.status().values() if not is_usable_phase(status.phase)]
    rows = {row.id: row for row in product.approvals.rows}
    held = tuple(
        describe_held(rows[server], offer.held)
        for server, offer in product.approvals.held.items()
        if offer.held_tools or offer.blocked_tools
    )
    return ToolList(tools, await view_servers(product, absent), held)


async def _list_all(product: Product) -> ListingList:
    await product.settled()
    listings = []
    for server in product.status():
        endpoint = product.fleet.endpoint(server)
        card = endpoint.card if endpoint is not None else None
        is_ready = endpoint is not None and is_usable_phase(endpoint.phase) and endpoint.has_listed
        definitions = tuple(
            msgspec.Raw(tool.descriptor.definition or b"null") for tool in (endpoint.tools() if endpoint else ())
        )
        instructions = card.instructions if card is not None else ""
        listings.append(ListingView(server, is_ready, instructions, definitions if is_ready else ()))
    return ListingList(tuple(listings))


async def _decide(product: Product, views: Sequence[DecisionView]) -> Answer:
    try:
        decisions = [
            Decision(view.scope, view.server, ItemKey(Subject(view.subject), view.name), view.hash, view.body.encode())
            for view in views
        ]
    except ValueError as error:
        return Refused(Refusal.BAD_REQUEST, str(error))
    try:
        await product.decide(decisions)
    except StaleDecisionError as error:
        return Refused(Refusal.STALE, str(error))
    except LedgerWriteError as error:
        return Refused(Refusal.NOT_RECORDED, str(error))
    return Decided()


async def _native_tools(product: Product) -> tuple[ToolView, ...]:
    if product.decks is None:
        return ()
    async with product.decks.borrow(OWN_DECK, is_bound=False) as box:
        return tuple(
            ToolView(tool.name, "", tool.description, msgspec.Raw(msgspec.json.encode(native_form(tool))))
            for tool in box.descriptors()
            if tool.name in box.native_names
        )


async def _call(product: Product, name: str, arguments: bytes) -> Answer:
    try:
        result = await call_tool(product, name, arguments, wait_s=product.settings.settle_s)
    except ProtocolFault as fault:
        if fault.code == NO_TOOL:
            return Refused(Refusal.NO_SUCH_TOOL, fault.message)
        return Fault(view_fault(product, fault, server_of_qualified(name)))
    return Result(msgspec.Raw(result.body), result.is_error)


async def _restart(product: Product, server: str) -> Answer:
    config, before = product.config(server), product.status().get(server)
    if before is None:
        return _no_server(product, server)
    if config is None or product.approvals.launch_fault(server) is not None:
        return Restarted((await view_servers(product, [before]))[0])
    await product.fleet.restart(server)
    within_s = config.connect_timeout_s + RESTART_SLACK_S
    await product.until(lambda: _has_restarted(before, product.status()[server]), within_s)
    return Restarted((await view_servers(product, [product.status()[server]]))[0])


def _has_restarted(before: EndpointStatus, now: EndpointStatus) -> bool:
    is_another = now.restarts > before.restarts or before.phase is EndpointPhase.IDLE
    return is_another and now.phase not in BEFORE_READY


def _no_server(product: Product, server: str) -> Refused:
    hint = did_you_mean(server, product.status(), "servers")
    return Refused(Refusal.NO_SUCH_SERVER, f"there is no server {server!r}{hint}")
