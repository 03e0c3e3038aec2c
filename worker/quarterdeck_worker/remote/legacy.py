"""The SSE transport of 2024-11-05, of which the SDK's own ends all with one failed POST, and results at 1 MiB.

Answers come on one stream of events, which first names where messages are posted.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
import anyio.abc
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from .event_filter import ENVELOPE_BYTES

Incoming = MemoryObjectSendStream[SessionMessage | Exception]


@asynccontextmanager
async def sse_streams(
    url: str, http: httpx2.AsyncClient, max_bytes: int
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """The stream pair of a connection, whose first event has come.

    Args:
        url: of the stream of events.
        http: an open client; one that answers a failed POST with an error reply, and bounds events.
        max_bytes: of one event.

    Raises:
        httpx2.HTTPError: there is no such stream.
        httpx2.SSEError: an event is larger than it may be.
        ValueError: messages are to be posted to another origin.
    """
    async with sse_within_origin(http, url, max_event_size=max_bytes + ENVELOPE_BYTES) as events:
        events.response.raise_for_status()
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with incoming, read, write, outgoing, anyio.create_task_group() as tasks:
            endpoint = await tasks.start(_receive, events, url, incoming)
            tasks.start_soon(_post_all, http, endpoint, outgoing, incoming)
            yield read, write
            tasks.cancel_scope.cancel()


async def _receive(
    events: httpx2.EventSource,
    url: str,
    incoming: Incoming,
    *,
    task_status: anyio.abc.TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Pass on what the server says; `incoming` ends with a stream that ends well."""
    is_begun = False
    try:
        async for event in events:
            if event.event == "endpoint" and not is_begun:
                is_begun = True
                task_status.started(_endpoint(url, event.data))
            elif event.event == "message" and event.data:
                try:
                    message = jsonrpc_message_adapter.validate_json(event.data, by_name=False)
                except ValidationError as error:
                    await incoming.send(error)
                else:
                    await incoming.send(SessionMessage(message))
    except httpx2.SSEError:
        raise  # of our bound: it is told as such
    except httpx2.RequestError:
        if not is_begun:
            raise
    if not is_begun:
        raise httpx2.RemoteProtocolError("the stream of events ended before it said where messages go")
    incoming.close()


def _endpoint(url: str, said: str) -> str:
    """Where messages go.

    Raises:
        ValueError: to another origin than the configured one, or to no address.
    """
    configured = httpx2.URL(url)
    try:
        found = httpx2.URL(urljoin(url, said))
    except httpx2.InvalidURL as error:
        raise ValueError("the server names no address for messages") from error
    if (found.scheme, found.host, found.port) != (configured.scheme, configured.host, configured.port):
        raise ValueError("the server has messages posted to another origin")
    return str(found)


async def _post_all(
    http: httpx2.AsyncClient, endpoint: str, outgoing: MemoryObjectReceiveStream[SessionMessage], incoming: Incoming
) -> None:
    """Post what the session says: requests side by side, all else in its order."""
    async with anyio.create_task_group() as tasks:
        async for item in outgoing:
            if isinstance(item.message, JSONRPCRequest):
                tasks.start_soon(_post, http, endpoint, item, incoming)
            else:
                await _post(http, endpoint, item, incoming)


async def _post(http: httpx2.AsyncClient, endpoint: str, item: SessionMessage, incoming: Incoming) -> None:
    """Post one message; a request that is refused has its error as the answer."""
    body = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
    response = await request_within_origin(http, "POST", endpoint, json=body)
    if response.is_success or not isinstance(item.message, JSONRPCRequest):
        return
    try:
        reply = jsonrpc_message_adapter.validate_json(response.content, by_name=False)
    except ValidationError:
        reply = None
    if not isinstance(reply, JSONRPCError):
        response.raise_for_status()
        raise httpx2.RemoteProtocolError("a redirect that is not followed")
    try:
        await incoming.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=reply.error)))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session ended meanwhile
