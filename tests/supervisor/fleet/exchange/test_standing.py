"""What clients want of a server beyond a request, over its restarts: subscriptions, and the level of its log."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.fleet.answers import ME, OTHER
from support.fleet.endpoints import READY, Stage, stage
from support.waiting import turns, until

from quarterdeck.fleet.exchange import standing
from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.frames import Forward, Listen, ServerCard
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CallEnd, Client, WireResult

CAN = b'{"tools":{},"resources":{"subscribe":true},"logging":{}}'
OLDER, NEWER = ServerCard("2025-11-25", capabilities=CAN), ServerCard("2026-07-28", capabilities=CAN)


@asynccontextmanager
async def ready(card: ServerCard = OLDER) -> AsyncIterator[Stage]:
    async with stage(READY, card=card) as played:
        yield played


def subscribe(played: Stage, uri: object, client: Client = ME) -> list[CallEnd]:
    ends: list[CallEnd] = []
    params = json.dumps({"uri": uri}).encode()
    played.endpoint.forward(RawRequest("resources/subscribe", params, client=client), ends.append)
    return ends


async def asked(played: Stage, method: str) -> tuple[Any, Any]:
    frame, body = await played.worker.next(Forward)
    assert frame.method == method
    return frame, json.loads(body)


async def listened(played: Stage) -> Any:
    frame, body = await played.worker.next_told()
    assert isinstance(frame, Listen)
    return json.loads(body)


async def test_an_older_server_is_asked_for_what_a_client_wants_and_told_when_nobody_does() -> None:
    """It would tell nobody, or for ever."""
    async with ready() as played:
        ends = subscribe(played, "x:1")
        frame, params = await asked(played, "resources/subscribe")
        assert params == {"uri": "x:1"}
        played.worker.answer(frame, b"{}", era=OLDER.era)
        await until(lambda: ends)
        assert isinstance(ends[0], WireResult)
        second = subscribe(played, "x:1", OTHER)
        frame, _ = await asked(played, "resources/subscribe")
        played.worker.answer(frame, b"{}", era=OLDER.era)
        await until(lambda: second)
        played.endpoint.unsubscribe(ME, "x:1")
        played.endpoint.unsubscribe(ME, "x:1")
        played.endpoint.leave(OTHER)
        _, params = await asked(played, "resources/unsubscribe")
        assert params == {"uri": "x:1"}
        assert played.endpoint.wishes.uris == ()


async def test_a_subscription_that_the_server_refuses_is_none() -> None:
    """Its client would be said to hear of what nobody tells, and the bound be used up."""
    async with ready() as played:
        ends = subscribe(played, "x:1")
        frame, _ = await asked(played, "resources/subscribe")
        played.worker.fail(frame, FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error"))
        await until(lambda: ends)
        assert isinstance(ends[0], ProtocolFault)
        assert played.endpoint.wishes.uris == ()


@pytest.mark.parametrize("uri", [7, None, "", "no scheme", "x:\n1"])
async def test_what_is_no_uri_is_refused_without_the_server(uri: object) -> None:
    """A client's mistake would be asked for again at each restart."""
    async with ready() as played:
        ends = subscribe(played, uri)
        await until(lambda: ends)
        assert (ends[0].code, ends[0].server) == ("bad_arguments", "fs")


async def test_a_newer_server_listens_once_for_all_that_is_wanted() -> None:
    """Each subscription would end the one before."""
    async with ready(NEWER) as played:
        first, second = subscribe(played, "x:1"), subscribe(played, "x:2", OTHER)
        assert await listened(played) == ["x:1", "x:2"]
        await turns()
        assert (first, second) == ([], []), "it has not said yet that it listens"
        played.endpoint._standing.listening(1)
        assert first == [], "that was another question"
        played.endpoint._standing.listening(2)
        assert all(isinstance(each[0], WireResult) for each in (first, second))
        played.endpoint.leave(ME)
        assert await listened(played) == ["x:2"]


async def test_a_newer_server_that_says_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's stream would never be acknowledged."""
    monkeypatch.setattr(standing, "LISTENING_S", 0.01)
    async with ready(NEWER) as played:
        ends = subscribe(played, "x:1")
        await listened(played)
        await until(lambda: ends)
        assert isinstance(ends[0], WireResult)


async def test_a_newer_server_that_cannot_is_not_asked() -> None:
    """A client would wait for news that never come."""
    async with ready(ServerCard("2026-07-28", capabilities=b'{"resources":{}}')) as played:
        ends = subscribe(played, "x:1")
        await until(lambda: ends)
        assert ends[0].reply.code == -32601


async def test_whoever_waits_when_the_server_ends_is_told() -> None:
    """A client would wait for ever; what it wants stands for the server's next start."""
    async with ready(NEWER) as played:
        ends = subscribe(played, "x:1")
        await listened(played)
        played.endpoint.stop()
        assert isinstance(ends[0], WireResult)
        assert played.endpoint.wishes.uris == ("x:1",)


async def test_the_lowest_level_that_anybody_wants_is_told_and_no_more_often_than_it_is_answered() -> None:
    """A client that changes its mind for ever would flood the server, or another's lines be lost."""
    async with ready() as played:
        played.endpoint.set_level(ME, "error")
        frame, params = await asked(played, "logging/setLevel")
        assert params == {"level": "error"}
        for level in ("warning", "info", "debug"):
            played.endpoint.set_level(OTHER, level)
        played.worker.answer(frame, b"{}", era=OLDER.era)
        frame, params = await asked(played, "logging/setLevel")
        assert params == {"level": "debug"}, "what was said between counts no more"
        played.worker.answer(frame, b"{}", era=OLDER.era)
        played.endpoint.set_level(ME, "debug")
        await turns()
        assert played.worker.asked.empty()


@pytest.mark.parametrize("card", [NEWER, ServerCard("2025-11-25", capabilities=b'{"tools":{}}')])
async def test_a_server_that_takes_no_level_is_told_none(card: ServerCard) -> None:
    """It would answer with errors that nobody reads."""
    async with ready(card) as played:
        played.endpoint.set_level(ME, "debug")
        played.endpoint.leave(ME)
        ends = subscribe(played, "")
        await until(lambda: ends)
        await turns()
        assert played.worker.asked.empty()
