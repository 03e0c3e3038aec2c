"""The HTTP client that the SDK's transports use: what goes wrong with one request stays with that request.

The SDK ends its whole connection with the first exception of a POST, and makes one error of all bad statuses.  Here a
request that gets no MCP answer is given one of ours: an error reply whose data is a key that no server can know, by
which `StatusRecorder` has the fault.  Streams of events are `streams`' own; to the SDK, none of them ever breaks off.
"""

from dataclasses import replace
from typing import Any, Final

import anyio
import httpx2
import msgspec
from mcp.shared._httpx_utils import next_request_within_origin

from quarterdeck_protocol.backoff import Pace
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.mcp.client.asks import MAX_ASK_BYTES
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.secrets import only_origins

from .bodies import EVENT_STREAM, is_event_stream
from .lifetime import Lifetime, current
from .recorder import ENDS_SESSION, StatusRecorder, refusal_of
from .refusals import Refusal, fault_of_refusal, first_words, rate_limited
from .reopening import ANSWERING, STANDING
from .streams import EventBody, LastingBody, Timing

MAX_PAGE_BYTES: Final = 16_384
"""Of a web page, to see what it is."""

MAX_UNASKED_BYTES: Final = MAX_ASK_BYTES + 65_536
"""Of one message on the stream on which a server speaks unasked: no result comes there, and no larger question."""

NOTE_S: Final = 30.0
"""For a notification, and the end of a session, until it is taken: the SDK sends nothing else meanwhile."""


class PatientClient(httpx2.AsyncClient):
    """See the module.

    Attributes:
        has_standing_stream: whether the server may still open the stream on which it speaks unasked.
    """

    def __init__(
        self,
        origin: str,
        recorder: StatusRecorder,
        max_bytes: int,
        *,
        is_legacy: bool = False,
        timing: Timing | None = None,
        **options: Any,
    ) -> None:
        """A client of a server at `origin`, with an `AsyncClient`'s options.

        Args:
            origin: the server's.
            recorder: learns of what goes wrong.
            max_bytes: of one event of a stream.
            is_legacy: whether a GET's stream is that of the SSE transport of 2024-11-05, never opened again.
            timing: the clock and the chance of pauses.
            **options: an `AsyncClient`'s.
        """
        super().__init__(**options)
        self._at = origin
        self._recorder = recorder
        self._max_bytes = max_bytes
        self._is_legacy = is_legacy
        self._timing = timing
        self.has_standing_stream = True

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """See `AsyncClient`; raises nothing for a message to a server that was greeted."""
        if request.method == "GET" and not self._is_legacy:
            return self._standing(request)
        is_request = request.method == "POST" and _is_request(request)
        life = current() if is_request else Lifetime()
        if request.method == "GET" or not self._recorder.is_greeted:
            response = await super().send(request, **options)
            if (refusal := refusal_of(response)).is_page:
                self._recorder.refusal = await self._read_page(response, refusal)
        else:
            response = await self._answer(request, life, is_request=is_request, **options)
        if not is_event_stream(response):
            return response
        body = response.stream
        assert isinstance(body, httpx2.AsyncByteStream)
        if request.method == "GET":
            return _with_events(response, EventBody(body, self._max_bytes, life, self._timing))
        source = _CallSource(self, self._at, self._recorder, request)
        return _with_events(response, LastingBody(body, self._max_bytes, life, source, self._timing))

    def _standing(self, request: httpx2.Request) -> httpx2.Response:
        """The stream on which the server speaks unasked, opened once it is read; refused where it was found missing."""
        if not self.has_standing_stream:
            return httpx2.Response(405, request=request)
        source = _StandingSource(self, self._at, self._recorder, request)
        max_bytes = min(self._max_bytes, MAX_UNASKED_BYTES)
        body = LastingBody(None, max_bytes, Lifetime(), source, self._timing)
        return httpx2.Response(200, headers={"content-type": EVENT_STREAM}, stream=body, request=request)

    async def reopen(self, request: httpx2.Request, last_id: bytes) -> httpx2.Response:
        """Ask for a stream of events of the session of `request`; redirects within the origin are followed.

        Raises:
            httpx2.RequestError: there is no answer.
        """
        headers = [(b"Accept", EVENT_STREAM.encode()), (b"Cache-Control", b"no-store")]
        headers += [(name, value) for name, value in request.headers.raw if name.lower() in _NAMING_A_SESSION]
        headers += [(b"Last-Event-ID", last_id)] if last_id else []
        asked: httpx2.Request | None = self.build_request("GET", request.url, headers=headers)
        for _ in range(self.max_redirects):
            assert asked is not None
            response = await super().send(asked, stream=True, follow_redirects=False)
            if (asked := next_request_within_origin(response)) is None:
                break
            await response.aclose()
        return response

    async def _answer(
        self, request: httpx2.Request, life: Lifetime, *, is_request: bool, **options: Any
    ) -> httpx2.Response:
        left_s = self._recorder.pause_left_s
        if left_s and is_request:
            return self._instead(request, rate_limited(self._at, left_s))
        try:
            with anyio.fail_after(None if is_request else NOTE_S), life.bounds():
                response = await super().send(request, **options)
                return await self._checked(request, response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            return self._instead(request, _broken(self._at, error, "connect_failed", Delivery.NOT_SENT))
        except httpx2.StreamError as error:
            return self._instead(request, _unusable(self._at, error, "result_too_large"))
        except httpx2.DecodingError as error:
            return self._instead(request, _unusable(self._at, error, "bad_output"))
        except (httpx2.RequestError, TimeoutError) as error:
            return self._instead(request, _broken(self._at, error, "server_lost", Delivery.UNKNOWN))

    async def _checked(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The answer, read unless it is a stream; or one of ours in its place.

        Raises:
            httpx2.StreamError: it is too large.
            httpx2.RequestError: it broke off, or cannot be unpacked.
        """
        refusal = refusal_of(response)
        try:
            if refusal.is_page:
                refusal = await self._read_page(response, refusal)
            elif response.is_success and refusal.content_type != "application/json":
                return response
            else:
                await response.aread()
        except (httpx2.StreamError, httpx2.RequestError):
            await response.aclose()
            raise
        is_over = refusal.status == 401 or (refusal.status == 404 and self._recorder.has_session)
        is_over |= refusal.wanted_scopes is not None  # so for this request, whatever its body says
        if not refusal.is_page and not is_over and (refusal.status < 400 or _is_error_reply(response)):
            return response
        await response.aclose()
        fault = fault_of_refusal(self._at, refusal, has_session=self._recorder.has_session)
        return self._instead(request, fault)

    def _instead(self, request: httpx2.Request, fault: FaultRecord) -> httpx2.Response:
        """An error reply that brings the fault to whoever asked."""
        if fault.code in ENDS_SESSION and not _is_request(request):
            self._recorder.rejected.set()  # nobody waits for an answer that would say so
        headers = {"content-type": "application/json"}
        return httpx2.Response(500, headers=headers, content=self._recorder.reply_of(fault), request=request)

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


_NAMING_A_SESSION: Final = frozenset({b"mcp-session-id", b"mcp-protocol-version"})


class _StandingSource:
    """Of the stream on which a server speaks unasked."""

    pace: Pace = STANDING
    answers_a_call = False

    def __init__(self, client: PatientClient, origin: str, recorder: StatusRecorder, request: httpx2.Request) -> None:
        """`request` names the session."""
        self._client = client
        self._at = origin
        self._recorder = recorder
        self._request = request

    @property
    def has_session(self) -> bool:
        """See `Source`."""
        return self._recorder.has_session

    async def reopen(self, last_id: bytes) -> httpx2.Response:
        """See `Source`."""
        return await self._client.reopen(self._request, last_id)

    def pause_asked_s(self, response: httpx2.Response | None) -> float:
        """See `Source`."""
        asked_s = refusal_of(response).pause_s if response is not None else None
        return max(self._recorder.pause_left_s, asked_s or 0.0)

    def end(self, reason: httpx2.Response | httpx2.RequestError, *, is_session_over: bool) -> bytes:
        """See `Source`."""
        self._client.has_standing_stream = False
        if is_session_over and isinstance(reason, httpx2.Response):
            self._recorder.refusal = refusal_of(reason)
            self._recorder.rejected.set()
        return b""


class _CallSource(_StandingSource):
    """Of the stream of one request's answer."""

    pace = ANSWERING
    answers_a_call = True

    def end(self, reason: httpx2.Response | httpx2.RequestError, *, is_session_over: bool) -> bytes:
        """See `Source`."""
        return b"data: %s\n\n" % self._recorder.reply_of(self._fault(reason, is_session_over=is_session_over))

    def _fault(self, reason: httpx2.Response | httpx2.RequestError, *, is_session_over: bool) -> FaultRecord:
        if isinstance(reason, httpx2.SSEError):
            return _unusable(self._at, reason, "result_too_large")
        if isinstance(reason, httpx2.RequestError):
            return _broken(self._at, reason, "server_lost", Delivery.UNKNOWN)
        refusal = refusal_of(reason)
        if not is_session_over:
            message = f"{self._at} broke off before its answer, which cannot be had again: it answered {refusal.status}"
            return FaultRecord(FaultKind.TOOL_ERROR, message, "server_lost", Delivery.UNKNOWN)
        self._recorder.refusal = refusal
        fault = fault_of_refusal(self._at, refusal, has_session=True)
        return replace(fault, delivery=Delivery.UNKNOWN)


def _broken(origin: str, error: Exception, code: str, delivery: Delivery) -> FaultRecord:
    why = only_origins(plain_words(error)) or type(error).__name__
    before = "cannot be reached" if delivery is Delivery.NOT_SENT else "broke off before its answer"
    return FaultRecord(FaultKind.TOOL_ERROR, f"{origin} {before}: {why}", code, delivery)


def _unusable(origin: str, error: Exception, code: str) -> FaultRecord:
    return FaultRecord(FaultKind.TOOL_ERROR, f"{origin} sent {error}", code, Delivery.ANSWERED)


class _Head(msgspec.Struct):
    """What tells a request from a notification and an answer."""

    id: msgspec.Raw = msgspec.Raw()
    method: str = ""


_head: Final = msgspec.json.Decoder(_Head)


def _is_request(request: httpx2.Request) -> bool:
    """Whether somebody waits for an answer."""
    try:
        head = _head.decode(request.content)
    except (msgspec.DecodeError, RecursionError):
        return True  # ours, and deeper than we read: no notification is
    return bool(head.id) and bool(head.method)


def _with_events(response: httpx2.Response, body: EventBody) -> httpx2.Response:
    """The response with this body, read as what every such stream is: UTF-8."""
    response.headers["content-type"] = EVENT_STREAM
    response.stream = body
    return response


def _is_error_reply(response: httpx2.Response) -> bool:
    """Whether the body is JSON-RPC's own word: then it says more than the status."""
    try:
        value = response.json()
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and isinstance(value.get("error"), dict) and "code" in value["error"]
