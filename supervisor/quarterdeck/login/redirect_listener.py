"""Wait on 127.0.0.1 for the browser of a person who logs in (RFC 8252, 7.3).

Any page and any program of this machine can ask us: only the redirect that was asked for ends the wait, and nothing of
a request is repeated in an answer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from .authorization import MAX_REDIRECT_CHARS, REDIRECT_PATH
from .http_messages import DeniedError, UnsafeError

HOST: Final = "127.0.0.1"

REQUEST_S: Final = 10.0
"""For the head of one request."""

MAX_CONNECTIONS: Final = 16

_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>Quarterdeck</title>"
    "<body style='font:1.1em sans-serif;margin:3em'><p>{}</p>"
)
_TAKEN: Final = _PAGE.format("Quarterdeck has what it needs. You can close this page.")
_DENIED: Final = _PAGE.format("There was no login: Quarterdeck says why where you began it. You can close this page.")
_NOT_OURS: Final = _PAGE.format("This is not the answer that Quarterdeck waits for.")


class RedirectListener:
    """One listening address, made by `listening`; browsers are sent to `redirect_uri`."""

    def __init__(self, port: int) -> None:
        self.redirect_uri: Final = f"http://{HOST}:{port}{REDIRECT_PATH}"
        self._port = port
        self._judge: Callable[[str], str] | None = None
        self._found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open = 0
        self._silent: set[asyncio.StreamReader] = set()

    async def wait(self, judge: Callable[[str], str]) -> str:
        """Return what `judge` makes of the first URL that it accepts, or raise its DeniedError."""
        self._judge = judge
        return await self._found

    def take(self, url: str) -> None:
        """Judge a URL that came another way; raise the judge's UnsafeError, after which the wait goes on."""
        if self._judge is None or self._found.done():
            return
        try:
            self._found.set_result(self._judge(url))
        except DeniedError as error:
            self._found.set_exception(error)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which has one request."""
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_S):
                    self._silent.add(reader)
                    head = await reader.readuntil(b"\r\n\r\n")
                    self._silent.discard(reader)
                    status, page = self._answer(head.decode("latin-1"))
                    body = page.encode()
                    writer.write(
                        f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n"
                        "Content-Type: text/html; charset=utf-8\r\n"
                        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
                        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
                        "Connection: close\r\n\r\n".encode()
                        + body
                    )
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it said nothing that a browser says
        finally:
            self._silent.discard(reader)
            self._open -= 1
            writer.close()

    def hang_up(self) -> None:
        """End the connections that have sent nothing: browsers open some ahead, and a login would wait for them."""
        for reader in self._silent:
            reader.feed_eof()

    def _answer(self, head: str) -> tuple[str, str]:
        line, *rest = head.split("\r\n")
        method, _, target = line.partition(" ")
        hosts = [value.strip() for name, _, value in (each.partition(":") for each in rest) if name.lower() == "host"]
        target = target.partition(" ")[0]
        if method != "GET" or hosts != [f"{HOST}:{self._port}"] or target.partition("?")[0] != REDIRECT_PATH:
            return "404 Not Found", _NOT_OURS
        try:
            self.take(f"http://{HOST}:{self._port}{target}")
        except UnsafeError:
            return "400 Bad Request", _NOT_OURS
        is_denied = self._found.done() and self._found.exception() is not None
        return "200 OK", _DENIED if is_denied else _TAKEN


@asynccontextmanager
async def listening(port: int | None = None) -> AsyncIterator[RedirectListener]:
    """Listen at this port, a free one for None, during the block; raise OSError if the port is taken."""
    made: list[RedirectListener] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made[0].answer(reader, writer)

    server = await asyncio.start_server(answer, HOST, port or 0, limit=MAX_REDIRECT_CHARS * 2)
    async with server:
        made.append(RedirectListener(server.sockets[0].getsockname()[1]))
        try:
            yield made[0]
        finally:
            made[0].hang_up()
