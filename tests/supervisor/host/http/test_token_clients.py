"""Clients over HTTP by their tokens: what each is shown and may call, how often, and what ends with its token."""

import contextlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from support.clients.http_clients import ACCEPT, PING, RAW, call_raw, connected, listening, post, token_of
from support.clients.wire_http import call, wired
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet
from support.tools.tool_boxes import LiveBox, answer, hold

from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck.host.http import serve, token_clients
from quarterdeck.host.http.grants import Rate
from quarterdeck.host.http.token_clients import TokenClients
from quarterdeck.host.http.token_file import revoke
from quarterdeck.route.router import Router

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
OWNER = "t" * 40
HOUR_S = 3_600.0


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(token_clients, "LOOK_S", 0.02)
    return tmp_path / "tokens.json"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def two_servers() -> LiveBox:
    box = LiveBox()
    for name in ("fs__read", "fs__write", "web__get"):
        box.graft(name, answer({"content": []}))
    return box


async def names_of(client: Any) -> list[str]:
    listed = await client.session.send_request(types.ListToolsRequest(), RAW)
    return [tool["name"] for tool in listed["tools"]]


@ERAS
async def test_a_client_is_shown_and_may_call_what_its_token_allows(mode: str, path: Path) -> None:
    """A program that was given one tool could use every other, by its name."""
    box = two_servers()
    token = token_of(path, servers=("fs",), tools=("*__read",))
    async with listening(box, token=OWNER, tokens=path) as url:
        async with connected(url, mode, token) as client:
            assert await names_of(client) == ["fs__read"]
            for _ in range(3):  # in whatever way a call goes, after the first, too
                assert await call_raw(client, "fs__read", {}) | {"content": []} != {}
                for name in ("fs__write", "web__get", "no__such"):
                    refused = await call_raw(client, name, {})
                    assert refused["isError"]
                    assert refused["_meta"]["quarterdeck/fault"]["code"] == "not_granted"
                    assert f"the token 'ci' does not allow the tool '{name}'" in refused["content"][0]["text"]
        async with connected(url, mode, OWNER) as owner:
            assert await names_of(owner) == ["fs__read", "fs__write", "web__get"]
    assert [begun.name for begun in box.begun] == ["fs__read"] * 3
    assert {begun.client.name for begun in box.begun} == {"ci"}


@ERAS
async def test_a_token_with_search_is_shown_two_tools_and_no_other_token_knows_them(mode: str, path: Path) -> None:
    """A model would be shown two hundred tools all the same; or a way to call would be open that nobody gave."""
    box = two_servers()
    tokens = token_of(path, servers=("fs",), search=True), token_of(path, "plain", servers=("fs",))
    async with listening(box, token=OWNER, tokens=path) as url:
        async with connected(url, mode, OWNER) as owner, connected(url, mode, tokens[0]) as client:
            for _ in range(3):  # in whatever way a list or a call goes, after the first, too
                assert await names_of(client) == ["search_tools", "call_tool"]
                assert await names_of(owner) == ["fs__read", "fs__write", "web__get"]
                found = await call_raw(client, "search_tools", {"query": "read get"})
                assert [tool["name"] for tool in json.loads(found["content"][0]["text"])["tools"]] == ["fs__read"]
                assert "isError" not in await call_raw(client, "call_tool", {"name": "fs__read"})
                refused = await call_raw(client, "call_tool", {"name": "web__get"})
                assert refused["_meta"]["quarterdeck/fault"]["code"] == "not_granted"
        async with connected(url, mode, tokens[1]) as plain:
            for name in ("search_tools", "call_tool"):
                refused = await call_raw(plain, name, {"name": "fs__read", "query": "read"})
                assert refused["_meta"]["quarterdeck/fault"]["code"] == "not_granted"
        async with connected(f"{url}?search", mode, tokens[1]) as plain:
            assert await names_of(plain) == ["search_tools", "call_tool"]
            refused = await call_raw(plain, "call_tool", {"name": "web__get"})
            assert refused["_meta"]["quarterdeck/fault"]["code"] == "not_granted"
    assert {begun.name for begun in box.begun} == {"fs__read"}


async def test_a_token_is_about_tools_by_their_own_names(path: Path) -> None:
    """Behind a short name, another tool could be called, or none."""
    long, budget = "x" * 60, NameBudget(limit=40)
    router = Router(FakeFleet(FakeEndpoint("fs", long)), budget=budget)
    alias = public_names([f"fs__{long}"], budget)[f"fs__{long}"]
    tokens = token_of(path, tools=("fs__x*",)), token_of(path, "other", servers=("web",))
    async with listening(router, token=OWNER, tokens=path) as url:
        async with connected(url, "legacy", tokens[0]) as client:
            assert await names_of(client) == [alias]
            assert not (await call_raw(client, alias, {})).get("isError")
        async with connected(url, "legacy", tokens[1]) as client:
            assert await names_of(client) == []
            assert (await call_raw(client, alias, {}))["isError"]


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (lambda path: None, "needs one bearer token"),
        (lambda path: f"{token_of(path)}x", "not known"),
        (lambda path: token_of(path, expires_at=time.time() - 1), "has expired"),
        (lambda path: (token_of(path), revoke(path, "ci", time.time()))[0], "was revoked"),
    ],
    ids=["missing", "wrong", "expired", "revoked"],
)
async def test_a_token_that_opens_nothing_is_answered_with_the_reason(
    path: Path, end: Callable[[Path], str | None], says: str
) -> None:
    """Whoever set a client up could not tell a typo from a token that has ended."""
    token = end(path)
    async with listening(LiveBox(), token=OWNER, tokens=path) as url:
        reply = await post(url, bearer(token) if token else {})
    assert reply.status_code == 401
    assert says in reply.json()["error"]
    challenge = reply.headers["www-authenticate"]
    assert ('error="invalid_token"' in challenge) is bool(token)


async def test_a_rate_is_kept_and_its_client_told_when_to_come_back(path: Path) -> None:
    """A loop in a client would have the servers to itself."""
    token = token_of(path, rate=Rate(2, 3600.0))
    async with listening(LiveBox(), token=OWNER, tokens=path) as url:
        replies = [await post(url, bearer(token)) for _ in range(4)]
        assert [reply.status_code for reply in replies] == [400, 400, 429, 429]
        assert 1700 < int(replies[2].headers["retry-after"]) <= 1800
        assert "the token 'ci' may not ask so often" in replies[2].json()["error"]
        assert (await post(url, bearer(OWNER))).status_code == 400


@pytest.mark.parametrize("how", ["revoked", "expired"])
@ERAS
async def test_what_a_client_has_open_ends_with_its_token(
    mode: str, path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that got lost could be used for as long as its finder stays connected."""
    box, ends = LiveBox(), list[object]()
    box.graft("s__t", hold)
    token = token_of(path, expires_at=time.time() + HOUR_S if how == "expired" else None)
    passed_s = 0.0
    monkeypatch.setattr(serve, "TokenClients", partial(TokenClients, now=lambda: time.time() + passed_s))

    async def stay(url: str) -> None:
        # How a client learns of it is the client's affair.
        with contextlib.suppress(Exception):
            async with connected(url, mode, token) as client:
                ends.append(await call_raw(client, "s__t", {}))

    async with (
        listening(box, token=OWNER, tokens=path) as url,
        connected(url, mode, token_of(path, "other")) as other,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stay, url)
        begun = await box.next_begun()
        if how == "revoked":
            revoke(path, "ci", time.time())
        else:
            passed_s = HOUR_S
        with anyio.fail_after(10):
            await begun.cancelled
        assert (await post(url, bearer(token))).status_code == 401
        tasks.cancel_scope.cancel()
        box.graft("s__u", answer({"content": []}))
        assert not (await call_raw(other, "s__u", {})).get("isError")
    assert ends == []


async def test_half_a_request_ends_with_its_token(path: Path) -> None:
    """A client could keep what is held for it, for as long as it sends a byte now and then."""
    token = token_of(path)
    async with listening(LiveBox(), token=OWNER, tokens=path) as url, wired(url) as client:
        client.headers |= bearer(token)
        await client.greet()
        client.writer.write(client.request(call(1))[:-3])
        revoke(path, "ci", time.time())
        assert (await client.read()).status == 401


async def test_a_session_is_of_the_token_that_opened_it(path: Path) -> None:
    """Whoever has a token of any kind could listen in on another's session, or end it."""
    opening = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    mine, others = token_of(path, "mine"), token_of(path, "others")
    async with listening(LiveBox(), token=OWNER, tokens=path) as url, httpx2.AsyncClient(headers=ACCEPT) as http:
        opened = await http.post(url, json=opening, headers=bearer(mine))
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        for token in (others, OWNER):
            for method in ("POST", "GET", "DELETE"):
                reply = await http.request(method, url, json=PING, headers=bearer(token) | session)
                assert (reply.status_code, reply.json()["error"]["message"]) == (404, "Session not found")
        assert (await http.post(url, json=PING, headers=bearer(mine) | session)).status_code == 200
