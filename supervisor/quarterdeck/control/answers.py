"""Answer a request from a running product: for the control socket, and for commands that run one of their own."""

import asyncio
import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from quarterdeck.app import Quarterdeck
from quarterdeck.control.inspection import inspect
from quarterdeck.control.protocol import (
    Answer,
    Call,
    Fault,
    Inspect,
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
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.host.native import native_form
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
        case Inspect(server):
            status = deck.status().get(server)
            if status is None:
                return _no_server(deck, server)
            return inspect(deck, status, (await view_servers(deck, [status]))[0])
        case _:
            assert_never(request)


async def _list_tools(deck: Quarterdeck) -> ToolList:
    await deck.settled()
    tools = await _native_tools(deck) + tuple(
        ToolView(
            tool.descriptor.name,
            tool.ref.server,
            tool.descriptor.description,
            msgspec.Raw(tool.descriptor.definition or b"null"),
        )
        for endpoint in deck.fleet.endpoints()
        if is_usable_phase(endpoint.phase)
        for tool in endpoint.tools()
    )
    absent = [status for status in deck.status().values() if not is_usable_phase(status.phase)]
    return ToolList(tools, await view_servers(deck, absent))


async def _native_tools(deck: Quarterdeck) -> tuple[ToolView, ...]:
    if deck.decks is None:
        return ()
    async with deck.decks.lend(COMMANDS, is_bound=False) as box:
        return tuple(
            ToolView(tool.name, "", tool.description, msgspec.Raw(msgspec.json.encode(native_form(tool))))
            for tool in box.descriptors()
            if tool.name in box.native_names
        )


async def _call(deck: Quarterdeck, name: str, arguments: bytes) -> Answer:
    server, found, tool = name.partition(QUALIFIER)
    if not found and deck.decks is not None:
        return await _call_native(deck.decks, name, arguments)
    if not found or server not in deck.status():
        return _no_tool(name, deck.box.descriptors())
    await _until(deck, lambda: deck.status()[server].phase not in BEFORE_READY, deck.settings.settle_s)
    status, endpoint = deck.status()[server], deck.fleet.endpoint(server)
    if endpoint is None or not is_usable_phase(endpoint.phase):
        return Fault(view_fault(_not_ready(status)))
    if tool not in {offered.ref.name for offered in endpoint.tools()}:
        return _no_tool(name, deck.box.descriptors())
    return await _invoke(endpoint, tool, arguments)


async def _call_native(decks: "Decks", name: str, arguments: bytes) -> Answer:
    from quarterdeck.host.calls import ClientCall, run_call  # the protocol's types: a fifth of a second

    async with decks.lend(COMMANDS, is_bound=False) as box:
        if name not in box.native_names and not box.problem:
            return _no_tool(name, box.descriptors())
        call = ClientCall("command", name, is_modern=True, arguments=msgspec.json.decode(arguments))
        result = await run_call(box, call)
    return Result(msgspec.Raw(msgspec.json.encode(result)), result.get("isError") is True)


async def _invoke(endpoint: ServerEndpointImpl, tool: str, arguments: bytes) -> Answer:
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
    if config is None:
        return Restarted((await view_servers(deck, [before]))[0])
    await deck.fleet.restart(server)
    within_s = config.connect_timeout_s + RESTART_SLACK_S
    await _until(deck, lambda: _has_restarted(before, deck.status()[server]), within_s)
    return Restarted((await view_servers(deck, [deck.status()[server]]))[0])


def _has_restarted(before: EndpointStatus, now: EndpointStatus) -> bool:
    is_another = now.restarts > before.restarts or before.phase is EndpointPhase.IDLE
    return is_another and now.phase not in BEFORE_READY


async def _until(deck: Quarterdeck, is_so: Callable[[], bool], within_s: float) -> None:
    """Wait until it is so, looking after each change of the fleet; the caller sees whether the time was enough."""
    changed = asyncio.Event()
    unwatch = deck.fleet.watch(changed.set)
    try:
        async with asyncio.timeout(within_s):
            while not is_so():
                await changed.wait()
                changed.clear()
    except TimeoutError:
        pass
    finally:
        unwatch()


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
