"""A session's commands on this machine: a command policy in a directory of the test, and the context that tools get."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from support.processes.identities import give_to_commands
from support.processes.leftovers import no_leftovers, running_with

from quarterdeck.tools.commands.command_policy import CommandPolicy
from quarterdeck.tools.commands.jobs import end_jobs
from quarterdeck.tools.commands.shell import SandboxedShell
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots
from quarterdeck_protocol.policy import SandboxPolicy

PATIENCE_S: Final = 60.0  # for one test's session; a machine under load is slow, a hang is for ever
ENVIRON: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Session:
    """What a test has: the context of its tools, its shell, its directories."""

    ctx: ToolContext
    shell: SandboxedShell
    workspace: Path
    bench: CommandPolicy


def lay_out(folder: Path, environ: dict[str, str] | None = None, **policy: Any) -> CommandPolicy:
    """A command policy in `folder`: its workspace belongs to an ordinary user where commands can run as one."""
    folder.chmod(0o755)
    for name in ("workspace", "state", "user"):
        (folder / name).mkdir(exist_ok=True)
    give_to_commands(folder / "workspace")
    return CommandPolicy(
        workspace=str(folder / "workspace"),
        home=folder / "state" / "home",
        tmp=folder / "state" / "tmp",
        private=(str(folder / "state"),),
        policy=SandboxPolicy.model_validate({"network": "none", **policy}),
        environ=ENVIRON if environ is None else environ,
        user_home=folder / "user",
        allow_unsandboxed=True,
    )


def is_run(line: str) -> bool:
    """Whether a process has exactly this command line; a shell that is about to start one only contains it."""
    return line in running_with(line).values()


@asynccontextmanager
async def session(folder: Path, bench: CommandPolicy | None = None, **policy: Any) -> AsyncIterator[Session]:
    """A session in `folder`; nothing of it may be left afterwards."""
    bench = bench or lay_out(folder, **policy)
    with no_leftovers(), anyio.fail_after(PATIENCE_S):
        async with SandboxedShell.open(bench.setup, bench.workspace) as shell:
            fs = LocalFs(Roots(bench.workspace), bench.workspace)
            ctx = ToolContext(bench.workspace, fs, shell)
            try:
                yield Session(ctx, shell, Path(bench.workspace), bench)
            finally:
                with anyio.CancelScope(shield=True):
                    await end_jobs(ctx.context_id)
