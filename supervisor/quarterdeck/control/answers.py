"""Answer a request from a running product: for the control socket, and for commands that run one of their own.

Everything that is known of one server's confinement, as it is shown.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from quarterdeck.app import Product
from quarterdeck.config.secrets.masking import mask_args
from quarterdeck.fleet.worker_session import Custody
from quarterdeck.host.session.publish import native_form
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.offers import describe_held
from quarterdeck.trust.judge.review import Decision, StaleDecisionError
from quarterdeck_protocol.configs import CLOSE_GRACE_S, ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.names import did_you_mean, server_of_qualified
from quarterdeck_protocol.phases import EndpointPhase, is_usable_phase
from quarterdeck_protocol.policy import Limits
from quarterdeck_sandbox import TICK_S, Usage

from .call_tool import NO_TOOL, OWN_DECK, aliases, call_tool
from .protocol import (
    Answer,
    Call,
    Decide,
    Decided,
    DecisionView,
    Fault,
    Inspect,
    Inspection,
    LimitView,
    ListingList,
    Listings,
    ListingView,
    LogFile,
    LogPath,
    PropertyView,
    Ps,
    ReceiptView,
    Refused,
    Request,
    Restart,
    Restarted,
    Result,
    ServerList,
    ServerView,
    ToolList,
    Tools,
    ToolView,
)
from .views import view_fault_of, view_servers

NO_POLICY: Final = msgspec.Raw(b"null")

BROKEN: Final = "its configuration cannot be used: it was not started"
REMOTE: Final = "a remote server: there is no process here to confine"
EMBEDDED: Final = "a session made in this process: there is no process here to confine"
NOT_STARTED: Final = "its process has not been started yet"

BY_KERNEL: Final = "the kernel"
BY_KERNEL_EACH: Final = "the kernel, in each process"
BY_MONITOR: Final = f"a look every {TICK_S:g} s"
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


def inspect(product: Product, status: EndpointStatus, view: ServerView) -> Inspection:
    """What is known of the server with this status."""
    config, endpoint = product.config(status.server), product.fleet.endpoint(status.server)
    custody = endpoint.custody if endpoint is not None else None
    last = product.fleet.last_fault(status.server)
    policy = config.sandbox if isinstance(config, StdioServerConfig) and status.isolated else None
    return Inspection(
        server=view,
        command=_command(product, config),
        policy=msgspec.Raw(product.redact(policy.model_dump_json()).encode()) if policy is not None else NO_POLICY,
        receipt=_view_receipt(product, custody) if custody is not None else None,
        limits=_view_limits(policy.limits, custody, status) if policy is not None else (),
        last_death=view_fault_of(product, status.server, last) if last is not None else view.fault,
        note="" if custody is not None else _why_none(config, status),
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


def _view_receipt(product: Product, custody: Custody) -> ReceiptView:
    start, receipt = custody.start, custody.receipt
    return ReceiptView(
        tier=receipt.tier,
        network=receipt.network,
        uid=receipt.uid,
        program=product.redact(start.program),
        cwd=product.redact(start.cwd),
        properties=tuple(PropertyView(name, each.strength, each.mechanism) for name, each in receipt.findings.items()),
        shown=tuple(map(product.redact, receipt.shown)),
        gaps=tuple(map(product.redact, start.gaps)),
    )


def _view_limits(limits: Limits, custody: Custody | None, status: EndpointStatus) -> tuple[LimitView, ...]:
    watch = custody.watch if custody is not None else None
    present = _numbers(watch.present if watch is not None and status.pid is not None else None)
    peak = _numbers(watch.peak if watch is not None else None)
    if status.uptime_s is not None:
        present["wall_s"] = status.uptime_s
    enforced = custody.start.enforced if custody is not None else ()
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
            return inspect(product, status, (await view_servers(product, [status]))[0])
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
    rows = {row.id: row for row in product.registrar.rows}
    held = tuple(
        describe_held(rows[server], offer.held)
        for server, offer in product.registrar.held.items()
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
        return Refused("bad_request", str(error))
    try:
        await product.decide(decisions)
    except StaleDecisionError as error:
        return Refused("stale", str(error))
    except LedgerWriteError as error:
        return Refused("not_recorded", str(error))
    return Decided()


async def _native_tools(product: Product) -> tuple[ToolView, ...]:
    if product.decks is None:
        return ()
    async with product.decks.lend(OWN_DECK, is_bound=False) as box:
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
            return Refused("no_such_tool", fault.message)
        return Fault(view_fault_of(product, server_of_qualified(name), fault))
    return Result(msgspec.Raw(result.body), result.is_error)


async def _restart(product: Product, server: str) -> Answer:
    config, before = product.config(server), product.status().get(server)
    if before is None:
        return _no_server(product, server)
    if config is None or product.registrar.launch_fault(server) is not None:
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
    return Refused("no_such_server", f"there is no server {server!r}{hint}")
