"""Run one server that is a child process, from its start to its end: confine, greet, serve, notice its loss, stop it.

Whatever ends it early is a `ServerFault`, judged by where it was.
"""

import anyio

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import CLOSE_GRACE_S, OpenOrder, StdioServer
from quarterdeck_protocol.mcp.client.events import Server
from quarterdeck_sandbox import ConfinedProcess, LaunchError, plan_launch, words_of
from quarterdeck_worker.server import ServerFault, ServerRun, be_open

from .launch import Launcher, describe_start, sandboxed
from .process import ServerProcess


async def run_process(order: OpenOrder, run: ServerRun, launcher: Launcher | None = None) -> None:
    """Run as `RunServer`; without a `launcher` its process is confined by its own policy."""
    server = order.server
    assert isinstance(server, StdioServer)
    try:
        plan = plan_launch(server.command, server.args, order.env, server.cwd or order.home)
        process = await (launcher or sandboxed(server.sandbox, order))(plan)
    except LaunchError as error:
        dossier = Dossier(signal=error.signal) if error.signal is not None else None
        fault = FaultRecord(FaultKind.SPAWN_FAILED, str(error), error.code, Delivery.NOT_SENT, dossier=dossier)
        raise ServerFault(fault) from error
    served = await _connected(process, server, order, run)
    run.diagnose = served.dossier
    run.condemn = served.condemn
    run.on_started(describe_start(process, order))
    try:
        await _greet(served)
        await be_open(served.connection, run, served.lost)
    finally:
        with anyio.CancelScope(shield=True):
            await served.close()


async def _connected(process: ConfinedProcess, server: StdioServer, order: OpenOrder, run: ServerRun) -> ServerProcess:
    try:
        return ServerProcess(process, server.sandbox.limits, order, run)
    except OSError as error:
        await process.stop(CLOSE_GRACE_S)
        process.close_fds()
        message = f"what it writes on stderr cannot be kept ({words_of(error)}): make room there"
        fault = FaultRecord(FaultKind.SPAWN_FAILED, message, "directory_unusable", Delivery.NOT_SENT)
        raise ServerFault(fault) from error


async def _greet(served: ServerProcess) -> None:
    """Wait until it is greeted.  Raise ServerFault if it cannot be, or ended first."""
    outcome = await served.connection.greeted()
    if not isinstance(outcome, Server):
        await served.settle()
        raise ServerFault(served.not_greeted(outcome))
