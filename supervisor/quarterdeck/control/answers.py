"""Answer a request with a running product: for the control socket, and for commands that start servers themselves.

Servers, faults and confinement are shown without secrets.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, assert_never

import msgspec
import psutil

from quarterdeck.config.secrets.masking import mask_args
from quarterdeck.fleet.worker_session import ConfinedServer
from quarterdeck.host.offers.publish import native_form
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Subject
from quarterdeck.running_product import Product
from quarterdeck.trust.configured_servers import command_options
from quarterdeck.trust.judge.held_messages import describe_held
from quarterdeck.trust.judge.server_rows import server_words
from quarterdeck.trust.judge.verdicts import Decision, StaleDecisionError
from quarterdeck.trust.server_state import lists_of
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus, RemoteTool, is_usable_phase
from quarterdeck_protocol.faults import Dossier, ProtocolFault
from quarterdeck_protocol.link.frames import CLOSE_GRACE_S
from quarterdeck_protocol.names import did_you_mean, server_of_qualified
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.policy import Limits
from quarterdeck_protocol.tools import Client
from quarterdeck_sandbox import MONITOR_TICK_S, Usage

from .call_tool import NO_TOOL, OWN_DECK, aliases, call_tool
from .protocol import (
    Answer,
    Call,
    Decide,
    Decided,
    Fault,
    FaultView,
    Inspect,
    Inspection,
    LimitView,
    ListingList,
    Listings,
    ListingView,
    LogFile,
    LogPath,
    OwnServerView,
    PropertyView,
    Ps,
    ReceiptView,
    Refusal,
    Refused,
    Request,
    Restart,
    Restarted,
    Result,
    SandboxView,
    ServerList,
    ServerView,
    ToolList,
    Tools,
    ToolView,
)

RESTART_SLACK_S: Final = 3 * CLOSE_GRACE_S + 10.0
"""Beyond its deadlines to connect and to list, what a restart may take: the old one's end, and a turn among others."""

BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


INSTALLING: Final = "installing"
"""How a server is shown that connects, and whose command has to fetch the program first."""

COMMAND: Final = Client("quarterdeck call", "command")
"""Whose calls those of commands are."""

NO_POLICY: Final = msgspec.Raw(b"null")

BROKEN: Final = "its configuration cannot be used: it was not started"
REMOTE: Final = "a remote server: there is no process here to confine"
EMBEDDED: Final = "a session made in this process: there is no process here to confine"
NOT_STARTED: Final = "its process has not been started yet"

BY_KERNEL: Final = "the kernel"
BY_KERNEL_EACH: Final = "the kernel, in each process"
BY_MONITOR: Final = f"a look every {MONITOR_TICK_S:g} s"
BY_WORKER: Final = "its worker"

_KEEPERS: Final = {
    "open_files": BY_KERNEL_EACH,
    "file_size_bytes": BY_KERNEL_EACH,
    "output_bytes": BY_WORKER,
    "line_bytes": BY_WORKER,
    "partial_line_s": BY_WORKER,
}
"""Who keeps each limit that is not of the whole tree; those are the monitor's unless the kernel holds them."""

_ONLY_KERNEL: Final = "cpu_share"
"""No look could keep a share."""


async def answer(product: Product, request: Request) -> Answer:
    """What `deck` answers; cancelling it cancels a call under way."""
    match request:
        case Ps():
            return ServerList(await view_servers(product, product.status().values()))
        case Tools(groups):
            return await _list_tools(product, groups)
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
            return await answer_decision(product.decide, decisions)
        case Inspect(server):
            status = product.status().get(server)
            if status is None:
                return _no_server(product, server)
            return view_inspection(product, status, (await view_servers(product, [status]))[0])
        case _:
            assert_never(request)


async def _list_tools(product: Product, groups: Sequence[str]) -> ToolList | Refused:
    for name in groups:
        if name not in product.groups.current:
            hint = did_you_mean(name, product.groups.current, "groups")
            return Refused(Refusal.NO_SUCH_GROUP, f"there is no group {name!r}{hint}")
    client = product.groups.narrow(COMMAND, groups)
    await product.settled()
    short_names = aliases(product)
    tools = await _native_tools(product) + tuple(
        ToolView(
            tool.descriptor.name,
            tool.ref.server,
            tool.descriptor.description,
            msgspec.Raw(tool.descriptor.definition or b"null"),
            short_names.get(tool.descriptor.name, ""),
            _own_name(product, tool),
        )
        for endpoint in product.shown.endpoints()
        for tool in endpoint.offered()
    )
    tools = tuple(tool for tool in tools if client.allows(tool.name))
    absent = [
        status
        for status in product.status().values()
        if (status.list_fault is not None or not is_usable_phase(status.phase)) and client.allows_some_of(status.server)
    ]
    rows = {row.id: row for row in product.approvals.rows}
    held = tuple(
        describe_held(rows[server], offer.held)
        for server, offer in product.approvals.held.items()
        if (offer.waiting or offer.blocked) and client.allows_some_of(server)
    )
    by_group = {
        name: tuple(tool.name for tool in tools if group.has(tool.name))
        for name, group in product.groups.current.items()
        if not groups or name in groups
    }
    return ToolList(tools, await view_servers(product, absent), held, product.shown.notes(), by_group)


def _own_name(product: Product, tool: RemoteTool) -> str:
    """What the server calls a tool that clients know otherwise; empty where they do not."""
    own = product.shown.overrides_of(tool.ref.server).own(tool.ref.name)
    return own if own is not None and own != tool.ref.name else ""


async def _list_all(product: Product) -> ListingList:
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
        listings.append(
            ListingView(server, True, lists.instructions, tools, others, msgspec.Raw(lists.capabilities))  # noqa: FBT003
        )
    return ListingList(tuple(listings))


async def answer_decision(
    decide: Callable[[Sequence[Decision]], Awaitable[None]], decisions: msgspec.Raw
) -> Decided | Refused:
    """Have this decided; what is answered."""
    try:
        await decide(_decisions.decode(decisions))
    except msgspec.ValidationError as error:
        return Refused(Refusal.BAD_REQUEST, f"not a valid decision: {plain_words(error)}")
    except StaleDecisionError as error:
        return Refused(Refusal.STALE, str(error))
    except LedgerWriteError as error:
        return Refused(Refusal.NOT_RECORDED, str(error))
    return Decided()


_decisions: Final = msgspec.json.Decoder(tuple[Decision, ...])


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


async def _restart(product: Product, server: str) -> Answer:
    config, before = product.config(server), product.status().get(server)
    if before is None:
        return _no_server(product, server)
    if config is None or product.approvals.launch_fault(server) is not None:
        return Restarted((await view_servers(product, [before]))[0])
    await product.restart(server)
    within_s = config.connect_timeout_s + config.list_timeout_s + RESTART_SLACK_S

    def is_over() -> bool:
        now = product.status()[server]
        is_another = now.restarts > before.restarts or before.phase is EndpointPhase.IDLE
        return is_another and now.phase not in BEFORE_READY and product.is_final(server)

    await product.until(is_over, within_s)
    return Restarted((await view_servers(product, [product.status()[server]]))[0])


def _no_server(product: Product, server: str) -> Refused:
    hint = did_you_mean(server, product.status(), "servers")
    return Refused(Refusal.NO_SUCH_SERVER, f"there is no server {server!r}{hint}")


async def view_servers(product: Product, statuses: Iterable[EndpointStatus]) -> tuple[ServerView, ...]:
    """The statuses as they are shown, with their memory."""
    statuses = tuple(statuses)
    memory = await asyncio.to_thread(tree_memory, [status.pid for status in statuses if status.pid is not None])
    return tuple(_view_server(product, status, memory) for status in statuses)


def _view_server(product: Product, status: EndpointStatus, memory: dict[int, int]) -> ServerView:
    config, sandbox = product.config(status.server), status.sandbox
    offer = product.approvals.offer(status.server)
    is_usable = is_usable_phase(status.phase)
    fault = status.fault or status.list_fault
    return ServerView(
        id=status.server,
        phase=INSTALLING if status.installing else status.phase,
        transport=config.transport if config is not None else None,
        tools=max(0, status.tool_count - offer.waiting[Subject.TOOL] - offer.blocked[Subject.TOOL]),
        pid=status.pid,
        worker_pid=status.worker_pid,
        memory_bytes=memory.get(status.pid) if status.pid is not None else None,
        uptime_s=status.uptime_s,
        restarts=status.restarts,
        era=status.era,
        fault=view_fault(product, fault, status.server) if fault is not None else None,
        sandbox=SandboxView(sandbox.tier, sandbox.network, sandbox.gaps) if sandbox is not None else None,
        held=offer.waiting.total() if is_usable else 0,
        blocked=offer.blocked.total() if is_usable else 0,
        of_sessions=tuple(
            OwnServerView(each.client, each.status.phase, each.status.pid)
            for each in product.sessions.statuses(status.server)
        ),
    )


def view_fault(product: Product, fault: ProtocolFault, server: str | None = None) -> FaultView:
    """A fault with its remedy, in which the commands name the server and its file.

    A command or a URL may hold a secret that a variable put there: it is redacted.
    """
    words = None
    if server is not None:
        row = next((row for row in product.approvals.rows if row.id == server), None)
        words = row.words if row is not None else server_words(server, command_options())
    return FaultView(
        kind=fault.kind,
        code=fault.code,
        message=product.redact(fault.message),
        remedy=fault.remedy_for(words),
        delivery=fault.delivery,
        dossier=_redacted(product, fault.dossier) if fault.dossier is not None else None,
    )


def _redacted(product: Product, dossier: Dossier) -> Dossier:
    hints = tuple(map(product.redact, dossier.hints))
    return replace(dossier, stderr_tail=product.redact(dossier.stderr_tail), hints=hints)


def view_inspection(product: Product, status: EndpointStatus, view: ServerView) -> Inspection:
    """All that is known of the confinement of the server with this status; `view` is the server itself."""
    config, endpoint = product.config(status.server), product.fleet.endpoint(status.server)
    confined = endpoint.confined if endpoint is not None else None
    last = product.fleet.last_fault(status.server) or status.fault
    policy = config.sandbox if isinstance(config, StdioServerConfig) and status.isolated else None
    return Inspection(
        server=view,
        command=_command(product, config),
        policy=msgspec.Raw(product.redact(policy.model_dump_json()).encode()) if policy is not None else NO_POLICY,
        receipt=_view_receipt(product, confined) if confined is not None else None,
        limits=_view_limits(policy.limits, confined, status) if policy is not None else (),
        last_death=view_fault(product, last, status.server) if last is not None else None,
        note="" if confined is not None else _why_none(config, status),
    )


def _command(product: Product, config: ServerConfig | None) -> tuple[str, ...]:
    """What is run, without the secrets that variables put in and those that options are given outright."""
    if not isinstance(config, StdioServerConfig):
        return ()
    return tuple(product.redact(str(word)) for word in (config.command, *mask_args(config.args)))


def _why_none(config: ServerConfig | None, status: EndpointStatus) -> str:
    if config is None:
        return BROKEN
    if not status.isolated:
        return EMBEDDED
    return NOT_STARTED if isinstance(config, StdioServerConfig) else REMOTE


def _view_receipt(product: Product, confined: ConfinedServer) -> ReceiptView:
    start, receipt = confined.start, confined.receipt
    return ReceiptView(
        tier=receipt.tier,
        network=receipt.network,
        uid=receipt.uid,
        program=product.redact(start.program),
        cwd=product.redact(start.cwd),
        properties=tuple(PropertyView(name, each.strength, each.mechanism) for name, each in receipt.findings.items()),
        shown=tuple(map(product.redact, receipt.shown)),
        gaps=tuple(map(product.redact, start.gaps)),
        gate=receipt.gate,
    )


def _view_limits(limits: Limits, confined: ConfinedServer | None, status: EndpointStatus) -> tuple[LimitView, ...]:
    watch = confined.watch if confined is not None else None
    present = _numbers(watch.present if watch is not None and status.pid is not None else None)
    peak = _numbers(watch.peak if watch is not None else None)
    if status.uptime_s is not None:
        present["wall_s"] = status.uptime_s
    enforced = confined.start.enforced if confined is not None else ()
    return tuple(
        LimitView(name, most, present.get(name), peak.get(name), _keeper(name, most, is_enforced=name in enforced))
        for name, most in limits.model_dump().items()
    )


def _numbers(usage: Usage | None) -> dict[str, float]:
    return msgspec.structs.asdict(usage) if usage is not None else {}


def _keeper(name: str, most: float | None, *, is_enforced: bool) -> str:
    if most is None:
        return "not limited"
    if is_enforced:
        return BY_KERNEL
    return "not kept here: no control group can be written" if name == _ONLY_KERNEL else _KEEPERS.get(name, BY_MONITOR)


def tree_memory(roots: Iterable[int]) -> dict[int, int]:
    """Resident bytes of each root and everything below it; a root that is gone is missing.  Blocks for milliseconds."""
    wanted = tuple(roots)
    if not wanted:
        return {}
    children: dict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter():
        try:
            children[process.ppid()].append(process)
        except psutil.Error:
            continue
    found = {}
    for root in wanted:
        try:
            total, below = _resident(psutil.Process(root)), list(children[root])
        except psutil.Error:
            continue
        while below:
            process = below.pop()
            below += children[process.pid]
            try:
                total += _resident(process)
            except psutil.Error:
                continue
        found[root] = total
    return found


def _resident(process: psutil.Process) -> int:
    resident: int = process.memory_info().rss
    return resident
