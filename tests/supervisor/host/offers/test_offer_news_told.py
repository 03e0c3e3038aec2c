"""What an older client is told unasked: what concerns it, once, and in its own way."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.waiting import until

from quarterdeck.host.offers import offer_news as module
from quarterdeck.host.offers.offer_news import OfferNews, concerns, notification_of
from quarterdeck.route.router import Router
from quarterdeck_protocol.offers import LEVELS, Listing, LogLine, News, ResourceUpdated, ServerNote
from quarterdeck_protocol.tools import Client

pytestmark = pytest.mark.anyio

ADA, BEN = Client("ada", "ada"), Client("ben", "ben")
TO_ADA = frozenset({"ada"})


def line(level: str = "info", clients: frozenset[str] = frozenset(), server: str = "fs") -> LogLine:
    """A log line."""
    return LogLine(server, level, "io", b'{"n":1}', clients)


class Told:
    """A client of an older era, and what it is told."""

    def __init__(self, client: Client = ADA) -> None:
        self.server = OfferServer("fs", prompts=("plan",), resources=("x:1",), templates=("x:{id}",))
        self.fleet = OfferFleet(self.server)
        self.heard: list[dict[str, Any]] = []
        self.is_open = True
        self.news = OfferNews(Router(self.fleet), client, self._hear, lambda: self.is_open)
        self.news.listed.update(Listing)

    def _hear(self, notification: bytes) -> None:
        self.heard.append(json.loads(notification))

    def relists(self, **lists: tuple[str, ...]) -> None:
        """The server has others now."""
        for name, keys in lists.items():
            setattr(self.server, name, keys)
        self.server.relist()
        self.fleet.changed("fs")

    @property
    def methods(self) -> list[str]:
        """What it was told, by method."""
        return [each["method"].removeprefix("notifications/") for each in self.heard]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """The timers that were begun, which a test lets ring."""
    begun: list[Callable[[], None]] = []

    class Loop:
        def call_later(self, _: float, callback: Callable[[], None]) -> Any:
            begun.append(callback)

            class Timer:
                def cancel(self) -> None:
                    begun.remove(callback)

            return Timer()

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(get_running_loop=Loop))
    return begun


@pytest.mark.parametrize(
    ("changed", "method"),
    [
        ({"prompts": ("p",)}, "prompts/list_changed"),
        ({"resources": ("y:1",)}, "resources/list_changed"),
        ({"templates": ("y:{id}",)}, "resources/list_changed"),
    ],
)
async def test_a_list_that_changes_is_told_by_its_own_method(changed: dict[str, tuple[str, ...]], method: str) -> None:
    """A client would go on with prompts that are gone."""
    told = Told()
    told.relists(**changed)
    await until(lambda: told.heard)
    assert told.heard == [{"jsonrpc": "2.0", "method": f"notifications/{method}"}]
    told.news.close()


def test_changes_of_one_moment_are_told_together_and_later_ones_again(held: list[Callable[[], None]]) -> None:
    """A fleet that starts would tell its client once for each server; or a later change not at all."""
    told = Told()
    told.relists(prompts=("p",))
    told.relists(prompts=("q",), resources=("y:1",), templates=("y:{id}",))
    assert (told.heard, len(held)) == ([], 1)
    held.pop()()
    assert told.methods == ["prompts/list_changed", "resources/list_changed"]
    told.relists(prompts=("r",))
    held.pop()()
    assert told.methods[2:] == ["prompts/list_changed"]


def test_a_list_that_a_client_was_never_given_is_none_of_its_news(held: list[Callable[[], None]]) -> None:
    """A client that knows no prompts would be told of them for ever."""
    told = Told()
    told.news.listed = {Listing.RESOURCES}
    told.relists(prompts=("p",))
    assert held == []


def test_before_its_handshake_a_client_hears_nothing(held: list[Callable[[], None]]) -> None:
    """It would take a notification for the answer to its greeting, or end."""
    told = Told()
    told.is_open = False
    told.relists(prompts=("p",))
    told.fleet.news(line("error"))
    assert (held, told.heard) == ([], [])


def test_a_client_that_is_gone_is_told_nothing(held: list[Callable[[], None]]) -> None:
    """What is told to a closed session fails, and takes what comes after it along."""
    told = Told()
    told.relists(prompts=("p",))
    told.news.close()
    assert held == [], "what was to be told is not"
    told.fleet.news(line("error"))
    told.relists(prompts=("q",))
    assert (held, told.heard) == ([], [])


def test_log_lines_come_from_the_level_that_the_client_chose() -> None:
    """A client that asked for errors would be flooded, or one that asked for all be told next to nothing."""
    told = Told()
    told.fleet.news(line("debug"))
    told.fleet.news(line("info"))
    told.news.level = "error"
    told.fleet.news(line("warning"))
    told.fleet.news(line("critical"))
    assert [each["params"]["level"] for each in told.heard] == ["info", "critical"]


# What concerns whom


@pytest.mark.parametrize("own", LEVELS)
@pytest.mark.parametrize("said", LEVELS)
def test_a_line_is_told_from_its_level_on(own: str, said: str) -> None:
    """Levels would be compared as words."""
    assert concerns(line(said), ADA, own) == (LEVELS.index(said) >= LEVELS.index(own))


def test_a_level_that_there_is_not_is_serious_of_a_server_and_the_default_of_a_client() -> None:
    """A server's slip would hide its line, or a client's let every line through."""
    assert concerns(line("fatal"), ADA, "emergency")
    assert [concerns(line(level), ADA, "loud") for level in ("debug", "info")] == [False, True]


@pytest.mark.parametrize("news", [line(clients=TO_ADA), ServerNote("fs", "x", b"", TO_ADA)])
def test_news_for_somebody_are_for_nobody_else(news: News) -> None:
    """One client's work would be read in another's log."""
    assert concerns(news, ADA, "info")
    assert not concerns(news, BEN, "info")


@pytest.mark.parametrize("news", [line(), ServerNote("fs", "x", b"")])
def test_news_for_nobody_in_particular_are_for_everybody(news: News) -> None:
    """What a server says while nothing is under way would be lost."""
    assert concerns(news, BEN, "info")


def test_a_resource_is_told_to_those_who_subscribed_it_alone() -> None:
    """Nobody having subscribed it would mean everybody."""
    assert concerns(ResourceUpdated("fs", "x:1", TO_ADA), ADA, "info")
    assert not concerns(ResourceUpdated("fs", "x:1", TO_ADA), BEN, "info")
    assert not concerns(ResourceUpdated("fs", "x:1", frozenset()), ADA, "info")


@pytest.mark.parametrize(
    ("news", "method", "params"),
    [
        (ResourceUpdated("fs", "x:1", TO_ADA), "resources/updated", {"uri": "x:1"}),
        (line("error"), "message", {"level": "error", "logger": "fs/io", "data": {"n": 1}}),
        (LogLine("fs", "info", "", b'"x"'), "message", {"level": "info", "logger": "fs", "data": "x"}),
        (ServerNote("fs", "notifications/tasks/status", b'{"k":[1]}'), "tasks/status", {"k": [1]}),
        (ServerNote("fs", "notifications/x", b""), "x", {}),
    ],
)
def test_news_say_which_server_they_are_from_and_are_otherwise_its_own(
    news: News, method: str, params: dict[str, Any]
) -> None:
    """A person would not know whose log they read."""
    expected = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}
    assert json.loads(notification_of(news)) == expected
