"""Answer a request from a running product: for the control socket, and for commands that run one of their own."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from quarterdeck.app import Quarterdeck
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
from quarterdeck.control.views import view_fault, view_servers
from quarterdeck.host.names import may_be_alias, public_names
from quarterdeck.host.native import native_form
from quarterdeck.ledger.book import ItemKey
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events import Subject
from quarterdeck.trust.decisions import Decision, StaleDecisionError
from quarterdeck.trust.gate import GatedEndpoint
from quarterdeck.trust.offers import describe_held
from quarterdeck_protocol.configs import CLOSE_GRACE_S
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase, is_usable_phase
from quarterdeck_protocol.refs import QUALIFIER
from quarterdeck_protocol.tools import ToolDescriptor

if TYPE_CHECKING:
    from quarterdeck.host.decks import Decks

RESTART_SLACK_S: Final = 3 * CLOSE_GRACE_S + 10.0
"""Beyond its connect deadline, what a restart may take: the old server's end, and a turn among the others."""

COMMANDS: Final = "commands"
"""Whose deck commands use, all of them the same: what one has started or read, the next finds."""

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
    aliases = _aliases(deck)
    tools = await _native_tools(deck) + tuple(
        ToolView(
            tool.descriptor.name,
            tool.ref.server,
            tool.descriptor.description,
            msgspec.Raw(tool.descriptor.definition or b"null"),
            aliases.get(tool.descriptor.name, ""),
        )
        for endpoint in deck.gate.endpoints()
        for tool in endpoint.offered()
    )
    absent = [status for status in deck.status().values() if not is_usable_phase(status.phase)]
    held = tuple(describe_held(server, offer.held) for server, offer in deck.registrar.held.items() if offer.held_tools)
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
    async with deck.decks.lend(COMMANDS, is_bound=False) as box:
        return tuple(
            ToolView(tool.name, "", tool.description, msgspec.Raw(msgspec.json.encode(native_form(tool))))
            for tool in box.descriptors()
            if tool.name in box.native_names
        )


def _aliases(deck: Quarterdeck) -> dict[str, str]:
    """What clients are shown in place of a grafted tool's name, where that is another one."""
    budget = deck.settings.names
    if budget is None:
        return {}
    names = public_names((tool.name for tool in deck.box.descriptors()), budget)
    return {name: alias for name, alias in names.items() if name != alias}


async def _call(deck: Quarterdeck, name: str, arguments: bytes) -> Answer:
    if may_be_alias(name):
        await deck.settled()
        name = next((own for own, alias in _aliases(deck).items() if alias == name), name)
    server, found, tool = name.partition(QUALIFIER)
    if not found and deck.decks is not None:
        return await _call_native(deck.decks, name, arguments)
    if not found or server not in deck.status():
        return _no_tool(name, deck.box.descriptors())

    def is_known() -> bool:
        return deck.is_final(server) or tool in deck.registrar.offer(server).names

    await deck.until(is_known, deck.settings.settle_s)
    gate = deck.gate.endpoint(server)
    if gate is None or (not gate.offered() and not is_usable_phase(gate.phase)):
        return Fault(view_fault(_not_ready(deck.status()[server])))
    if (held := deck.registrar.refusal(server, tool)) is not None:
        return Fault(view_fault(held))
    if tool not in {offered.ref.name for offered in gate.offered()}:
        return _no_tool(name, deck.box.descriptors())
    return await _invoke(gate, tool, arguments)


async def _call_native(decks: "Decks", name: str, arguments: bytes) -> Answer:
    from quarterdeck.host.calls import ClientCall, run_call  # the protocol's types: a fifth of a second

    async with decks.lend(COMMANDS, is_bound=False) as box:
        if name not in box.native_names and not box.problem:
            return _no_tool(name, box.descriptors())
        call = ClientCall("command", name, is_modern=True, arguments=msgspec.json.decode(arguments))
        result = await run_call(box, call)
    return Result(msgspec.Raw(msgspec.json.encode(result)), result.get("isError") is True)


async def _invoke(endpoint: GatedEndpoint, tool: str, arguments: bytes) -> Answer:
    try:
        result = await endpoint.call(tool, arguments)
    except ProtocolFault as fault:
        return Fault(view_fault(fault))
    return Result(msgspec.Raw(result.body), result.is_error)


def _not_ready(status: EndpointStatus) -> ProtocolFault:
    """The server's own fault says more than that it is not ready."""
    why = status.fault
    return ProtocolFault(
        FaultKind.NOT_CONNECTED,
        f"{status.server} is {status.phase}" + (f": {why.message}" if why is not None else ""),
        code=why.code if why is not None else "not_connected",
        delivery=Delivery.NOT_SENT,
        dossier=why.dossier if why is not None else None,
    )


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
    return Refused("no_such_server", f"there is no server {server!r}{_hint(server, names, 'servers')}")


def _no_tool(name: str, tools: Sequence[ToolDescriptor]) -> Refused:
    names = [descriptor.name for descriptor in tools]
    same = [known for known in names if known.endswith(f"{QUALIFIER}{name}")]
    hint = f": is {same[0]!r} meant?" if same else _hint(name, names, "tools")
    return Refused("no_such_tool", f"there is no tool {name!r}{hint}")


def _hint(name: str, known: list[str], what: str) -> str:
    near = difflib.get_close_matches(name[:128], known, n=1)
    if near:
        return f": is {near[0]!r} meant?"
    return f": the {what} are {', '.join(known[:8])}{' …' if len(known) > 8 else ''}" if known else ""
