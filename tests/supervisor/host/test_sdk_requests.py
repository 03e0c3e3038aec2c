"""A request that the SDK has judged, as it came: nothing of it is lost in models, and what is of the hop ends here."""

import json
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest
from support.tools.offer_fleet import OfferFleet
from support.tools.tool_boxes import LiveBox
from support.waiting import PATIENCE_S, turns

from quarterdeck.host import sdk_requests as module
from quarterdeck.host.offers.content import Content
from quarterdeck.host.raw_calls import Resumption
from quarterdeck.host.sdk_requests import caller, json_bytes, log_lines_told, teller, wire_request
from quarterdeck.route.router import Router
from quarterdeck_protocol.offers import LogLine
from quarterdeck_protocol.tools import Client, ProgressNote

pytestmark = pytest.mark.anyio

ADA = Client("ada", "door")
PREFIX = "io.modelcontextprotocol/"
OLDER, NEWER = "2025-11-25", "2026-07-28"


class Session:
    """A client's session, and what it is told."""

    client_capabilities = None

    def __init__(self) -> None:
        self._request_outbound = self
        self.told: list[Any] = []
        self.may_read = anyio.Event()
        self.may_read.set()

    async def notify(self, method: str, params: Any) -> None:
        """See `DispatchContext`."""
        await self.may_read.wait()
        self.told.append((method, params["data"]))

    async def report_progress(self, *note: Any) -> None:
        """See `ServerSession`."""
        self.told.append(note)


def context(era: str = NEWER, meta: Any = None, method: str = "prompts/get", **params: Any) -> Any:
    """A request's context."""
    given = {**params, **({"_meta": meta} if meta is not None else {})}
    return SimpleNamespace(
        protocol_version=era, params=given, method=method, request_id=7, session=Session(), request=None
    )


def content(fleet: OfferFleet | None = None) -> Content:
    """What a host shows."""
    return Content(box=LiveBox(), name="q", version="1", offers=Router(fleet) if fleet is not None else None)


def test_params_pass_as_they_came_but_for_what_is_of_the_hop() -> None:
    """A server would be sent our client's tokens, or not what only it knows."""
    meta = {"progressToken": 3, f"{PREFIX}clientCapabilities": {"roots": {}}, "own": {"k": [1.0]}}
    request = wire_request(context(meta=meta, name="plan", arguments={"n": 1.0}, own=None))
    assert json.loads(request.arguments) == {"name": "plan", "arguments": {"n": 1.0}, "own": None}
    assert b"1.0" in request.arguments
    assert (request.meta, request.capabilities) == (b'{"own":{"k":[1.0]}}', b'{"roots":{}}')
    assert (request.method, request.name, request.id_json, request.progress_token) == ("prompts/get", "", b"7", b"3")


def test_a_call_has_its_tool_and_arguments_alone() -> None:
    """A tool would be given the params of its call for arguments."""
    request = wire_request(context(method="tools/call", name="t", arguments={"a": 1}), name="t", arguments={"a": 1})
    assert (request.name, request.arguments, request.meta) == ("t", b'{"a":1}', b"")


@pytest.mark.parametrize("era", [OLDER, NEWER])
def test_what_only_the_newer_era_has_counts_there_alone(era: str) -> None:
    """A client of an older era would have calls taken up by members that mean nothing there."""
    meta = {f"{PREFIX}clientCapabilities": {"roots": {}}}
    request = wire_request(context(era, meta, requestState="s", inputResponses={"q": {"a": 1}}))
    is_newer = era == NEWER
    assert request.is_modern is is_newer
    assert request.resumption == (Resumption("s", b'{"q":{"a":1}}') if is_newer else None)
    assert request.capabilities == (b'{"roots":{}}' if is_newer else b"")
    assert request.arguments == b"{}"


@pytest.mark.parametrize(
    ("params", "resumption"),
    [
        ({"requestState": "s"}, Resumption("s")),
        ({"inputResponses": {}}, Resumption(None, b"{}")),
        ({"requestState": 7}, Resumption("")),
        ({}, None),
    ],
)
def test_a_request_is_made_again_if_it_brings_either_part(params: dict[str, Any], resumption: object) -> None:
    """A request that comes again would begin anew, and do everything twice."""
    assert wire_request(context(**params)).resumption == resumption


@pytest.mark.parametrize("meta", [None, [], "x", {}])
def test_meta_that_is_none_says_nothing(meta: Any) -> None:
    """A client's slip would end in a traceback."""
    request = wire_request(context(meta=meta))
    assert (request.meta, request.log_level) == (b"", "")
    assert request.capabilities in (b"", b"{}")


def test_numbers_of_any_size_stay_what_they_are() -> None:
    """An id of twenty digits would reach the server as another."""
    assert (
        json_bytes({"n": 12345678901234567890123, "t": "\ud800é"})
        == b'{"n":12345678901234567890123,"t":"\\ud800\\u00e9"}'
    )


def test_what_is_no_json_is_not_made_json() -> None:
    """A server would be sent a line that no parser reads."""
    with pytest.raises(ValueError, match="JSON"):
        json_bytes({"n": float("nan")})


async def test_progress_is_told_to_whoever_wants_it() -> None:
    """Progress would be sent to a client that gave no token for it, or to none."""
    assert teller(context(meta={})) is None
    wanted = context(meta={"progressToken": 0})
    tell = teller(wanted)
    assert tell is not None
    await tell(ProgressNote(1.0, 2.0, "half"))
    assert wanted.session.told == [(1.0, 2.0, "half")]


# Log lines that a request of 2026-07-28 asked for

ASKS = {f"{PREFIX}logLevel": "info"}


def line(data: bytes, level: str = "error") -> LogLine:
    """A line of what Ada's program has under way."""
    mine = msgspec.structs.replace(ADA, part=caller(context(meta=ASKS)))
    return LogLine("s", level, "", data, frozenset({mine.address}))


async def test_lines_are_told_before_the_answer_and_none_after_it() -> None:
    """A client would read what happened after it was told how it ended."""
    fleet, asked = OfferFleet(), context(meta=ASKS)
    with anyio.fail_after(PATIENCE_S):
        async with log_lines_told(content(fleet), ADA, asked):
            for data in (b"1", b"2"):
                fleet.news(line(data))
            fleet.news(line(b"3", "debug"))
        assert asked.session.told == [("notifications/message", 1), ("notifications/message", 2)]
        fleet.news(line(b"4"))
        await turns()
    assert len(asked.session.told) == 2


@pytest.mark.parametrize("asked", [context(meta={}), context(OLDER, ASKS)])
async def test_a_request_that_asked_for_none_is_told_none(asked: Any) -> None:
    """An older client would be told each line twice."""
    fleet = OfferFleet()
    async with log_lines_told(content(fleet), ADA, asked):
        fleet.news(line(b"1"))
        await turns()
    assert asked.session.told == []


async def test_a_client_that_reads_slowly_loses_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that logs without end would fill the memory."""
    monkeypatch.setattr(module, "MAX_LINES", 2)
    fleet, asked = OfferFleet(), context(meta=ASKS)
    asked.session.may_read = anyio.Event()
    with anyio.fail_after(PATIENCE_S):
        async with log_lines_told(content(fleet), ADA, asked):
            for number in range(50):
                fleet.news(line(b"%d" % number))
            asked.session.may_read.set()
    assert [data for _, data in asked.session.told] == [0, 1]


async def test_where_no_server_has_offers_nothing_is_told() -> None:
    """A request would fail where only tools are served."""
    async with log_lines_told(content(), ADA, context(meta=ASKS)):
        pass
