"""What clients of the SDK's sessions are told of servers' other offers: those that asked, and nobody for long."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged
from mcp.server.subscriptions import ResourceUpdated as ResourceUpdatedEvent
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.waiting import PATIENCE_S, turns, until

from quarterdeck.host import session_news as module
from quarterdeck.host.session_news import SessionNews
from quarterdeck.host.stream_bus import StreamBus, streaming_to
from quarterdeck.tools.offerings import Offerings
from quarterdeck_protocol.offers import Listing, LogLine, News, ResourceUpdated
from quarterdeck_protocol.tools import Client

pytestmark = pytest.mark.anyio


class Session:
    """A session of an older era, and what it was told; its connection is itself."""

    def __init__(self, name: str, *, hangs: bool = False) -> None:
        self._connection = self
        self.exit_stack = AsyncExitStack()
        self.client = Client(name, name)
        self.told: list[tuple[str, Any]] = []
        self._hangs = hangs

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """See `Connection`."""
        if self._hangs:
            await anyio.sleep_forever()
        self.told.append((method.removeprefix("notifications/"), params))

    @property
    def methods(self) -> list[str]:
        """What it was told, by method."""
        return [method for method, _ in self.told]


class Told:
    """News of one server for the clients of one SDK server."""

    def __init__(self) -> None:
        self.server = OfferServer("fs", prompts=("plan",), resources=("x:1",), templates=("x:{id}",))
        self.fleet = OfferFleet(self.server)
        self.bus = StreamBus()
        self.published: list[object] = []
        with streaming_to("ada"):
            self.bus.subscribe(self.published.append)
        self.news = SessionNews(Offerings(self.fleet), self.bus)

    def admits(self, name: str, *listed: Listing, hangs: bool = False) -> Session:
        """A session that was given these lists."""
        session = Session(name, hangs=hangs)
        self.news.admit(session, session, session.client)  # type: ignore[arg-type]
        for listing in listed:
            self.news.listed(session, listing)  # type: ignore[arg-type]
        return session

    def relists(self, **lists: tuple[str, ...]) -> None:
        """The server has others now."""
        for name, keys in lists.items():
            setattr(self.server, name, keys)
        self.server.relist()
        self.fleet.changed("fs")


@asynccontextmanager
async def telling(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Told]:
    """News are told until the block ends."""
    monkeypatch.setattr(module, "DEBOUNCE_S", 0.0)
    told = Told()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told.news.tell)
            await anyio.wait_all_tasks_blocked()
            yield told
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("changed", "method", "event"),
    [
        ({"prompts": ("p",)}, "prompts/list_changed", PromptsListChanged()),
        ({"resources": ("y:1",)}, "resources/list_changed", ResourcesListChanged()),
        ({"templates": ("y:{id}",)}, "resources/list_changed", ResourcesListChanged()),
    ],
)
async def test_a_changed_list_is_told_to_whoever_has_it_in_either_era(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, tuple[str, ...]], method: str, event: object
) -> None:
    """Clients would go on with prompts that are gone."""
    async with telling(monkeypatch) as told:
        knows, new = told.admits("knows", *Listing), told.admits("new")
        told.relists(**changed)
        await until(lambda: knows.told)
        assert knows.told == [(method, None)]
        assert told.published == [event]
        assert new.told == [], "it was never given that list"


async def test_changes_that_come_while_others_are_told_are_told_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last change before a pause would be missed."""
    async with telling(monkeypatch) as told:
        session = told.admits("ada", Listing.PROMPTS, Listing.RESOURCES)
        for number in range(5):
            told.relists(prompts=(f"p{number}",), resources=(f"y:{number}",))
        await until(lambda: len(session.told) == 2)
        told.relists(prompts=("last",))
        await until(lambda: len(session.told) == 3)
        await turns()
        assert session.methods == ["prompts/list_changed", "resources/list_changed", "prompts/list_changed"]


async def test_a_changed_resource_is_told_to_its_subscribers_in_either_era(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever subscribed it in the other era would never hear of it."""
    async with telling(monkeypatch) as told:
        ada, ben = told.admits("ada"), told.admits("ben")
        told.fleet.news(ResourceUpdated("fs", "x:1", frozenset({"ada"})))
        await until(lambda: ada.told)
        assert ada.told == [("resources/updated", {"uri": "x:1"})]
        assert told.published == [ResourceUpdatedEvent(uri="x:1")]
        assert ben.told == []


async def test_log_lines_come_from_the_level_that_each_session_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's level would be that of all."""
    async with telling(monkeypatch) as told:
        ada, ben = told.admits("ada"), told.admits("ben")
        told.news.set_level(ada, "error")  # type: ignore[arg-type]
        told.news.admit(ada, ada, ada.client)  # type: ignore[arg-type] - its client said twice that it is there
        for level in ("debug", "info", "error"):
            told.fleet.news(LogLine("fs", level, "io", b'{"n":1}'))
        await until(lambda: len(ben.told) == 2 and ada.told)
        assert [params["level"] for _, params in ada.told] == ["error"]
        assert ben.told[0] == ("message", {"level": "info", "logger": "fs/io", "data": {"n": 1}})


async def test_a_client_that_does_not_read_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop that sleeps would silence all servers for everybody."""
    monkeypatch.setattr(module, "TELL_S", 0.0)
    async with telling(monkeypatch) as told:
        told.admits("asleep", Listing.PROMPTS, hangs=True)
        ada = told.admits("ada", Listing.PROMPTS)
        told.relists(prompts=("p",))
        told.fleet.news(LogLine("fs", "error", "", b"1"))
        await until(lambda: len(ada.told) == 2)


async def test_a_flood_of_news_is_cut_and_lists_are_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that logs without end would fill the memory, or hide that a list has changed."""
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    async with telling(monkeypatch) as told:
        session = told.admits("ada", Listing.PROMPTS)
        for number in range(10):
            told.fleet.news(LogLine("fs", "error", "", b"%d" % number))
        told.relists(prompts=("p",))
        await until(lambda: "prompts/list_changed" in session.methods)
        assert [params["data"] for method, params in session.told if method == "message"] == [0, 1, 2]
        told.fleet.news(LogLine("fs", "error", "", b'"later"'))
        await until(lambda: session.told[-1][1] == {"level": "error", "logger": "fs", "data": "later"})


async def test_a_session_that_ends_is_told_nothing_and_leaves_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its subscriptions would be kept up for good."""
    async with telling(monkeypatch) as told:
        gone, ada = told.admits("gone", Listing.PROMPTS), told.admits("ada", Listing.PROMPTS)
        await gone.exit_stack.aclose()
        assert told.server.told == [("gone", "leave")]
        told.relists(prompts=("p",))
        await until(lambda: ada.told)
        assert gone.told == []
        told.news.set_level(gone, "debug")  # type: ignore[arg-type]
        told.news.listed(gone, Listing.PROMPTS)  # type: ignore[arg-type]


async def test_when_telling_ends_nobody_watches_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon would keep the news of each session that it ever had."""
    watching = []

    class Watched(Offerings):
        def watch_listing(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
            watching.append("lists")
            return lambda: watching.remove("lists")

        def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
            watching.append("news")
            return lambda: watching.remove("news")

    monkeypatch.setitem(globals(), "Offerings", Watched)
    async with telling(monkeypatch):
        assert watching == ["lists", "news"]
    assert watching == []
