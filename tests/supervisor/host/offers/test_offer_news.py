"""Who is told what servers say: whom it concerns, from their level on, each once; and how."""

import json
from typing import Any

import msgspec
import pytest
from support.tools.offer_fleet import OfferFleet, OfferServer

from quarterdeck.host.http.grants import Grant
from quarterdeck.host.http.token_clients import GrantedTools
from quarterdeck.host.offers.offer_news import LogStreams, concerns, notification_of
from quarterdeck.route.router import Router
from quarterdeck_protocol.offers import LEVELS, LogLine, News, ResourceUpdated, ServerNote
from quarterdeck_protocol.tools import Client

ONE, TWO = (Client("ci", "token ci", part=part) for part in ("one", "two"))
"""Two programs that show one token."""

ME = frozenset({"me"})


class _Streams:
    """Requests that asked for log lines, and what was told with each."""

    def __init__(self) -> None:
        self.fleet = OfferFleet(OfferServer("s"))
        self.logs = LogStreams(Router(self.fleet))
        self.told: dict[str, list[object]] = {}

    def open(self, name: str, client: Client, level: str = "info"):
        said = self.told[name] = []
        return self.logs.open(client, level, lambda line: said.append(msgspec.json.decode(line)["params"]["data"]))

    def say(self, data: str, *clients: Client, level: str = "error") -> None:
        line = LogLine("s", level, "", msgspec.json.encode(data), frozenset(each.address for each in clients))
        self.fleet.news(line)


def test_programs_that_share_a_token_are_told_what_is_said_during_their_own_requests():
    """One program would read the other's log; or lose its own to the one that asked last."""
    streams = _Streams()
    streams.open("one", ONE)
    streams.open("two", TWO)
    streams.say("one's", ONE)
    streams.say("both's", ONE, TWO)
    assert streams.told == {"one": ["one's", "both's"], "two": ["both's"]}


def test_a_line_is_told_once_with_the_request_begun_last_that_wants_it():
    """A program with two requests would see each line twice."""
    streams = _Streams()
    streams.open("first", ONE)
    close = streams.open("second", ONE)
    streams.open("quiet", ONE, "emergency")
    streams.say("a", ONE)
    close()
    close()
    streams.say("b", ONE)
    streams.say("too little", ONE, level="debug")
    assert streams.told == {"first": ["b"], "second": ["a"], "quiet": []}


def test_a_line_of_nobodys_request_is_told_with_none():
    """What a server says at its start would be told as if a request had caused it."""
    streams = _Streams()
    close = streams.open("one", ONE)
    streams.say("nobody's")
    streams.say("another's", Client(key="token ci"))
    close()
    streams.say("late", ONE)
    assert streams.told == {"one": []}


def test_servers_are_listened_to_while_somebody_wants_log_lines():
    """Each session that was ever served would hear every line, for as long as its deck is there."""
    streams = _Streams()
    assert streams.fleet.hears == 0
    closes = [streams.open("one", ONE), streams.open("two", TWO)]
    assert streams.fleet.hears == 1
    for close in closes:
        close()
    assert streams.fleet.hears == 0
    streams.open("again", ONE)
    streams.say("heard", ONE)
    assert streams.told["again"] == ["heard"]


class _OnlyA:
    max_result_bytes = None

    def allows(self, tool: str, listing: str = "tools") -> bool:
        return tool.startswith("a__") and tool != "a__x:2"

    def allows_some_of(self, server: str) -> bool:
        return server == "a"


@pytest.mark.parametrize(
    ("news", "client", "is_told"),
    [
        (LogLine("s", "error", "", b"1"), Client(key="me"), True),
        (LogLine("s", "debug", "", b"1"), Client(key="me"), False),
        (LogLine("s", "error", "", b"1", frozenset({"me"})), Client(key="me"), True),
        (LogLine("s", "error", "", b"1", frozenset({"you"})), Client(key="me"), False),
        (LogLine("s", "error", "", b"1"), Client(key="me", allowance=_OnlyA()), False),
        (LogLine("a", "error", "", b"1"), Client(key="me", allowance=_OnlyA()), True),
        (ServerNote("s", "n", b"", frozenset({"you"})), Client(key="me"), False),
        (ServerNote("s", "n", b""), Client(key="me"), True),
        (ResourceUpdated("s", "x:1", frozenset({"me stream 1"})), Client(key="me"), False),
        (ResourceUpdated("s", "x:1", frozenset({"me"})), Client(key="me"), True),
        (ResourceUpdated("s", "x:1", frozenset()), Client(key="me"), False),
        (ResourceUpdated("a", "x:1", frozenset({"me"})), Client(key="me", allowance=_OnlyA()), True),
        (ResourceUpdated("a", "quarterdeck+a:x:1", frozenset({"me"})), Client(key="me", allowance=_OnlyA()), True),
        (ResourceUpdated("a", "x:2", frozenset({"me"})), Client(key="me", allowance=_OnlyA()), False),
    ],
)
def test_news_concern_whom_they_are_meant_for(news: News, client: Client, is_told: bool):
    """A client would hear of another's resources, or of a server that its token does not allow."""
    assert concerns(news, client, "info") is is_told


def _limited(*tools: str, servers: tuple[str, ...] = ()) -> Client:
    grant = Grant(name="ci", digest="d", created_at=0.0, tools=tools, servers=servers)
    return Client("ci", "me", GrantedTools(grant))


@pytest.mark.parametrize("tools", [("fs__read*",), ("fs__read",), ("*__read",), ("f*",)])
@pytest.mark.parametrize("news", [LogLine("fs", "info", "", b"1", ME), ServerNote("fs", "n/x", b"{}", ME)])
def test_a_token_for_some_tools_of_a_server_hears_its_news(tools: tuple[str, ...], news: News):
    """Who may read files would never hear that one of them has changed."""
    assert concerns(news, _limited(*tools), "info")


@pytest.mark.parametrize(
    "limited", [_limited("web__*"), _limited(servers=("web",)), _limited("web__*", "fsx__*", "fs")]
)
def test_a_token_hears_nothing_of_servers_that_it_may_not_use(limited: Client):
    """What one server logs would be read by whoever was given another."""
    assert not concerns(LogLine("fs", "error", "", b"1"), limited, "debug")
    assert concerns(LogLine("web", "error", "", b"1"), limited, "debug")


def line(level: str) -> LogLine:
    return LogLine("fs", level, "io", b'{"n":1}')


@pytest.mark.parametrize("own", LEVELS)
def test_a_line_is_told_from_its_level_on(own: str) -> None:
    """Levels would be compared as words."""
    told = [said for said in LEVELS if concerns(line(said), Client(key="me"), own)]
    assert told == [*LEVELS[LEVELS.index(own) :]]


def test_a_level_that_there_is_not_is_serious_of_a_server_and_the_default_of_a_client() -> None:
    """A server's slip would hide its line, or a client's let every line through."""
    assert concerns(line("fatal"), Client(key="me"), "emergency")
    assert [concerns(line(level), Client(key="me"), "loud") for level in ("debug", "info")] == [False, True]


@pytest.mark.parametrize(
    ("news", "method", "params"),
    [
        (ResourceUpdated("fs", "x:1", ME), "resources/updated", {"uri": "x:1"}),
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
