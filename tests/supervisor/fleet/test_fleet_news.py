"""What servers say unasked and what they ask, through fleets of every kind."""

import pytest
from support.fleet.answers import ME, OTHER, Answering
from support.fleet.workers import PlayedSession, lists_of, opens_as
from support.waiting import turns

from quarterdeck_protocol.link.frames import Asked, List, ListChanged, Log, Open, ServerCard
from quarterdeck_protocol.offers import Listing, LogLine, News
from quarterdeck_protocol.tools import RawCall

from .played_fleets import READY, PlayedFleet, config

LINE = LogLine("a", "info", "", b'"hm"')
CARD = ServerCard("2025-11-25", capabilities=b'{"tools":{},"prompts":{},"resources":{"subscribe":true}}')


def with_prompts(session: PlayedSession) -> None:
    session.worker.rules[Open] = opens_as(CARD)
    session.worker.rules[List] = lists_of(prompts=[{"name": "p"}])


async def test_news_are_told_until_nobody_watches_and_by_the_next_generation_too(made: PlayedFleet) -> None:
    """After a restart a server's log would end with us."""
    heard: list[News] = []
    unwatch = made.fleet.watch_news(heard.append)
    await made.fleet.start(config("a"))
    made.sessions["a"][0].worker.says(Log("info", ""), b'"hm"')
    await turns()
    assert heard == [LINE]
    made.sessions["a"][0].worker.dies()
    await made.until(lambda: len(made.sessions["a"]) == 2 and made.phases()["a"] is READY)
    made.sessions["a"][1].worker.says(Log("info", ""), b'"hm"')
    await turns()
    unwatch()
    unwatch()
    made.sessions["a"][1].worker.says(Log("info", ""), b'"hm"')
    await turns()
    assert heard == [LINE, LINE]


async def test_a_change_of_any_list_is_told(monkeypatch: pytest.MonkeyPatch, made: PlayedFleet) -> None:
    """Clients would not be told of new prompts."""
    monkeypatch.setattr("quarterdeck.fleet.exchange.lists.REFRESH_S", 0.0)
    told: list[str] = []
    made.prepare["a"] = with_prompts
    await made.fleet.start(config("a"))
    endpoint = made.fleet.endpoint("a")
    assert [each.key for each in endpoint.offers(Listing.PROMPTS)] == ["p"]
    made.fleet.watch_each(told.append)
    worker = made.sessions["a"][0].worker
    worker.rules[List] = lists_of(prompts=[{"name": "q"}])
    worker.says(ListChanged("prompts"))
    await made.until(lambda: bool(told))
    assert [each.key for each in endpoint.offers(Listing.PROMPTS)] == ["q"]


async def test_whom_a_server_asked_first_is_known_over_its_restarts(made: PlayedFleet) -> None:
    """Sessions would share it again after each crash, and its first question of several be refused each time."""
    await made.fleet.start(config("a"))
    endpoint, worker = made.fleet.endpoint("a"), made.sessions["a"][0].worker
    assert made.fleet.queue("a").asked is None
    worker.says(Asked(1, "roots/list"), b"{}")
    await worker.next_told()
    assert made.fleet.queue("a").asked is None, "what it asks while nobody calls is no question of a call"
    for client in (ME, OTHER):
        endpoint.begin(RawCall("t", b"{}", client=client, answerer=Answering()), lambda _: None)
    worker.says(Asked(2, "roots/list"), b"{}")
    await worker.next_told()
    assert made.fleet.queue("a").asked == ME
    await made.fleet.restart("a")
    assert made.fleet.queue("a").asked == ME
