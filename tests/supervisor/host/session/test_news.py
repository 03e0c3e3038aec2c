"""What a client is told that it did not ask for: each change once, and nothing else where it has no room."""

import asyncio
import json
from typing import Any

import pytest
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import LiveBox
from support.waiting import turns, until

from quarterdeck.host.offers.content import Content
from quarterdeck.host.session import news as module
from quarterdeck.host.session.news import ClientNews
from quarterdeck.host.session.work import Outlet
from quarterdeck.route.router import Router
from quarterdeck_protocol.mcp.jsonrpc import read_message
from quarterdeck_protocol.mcp.server.requests import judge, read_params
from quarterdeck_protocol.mcp.server.subscriptions import ChangeStream
from quarterdeck_protocol.offers import ListAnnounced, Listing, LogLine, ResourceUpdated
from quarterdeck_protocol.tools import Client

ME = Client("ada", "ada")
TO_ME = frozenset({"ada"})
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def stream(**wanted: Any) -> ChangeStream:
    """A stream of these changes, opened by the request 7."""
    params = {"notifications": wanted, "_meta": ENVELOPE}
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}).encode()
    message = read_message(line)
    request, _ = judge(message, 7, read_params(message), "2026-07-28")
    return ChangeStream(request)


class Told(Outlet):
    """A client, and what it is told; its outlet."""

    is_congested = False

    def __init__(self, **options: Any) -> None:
        self.box = LiveBox()
        self.box.graft("s__a")
        self.server = OfferServer("fs", prompts=("plan",), resources=("x:1",), templates=("x:{id}",))
        self.fleet = OfferFleet(self.server)
        self.heard: list[dict[str, Any]] = []
        content = Content(box=self.box, name="hub", version="1", offers=Router(self.fleet))
        self.news = ClientNews(content, ME, self, **options)
        self.news.is_open = True

    def tell(self, message: bytes) -> None:
        self.heard.append(json.loads(message))

    def relists(self, **lists: tuple[str, ...]) -> None:
        for name, keys in lists.items():
            setattr(self.server, name, keys)
        self.server.relist()
        self.fleet.changed("fs")

    @property
    def methods(self) -> list[str]:
        return [each["method"].removeprefix("notifications/") for each in self.heard]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEBOUNCE_S", 0.01)


@pytest.mark.parametrize(
    ("changed", "method"),
    [
        ({"prompts": ("p",)}, "prompts/list_changed"),
        ({"resources": ("y:1",), "templates": ("y:{id}",)}, "resources/list_changed"),
    ],
)
async def test_a_list_that_its_client_was_given_is_told_once(changed: dict[str, tuple[str, ...]], method: str) -> None:
    """A model would go on with what is gone, or list again for each item."""
    told = Told()
    told.relists(**changed)
    await asyncio.sleep(0.05)
    assert told.methods == []
    for listing in Listing:
        told.news.listed(listing)
    told.relists(prompts=("q",), resources=("z:1",), templates=("z:{id}",))
    told.relists(**changed)
    await until(lambda: method in told.methods)
    assert sorted(told.methods) == ["prompts/list_changed", "resources/list_changed"]


async def test_tools_are_told_when_they_are_others_than_the_client_was_shown() -> None:
    """A model would call what is gone, or every client list again for each server that starts."""
    told = Told()
    told.box.graft("s__b")
    await turns()
    assert told.methods == [], "it was shown no list yet"
    told.news.listed(Listing.TOOLS)
    for server in "cde":
        told.box.graft(f"{server}__t")
    await until(lambda: told.methods)
    await asyncio.sleep(0.05)
    assert told.methods == ["tools/list_changed"]


async def test_a_client_of_an_earlier_process_is_told_when_the_tools_are_others_than_now() -> None:
    """After a restart of the daemon it would go on with tools of before."""
    told = Told(knows_tools=True)
    told.box.graft("s__b")
    await until(lambda: told.methods)
    assert told.methods == ["tools/list_changed"]


async def test_before_its_handshake_a_client_hears_nothing() -> None:
    """It would take what it hears for an answer."""
    told = Told()
    told.news.listed(Listing.PROMPTS)
    told.news.is_open = False
    told.fleet.news(LogLine("fs", "error", "", b"1"))
    told.relists(prompts=("q",))
    await asyncio.sleep(0.05)
    assert told.heard == []


async def test_log_lines_come_from_the_level_that_the_client_chose() -> None:
    """A client that asked for errors would be flooded, or one that asked for all be told next to nothing."""
    told = Told()
    for level in ("debug", "info"):
        told.fleet.news(LogLine("fs", level, "", b"1"))
    told.news.level = "error"
    for level in ("warning", "critical"):
        told.fleet.news(LogLine("fs", level, "", b"1"))
    assert [each["params"]["level"] for each in told.heard] == ["info", "critical"]


async def test_a_client_that_does_not_read_loses_log_lines_and_no_change() -> None:
    """Its memory is ours; a list that it knows would be wrong for ever."""
    told = Told()
    told.news.listed(Listing.PROMPTS)
    told.is_congested = True
    told.fleet.news(LogLine("fs", "error", "", b"1"))
    told.relists(prompts=("q",))
    told.relists(prompts=("r",))
    await asyncio.sleep(0.05)
    assert told.methods == []
    told.is_congested = False
    await until(lambda: told.methods)
    assert told.methods == ["prompts/list_changed"]


async def test_a_client_that_is_gone_is_told_nothing() -> None:
    """Each session that ever was would be written to."""
    told = Told()
    told.news.listed(Listing.PROMPTS)
    told.relists(prompts=("q",))
    told.news.close()
    told.fleet.news(LogLine("fs", "error", "", b"1"))
    await asyncio.sleep(0.05)
    assert told.heard == []


async def test_a_stream_is_told_what_it_named_and_nothing_else_each_with_its_mark() -> None:
    """Programs tell their streams apart by it, and take a message that they did not ask for as an error."""
    told = Told(stream=stream(promptsListChanged=True, resourceSubscriptions=["x:1"]), resources=("x:1",))
    told.box.graft("s__b")
    told.fleet.news(LogLine("fs", "error", "", b"1"))
    told.fleet.news(ResourceUpdated("fs", "x:1", TO_ME))
    told.fleet.news(ResourceUpdated("fs", "x:2", TO_ME))
    told.fleet.news(ListAnnounced("fs", Listing.PROMPTS))
    told.fleet.news(ListAnnounced("fs", Listing.RESOURCES))
    await asyncio.sleep(0.05)
    assert told.methods == ["resources/updated", "prompts/list_changed"]
    told.relists(prompts=("q",))
    await until(lambda: len(told.heard) == 3)
    assert told.methods[2] == "prompts/list_changed"
    assert {each["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for each in told.heard} == {7}


def test_a_stream_acknowledges_what_it_is_told_of() -> None:
    """A program would wait for what never comes."""
    said = stream(
        toolsListChanged=True, promptsListChanged=False, resourceSubscriptions=["x:1", "x:2"], taskIds=[5, "t"]
    )
    assert (said.resources, said.tasks) == (("x:1", "x:2"), ("t",))
    honored = json.loads(said.acknowledgement(["x:1"], []))["params"]["notifications"]
    assert honored == {"toolsListChanged": True, "resourceSubscriptions": ["x:1"]}
