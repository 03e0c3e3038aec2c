"""Which news of servers concern which client, and how they are told."""

import json
from typing import Any

import pytest

from quarterdeck.host.offers.offer_news import concerns, notification_of
from quarterdeck_protocol.offers import LEVELS, LogLine, News, ResourceUpdated, ServerNote
from quarterdeck_protocol.tools import Client

ADA, BEN = Client("ada", "ada"), Client("ben", "ben")
TO_ADA = frozenset({"ada"})


def line(level: str = "info", clients: frozenset[str] = frozenset(), server: str = "fs") -> LogLine:
    return LogLine(server, level, "io", b'{"n":1}', clients)


@pytest.mark.parametrize("own", LEVELS)
@pytest.mark.parametrize("said", LEVELS)
def test_a_line_is_told_from_its_level_on(own: str, said: str) -> None:
    assert concerns(line(said), ADA, own) == (LEVELS.index(said) >= LEVELS.index(own))


def test_a_level_that_there_is_not_is_serious_of_a_server_and_the_default_of_a_client() -> None:
    assert concerns(line("fatal"), ADA, "emergency")
    assert [concerns(line(level), ADA, "loud") for level in ("debug", "info")] == [False, True]


@pytest.mark.parametrize("news", [line(clients=TO_ADA), ServerNote("fs", "x", b"", TO_ADA)])
def test_news_for_somebody_are_for_nobody_else(news: News) -> None:
    assert concerns(news, ADA, "info")
    assert not concerns(news, BEN, "info")


@pytest.mark.parametrize("news", [line(), ServerNote("fs", "x", b"")])
def test_news_for_nobody_in_particular_are_for_everybody(news: News) -> None:
    assert concerns(news, BEN, "info")


def test_a_resource_is_told_to_those_who_subscribed_it_alone() -> None:
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
    expected = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}
    assert json.loads(notification_of(news)) == expected
