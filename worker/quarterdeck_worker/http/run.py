"""Run one server behind a URL, from its start to its end: connect, greet, serve, notice its loss, end its session.

Whatever ends a run early is a `ServerFault`, judged by where it was.
"""

import anyio
import httpx2

from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.link.frames import OpenOrder, RemoteServer
from quarterdeck_protocol.mcp.client.events import GreetingFailed, Server
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.server import ServerFault, ServerRun, be_open

from .carrier import HttpCarrier
from .client import HttpClient
from .faults import unreachable
from .legacy import SseCarrier
from .streams import Timing


async def run_remote(
    order: OpenOrder,
    run: ServerRun,
    *,
    timing: Timing | None = None,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> None:
    """Run as `RunServer`; a test has its own `timing`, and a `transport` instead of the network."""
    server = order.server
    assert isinstance(server, RemoteServer)
    for name in server.transports:
        http = HttpClient(server, run.access, transport)
        connection = Connection(order, run.notifier, run.on_end)
        try:
            async with anyio.create_task_group() as tasks:
                kind = SseCarrier if name == "sse" else HttpCarrier
                carrier = kind(connection, http, tasks, server.url, order.max_result_bytes, timing)
                is_done = await _served(connection, carrier, run, server.url, is_last=name == server.transports[-1])
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            error: Exception = group
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            raise error from None
        finally:
            connection.close()
            await http.close()
        if is_done:
            return


async def _served(connection: Connection, carrier: HttpCarrier, run: ServerRun, url: str, *, is_last: bool) -> bool:
    """Greet and serve; return False to try another transport.  Raise ServerFault if not greeted, or lost."""
    carrier.start()
    outcome = await connection.greeted()
    if not isinstance(outcome, Server):
        # A server of the older transport refuses a POST so.
        if not is_last and carrier.refused is not None and carrier.refused.status in (400, 404, 405):
            return False
        failed = outcome if isinstance(outcome, GreetingFailed) else None
        raise ServerFault(unreachable(url, carrier.refused, carrier.error, failed, carrier.loss))

    async def lost() -> FaultRecord:
        await connection.ended.wait()
        assert carrier.loss is not None
        return carrier.loss

    await be_open(connection, run, lost)
    await carrier.close()
    return True
