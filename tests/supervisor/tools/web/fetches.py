"""Fetches of servers on this machine."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.servers.web_servers import Request

from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.web.fetch import Deadlines, Fetched, Fetcher, FetchError

Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]

LOOPBACK = FetchPolicy(allow=("127.0.0.1",))

MOST = 100_000

SOON = Deadlines(total_s=0.3, connect_s=0.3)


async def fetch(
    url: str,
    most: int = MOST,
    *,
    policy: FetchPolicy = LOOPBACK,
    deadlines: Deadlines | None = None,
    notes: list[tuple[float, float | None]] | None = None,
) -> Fetched:
    fetcher = Fetcher(policy, deadlines=deadlines)
    return await fetcher.fetch(url, most, 2 * most, lambda *note: (notes if notes is not None else []).append(note))


async def failure(url: str, **options: object) -> str:
    with pytest.raises(FetchError) as caught:
        await fetch(url, **options)  # type: ignore[arg-type]
    return str(caught.value)


async def trouble_of(url: str) -> str:
    try:
        return (await fetch(url)).trouble
    except FetchError as error:
        return str(error)


def endless(head: bytes, unit: bytes) -> Answer:
    """A server that sends `unit` again and again after `head`."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(unit)
            await writer.drain()

    return answer


def raw(head: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body
