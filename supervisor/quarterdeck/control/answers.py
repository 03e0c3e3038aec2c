"""Answer a request from a running product: for the control socket, and for commands that run one of their own."""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from quarterdeck.app import Quarterdeck
from quarterdeck.calling import MAX_NAMED, NO_TOOL, OWN_DECK, aliases, call_tool
from quarterdeck.control.inspection import inspect
from quarterdeck.control.protocol import (
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
from quarterdeck.control.views import view_fault_of, view_servers
from quarterdeck.host.native import native_form
from quarterdeck.ledger.book import ItemKey
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events import Subject
from quarterdeck.trust.decisions import Decision, StaleDecisionError
from quarterdeck.trust.offers import describe_held
from quarterdeck_protocol.configs import CLOSE_GRACE_S
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.nearness import nearest
from quarterdeck_protocol.phases import EndpointPhase, is_usable_phase
from quarterdeck_protocol.refs import server_of_qualified

RESTART_SLACK_S: Final = 3 * CLOSE_GRACE_S + 10.0
"""Beyond its connect deadline, what a restart may take: the old server's end, and a turn among the others."""

BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


async def answer(deck: Quarterdeck, request: Request) -> Answer:
    """What `deck` answers; cancelling it cancels a call under way."""
    match request:
        case Ps():
            return ServerList(await view_servers(deck, deck.status().values()))
        case Tools():
            return await _list_tools(deck)
        case Call(name, arguments):
            return await _call(deck, name, bytes(arguments))
        case Restart(server):
            return await _restart(deck, server)
        case LogPath(server):
            if server not in deck.status():
                return _no_server(deck, server)
            return LogFile(str(deck.log_path(server)))
        case Listings():
            return await _list_all(deck)
        case Decide(decisions):
            return await _decide(deck, decisions)
        case Inspect(server):
            status = deck.status().get(server)
            if status is None:
                return _no_server(deck, server)
            return inspect(deck, status, (await view_servers(deck, [status]))[0])
        case _:
            assert_never(request)


async def _list_tools(deck: Quarterdeck) -> ToolList:
    await deck.settled()
    short_names = aliases(deck)
    tools = await _native_tools(deck) + tuple(
        ToolView(
            tool.descriptor.name,
            tool.ref.server,
            tool.descriptor.description,
            msgspec.Raw(tool.descriptor.definition or b"null"),
            short_names.get(tool.descriptor.name, ""),
        )
        for endpoint in deck.gate.endpoints()
        for tool in endpoint.offered()
    )
    absent = [status for status in deck.status().values() if not is_usable_phase(status.phase)]
    rows = {row.id: row for row in deck.registrar.rows}
    held = tuple(
        describe_held(rows[server], offer.held)
        for server, offer in deck.registrar.held.items()
        if offer.held_tools or offer.blocked_tools
    )
    return ToolList(tools, await view_servers(deck, absent), held)


async def _list_all(deck: Quarterdeck) -> ListingList:
    await deck.settled()
    listings = []
    for server in deck.status():
        endpoint = deck.fleet.endpoint(server)
        card = endpoint.card if endpoint is not None else None
        is_ready = endpoint is not None and is_usable_phase(endpoint.phase) and endpoint.has_listed
        definitions = tuple(
            msgspec.Raw(tool.descriptor.definition or b"null") for tool in (endpoint.tools() if endpoint else ())
        )
        instructions = card.instructions if card is not None else ""
        listings.append(ListingView(server, is_ready, instructions, definitions if is_ready else ()))
    return ListingList(tuple(listings))


async def _decide(deck: Quarterdeck, views: Sequence[DecisionView]) -> Answer:
    try:
        decisions = [
            Decision(view.scope, view.server, ItemKey(Subject(view.subject), view.name), view.hash, view.body.encode())
            for view in views
        ]
    except ValueError as error:
        return Refused("bad_request", str(error))
    try:
        await deck.decide(decisions)
    except StaleDecisionError as error:
        return Refused("stale", str(error))
    except LedgerWriteError as error:
        return Refused("not_recorded", str(error))
    return Decided()


async def _native_tools(deck: Quarterdeck) -> tuple[ToolView, ...]:
    if deck.decks is None:
        return ()
    async with deck.decks.lend(OWN_DECK, is_bound=False) as box:
        return tuple(
            ToolView(tool.name, "", tool.description, msgspec.Raw(msgspec.json.encode(native_form(tool))))
            for tool in box.descriptors()
            if tool.name in box.native_names
        )


async def _call(deck: Quarterdeck, name: str, arguments: bytes) -> Answer:
    try:
        result = await call_tool(deck, name, arguments, wait_s=deck.settings.settle_s)
    except ProtocolFault as fault:
        if fault.code == NO_TOOL:
            return Refused("no_such_tool", fault.message)
        return Fault(view_fault_of(deck, server_of_qualified(name), fault))
    return Result(msgspec.Raw(result.body), result.is_error)


async def _restart(deck: Quarterdeck, server: str) -> Answer:
    config, before = deck.config(server), deck.status().get(server)
    if before is None:
        return _no_server(deck, server)
    if config is None or deck.registrar.launch_fault(server) is not None:
        return Restarted((await view_servers(deck, [before]))[0])
    await deck.fleet.restart(server)
    within_s = config.connect_timeout_s + RESTART_SLACK_S
    await deck.until(lambda: _has_restarted(before, deck.status()[server]), within_s)
    return Restarted((await view_servers(deck, [deck.status()[server]]))[0])


def _has_restarted(before: EndpointStatus, now: EndpointStatus) -> bool:
    is_another = now.restarts > before.restarts or before.phase is EndpointPhase.IDLE
    return is_another and now.phase not in BEFORE_READY


def _no_server(deck: Quarterdeck, server: str) -> Refused:
    names = list(deck.status())
    near = nearest(server, names)
    hint = f": did you mean {near!r}?" if near else ""
    if not near and names:
        hint = f": the servers are {', '.join(names[:MAX_NAMED])}{' …' if len(names) > MAX_NAMED else ''}"
    return Refused("no_such_server", f"there is no server {server!r}{hint}")
