"""Remote servers that never become open, and what is heard of their changes of tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.client.subscriptions import SubscriptionLost
from support.servers.greetings import LEGACY
from support.waiting import PATIENCE_S

from quarterdeck_protocol.faults import Delivery, FaultKind
from quarterdeck_protocol.link.frames import OpenOrder, RemoteServer
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.remote import run as run_module
from quarterdeck_worker.remote.run import run_server
from quarterdeck_worker.server import ServerFault, ServerRun

pytestmark = pytest.mark.anyio


async def test_a_remote_server_that_cannot_be_reached_is_a_transport_fault_with_its_url() -> None:
    """A user would not know which address is wrong."""
    run = ServerRun(Notifier(lambda _: True, lambda: 0.0), lambda _: None, lambda _: None)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ServerFault, match=r"127\.0\.0\.1:9") as caught:
        await run_server(OpenOrder(RemoteServer("http://127.0.0.1:9/mcp"), era=LEGACY), run)
    record = caught.value.record
    assert (record.kind, record.code, record.delivery) == (FaultKind.TRANSPORT, "connect_failed", Delivery.NOT_SENT)


async def test_a_lost_subscription_means_that_tools_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed while nobody listened would never be seen."""
    monkeypatch.setattr(run_module, "RELISTEN_S", 0.0)
    scenes: list[str] = ["lost", "event", "lost", "end"]
    news: list[str] = []

    @asynccontextmanager
    async def listen(session: object, *, tools_list_changed: bool) -> AsyncIterator[AsyncIterator[object]]:
        scene = scenes.pop(0)
        if scene == "lost":
            raise SubscriptionLost("the stream broke")

        async def events() -> AsyncIterator[object]:
            if scene == "event":
                yield object()
                raise SubscriptionLost("the stream broke")

        yield events()

    class Newsdesk:
        def tools_changed(self) -> None:
            news.append(scenes[0] if scenes else "none")

    monkeypatch.setattr(run_module, "listen", listen)
    with anyio.fail_after(PATIENCE_S):
        await run_module._subscribe(None, Newsdesk())  # type: ignore[arg-type]
    assert scenes == []
    assert news == ["event", "lost", "lost", "end"]
