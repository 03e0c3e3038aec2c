"""Faults, deaths and servers as they are shown: for the control socket and the commands.

How much memory process trees hold.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
import psutil

from quarterdeck.app import Product
from quarterdeck.trust.judge.configured_servers import fill_remedy
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_protocol.faults import Dossier, ProtocolFault
from quarterdeck_protocol.phases import is_usable_phase

from .protocol import DossierView, FaultView, SandboxView, ServerView


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


INSTALLING: Final = "installing"
"""How a server is shown that connects, and whose command has to fetch the program first."""


async def view_servers(product: Product, statuses: Iterable[EndpointStatus]) -> tuple[ServerView, ...]:
    """The statuses as they are shown, with their memory."""
    statuses = tuple(statuses)
    memory = await asyncio.to_thread(tree_memory, [status.pid for status in statuses if status.pid is not None])
    return tuple(_view_server(product, status, memory) for status in statuses)


def view_fault(product: Product, fault: ProtocolFault) -> FaultView:
    """A fault as it is shown: a command or a URL may hold a secret that a variable put there."""
    return FaultView(
        kind=fault.kind,
        code=fault.code,
        message=product.redact(fault.message),
        remedy=fault.remedy,
        delivery=fault.delivery,
        dossier=_view_dossier(product, fault.dossier) if fault.dossier is not None else None,
    )


def view_fault_of(product: Product, server: str | None, fault: ProtocolFault) -> FaultView:
    """The same, of a server, with its id and its file in the commands of the remedy."""
    view = view_fault(product, fault)
    row = next((row for row in product.registrar.rows if row.id == server), None)
    if server is None or view.remedy is None:
        return view
    remedy = row.fill(view.remedy) if row is not None else fill_remedy(view.remedy, server, ())
    return msgspec.structs.replace(view, remedy=remedy)


def _view_dossier(product: Product, dossier: Dossier) -> DossierView:
    return DossierView(
        exit_status=dossier.exit_status,
        signal=dossier.signal,
        limit=dossier.limit,
        stderr_tail=product.redact(dossier.stderr_tail),
        peak_rss_bytes=dossier.peak_rss_bytes,
        peak_is_sampled=dossier.peak_is_sampled,
        cpu_s=dossier.cpu_s,
        uptime_s=dossier.uptime_s,
        hints=tuple(map(product.redact, dossier.hints)),
    )


def _view_server(product: Product, status: EndpointStatus, memory: dict[int, int]) -> ServerView:
    config, sandbox = product.config(status.server), status.sandbox
    offer = product.registrar.offer(status.server)
    is_usable = is_usable_phase(status.phase)
    return ServerView(
        id=status.server,
        phase=INSTALLING if status.installing else status.phase,
        transport=config.transport if config is not None else None,
        tools=max(0, status.tool_count - offer.held_tools - offer.blocked_tools),
        pid=status.pid,
        worker_pid=status.worker_pid,
        memory_bytes=memory.get(status.pid) if status.pid is not None else None,
        uptime_s=status.uptime_s,
        restarts=status.restarts,
        era=status.era,
        fault=view_fault_of(product, status.server, status.fault) if status.fault is not None else None,
        sandbox=SandboxView(sandbox.tier, sandbox.network, sandbox.gaps) if sandbox is not None else None,
        held=offer.held_tools if is_usable else 0,
        blocked=offer.blocked_tools if is_usable else 0,
    )
