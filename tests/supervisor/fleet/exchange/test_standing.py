"""What clients want of a server beyond a request, over its restarts: subscriptions, and the level of its log."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from support.fleet.answers import ME, OTHER, Waiter
from support.fleet.endpoints import IDLE, READY, Stage, stage
from support.waiting import turns, until

from quarterdeck.fleet.exchange import standing
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.frames import Forward, Listen, ServerCard, Updated
from quarterdeck_protocol.offers import News, RawRequest, ResourceUpdated
from quarterdeck_protocol.tools import CallEnd, Client, WireResult

CAN = b'{"tools":{},"resources":{"subscribe":true},"logging":{}}'
REFUSED = FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", Delivery.ANSWERED)
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


def heard(played: Stage) -> list[News]:
    """What is told of it from now on."""
    news: list[News] = []
    played.endpoint.tell_news = news.append
    return news


async def test_an_older_server_is_asked_for_what_clients_want_until_the_last_has_left() -> None:
    """It would tell nobody, tell others, or go on for ever."""
    async with ready() as played:
        news = heard(played)
        for client in (ME, OTHER):
            ends = subscribe(played, "x:1", client)
            frame, params = await asked(played, "resources/subscribe")
            assert params == {"uri": "x:1"}
            played.worker.answer(frame, b"{}", era=OLDER.era)
            await turns()
            assert isinstance(ends[0], WireResult)
        for uri in ("x:1", "x:2"):
            played.worker.says(Updated(uri))
        await turns()
        assert news == [ResourceUpdated("fs", "x:1", frozenset({ME.key, OTHER.key}))]
        played.endpoint.unsubscribe(ME, "x:1")
        played.endpoint.unsubscribe(ME, "x:1")
        await turns()
        assert played.worker.asked.empty()
        played.endpoint.leave(OTHER)
        frame, params = await asked(played, "resources/unsubscribe")
        assert params == {"uri": "x:1"}
        played.worker.answer(frame, b"{}")
        played.worker.says(Updated("x:1"))
        await turns()
        assert (len(news), played.endpoint.wishes.uris) == (1, ())


async def test_a_subscription_that_the_server_refuses_is_none() -> None:
    """Its client would be said to hear of what nobody tells, and the bound be used up."""
    async with ready() as played:
        news, ends = heard(played), subscribe(played, "x:1")
        frame, _ = await asked(played, "resources/subscribe")
        played.worker.fail(frame, REFUSED)
        await until(lambda: ends)
        assert isinstance(ends[0], ProtocolFault)
        played.worker.says(Updated("x:1"))
        await turns()
        assert (news, played.endpoint.wishes.uris) == ([], ())


@pytest.mark.parametrize(
    "params",
    [b"{}", b"[]", b'{"uri":7}', b'{"uri":null}', b'{"uri":""}', b'{"uri":"no scheme"}', b'{"uri":"x:\\n1"}'],
)
async def test_what_is_no_uri_is_refused_without_the_server(params: bytes) -> None:
    """A client's mistake would be asked for in our name, and again at each restart."""
    async with ready() as played:
        request = RawRequest("resources/subscribe", params, client=ME)
        fault = await Waiter(partial(played.endpoint.forward, request)).ended
        assert (fault.code, fault.server) == ("bad_arguments", "fs")
        assert played.worker.asked.empty()


async def test_a_newer_server_listens_once_for_all_that_is_wanted() -> None:
    """Each subscription would end the one before."""
    async with ready(NEWER) as played:
        news, first, second = heard(played), subscribe(played, "x:1"), subscribe(played, "x:2", OTHER)
        assert await listened(played) == ["x:1", "x:2"]
        await turns()
        assert (first, second) == ([], []), "it has not said yet that it listens"
        played.endpoint._standing.listening(1)
        assert first == [], "that was another question"
        played.endpoint._standing.listening(2)
        assert [*first, *second] == [WireResult(b"{}", NEWER.era)] * 2
        played.endpoint.leave(ME)
        assert await listened(played) == ["x:2"]
        played.worker.says(Updated("x:2/below"))
        await turns()
        assert news == [ResourceUpdated("fs", "x:2/below", frozenset({OTHER.key}))]


async def test_a_newer_server_that_says_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's stream would never be acknowledged."""
    monkeypatch.setattr(standing, "LISTENING_S", 0.01)
    async with ready(NEWER) as played:
        ends = subscribe(played, "x:1")
        await listened(played)
        await until(lambda: ends)
        assert isinstance(ends[0], WireResult)


async def test_a_worker_that_takes_no_more_is_told_again_what_to_listen_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would wait for news that never come, because of another's flood."""
    monkeypatch.setattr(standing, "LISTEN_AGAIN_S", 0.0)
    async with ready(NEWER) as played:
        taken = [False, False]
        post = played.worker.handle.post
        monkeypatch.setattr(played.worker.handle, "post", lambda *told: taken.pop() if taken else post(*told))
        subscribe(played, "x:1")
        assert (await listened(played), taken) == (["x:1"], [])


async def test_a_newer_server_that_cannot_is_not_asked() -> None:
    """A client would wait for news that never come."""
    async with ready(ServerCard("2026-07-28", capabilities=b'{"resources":{}}')) as played:
        ends = subscribe(played, "x:1")
        await until(lambda: ends)
        assert ends[0].reply.code == -32601
        assert played.worker.told.empty()


async def test_whoever_waits_when_the_server_ends_is_told() -> None:
    """A client would wait for ever; what it wants stands for the server's next start."""
    async with ready(NEWER) as played:
        ends = subscribe(played, "x:1")
        await listened(played)
        played.endpoint.stop()
        assert isinstance(ends[0], WireResult)
        assert played.endpoint.wishes.uris == ("x:1",)


@pytest.mark.parametrize("end", ["answered", "refused"])
async def test_the_lowest_level_that_anybody_wants_is_told_and_no_more_often_than_it_is_answered(end: str) -> None:
    """A client that changes its mind for ever would take the places of everybody's calls, or silence another's log."""
    async with ready() as played:
        played.endpoint.set_level(ME, "error")
        frame, params = await asked(played, "logging/setLevel")
        assert params == {"level": "error"}
        for level in ("warning", "info", "debug"):
            played.endpoint.set_level(OTHER, level)
        await turns()
        assert played.worker.asked.empty()
        if end == "answered":
            played.worker.answer(frame, b"{}", era=OLDER.era)
        else:
            played.worker.fail(frame, REFUSED)
        frame, params = await asked(played, "logging/setLevel")
        assert params == {"level": "debug"}, "what was said between counts no more"
        played.worker.answer(frame, b"{}", era=OLDER.era)
        played.endpoint.set_level(ME, "critical")
        await turns()
        assert played.worker.asked.empty()


@pytest.mark.parametrize("card", [NEWER, ServerCard("2025-11-25", capabilities=b'{"tools":{}}')])
async def test_a_server_that_takes_no_level_is_told_none(card: ServerCard) -> None:
    """It would answer with errors that nobody reads."""
    async with ready(card) as played:
        played.endpoint.set_level(ME, "debug")
        await turns()
        played.endpoint.leave(ME)
        await turns()
        assert played.worker.asked.empty()


@pytest.mark.parametrize("card", [OLDER, NEWER])
async def test_the_next_generation_is_asked_for_what_is_wanted_still(card: ServerCard) -> None:
    """After a crash a client would never hear of its resources again."""
    async with ready(card) as played:
        subscribe(played, "x:1")
        if card is OLDER:
            frame, _ = await asked(played, "resources/subscribe")
            played.worker.answer(frame, b"{}")
        else:
            await listened(played)
        played.endpoint.set_level(ME, "error")
        async with stage(IDLE, card=card) as second:
            news = heard(second)
            second.endpoint.follow(played.endpoint)
            await second.endpoint.open()
            if card is OLDER:
                await asked(second, "logging/setLevel")
                frame, params = await asked(second, "resources/subscribe")
                assert params == {"uri": "x:1"}
                second.worker.answer(frame, b"{}")
            else:
                assert await listened(second) == ["x:1"]
            await until(lambda: news)
            assert news == [ResourceUpdated("fs", "x:1", frozenset({ME.key}))]
