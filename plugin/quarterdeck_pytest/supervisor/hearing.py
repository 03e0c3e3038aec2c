"""Forward the notifications of an instance's servers to a test process: log lines, updates, changed lists."""

from collections.abc import Callable
from functools import partial

from quarterdeck.interop import ServerFleetImpl
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.offers import News
from quarterdeck_protocol.tools import Client
from quarterdeck_pytest.endpoints import list_of
from quarterdeck_pytest.relay import ListChanges, notification_of

Tell = Callable[[str, str, bytes], None]
"""Takes a server's id, a method, and params."""


def hear(fleet: ServerFleetImpl, client: Client, tell: Tell) -> Callable[[], None]:
    """Forward notifications for this client, or for all. Return the function that ends that, and its subscriptions."""
    changes: dict[str, ListChanges] = {}

    def on_news(news: News) -> None:
        if not news.clients or client.address in news.clients:
            tell(news.server, *notification_of(news))

    def on_change(server: str) -> None:
        endpoint = fleet.endpoint(server)
        if endpoint is None or endpoint.phase is not EndpointPhase.READY or not fleet.has_settled(server):
            return
        for method in changes.setdefault(server, ListChanges()).notifications(partial(list_of, endpoint)):
            tell(server, method, b"")

    for server in fleet.status():
        on_change(server)
    ends = (fleet.watch_news(on_news), fleet.watch_each(on_change))

    def end() -> None:
        for each in ends:
            each()
        for endpoint in fleet.endpoints():
            endpoint.leave(client)

    return end
