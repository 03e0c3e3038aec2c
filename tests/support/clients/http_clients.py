"""A host that serves HTTP, and its clients: a stock one, and one that is not ours."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import TypeAdapter

from quarterdeck.host.http.admission import PATH
from quarterdeck.host.http.grants import Grant
from quarterdeck.host.http.options import HttpOptions
from quarterdeck.host.http.serve import serve_http
from quarterdeck.host.http.token_file import add_grant
from quarterdeck.host.provider import create_provider_host

RAW = TypeAdapter(dict)
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def listening(
    box, decks=None, offers=None, results=None, drain=None, bus=None, scrape=None, **options
) -> AsyncIterator[str]:
    """The URL of a host that serves `box`; it has stopped by the end."""
    ready = anyio.Event()
    where = []

    def started(address, port):
        where.append(f"http://{address}:{port}{PATH}")
        ready.set()

    leave = results.leave if results is not None else lambda _: None
    host = create_provider_host(box, decks=decks, offers=offers, results=results, on_ended=leave, bus=bus)
    serve = partial(serve_http, host, HttpOptions(**options), started=started, drain=drain, scrape=scrape)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await ready.wait()
            yield where[0]
            tasks.cancel_scope.cancel()


def token_of(path: Path, name: str = "ci", **limits: Any) -> str:
    """A new token in the file of tokens, of a client that may do what `limits` say."""
    now = time.time()
    return add_grant(path, lambda digest: Grant(name=name, digest=digest, created_at=now, **limits), now)


@asynccontextmanager
async def connected(url, mode, token=None, **options):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None, **options) as client,
    ):
        yield client


async def call_raw(client, name, arguments, **options):
    params = types.CallToolRequestParams(name=name, arguments=arguments)
    return await client.session.send_request(types.CallToolRequest(params=params), RAW, **options)


async def post(url, headers=None, body=b""):
    """One request of a client that is not ours."""
    async with httpx2.AsyncClient() as http:
        given = {**ACCEPT, "Content-Type": "application/json", **(headers or {})}
        return await http.post(url, headers=given, content=body or json.dumps(PING).encode())
