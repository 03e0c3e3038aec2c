"""What is shown of a running product's servers: their state, faults, limits and confinement, without secrets."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec
import psutil

from quarterdeck.common.run_options import of_run
from quarterdeck.config.secrets.masking import mask_args
from quarterdeck.fleet.worker_session import ConfinedServer
from quarterdeck.grants.needs import known_of, only_reads, writing_tools
from quarterdeck.ledger.events.events import Subject
from quarterdeck.running_product import Product
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointStatus, is_usable_phase
from quarterdeck_protocol.faults import Dossier, ProtocolFault
from quarterdeck_protocol.policy import Limits
from quarterdeck_sandbox import MONITOR_TICK_S, Usage

from .protocol import (
    FaultView,
    Inspection,
    LimitView,
    OwnServerView,
    PropertyView,
    ReceiptView,
    SandboxView,
    ServerView,
)

ASLEEP: Final = "asleep"
"""The shown phase of a server that is idle until it is called."""

INSTALLING: Final = "installing"
"""The shown phase of a connecting server whose command has to fetch its program first."""

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
"""What enforces each limit that is not of the whole tree; the monitor enforces the others, unless the kernel does."""

_ONLY_KERNEL: Final = "cpu_share"
"""No look could keep a share."""


async def view_servers(product: Product, statuses: Iterable[EndpointStatus]) -> tuple[ServerView, ...]:
    """The statuses as they are shown, with their memory."""
    statuses = tuple(statuses)
    memory = await asyncio.to_thread(tree_memory, [status.pid for status in statuses if status.pid is not None])
    return tuple(view_server(product, status, memory) for status in statuses)


def view_server(product: Product, status: EndpointStatus, memory: dict[int, int]) -> ServerView:
    """Return a server as it is shown; `memory` has the resident bytes of process trees by their roots."""
    config, sandbox = product.config(status.server), status.sandbox
    offer = product.approvals.offer(status.server)
    is_usable = is_usable_phase(status.phase)
    fault = status.fault or status.list_fault
    tools = status.tool_count - offer.waiting[Subject.TOOL] - offer.blocked[Subject.TOOL]
    return ServerView(
        id=status.server,
        phase=INSTALLING if status.installing else ASLEEP if status.is_asleep else status.phase,
        transport=config.transport if config is not None else None,
        tools=len(offer.tools) if status.is_asleep else max(0, tools),
        pid=status.pid,
        worker_pid=status.worker_pid,
        memory_bytes=memory.get(status.pid) if status.pid is not None else None,
        uptime_s=status.uptime_s,
        restarts=status.restarts,
        era=status.era,
        fault=view_fault(product, fault, status.server) if fault is not None else None,
        sandbox=SandboxView(sandbox.tier, sandbox.network, sandbox.gaps, sandbox.caught, product.redact(sandbox.hint))
        if sandbox is not None
        else None,
        held=offer.waiting.total() if is_usable else 0,
        blocked=offer.blocked.total() if is_usable else 0,
        of_sessions=tuple(
            OwnServerView(each.client, each.status.phase, each.status.pid)
            for each in product.sessions.statuses(status.server)
        ),
        awake=product.kept_awake_by(status.server),
        seal=status.seal,
        changed=product.approvals.changed_files(status.server),
    )


def view_fault(product: Product, fault: ProtocolFault, server: str | None = None) -> FaultView:
    """Return a fault with its remedy, whose commands name the server and its file. Secrets that variables put into a
    command or a URL are redacted.
    """
    if product.settings.command:
        fault = of_run(fault)
    return FaultView(
        kind=fault.kind,
        code=fault.code,
        message=product.redact(fault.message),
        remedy=fault.remedy_for(product.words_of(server) if server is not None else None),
        delivery=fault.delivery,
        dossier=_redacted(product, fault.dossier) if fault.dossier is not None else None,
    )


def _redacted(product: Product, dossier: Dossier) -> Dossier:
    hints = tuple(map(product.redact, dossier.hints))
    return replace(dossier, stderr_tail=product.redact(dossier.stderr_tail), hints=hints)


def view_inspection(product: Product, status: EndpointStatus, view: ServerView) -> Inspection:
    """Return all that is known of the confinement of the server with this status; `view` is the server itself."""
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
        cannot_write=tuple(tools_without_files(product, status.server)),
    )


def tools_without_files(product: Product, server: str) -> list[str]:
    """Return the qualified names of the tools that change something, if their server may only read its files."""
    config, offers = product.config(server), product.router.catalogue.servers.get(server)
    if offers is None or not isinstance(config, StdioServerConfig) or not only_reads(config):
        return []
    names = {offers.calls[tool.name].own: tool for tool in offers.tools}
    definitions = {own: msgspec.json.decode(tool.definition or b"null") for own, tool in names.items()}
    return [names[own].name for own in writing_tools(known_of(config), definitions)]


def _command(product: Product, config: ServerConfig | None) -> tuple[str, ...]:
    """Return the command line without secrets, be they from variables or given outright as options."""
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
        bubblewrap=receipt.bubblewrap,
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
