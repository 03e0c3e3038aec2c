"""Remote servers: what one connection sends, takes and bounds."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from quarterdeck.check import hearing, remote_scenario
from quarterdeck.check.episode import Ending, Episode
from quarterdeck.check.remote_scenario import HttpPeer
from quarterdeck.check.requests import envelope

PATIENT_S = 60.0


@asynccontextmanager
async def connected(handler: Any, era: str = "2025-11-25") -> AsyncIterator[HttpPeer]:
    """A connection to a server that answers as `handler` does."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
        peer = HttpPeer(client, "https://far.example/mcp", Episode("legacy", era))
        yield peer
        await peer.close()


def sent(request: httpx2.Request) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.content or b"{}")
    return found


def streamed(status: int, body: bytes, **headers: str) -> httpx2.Response:
    """A response whose body is read as it comes; in the names of headers an underscore is a hyphen."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, content=pieces(), headers={"Content-Type": "application/json", **named})


def answer(request: httpx2.Request, **headers: str) -> httpx2.Response:
    message = {"jsonrpc": "2.0", "id": sent(request).get("id"), "result": {}}
    return streamed(200, json.dumps(message).encode(), **headers)


def events(*messages: dict[str, Any]) -> httpx2.Response:
    text = "".join(f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', **each})}\n\n" for each in messages)
    return streamed(200, text.encode(), Content_Type="text/event-stream; charset=utf-8")


async def test_a_session_is_kept_with_its_revision_until_it_is_ended() -> None:
    """Every request after the first would be refused."""
    seen: list[httpx2.Request] = []

    def server(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return answer(request, Mcp_Session_Id="abc")

    async with connected(server, era="") as peer:
        greeted = await peer.request("initialize", "initialize", wait_s=PATIENT_S)
        peer.episode.era = "2025-11-25"
        await peer.request("ping", "ping", wait_s=PATIENT_S)
    assert (greeted.ending, greeted.status, greeted.result) == (Ending.ANSWERED, 200, {})
    told = [
        (each.method, each.headers.get("mcp-session-id"), each.headers.get("mcp-protocol-version")) for each in seen
    ]
    assert told == [("POST", None, None), ("POST", "abc", "2025-11-25"), ("DELETE", "abc", "2025-11-25")]
    assert peer.episode.content_types == ["application/json"]


async def test_a_session_id_that_cannot_be_sent_is_noted_and_not_sent() -> None:
    """A server could write headers of ours."""
    seen: list[str | None] = []

    def server(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("mcp-session-id"))
        return answer(request, Mcp_Session_Id="a session")

    async with connected(server) as peer:
        for _ in range(2):
            await peer.request("ping", "ping", wait_s=PATIENT_S)
    assert (peer.episode.session_id, seen) == ("a session", [None, None])


async def test_events_before_an_answer_are_heard_and_its_own_requests_answered() -> None:
    """Progress would be lost, and a server wait for its client for ever."""
    answered = asyncio.Event()

    def server(request: httpx2.Request) -> httpx2.Response:
        message = sent(request)
        if "error" in message or "result" in message:
            assert message["id"] == "its-own"
            answered.set()
            return httpx2.Response(202)
        progress = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}
        return events(
            {"method": "notifications/progress", "params": progress},
            {"id": "its-own", "method": "ping"},
            {"id": message["id"], "result": {"content": []}},
        )

    async with connected(server) as peer:
        called = await peer.request("call", "tools/call", {"name": "t"}, wait_s=PATIENT_S, progress=True)
        async with asyncio.timeout(PATIENT_S):
            await answered.wait()
    assert (called.ending, [each["progress"] for each in called.progress]) == (Ending.ANSWERED, [1])


async def test_a_status_without_the_answer_is_a_refusal_and_an_error_with_one_an_answer() -> None:
    """A server that wants a token would count as one that is dead."""

    def server(request: httpx2.Request) -> httpx2.Response:
        message = sent(request)
        if message["method"] == "ping":
            return streamed(401, b'{"error": "invalid_token"}')
        error = {"code": -32601, "message": "unknown"}
        return streamed(404, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())

    async with connected(server) as peer:
        refused = await peer.request("ping", "ping", wait_s=PATIENT_S)
        unknown = await peer.request("unknown-method", "x", wait_s=PATIENT_S)
    assert (refused.ending, refused.status) == (Ending.REFUSED, 401)
    assert (unknown.ending, unknown.status, unknown.error_code) == (Ending.ANSWERED, 404, -32601)
    assert peer.episode.strays == []


async def test_a_connection_that_fails_is_told_from_a_server_that_is_not_there() -> None:
    """Each request to a host that is not there would be waited for."""

    def breaks(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("it broke off")

    async with connected(breaks) as peer:
        assert (await peer.request("ping", "ping", wait_s=PATIENT_S)).ending is Ending.LOST
        assert not peer.gone.is_set()

    def is_absent(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async with connected(is_absent) as peer:
        assert (await peer.request("ping", "ping", wait_s=PATIENT_S)).ending is Ending.LOST
        assert peer.gone.is_set()


async def test_what_is_too_long_or_compressed_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer could fill the memory of whoever checks a stranger's server."""
    monkeypatch.setattr(remote_scenario, "MAX_BODY_BYTES", 1000)

    def server(request: httpx2.Request) -> httpx2.Response:
        if sent(request)["method"] == "long":
            return streamed(200, b'{"a": "' + b"x" * 2000)
        if sent(request)["method"] == "long-event":
            return events({"id": sent(request)["id"], "result": {"a": "x" * 2000}})
        return answer(request, Content_Encoding="gzip")

    async with connected(server) as peer:
        found = [await peer.request("call", method, wait_s=PATIENT_S) for method in ("long", "long-event", "packed")]
    assert [each.reply for each in found] == [None, None, None]
    assert {"an answer is longer than 8 MiB", "an answer is compressed, which was not asked for"} == {
        *peer.episode.misshapen
    }


@pytest.mark.parametrize(("era", "notified", "is_late"), [("2025-11-25", 1, True), ("2026-07-28", 0, False)])
async def test_a_silent_request_is_cancelled_as_its_revision_has_it(
    monkeypatch: pytest.MonkeyPatch, era: str, notified: int, is_late: bool
) -> None:
    """A server would be told nothing, or an answer that comes all the same be overheard."""
    monkeypatch.setattr(hearing, "LATE_S", -1.0)  # what comes sooner may have crossed the cancellation
    notices: list[str] = []
    proceed = asyncio.Event()

    async def server(request: httpx2.Request) -> httpx2.Response:
        message = sent(request)
        if "id" not in message:
            notices.append(message["method"])
            return httpx2.Response(202)
        await proceed.wait()
        return answer(request)

    async with connected(server, era) as peer:
        asked = await peer.request("call", "tools/call", envelope() if not notified else {}, wait_s=0.01)
        assert (asked.ending, notices) == (Ending.SILENT, ["notifications/cancelled"] * notified)
        proceed.set()
        await asyncio.wait(tuple(peer._posts), timeout=PATIENT_S)
    assert peer.hearing.late == ({1} if is_late else set())


async def test_requests_of_2026_have_the_headers_that_say_what_they_are() -> None:
    """A server of that revision refuses what its headers do not name."""
    seen: list[httpx2.Headers] = []

    def server(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers)
        return answer(request)

    async with connected(server, "2026-07-28") as peer:
        await peer.request("call", "tools/call", {**envelope(), "name": "größe"}, wait_s=PATIENT_S)
    [headers] = seen
    assert (headers["mcp-protocol-version"], headers["mcp-method"]) == ("2026-07-28", "tools/call")
    assert headers["mcp-name"].startswith("=?base64?")
