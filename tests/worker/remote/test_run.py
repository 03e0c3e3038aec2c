"""Remote servers that never become open."""

import anyio
import pytest
from support.waiting import PATIENCE_S

from quarterdeck_protocol.faults import Delivery, FaultKind
from quarterdeck_protocol.link.frames import OpenOrder, RemoteServer
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.remote.run import run_server
from quarterdeck_worker.server import ServerFault, ServerRun

pytestmark = [pytest.mark.anyio, pytest.mark.process]


async def test_a_remote_server_that_cannot_be_reached_is_a_transport_fault_with_its_url() -> None:
    """A user would not know which address is wrong."""
    run = ServerRun(Notifier(lambda *_: True, lambda: 0.0), lambda _: None, lambda _: None)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ServerFault, match=r"127\.0\.0\.1:9") as caught:
        await run_server(OpenOrder(RemoteServer("http://127.0.0.1:9/mcp")), run)
    record = caught.value.record
    assert (record.kind, record.code, record.delivery) == (FaultKind.TRANSPORT, "connect_failed", Delivery.NOT_SENT)
