"""Run one confined command to its end with our own stdin and stdout; its stderr passes through us, for the dossier."""

import os
from collections.abc import Callable
from typing import Final

import anyio

from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.limits import Excess

from .hints import infer_hints
from .monitor import TreeMonitor
from .process import ConfinedProcess
from .spawn import Stdio
from .start import start
from .stderr import StderrKeeper

STOP_GRACE_S: Final = 1.0
"""For a command that is interrupted: TERM, this long, then KILL."""

READ_BYTES: Final = 64 * 1024

LAST_WORDS_S: Final = 0.5
"""How long its stderr is still read once it has ended."""


async def run_foreground(
    confinement: Confinement, scratch: tuple[str, ...], on_start: Callable[[ConfinedProcess], None]
) -> tuple[int, Dossier]:
    """Run a confinement to its end: its return code (minus the signal that ended it) and its dossier.

    Raises:
        LaunchError: it could not be started.
    """
    process = await start(confinement, Stdio.FOREGROUND)
    keeper = StderrKeeper("", Redactor(()))
    monitor = TreeMonitor()
    said: list[str] = []

    def on_excess(excess: Excess) -> None:
        said.append(excess.detail)
        process.kill_for(excess.limit)

    try:
        on_start(process)
        forget = monitor.watch(process.tree(scratch), confinement.limits, on_excess)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(monitor.run)
            tasks.start_soon(_watch, process)
            tasks.start_soon(_report_network_loss, process, said)
            reading = anyio.Event()
            tasks.start_soon(_pass_on, process.stderr_fd, keeper, reading)
            await process.wait()
            with anyio.move_on_after(LAST_WORDS_S):
                await reading.wait()
            tasks.cancel_scope.cancel()
        forget()
    finally:
        await process.stop(STOP_GRACE_S)
        process.close_fds()
    keeper.close()
    code = process.returncode or 0
    hints = infer_hints(keeper.tail, confinement)
    return code, Dossier(
        exit_status=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        limit=process.limit,
        stderr_tail=keeper.tail,
        peak_rss_bytes=process.peak_rss_bytes,
        peak_is_sampled=process.peak_is_sampled,
        cpu_s=process.cpu_s,
        uptime_s=process.uptime_s,
        hints=(*said, *hints),
    )


LOOK_S: Final = 0.25
"""Between two looks at what it uses; a short command's dossier has what the last one saw."""


async def _watch(process: ConfinedProcess) -> None:
    while True:
        process.look()
        await anyio.sleep(LOOK_S)


async def _report_network_loss(process: ConfinedProcess, said: list[str]) -> None:
    said.append(f"its network failed before it ended ({await process.network_lost()})")


async def _pass_on(fd: int, keeper: StderrKeeper, done: anyio.Event) -> None:
    while True:
        await anyio.wait_readable(fd)
        data = os.read(fd, READ_BYTES)
        if not data:
            done.set()
            return
        keeper.feed(data)
        try:
            os.write(2, data)
        except OSError:
            pass  # nobody reads ours any more: the command goes on
