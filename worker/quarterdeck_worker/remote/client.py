"""The HTTP client that the SDK's transports use: what goes wrong with one request stays with that request.

The SDK ends its whole connection with the first exception of a POST, and makes one error of all bad statuses.  Here a
request that gets no MCP answer is given one of ours: an error reply whose data is a key that no server can know, by
which `Refused` has the fault.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import anyio
import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.secrets import only_origins

from .authorization import wanted_scopes
from .refusals import Refusal, fault_of_refusal, first_words, pause_asked, rate_limited

MAX_KEPT: Final = 1_000
"""Faults that wait for who asks for them: a call that was given up does not."""

MAX_PAGE_BYTES: Final = 16_384
"""Of a web page, to see what it is."""


class StatusRecorder:
    """What HTTP said that the SDK does not pass on, and the faults of requests that it refused.

    Attributes:
        refusal: the last one; None before the first.
        rejected: set when the session is over, once whoever was told so has heard it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.refusal: Refusal | None = None
        self.rejected = anyio.Event()
        self.is_greeted = False
        self.has_session = False
        self._clock = clock
        self._quiet_until = 0.0
        self._faults: dict[str, FaultRecord] = {}

    @property
    def status(self) -> int | None:
        """The last bad one."""
        return self.refusal.status if self.refusal is not None else None

    def restart(self) -> None:
        """Another transport is tried."""
        self.refusal = None

    def greeted(self, *, has_session: bool) -> None:
        """From here on, what is refused is the fault of one request; with a session, 404 says that it is over."""
        self.is_greeted = True
        self.has_session = has_session

    async def listen(self, response: httpx2.Response) -> None:
        """Remember a bad answer."""
        refusal = refusal_of(response)
        if refusal.status >= 400 or refusal.is_page:
            self.refusal = refusal
            if refusal.pause_s is not None:
                self._quiet_until = self._clock() + refusal.pause_s

    @property
    def pause_left_s(self) -> float:
        """For how long the server still wants to be left alone."""
        return max(0.0, self._quiet_until - self._clock())

    @property
    def wants_credentials(self) -> bool:
        """Whether the server refused us for want of a login."""
        return self.status == 401

    @property
    def is_another_transport(self) -> bool:
        """Whether the refusal is what a legacy SSE server says to a POST."""
        return self.status in (400, 404, 405)

    def keep(self, fault: FaultRecord) -> str:
        """A key for the fault, for the one who is to have it."""
        if len(self._faults) >= MAX_KEPT:
            del self._faults[next(iter(self._faults))]
        key = secrets.token_hex(16)
        self._faults[key] = fault
        return key

    def fault_of(self, error: MCPError) -> FaultRecord | None:
        """The fault behind an error reply of ours; None for a server's own."""
        return self._faults.pop(error.error.data, None) if isinstance(error.error.data, str) else None


ENDS_SESSION: Final = frozenset({"auth_needed", "session_gone"})
"""Faults after which no request of the session has a chance."""

BROKEN: Final = frozenset({"connect_failed", "server_lost"})
"""Faults after which it is to be seen whether the server is there at all."""

TRANSIENT: Final = BROKEN | {"rate_limited", "request_timeout", "server_error", "server_unavailable"}
"""Faults that may be over a little later."""


class PatientClient(httpx2.AsyncClient):
    """See the module."""

    def __init__(self, origin: str, recorder: StatusRecorder, **options: Any) -> None:
        """A client of a server at `origin`, with an `AsyncClient`'s options."""
        super().__init__(**options)
        self._at = origin
        self._recorder = recorder

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """See `AsyncClient`; raises nothing for a message to a server that was greeted."""
        if request.method != "POST" or not self._recorder.is_greeted:
            response = await super().send(request, **options)
            if (refusal := refusal_of(response)).is_page:
                self._recorder.refusal = await self._read_page(response, refusal)
            return response
        left_s = self._recorder.pause_left_s
        if left_s and _is_request(request):
            return self._instead(request, rate_limited(self._at, left_s))
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            return self._instead(request, _broken(self._at, error, "connect_failed", Delivery.NOT_SENT))
        except httpx2.DecodingError as error:
            fault = self._unusable(error, "bad_output")
            return self._instead(request, fault)
        except httpx2.RequestError as error:
            return self._instead(request, _broken(self._at, error, "server_lost", Delivery.UNKNOWN))
        return await self._checked(request, response)

    async def _checked(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The answer, read unless it is a stream; or one of ours in its place."""
        refusal = refusal_of(response)
        try:
            if refusal.is_page:
                refusal = await self._read_page(response, refusal)
            elif response.is_success and refusal.content_type != "application/json":
                return response
            else:
                await response.aread()
        except httpx2.StreamError as error:
            fault = self._unusable(error, "result_too_large")
            return await self._closed(request, response, fault)
        except httpx2.DecodingError as error:
            fault = self._unusable(error, "bad_output")
            return await self._closed(request, response, fault)
        except httpx2.RequestError as error:
            fault = _broken(self._at, error, "server_lost", Delivery.UNKNOWN)
            return await self._closed(request, response, fault)
        is_over = refusal.status == 401 or (refusal.status == 404 and self._recorder.has_session)
        is_over |= refusal.wanted_scopes is not None  # so for this request, whatever its body says
        if not refusal.is_page and not is_over and (not _is_bad(refusal.status) or _is_error_reply(response)):
            return response
        fault = fault_of_refusal(self._at, refusal, has_session=self._recorder.has_session)
        return await self._closed(request, response, fault)

    def _unusable(self, error: Exception, code: str) -> FaultRecord:
        return FaultRecord(FaultKind.TOOL_ERROR, f"{self._at} sent {error}", code, Delivery.ANSWERED)

    async def _closed(self, request: httpx2.Request, response: httpx2.Response, fault: FaultRecord) -> httpx2.Response:
        await response.aclose()
        return self._instead(request, fault)

    def _instead(self, request: httpx2.Request, fault: FaultRecord) -> httpx2.Response:
        """An error reply that brings the fault to whoever asked."""
        if fault.code in ENDS_SESSION and not _is_request(request):
            self._recorder.rejected.set()  # nobody waits for an answer that would say so
        key = self._recorder.keep(fault)
        error = {"code": INTERNAL_ERROR, "message": fault.message, "data": key}
        return httpx2.Response(500, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)

    async def _read_page(self, response: httpx2.Response, refusal: Refusal) -> Refusal:
        """The refusal with the page's first words; the page is not read any further."""
        start = b""
        try:
            async for piece in response.aiter_bytes():
                start += piece[:MAX_PAGE_BYTES]
                if len(start) >= MAX_PAGE_BYTES:
                    break
        except (httpx2.RequestError, httpx2.StreamError):
            pass  # what came of it will do
        await response.aclose()
        return replace(refusal, beginning=first_words(start))


def refusal_of(response: httpx2.Response) -> Refusal:
    """What the head of an answer says."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    asked = response.headers.get("retry-after") if response.status_code in (429, 503) else None
    pause_s = pause_asked(asked, time.time()) if asked is not None else None
    return Refusal(response.status_code, kind, pause_s=pause_s, wanted_scopes=wanted_scopes(response))


def _broken(origin: str, error: Exception, code: str, delivery: Delivery) -> FaultRecord:
    why = only_origins(plain_words(error)) or type(error).__name__
    before = "cannot be reached" if delivery is Delivery.NOT_SENT else "broke off before its answer"
    return FaultRecord(FaultKind.TOOL_ERROR, f"{origin} {before}: {why}", code, delivery)


def _is_bad(status: int) -> bool:
    return status >= 400


def _is_request(request: httpx2.Request) -> bool:
    """Whether somebody waits for an answer."""
    try:
        message = json.loads(request.content)
    except (ValueError, RecursionError):
        return True  # ours, and deeper than Python reads: no notification is
    return "id" in message and "method" in message


def _is_error_reply(response: httpx2.Response) -> bool:
    """Whether the body is JSON-RPC's own word: then it says more than the status."""
    try:
        value = response.json()
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and isinstance(value.get("error"), dict) and "code" in value["error"]
