"""Which streams are told what: of lists all, of a resource those alone that subscribed it."""

import pytest
from mcp.server.subscriptions import ResourceUpdated, ServerEvent, ToolsListChanged
from support.tools.offer_fleet import OfferFleet, OfferServer

from quarterdeck.host.calls import Drain
from quarterdeck.host.offers.stream_bus import StreamBus
from quarterdeck.host.session_news import subscribed
from quarterdeck.route.router import Router
from quarterdeck_protocol.tools import Client

pytestmark = pytest.mark.anyio


async def test_what_concerns_one_stream_is_told_to_no_other_and_a_changed_list_to_all() -> None:
    """One session would be told what another one's server says of a resource of the same URI."""
    server, bus, me = OfferServer("a", resources=("x:1",)), StreamBus(), Client("me", "token me")
    offers, drain = Router(OfferFleet(server)), Drain()
    heard: tuple[list[ServerEvent], list[ServerEvent]] = [], []
    async with subscribed(offers, me, ["x:1"], drain):
        unsubscribe = bus.subscribe(heard[0].append)
        async with subscribed(offers, me, ["x:1"], drain):
            bus.subscribe(heard[1].append)
    first, second = (request.client.address for request in server.asked)
    assert first != second
    await bus.publish(ResourceUpdated(uri="x:1"), lambda client: client.address == second)
    await bus.publish(ToolsListChanged())
    unsubscribe()
    unsubscribe()
    await bus.publish(ResourceUpdated(uri="x:1"), lambda client: client.address in {first, second})
    assert [len(events) for events in heard] == [1, 3]
