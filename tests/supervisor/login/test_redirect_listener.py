"""A browser's answer is taken from one URL alone, and whoever else asks learns nothing."""

import asyncio

import anyio
import pytest
from support.waiting import PATIENCE_S

from quarterdeck.login import redirect_listener
from quarterdeck.login.http_messages import DeniedError, UnsafeError
from quarterdeck.login.redirect_listener import RedirectListener, listening

pytestmark = pytest.mark.process


def judge(url: str) -> str:
    if url.endswith("?error=no"):
        raise DeniedError("no")
    if not url.endswith("?state=ours&code=c-1"):
        raise UnsafeError("not ours")
    return "c-1"


async def ask(listener: RedirectListener, request: str) -> str:
    port = int(listener.redirect_uri.rpartition(":")[2].partition("/")[0])
    with anyio.fail_after(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.replace("HOST", f"127.0.0.1:{port}").encode())
        answer = (await reader.read()).decode()
        writer.close()
    return answer


GOOD = "GET /callback?state=ours&code=c-1 HTTP/1.1\r\nHost: HOST\r\n\r\n"


async def test_the_redirect_that_is_waited_for_ends_the_wait() -> None:
    """Nobody could log in."""
    async with listening() as listener:
        waiting = asyncio.create_task(listener.wait(judge))
        await asyncio.sleep(0)
        answer = await ask(listener, GOOD)
        assert answer.startswith("HTTP/1.1 200 ")
        assert "c-1" not in answer
        assert "no-referrer" in answer
        with anyio.fail_after(PATIENCE_S):
            assert await waiting == "c-1"
        assert (await ask(listener, GOOD)).startswith("HTTP/1.1 200 "), "a browser that reloads"


@pytest.mark.parametrize(
    "request_",
    [
        "GET /callback?state=theirs&code=c-2 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET /callback HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET /other?state=ours&code=c-1 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "POST /callback?state=ours&code=c-1 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET /callback?state=ours&code=c-1 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /callback?state=ours&code=c-1 HTTP/1.1\r\n\r\n",
        "GET /callback?state=ours&code=c-1 HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n",
        "\r\n\r\n",
        "nonsense\r\n\r\n",
    ],
)
async def test_whoever_else_asks_does_not_end_it(request_: str) -> None:
    """A page that is open in the same browser could log us in as somebody else, or keep us from logging in."""
    async with listening() as listener:
        waiting = asyncio.create_task(listener.wait(judge))
        await asyncio.sleep(0)
        answer = await ask(listener, request_)
        assert answer.startswith(("HTTP/1.1 404 ", "HTTP/1.1 400 "))
        assert not waiting.done()
        await ask(listener, GOOD)
        with anyio.fail_after(PATIENCE_S):
            assert await waiting == "c-1"


async def test_a_refusal_ends_the_wait_too() -> None:
    """A person who said no would wait for ten minutes."""
    async with listening() as listener:
        waiting = asyncio.create_task(listener.wait(judge))
        await asyncio.sleep(0)
        answer = await ask(listener, "GET /callback?error=no HTTP/1.1\r\nHost: HOST\r\n\r\n")
        assert "There was no login" in answer
        with anyio.fail_after(PATIENCE_S), pytest.raises(DeniedError):
            await waiting


async def test_what_is_pasted_is_judged_the_same_way() -> None:
    """A machine without a browser has no other way."""
    async with listening() as listener:
        waiting = asyncio.create_task(listener.wait(judge))
        await asyncio.sleep(0)
        with pytest.raises(UnsafeError):
            listener.take("http://127.0.0.1:1/callback?state=theirs")
        listener.take(f"{listener.redirect_uri}?state=ours&code=c-1")
        with anyio.fail_after(PATIENCE_S):
            assert await waiting == "c-1"


async def test_a_port_that_is_taken_is_an_error() -> None:
    """The browser would come back to another program."""
    async with listening() as listener:
        port = int(listener.redirect_uri.rpartition(":")[2].partition("/")[0])
        with pytest.raises(OSError):
            async with listening(port):
                pass


async def test_a_connection_that_says_nothing_does_not_hold_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers open connections ahead: whoever has logged in would wait until the last of them has timed out."""
    monkeypatch.setattr(redirect_listener, "REQUEST_S", 1e6)
    with anyio.fail_after(PATIENCE_S):
        async with listening() as listener:
            port = int(listener.redirect_uri.rpartition(":")[2].partition("/")[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await ask(listener, GOOD)  # taken in after the first
        assert await reader.read() == b""
        writer.close()
