"""What a host shows to its clients: when its first list may be answered, and what they know of its tools."""

import asyncio

import pytest
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import LiveBox, NativeBox
from support.waiting import turns

from quarterdeck.host.offers.content import Content
from quarterdeck.host.provider import create_provider_host
from quarterdeck.route.router import Router
from quarterdeck_protocol.mcp.server.methods import TOOLS_ONLY
from quarterdeck_protocol.mcp.tasks import EXTENSION, TaskSupport
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import CancelToken, Client

ME = Client("me", "door-1")


def content(**options: object) -> Content:
    return Content(box=LiveBox(), name="q", version="1", **options)  # type: ignore[arg-type]


async def test_the_first_list_waits_for_the_servers_once_for_all_clients() -> None:
    """A client would be shown nothing of servers that start; or each of them wait anew."""
    asked, settled = 0, asyncio.Event()

    async def settle() -> None:
        nonlocal asked
        asked += 1
        await settled.wait()

    shown = content(settled=settle)
    waiting = asyncio.ensure_future(shown.settle(CancelToken()))
    await turns()
    assert (waiting.done(), shown.has_settled) == (False, False)
    settled.set()
    await waiting
    await shown.settle(CancelToken())
    assert (asked, shown.has_settled) == (1, True)


async def test_the_wait_ends_with_serving_and_what_failed_is_said() -> None:
    """Serving would not end while a server starts; or a failure be taken for servers that are there."""

    async def never() -> None:
        await asyncio.Event().wait()

    closing = CancelToken()
    waiting = asyncio.ensure_future(content(settled=never).settle(closing))
    await turns()
    closing.cancel()
    await asyncio.wait_for(waiting, 20)

    async def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await content(settled=fail).settle(CancelToken())


@pytest.mark.parametrize("box", [LiveBox(), NativeBox()], ids=["changes", "never changes"])
async def test_a_host_of_tools_alone_lists_nothing_else_and_has_nobody_to_leave(box: NativeBox) -> None:
    """A program that boxes its own tools would be asked for prompts, or wait for changes that never come."""
    alone = create_provider_host(box).content
    assert alone.logs is None
    assert alone.capabilities(ME, is_modern=False) == TOOLS_ONLY[box.can_change]
    alone.leave(ME)
    alone.close()


async def test_what_servers_have_is_shown_and_left() -> None:
    """A client that went would be told of changes for ever."""
    server = OfferServer("a", prompts=("p",), tasks=TaskSupport.EXTENDS)
    fleet = OfferFleet(server)
    offers = Router(fleet)
    shown = content(offers=offers)
    assert b"a__p" in shown.offer_catalog.publish(Listing.PROMPTS, offers.listed(Listing.PROMPTS), ME)[0]
    assert EXTENSION.encode() in shown.capabilities(ME, is_modern=True)
    shown.leave(ME)
    assert server.told == [("door-1", "leave")]
    async with shown.source_of("mine") as box:
        assert box is shown.box
