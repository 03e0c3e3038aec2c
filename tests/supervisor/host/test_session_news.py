"""What sessions of an older era are told unasked: in order, bounded, and each at its own pace."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from mcp.server.subscriptions import PromptsListChanged, ServerEvent, ToolsListChanged
from support.tools.allowances import OnlyReads
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.waiting import turns, until

from quarterdeck.host import session_news
from quarterdeck.host.offers.stream_bus import StreamBus, streaming_to
from quarterdeck.host.session_news import MAX_WAITING_EACH, MAX_WAITING_EACH_BYTES, SessionNews
from quarterdeck.route.router import Router
from quarterdeck_protocol.offers import ListAnnounced, Listing, LogLine
from quarterdeck_protocol.tools import Client

pytestmark = pytest.mark.anyio


class FakeSession:
    """A session and its connection; it takes what it is told while `reads` is set."""

    def __init__(self) -> None:
        self._connection = self
        self.exit_stack = AsyncExitStack()
        self.told: list[tuple[str, Any]] = []
        self.reads = anyio.Event()
        self.reads.set()

    async def notify(self, method: str, params: Any) -> None:
        """See the SDK's `Connection`."""
        await self.reads.wait()
        self.told.append((method, params and params["data"]))


class OnlyOthers(OnlyReads):
    """Allows nothing of the server."""

    def allows_some_of(self, _: str) -> bool:
        """See `Allowance`."""
        return False


class Lab:
    """A server, and the sessions that hear of it."""

    def __init__(self) -> None:
        self.server = OfferServer("s", prompts=("p",))
        self.fleet = OfferFleet(self.server)
        self.bus = StreamBus()
        self.news = SessionNews(Router(self.fleet), self.bus)

    def session(self, name: str) -> Any:
        """One that was given a list of prompts."""
        made: Any = FakeSession()
        self.news.admit(made, made, Client(key=name))
        self.news.listed(made, Listing.PROMPTS)
        return made

    def say(self, data: object) -> None:
        """Have the server say a line of its log."""
        self.fleet.news(LogLine("s", "error", "", msgspec.json.encode(data)))

    def relist(self, *prompts: str) -> None:
        """Have the server offer these."""
        self.server.prompts = prompts
        self.server.relist()
        self.fleet.changed("s")


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(session_news, "DEBOUNCE_S", 0.0)
    monkeypatch.setattr(session_news, "TELL_S", 3600.0)
    made = Lab()
    async with running(made):
        yield made


@asynccontextmanager
async def running(lab: Lab) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lab.news.tell)
        await turns()
        yield
        tasks.cancel_scope.cancel()
    assert lab.fleet.hears == 0


async def test_a_session_that_does_not_read_delays_no_other(lab: Lab) -> None:
    """One hung window would take five seconds of everybody's log for each line, and the rest be dropped."""
    stuck, good = lab.session("stuck"), lab.session("good")
    stuck.reads = anyio.Event()
    for number in range(50):
        lab.say(number)
        await until(lambda count=number + 1: len(good.told) == count)  # type: ignore[misc]
    lab.relist("q")
    await until(lambda: len(good.told) == 51)
    assert [data for _, data in good.told] == [*range(50), None]
    assert stuck.told == []


async def test_a_session_is_told_in_order_what_it_had_room_for(lab: Lab) -> None:
    """What waits for a window that hangs would fill our memory."""
    slow = lab.session("slow")
    slow.reads = anyio.Event()
    for number in range(MAX_WAITING_EACH * 2):
        lab.say(number)
        await turns(3)
    slow.reads.set()
    await until(lambda: len(slow.told) > MAX_WAITING_EACH)
    await turns()
    numbers = [data for _, data in slow.told]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) == MAX_WAITING_EACH + 1, "and the one that it was being told"
    lab.say("after")
    await until(lambda: slow.told[-1][1] == "after")


async def test_what_waits_for_a_session_is_bounded_in_bytes(lab: Lab) -> None:
    """A few lines of a megabyte are as much as thousands of short ones."""
    slow = lab.session("slow")
    slow.reads = anyio.Event()
    for _ in range(8):
        lab.say("x" * (MAX_WAITING_EACH_BYTES // 3))
        await turns(3)
    slow.reads.set()
    lab.say("after")
    await until(lambda: slow.told and slow.told[-1][1] == "after")
    assert len(slow.told) <= 5


async def test_a_change_is_told_however_much_waits_and_once_for_several(lab: Lab) -> None:
    """A client would show prompts that there are not any more, for good."""
    slow = lab.session("slow")
    slow.reads = anyio.Event()
    for number in range(MAX_WAITING_EACH + 5):
        lab.say(number)
        await turns(3)
    for name in "qrst":
        lab.relist(name)
        await turns()
    slow.reads.set()
    await until(lambda: slow.told and slow.told[-1][1] is None)
    assert [method for method, data in slow.told if data is None] == ["notifications/prompts/list_changed"]


async def test_a_stream_hears_what_a_server_announces_and_a_session_of_lists_that_are_others(lab: Lab) -> None:
    """A client of 2026-07-28 would wait for a change that its server told; or an older one list again for nothing."""
    session = lab.session("older")
    heard: dict[str, list[ServerEvent]] = {"all": [], "grouped": [], "own": []}
    for name, client in {
        "all": Client(key="all"),
        "grouped": Client(key="grouped", allowance=OnlyOthers()),
        "own": Client(key="own", part="stream 1"),
    }.items():
        with streaming_to(client):
            lab.bus.subscribe(heard[name].append)
    lab.fleet.news(ListAnnounced("s", Listing.TOOLS))
    lab.fleet.news(ListAnnounced("s", Listing.PROMPTS, frozenset({"own"})))
    lab.say("after")
    await until(lambda: len(session.told) == 1)
    assert heard == {"all": [ToolsListChanged()], "grouped": [], "own": [ToolsListChanged(), PromptsListChanged()]}


async def test_a_session_that_has_ended_is_told_nothing_of_what_waited(lab: Lab) -> None:
    """Its task would go on for a client that is gone."""
    gone = lab.session("gone")
    gone.reads = anyio.Event()
    for number in range(3):
        lab.say(number)
        await turns()
    await gone.exit_stack.aclose()
    gone.reads.set()
    await turns()
    with contextlib.suppress(IndexError):
        gone.told.pop(0)  # the one that it was being told
    assert gone.told == []
    assert ("gone", "leave") in lab.server.told
