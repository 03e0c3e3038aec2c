"""Answer a request with a running product: for the control socket, and for commands that start servers themselves."""

import asyncio
from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from quarterdeck.host.offers.publish import native_form
from quarterdeck.route.catalogue import ServerOffers
from quarterdeck.route.overrides.unmet import Names, unmet_by_groups
from quarterdeck.running_product import Product
from quarterdeck.trust.judge.held_messages import describe_held
from quarterdeck.trust.server_state import lists_of
from quarterdeck_protocol.contract import EndpointPhase, is_usable_phase
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.link.frames import CLOSE_GRACE_S
from quarterdeck_protocol.names import QUALIFIER, did_you_mean, server_of_qualified
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import Client, ToolDescriptor

from .call_tool import NO_TOOL, OWN_DECK, aliases, call_tool
from .protocol import (
    Answer,
    Call,
    Decide,
    Fault,
    Inspect,
    ListingList,
    Listings,
    ListingView,
    LogFile,
    LogPath,
    OpenPage,
    Ps,
    Record,
    Refusal,
    Refused,
    Request,
    Restart,
    Restarted,
    Result,
    ServerList,
    Sleep,
    ToolList,
    Tools,
    ToolView,
    Wake,
    WriteCalls,
    Written,
)
from .recording import answer_decision, answer_record
from .views import tools_without_files, view_fault, view_inspection, view_servers

RESTART_SLACK_S: Final = 3 * CLOSE_GRACE_S + 10.0
"""Seconds for a restart beyond its deadlines to connect and to list: the old server's end, and the wait for a slot."""

BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


COMMAND: Final = Client("quarterdeck call", "command")
"""The client of calls that commands make."""


async def answer(product: Product, request: Request) -> Answer:
    """Answer a request about `product`; cancelling it cancels its call."""
    match request:
        case Ps():
            return ServerList(await view_servers(product, product.status().values()), product.settings.troubles)
        case Tools(groups, server, refresh):
            return await _list_tools(product, groups, server, refresh=refresh)
        case Call(name, arguments):
            return await _call(product, name, bytes(arguments))
        case LogPath(server, _) | Inspect(server) | Restart(server) | Wake(server) | Sleep(server) if (
            server not in product.status()
        ):
            return _no_server(product, server)
        case Restart() | Wake() | Sleep():
            return await _by_hand(product, request)
        case LogPath(server, client):
            return LogFile(str(product.log_path(server, client)))
        case Listings():
            return await _list_all(product)
        case Decide(decisions):
            return await answer_decision(product.decide, decisions)
        case WriteCalls():
            await product.write_calls()
            return Written()
        case OpenPage():
            return Refused(Refusal.BAD_REQUEST, "this is asked of the daemon, not of a deck")
        case Record():
            return await answer_record(product.approvals.record, request)
        case Inspect(server):
            status = product.status()[server]
            return view_inspection(product, status, (await view_servers(product, [status]))[0])
        case _:
            assert_never(request)


async def _list_tools(product: Product, groups: Sequence[str], only: str, *, refresh: bool) -> ToolList | Refused:
    if only and only not in product.status():
        return _no_server(product, only)
    for name in groups:
        if name not in product.groups.current:
            hint = did_you_mean(name, product.groups.current, "groups")
            return Refused(Refusal.NO_SUCH_GROUP, f"there is no group {name!r}{hint}")
    client = product.groups.narrow(COMMAND, groups)
    if refresh:
        await product.refresh(only)
    await product.settled()
    short_names = aliases(product)
    tools = await _native_tools(product) + tuple(
        ToolView(
            tool.name,
            each.id,
            tool.description,
            msgspec.Raw(tool.definition or b"null"),
            short_names.get(tool.name, ""),
            _own_name(each, tool),
            cannot_write=tool.name in vain,
        )
        for each in product.router.catalogue.servers.values()
        for vain in [tools_without_files(product, each.id)]
        for tool in each.tools
    )

    def is_wanted(server: str) -> bool:
        return (not only or server == only) and client.allows_some_of(server)

    tools = tuple(tool for tool in tools if client.allows(tool.name) and (not only or tool.server == only))
    absent = [
        status
        for status in product.status().values()
        if (status.list_fault is not None or not (is_usable_phase(status.phase) or status.is_asleep))
        and is_wanted(status.server)
    ]
    rows = {row.id: row for row in product.approvals.rows}
    held = tuple(
        describe_held(rows[server], offer.held)
        for server, offer in product.approvals.held.items()
        if (offer.waiting or offer.blocked) and is_wanted(server)
    )
    by_group = {
        name: tuple(tool.name for tool in tools if group.has(tool.name))
        for name, group in product.groups.current.items()
        if not groups or name in groups
    }
    if only:
        notes = tuple(note for note in product.router.override_notes() if note.startswith(f"{only}: "))
        return ToolList(tools, await view_servers(product, absent), held, notes, by_group)
    # In a thread: globs without a tool are held against every name, of ten thousand perhaps.
    unmet = await asyncio.to_thread(unmet_by_groups, product.groups.current, _offered(product), product.router.hidden())
    notes = (*product.router.override_notes(), *unmet)
    return ToolList(tools, await view_servers(product, absent), held, notes, by_group)


def _offered(product: Product) -> dict[str, Names | None]:
    """Return each server's published names; None for a server that offers nothing yet."""
    offered: dict[str, Names | None] = dict.fromkeys(product.status())
    for server, each in product.router.catalogue.servers.items():
        uris = (row for listing in (Listing.RESOURCES, Listing.TEMPLATES) for row in each.offers.get(listing, ()))
        names = {
            Listing.TOOLS: [tool.name for tool in each.tools],
            Listing.PROMPTS: [row.qualified for row in each.offers.get(Listing.PROMPTS, ())],
            Listing.RESOURCES: [row.qualified for row in uris],
        }
        offered[server] = names if any(names.values()) else None
    return offered


def _own_name(offers: ServerOffers, tool: ToolDescriptor) -> str:
    """Return the server's own name of a renamed tool, else an empty string."""
    public = tool.name.partition(QUALIFIER)[2]
    own = offers.overrides.own(public)
    return own if own is not None and own != public else ""


async def _list_all(product: Product) -> ListingList:
    await product.refresh(within_s=product.settings.settle_s)
    await product.settled()
    listings = []
    for server in product.status():
        endpoint = product.fleet.endpoint(server)
        if endpoint is None or not (is_usable_phase(endpoint.phase) and endpoint.has_listed):
            listings.append(ListingView(server, is_ready=False, instructions="", definitions=()))
            continue
        lists = lists_of(endpoint)
        tools = tuple(msgspec.Raw(tool.descriptor.definition or b"null") for tool in lists.tools)
        others = {
            listing.value: tuple(msgspec.Raw(each.definition) for each in found)
            for listing, found in lists.offers.items()
        }
        said, home = msgspec.Raw(lists.capabilities), str(product.settings.paths_of(server).home)
        listings.append(ListingView(server, True, lists.instructions, tools, others, said, home))  # noqa: FBT003
    return ListingList(tuple(listings))


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
        result = await call_tool(product, name, arguments, wait_s=product.settings.settle_s, client=COMMAND)
    except ProtocolFault as fault:
        if fault.code == NO_TOOL:
            return Refused(Refusal.NO_SUCH_TOOL, fault.message)
        return Fault(view_fault(product, fault, server_of_qualified(name)))
    return Result(msgspec.Raw(result.body), result.is_error)


async def _by_hand(product: Product, request: Restart | Wake | Sleep) -> Restarted:
    """Do what a person wants of a server, and return how it is once that is over."""
    server = request.server
    config, before = product.config(server), product.status()[server]

    def is_over() -> bool:
        if isinstance(request, Restart):
            now = product.status()[server]
            is_another = now.restarts > before.restarts or before.phase is EndpointPhase.IDLE
            if not is_another or now.phase in BEFORE_READY:
                return False
        return product.is_final(server)

    if isinstance(request, Sleep):
        product.put_to_sleep(server)
    elif config is not None and product.approvals.launch_fault(server) is None:
        if isinstance(request, Wake):
            product.wake(server)
        else:
            await product.restart(server)
        await product.until(is_over, config.connect_timeout_s + config.list_timeout_s + RESTART_SLACK_S)
    return Restarted((await view_servers(product, [product.status()[server]]))[0])


def _no_server(product: Product, server: str) -> Refused:
    hint = did_you_mean(server, product.status(), "servers")
    return Refused(Refusal.NO_SUCH_SERVER, f"there is no server {server!r}{hint}")
