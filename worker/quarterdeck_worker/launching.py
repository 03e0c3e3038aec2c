"""Put a server's process into its sandbox, and tell our owner what came of it."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.frames import OpenOrder, ServerStart
from quarterdeck_protocol.policy import Limits
from quarterdeck_sandbox.confine import Asker, confine
from quarterdeck_sandbox.launch import LaunchError, LaunchPlan, words_of
from quarterdeck_sandbox.mounts import Places
from quarterdeck_sandbox.probing import known_machine
from quarterdeck_sandbox.process import ConfinedProcess
from quarterdeck_sandbox.scanning import disk_use
from quarterdeck_sandbox.start import start
from quarterdeck_sandbox.temporary import remove

Launcher = Callable[[LaunchPlan], Awaitable[ConfinedProcess]]
"""Start a plan, confined or not; raises `LaunchError`."""


def sandboxed(config: StdioServerConfig, order: OpenOrder) -> Launcher:
    """The launcher that confines by the server's own policy."""

    async def launch(plan: LaunchPlan) -> ConfinedProcess:
        try:
            _empty_if_over(Path(order.tmp), config.sandbox.limits)
        except OSError as error:
            why = f"its temporary directory cannot be made ({words_of(error)}): make room there"
            raise LaunchError("directory_unusable", why) from error
        places = Places(Path(order.home), Path(order.tmp), Path(order.user_home), order.private, order.protected)
        environ = {**os.environ, **order.user_env}
        asker = Asker(
            places, environ, known_machine(), allow_unsandboxed=order.allow_unsandboxed, open_port=order.open_port
        )
        return await start(confine(plan, config.sandbox, asker))

    return launch


def _empty_if_over(tmp: Path, limits: Limits) -> None:
    """Temporary files that ended its last life must not end the next one before it begins."""
    used = disk_use((str(tmp),))
    most_bytes, most_inodes = limits.scratch_bytes, limits.scratch_inodes
    if (most_bytes and used.bytes > most_bytes) or (most_inodes and used.inodes > most_inodes):
        remove(str(tmp))
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
    )
