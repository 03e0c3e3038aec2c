"""Launch a server's process: confined by its own policy, and described to the supervisor once it is let go."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.link.frames import OpenOrder, ServerStart
from quarterdeck_protocol.policy_values import LimitValues, PolicyValues
from quarterdeck_sandbox import (
    ConfinedProcess,
    LaunchError,
    LaunchPlan,
    Places,
    Prepared,
    Requester,
    confine,
    disk_use,
    known_machine,
    remove_tree,
    settle,
    start,
    words_of,
)

PREPARED: Final = msgspec.json.Decoder(Prepared)
"""Made before the first fork: of so many types it takes most of a megabyte in each worker."""

Launcher = Callable[[LaunchPlan], Awaitable[ConfinedProcess]]
"""Start a plan, confined or not; raises `LaunchError`."""


def sandboxed(policy: PolicyValues, order: OpenOrder) -> Launcher:
    """The launcher that confines by the server's own `policy`."""

    async def launch(plan: LaunchPlan) -> ConfinedProcess:
        try:
            _empty_if_over(Path(order.tmp), policy.limits)
        except OSError as error:
            why = f"its temporary directory cannot be made ({words_of(error)}): make room there"
            raise LaunchError("directory_unusable", why) from error
        places = Places(Path(order.home), Path(order.tmp), Path(order.user_home), order.private, order.protected)
        prepared = PREPARED.decode(order.prepared) if order.prepared else None
        changed = prepared.observations.changed() if prepared is not None else ""
        if prepared is not None and not changed:
            return await start(settle(prepared.confinement_for(plan), places))
        environ = {**os.environ, **order.user_env}
        requester = Requester(
            places, environ, known_machine(), allow_unsandboxed=order.allow_unsandboxed, open_port=order.open_port
        )
        return await start(replace(confine(plan, policy, requester), outdated=changed))

    return launch


def _empty_if_over(tmp: Path, limits: LimitValues) -> None:
    """Empty the temporary directory when it exceeds the limits: else the next run would end before it begins."""
    used = disk_use((str(tmp),))
    most_bytes, most_inodes = limits.scratch_bytes, limits.scratch_inodes
    if (most_bytes and used.size_bytes > most_bytes) or (most_inodes and used.files > most_inodes):
        remove_tree(str(tmp))
        tmp.mkdir(mode=0o700, exist_ok=True)


def describe_start(process: ConfinedProcess, order: OpenOrder) -> ServerStart:
    """What the supervisor is told of a process that was let go."""
    plan, receipt, tree = process.confinement.plan, process.receipt, process.tree((order.tmp,))
    return ServerStart(
        pid=tree.pid,
        tree_pid=tree.top,
        root_pid=tree.root_pid,
        program=plan.program,
        cwd=plan.cwd,
        scratch=tree.scratch,
        tmpfs=tree.tmpfs,
        enforced=tree.enforced,
        receipt=msgspec.json.encode(receipt).decode(),
        gaps=receipt.gaps,
        changed=process.confinement.outdated,
    )
