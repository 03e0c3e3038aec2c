"""What one of many HTTP clients may have open: which session makes room, and who is refused what."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import httpx2
import pytest
from support.clients.http_clients import ACCEPT, PING, listening, token_of
from support.tools.tool_boxes import LiveBox, hold
from support.waiting import POLL_S

from quarterdeck.host.http import serve as limit_module
from quarterdeck.host.http import sessions as module

pytestmark = pytest.mark.process

HEADERS = {**ACCEPT, "Content-Type": "application/json"}
GREETING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}

OWNER = "t" * 40
CALL = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "s__t", "arguments": {}}}


async def say(http, url, message, session=None, token=""):
    given = {**HEADERS, **bearer(token), **({"Mcp-Session-Id": session} if session else {})}
    answer = await http.post(url, headers=given, content=json.dumps(message).encode())
    return answer.status_code, answer.headers.get("mcp-session-id")


def bearer(token):
    return {"Authorization": f"Bearer {token}"} if token else {}


async def opened(http, url, token=""):
    status, session = await say(http, url, GREETING, token=token)
    assert status == 200
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await say(http, url, initialized, session, token))[0] == 202
    return session


@asynccontextmanager
async def streaming(http, url, session, token):
    given = {**ACCEPT, **bearer(token), "Mcp-Session-Id": session}
    async with http.stream("GET", url, headers=given) as answer:
        assert answer.status_code == 200
        yield


async def is_open(http, url, session, token=""):
    status, _ = await say(http, url, PING, session, token)
    assert status in {200, 404}
    return status == 200


async def test_a_session_that_nobody_ended_makes_room_for_a_new_one(monkeypatch):
    """Clients that never end theirs would lock every new one out for half an hour."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    async with listening(LiveBox()) as url, httpx2.AsyncClient() as http:
        first, second, third = [await opened(http, url) for _ in range(3)]
        assert [await is_open(http, url, one) for one in (first, second, third)] == [False, True, True]


async def test_a_flood_of_sessions_costs_nobody_a_session_that_was_used(monkeypatch):
    """One client that opens a thousand would end the conversations of all others."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    async with listening(LiveBox()) as url, httpx2.AsyncClient() as http:
        calm = await opened(http, url)
        assert await is_open(http, url, calm)
        for _ in range(8):
            await opened(http, url)
        assert await is_open(http, url, calm)


async def test_of_used_sessions_the_one_idle_longest_makes_room(monkeypatch):
    """Whoever came back a moment ago would have to start again."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    async with listening(LiveBox()) as url, httpx2.AsyncClient() as http:
        first, second = [await opened(http, url) for _ in range(2)]
        assert [await is_open(http, url, one) for one in (first, second, first)] == [True] * 3
        await opened(http, url)
        assert [await is_open(http, url, one) for one in (first, second)] == [True, False]


async def test_a_session_with_a_call_under_way_is_not_ended_and_a_new_one_is_refused(monkeypatch):
    """An answer would be lost because somebody else came."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 1)
    box = LiveBox()
    box.graft("s__t", hold)
    async with listening(box) as url, httpx2.AsyncClient() as http:
        given = {**HEADERS, "Mcp-Session-Id": await opened(http, url)}
        calling = asyncio.ensure_future(http.post(url, headers=given, content=json.dumps(CALL).encode()))
        begun = await box.next_begun()
        refused = await http.post(url, headers=HEADERS, content=json.dumps(GREETING).encode())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert refused.json()["error"]["message"] == (
            "too many sessions: 1 of all clients are open, 1 of them with this token, each with a request or a "
            "stream open: close those, or end a session (DELETE)"
        )
        begun.settle({"content": []})
        assert (await calling).json()["id"] == 5


async def test_a_token_whose_streams_fill_all_places_shuts_nobody_else_out(monkeypatch, tmp_path):
    """One token with 256 sessions would answer every other client's first request with 503."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 4)
    tokens = tmp_path / "tokens.json"
    greedy = token_of(tokens)
    async with (
        listening(LiveBox(), token=OWNER, tokens=tokens) as url,
        httpx2.AsyncClient() as http,
        AsyncExitStack() as streams,
    ):
        for _ in range(4):
            await streams.enter_async_context(streaming(http, url, await opened(http, url, greedy), greedy))
        first, second = [await opened(http, url, OWNER) for _ in range(2)]
        assert (await say(http, url, GREETING, token=greedy))[0] == 429
        await opened(http, url, OWNER)  # in the place of its own that was never used
        assert [await is_open(http, url, one, OWNER) for one in (first, second)] == [False, True]


async def test_room_for_another_token_is_made_by_the_one_that_has_most(monkeypatch, tmp_path):
    """A new client would cost a calm one its session, because a third has left many behind."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 4)
    tokens = tmp_path / "tokens.json"
    greedy, calm = (token_of(tokens, name) for name in ("greedy", "calm"))
    async with listening(LiveBox(), token=OWNER, tokens=tokens) as url, httpx2.AsyncClient() as http:
        kept = await opened(http, url, calm)
        left = [await opened(http, url, greedy) for _ in range(3)]
        for session in left:
            assert await is_open(http, url, session, greedy)
        await opened(http, url, OWNER)
        assert await is_open(http, url, kept, calm)
        assert [await is_open(http, url, one, greedy) for one in left] == [False, True, True]


async def test_requests_beyond_a_client_s_own_are_refused_with_429_and_no_other_client_s(monkeypatch):
    """One client's open requests would take every connection; or it would not know that it is to wait."""
    monkeypatch.setattr(limit_module, "MAX_REQUESTS_EACH", 1)
    box = LiveBox()
    box.graft("s__t", hold)
    async with listening(box) as url, httpx2.AsyncClient() as http:
        busy, calm = [await opened(http, url) for _ in range(2)]
        given = {**HEADERS, "Mcp-Session-Id": busy}
        calling = asyncio.ensure_future(http.post(url, headers=given, content=json.dumps(CALL).encode()))
        begun = await box.next_begun()
        refused = await http.post(url, headers=given, content=json.dumps(PING).encode())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "1 of this client are under way" in refused.json()["error"]
        assert await is_open(http, url, calm)
        begun.settle({"content": []})
        assert (await calling).json()["id"] == 5
        while (await say(http, url, PING, busy))[0] == 429:  # noqa: ASYNC110 - the server has no event for us
            await anyio.sleep(POLL_S)


async def test_a_second_initialize_in_a_session_is_refused_and_the_session_goes_on():
    """Its client would be asked what only the one that greeted can answer, or have two sessions and know of one."""
    async with listening(LiveBox()) as url, httpx2.AsyncClient() as http:
        session = await opened(http, url)
        given = {**HEADERS, "Mcp-Session-Id": session}
        again = await http.post(url, headers=given, content=json.dumps(GREETING).encode())
        assert '"code":-32600' in again.text.replace(" ", "")
        assert "initialized already" in again.text
        assert await is_open(http, url, session)
        assert await opened(http, url) != session
