"""Carry a connection over the SSE transport of 2024-11-05.

Answers come on one stream of events, which first names where messages are posted.
"""

from contextlib import aclosing
from urllib.parse import urljoin

import httpx2

from quarterdeck_protocol.faults import FaultKind, FaultRecord

from .bodies import HttpFault, is_event_stream
from .carrier import HttpCarrier
from .client import HTTP_ERRORS
from .faults import fault_of_refusal, lost, refusal_of
from .headers import EVENTS_ALONE


class SseCarrier(HttpCarrier):
    """A carrier over the SSE transport."""

    def start(self) -> None:
        """Open the stream; the greeting begins with its first event."""
        self._tasks.start_soon(self._run)

    async def _run(self) -> None:
        try:
            await self._take_stream()
        except HttpFault as fault:
            self._end(lost(f"the connection to the server broke: {fault}", fault.record.code or "server_lost"))
        except HTTP_ERRORS as error:
            self.error = error
        self._end(lost(f"{self._at} closed the connection"))

    async def _take_stream(self) -> None:
        """Pass on what comes until the stream ends.  Raise HttpFault or httpx2.RequestError."""
        response = await self._http.send("GET", self._url, EVENTS_ALONE)
        try:
            if not is_event_stream(response):
                await self._read(response)
                raise HttpFault(fault_of_refusal(self._at, refusal_of(response), has_session=False))
            async with aclosing(self._stream(self._max_bytes, is_answer=True).read(response)) as events:
                async for event in events:
                    if event.name != b"endpoint":
                        self._receive_event(event.name, event.data)
                    elif self._endpoint == self._url:
                        self._endpoint = _endpoint(self._url, event.data.decode(errors="replace"))
                        super().start()
        finally:
            await response.aclose()

    async def _take_answer(self, wire_id: int, response: httpx2.Response) -> None:
        """Only a refusal answers a request here; see `HttpCarrier`."""
        body = await self._read(response)
        if body is not None and not response.is_success:
            self._connection.receive(body, wire_id)

    @property
    def _has_session(self) -> bool:
        return self._is_greeted


def _endpoint(url: str, said: str) -> str:
    configured = httpx2.URL(url)
    try:
        found = httpx2.URL(urljoin(url, said))
    except (httpx2.InvalidURL, ValueError) as error:
        raise _wrong("the server names no address for messages") from error
    if (found.scheme, found.host, found.port) != (configured.scheme, configured.host, configured.port):
        raise _wrong("the server has messages posted to another origin")
    return str(found)


def _wrong(message: str) -> HttpFault:
    return HttpFault(FaultRecord(FaultKind.TRANSPORT, message, "connect_failed"))
