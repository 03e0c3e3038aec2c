"""Everything that is known of one server's confinement, as it is shown."""

from typing import Final

import msgspec

from quarterdeck.app import Quarterdeck
from quarterdeck.config.masking import mask_args
from quarterdeck.control.protocol import Inspection, LimitView, PropertyView, ReceiptView, ServerView
from quarterdeck.control.views import view_fault_of
from quarterdeck.fleet.custody import Custody
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_protocol.policy import Limits
from quarterdeck_sandbox.monitor import TICK_S
from quarterdeck_sandbox.usage import Usage

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


def inspect(deck: Quarterdeck, status: EndpointStatus, view: ServerView) -> Inspection:
    """What is known of the server with this status."""
    config, endpoint = deck.config(status.server), deck.fleet.endpoint(status.server)
    custody = endpoint.custody if endpoint is not None else None
    last = deck.fleet.last_fault(status.server)
    policy = config.sandbox if isinstance(config, StdioServerConfig) and status.isolated else None
    return Inspection(
        server=view,
        command=_command(deck, config),
        policy=msgspec.Raw(deck.redact(policy.model_dump_json()).encode()) if policy is not None else NO_POLICY,
        receipt=_view_receipt(deck, custody) if custody is not None else None,
        limits=_view_limits(policy.limits, custody, status) if policy is not None else (),
        last_death=view_fault_of(deck, status.server, last) if last is not None else view.fault,
        note="" if custody is not None else _why_none(config, status),
    )


def _command(deck: Quarterdeck, config: ServerConfig | None) -> tuple[str, ...]:
    """What is run, without the secrets that variables put in and those that options are given outright."""
    if not isinstance(config, StdioServerConfig):
        return ()
    return tuple(deck.redact(str(word)) for word in (config.command, *mask_args(config.args)))


def _why_none(config: ServerConfig | None, status: EndpointStatus) -> str:
    if config is None:
        return BROKEN
    if not status.isolated:
        return EMBEDDED
    return NOT_STARTED if isinstance(config, StdioServerConfig) else REMOTE


def _view_receipt(deck: Quarterdeck, custody: Custody) -> ReceiptView:
    start, receipt = custody.start, custody.receipt
    return ReceiptView(
        tier=receipt.tier,
        network=receipt.network,
        uid=receipt.uid,
        program=deck.redact(start.program),
        cwd=deck.redact(start.cwd),
        properties=tuple(PropertyView(name, each.strength, each.mechanism) for name, each in receipt.findings.items()),
        shown=tuple(map(deck.redact, receipt.shown)),
        gaps=tuple(map(deck.redact, start.gaps)),
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
