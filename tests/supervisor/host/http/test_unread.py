"""What is kept for clients over HTTP that do not read, or send much at a time: bounded, and they are told."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.clients.http_clients import call_raw, connected, listening, token_of
from support.clients.wire_http import ENVELOPE, WireHttp, call, wired
from support.tools.tool_boxes import LiveBox, answer, hold
from support.waiting import eventually_async

from quarterdeck.host.http import http_host, serve

pytestmark = pytest.mark.process

MIB = 1024 * 1024
ERAS = pytest.mark.parametrize("is_modern", [False, True], ids=["legacy", "modern"])
LARGE_BYTES = 24 * MIB
LARGE = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * LARGE_BYTES)


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for one large answer and a half; the other half is more than the kernel takes off us."""
    monkeypatch.setattr(serve, "MAX_HELD_EACH", LARGE_BYTES * 3 // 2)


def large_box() -> LiveBox:
    box = LiveBox()
    box.graft("s__t", answer(LARGE))
    box.graft("s__wait", hold)
    return box


@asynccontextmanager
async def ready(url: str, *, is_modern: bool) -> AsyncIterator[WireHttp]:
    async with wired(url) as client:
        await (client.introduce() if is_modern else client.greet())
        if is_modern:
            client.headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "s__t"}
        yield client


@ERAS
async def test_answers_that_a_client_does_not_read_are_bounded_and_it_is_told(is_modern: bool) -> None:
    """Forty unread answers of 8 MB took a gigabyte; or their client would not know what it lost."""
    meta = ENVELOPE if is_modern else None
    async with (
        listening(large_box()) as url,
        ready(url, is_modern=is_modern) as client,
        wired(url) as silent,
        wired(url) as other,
    ):
        silent.headers |= client.headers
        other.headers |= client.headers
        silent.writer.write(silent.request(call(1, meta=meta)))
        await eventually_async(lambda: silent.reader._buffer)  # type: ignore[attr-defined]
        refused = await other.ask(call(2, meta=meta))
        result = refused.answer["result"]
        assert result["isError"]
        assert result["_meta"]["quarterdeck/fault"] == {"kind": "tool_error", "code": "busy", "delivery": "answered"}
        assert "read the answers that are there" in result["content"][0]["text"]
        assert len((await silent.read()).body) > LARGE_BYTES
        assert len((await other.ask(call(3, meta=meta))).body) > LARGE_BYTES


async def test_the_answers_of_a_client_that_left_are_not_counted() -> None:
    """Nobody could be answered any more once many clients had crashed."""
    async with listening(large_box()) as url, ready(url, is_modern=False) as client:
        for number in range(3):
            async with wired(url) as silent:
                silent.headers |= client.headers
                silent.writer.write(silent.request(call(number)))
                await eventually_async(lambda reader=silent.reader: reader._buffer)  # type: ignore[attr-defined, misc]
        for _ in range(50):
            with contextlib.suppress(KeyError):
                if len((await client.ask(call("last"))).body) > LARGE_BYTES:
                    break
            await anyio.sleep(0.05)
        else:
            pytest.fail("still counted")


async def test_an_answer_that_nobody_reads_costs_no_other_client_its_own_when_serving_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The calls of all others would end without a word, since one client reads nothing."""
    for name in ("GRACE_S", "ANSWER_S"):
        monkeypatch.setattr(http_host, name, 0.05)
    box = large_box()
    waiting = call(2)
    waiting["params"]["name"] = "s__wait"
    async with AsyncExitStack() as clients:
        async with listening(box) as url:
            silent = await clients.enter_async_context(ready(url, is_modern=False))
            other = await clients.enter_async_context(ready(url, is_modern=False))
            silent.writer.write(silent.request(call(1)))
            await eventually_async(lambda: silent.reader._buffer)  # type: ignore[attr-defined]
            other.writer.write(other.request(waiting))
            await eventually_async(lambda: box.begun[-1].name == "s__wait")
        assert (await other.read()).answer["result"]["isError"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_result_larger_than_its_token_allows_is_a_fault(mode: str, tmp_path: Path) -> None:
    """A program with little memory, or a small model, would be given whatever a server says."""
    tokens = tmp_path / "tokens.json"
    token = token_of(tokens, max_result_bytes=1000)
    box = LiveBox()
    box.graft("s__t", answer({"content": [{"type": "text", "text": "x" * 2000}]}))
    box.graft("s__small", answer({"content": []}))
    async with listening(box, token="t" * 40, tokens=tokens) as url, connected(url, mode, token) as client:
        fault: dict[str, Any] = (await call_raw(client, "s__t", {}))["_meta"]["quarterdeck/fault"]
        assert (fault["code"], fault["delivery"]) == ("result_too_large", "answered")
        assert not (await call_raw(client, "s__small", {})).get("isError")
        async with connected(url, mode, "t" * 40) as owner:
            assert not (await call_raw(owner, "s__t", {})).get("isError")


async def test_large_requests_under_way_are_bounded_with_429(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends much, at many connections at once, would fill the memory with what waits."""
    monkeypatch.setattr(serve, "MAX_HELD_EACH", 12 * MIB)
    text = "x" * 7 * MIB
    box = large_box()
    async with listening(box) as url, ready(url, is_modern=False) as client, wired(url) as other:
        other.headers |= client.headers
        waiting = call(1, a=text)
        waiting["params"]["name"] = "s__wait"
        client.writer.write(client.request(waiting))
        await box.next_begun()
        reply = await other.ask(call(2, a=text))
        assert reply.status == 429
        assert reply.headers["retry-after"] == "1"
        assert "bytes of this client are held" in reply.body.decode()


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
async def test_bodies_of_which_half_was_sent_are_counted_until_they_come_or_never_will(
    is_chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four hundred halves of a body of 900 kB, each on a connection of its own, took 370 MB."""
    monkeypatch.setattr(serve, "MAX_HELD_EACH", MIB)
    async with listening(large_box()) as url, ready(url, is_modern=False) as client:
        request = client.request(call(1, a="x" * (MIB * 3 // 4)))
        if is_chunked:
            head, _, body = request.partition(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
            request = b"\r\n".join((*lines, b"Transfer-Encoding: chunked", b"", b"%x" % len(body), body))
            request += b"\r\n0\r\n\r\n"
        async with wired(url) as half, wired(url) as other:
            for each in (half, other):
                each.headers |= client.headers
            half.writer.write(request[:-30])
            await half.writer.drain()

            async def is_refused() -> bool:
                return (await other.ask(call(2, a="x" * (MIB // 2)))).status == 429

            for _ in range(500):
                if await is_refused():
                    break
                await anyio.sleep(0.01)
            else:
                pytest.fail("not counted")
            half.writer.write(request[-30:])
            assert (await half.read()).status == 200
            assert not await is_refused()
