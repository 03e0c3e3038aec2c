"""Follow clients' requests as traces: what is noted while a request is under way is little, and made into spans later.

Names and attributes are those of OpenTelemetry's conventions for MCP, see `tally`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from random import getrandbits
from time import monotonic, time_ns
from typing import Final, Protocol

from msgspec import Struct
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.trace_context import Parent, parent_of, with_parent
from quarterdeck_protocol.tools import CallEnd, Client, WireResult

from .tally import CONVENTIONS, clean

MAX_RATE: Final = 50
"""Traces a second: each costs as much as a call, so a flood of calls must not be one of traces."""

MAX_AT_ONCE: Final = 20
"""Of those, at once."""

MAX_WAITING: Final = 500
"""Traces that wait to be made into spans; above that the oldest is dropped."""

AFTER_S: Final = 0.2
"""Seconds until then: the calls that wait are carried out first."""

A_TURN: Final = 5
"""Traces that are made into spans at a turn of the loop."""

MAX_CONTENT_BYTES: Final = 64 * 1024
"""Of arguments or a result that secrets are taken out of."""

MAX_CONTENT_CHARS: Final = 4096
"""Of that in a span."""

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NO_STATE: Final = TraceState()
_FINE, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class TakesSpans(Protocol):
    """Sends spans on, as the SDK's batch processor does."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that has ended; never blocks."""


class _Part(Struct):
    """What happened at one server; `span_id` is what it was told, 0 if it never was."""

    span_id: int = 0
    server: str = ""
    tool: str = ""
    transport: str = ""
    asked_at: float = 0.0
    turn_at: float | None = None
    began: float | None = None
    ended_at: float = 0.0
    verdict: dict[str, str] = {}


class Trace:
    """See `CallTrace`; `ended_at` is monotonic."""

    __slots__ = ("began", "client", "ended_at", "parent", "parts", "redact", "request", "result", "tracer", "verdict")

    def __init__(
        self, tracer: "RequestTracer", request: Request, client: Client, parent: Parent, redact: Callable[[str], str]
    ) -> None:
        self.tracer = tracer
        self.request = request
        self.client = client
        self.parent = parent
        self.redact = redact
        self.began = self.ended_at = monotonic()
        self.verdict, self.result = dict[str, str](), b""
        self.parts: list[_Part] = []

    def sent(self, meta: bytes) -> bytes:
        """See `CallTrace`."""
        self.parts.append(_Part(_new_id()))
        return with_parent(meta, self.parent.trace_id, self.parts[-1].span_id)

    def left(
        self,
        config: ServerConfig,
        tool: str | None,
        asked_at: float,
        turn_at: float | None,
        began: float | None,
        end: CallEnd | None,
    ) -> None:
        """See `CallTrace`."""
        if began is None or not self.parts:
            self.parts.append(_Part())
        part = self.parts[-1]
        part.server, part.tool = config.id, tool or ""
        part.transport = "pipe" if isinstance(config, StdioServerConfig) else "tcp"
        part.asked_at, part.turn_at, part.began = asked_at, turn_at, began
        part.ended_at, part.verdict = monotonic(), _verdict_of(end)

    def ended(self, end: CallEnd | None) -> None:
        """See `CallTrace`."""
        self.verdict, self.ended_at = _verdict_of(end), monotonic()
        if self.tracer.shows_content and isinstance(end, WireResult):
            self.result = end.body[:MAX_CONTENT_BYTES]
        self.tracer.put(self)


class RequestTracer:
    """See `Tracer`; `content` is whether spans hold arguments and results."""

    def __init__(self, spans: TakesSpans, resource: Resource, version: str, *, content: bool) -> None:
        self.dropped = 0
        self._spans = spans
        self._resource = resource
        self._scope = InstrumentationScope("quarterdeck", version, CONVENTIONS)
        self.shows_content: Final = content
        self._left = float(MAX_AT_ONCE)
        self._filled_at = monotonic()
        self._ended: deque[Trace] = deque()
        self._handle: asyncio.Handle | None = None
        self._epoch_ns = time_ns() - int(monotonic() * 1e9)

    def begin(self, request: Request, client: Client, redact: Callable[[str], str]) -> Trace | None:
        """See `Tracer`."""
        now = monotonic()
        self._left = min(MAX_AT_ONCE, self._left + (now - self._filled_at) * MAX_RATE)
        self._filled_at = now
        if self._left < 1:
            return None
        above = parent_of(request.meta)
        if above is not None and not above.is_sampled:
            return None
        self._left -= 1
        # Its own span is its parent's part, and the parent of all that follows.
        trace_id = above.trace_id if above is not None else getrandbits(128) or 1
        return Trace(self, request, client, Parent(trace_id, _new_id(), is_sampled=True), redact)

    def put(self, trace: Trace) -> None:
        """Make a trace that has ended into spans, soon."""
        if len(self._ended) >= MAX_WAITING:
            self._ended.popleft()
            self.dropped += 1
        self._ended.append(trace)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(AFTER_S, self._flush)

    def close(self) -> None:
        """Make what waits into spans, and stop."""
        if self._handle is not None:
            self._handle.cancel()
        while self._ended:
            self._flush()
            if self._handle is not None:
                self._handle.cancel()

    def _flush(self) -> None:
        self._handle = None
        for _ in range(min(A_TURN, len(self._ended))):
            for span in self._spans_of(self._ended.popleft()):
                self._spans.on_end(span)
        if self._ended:
            self._handle = asyncio.get_running_loop().call_soon(self._flush)

    def _spans_of(self, trace: Trace) -> Iterable[ReadableSpan]:
        request, client = trace.request, trace.client
        method, name, above = request.method, clean(request.name), parent_of(request.meta)
        title = f"{method} {name}" if name else method
        call: dict[str, str] = {"mcp.method.name": method}
        if name:
            call |= {"gen_ai.tool.name": name, "gen_ai.operation.name": "execute_tool"}
        own = trace.parent.span_id
        said = call | {
            "mcp.protocol.version": request.version,
            "jsonrpc.request.id": clean(str(request.key)),
            "network.transport": "pipe" if client.is_local else "tcp",
        }
        if client.name:
            said["quarterdeck.client"] = client.name
        if self.shows_content and name:
            said["gen_ai.tool.call.arguments"] = _shown(trace, request.arguments[:MAX_CONTENT_BYTES])
            said["gen_ai.tool.call.result"] = _shown(trace, trace.result)
        said |= trace.verdict
        above_id = above.span_id if above is not None else None
        yield self._span(trace, title, own, above_id, SpanKind.SERVER, (trace.began, trace.ended_at), said)
        for part in trace.parts:
            sent_at = part.began if part.began is not None else part.ended_at
            turn_at = part.turn_at if part.turn_at is not None else sent_at
            of, inner = {"quarterdeck.server": part.server}, SpanKind.INTERNAL
            yield self._span(trace, "queue", _new_id(), own, inner, (part.asked_at, turn_at), of)
            if part.turn_at is not None:
                yield self._span(trace, "wake", _new_id(), own, inner, (turn_at, sent_at), of)
            if part.began is not None:
                worker, times = _new_id(), (sent_at, part.ended_at)
                yield self._span(trace, "worker", worker, own, inner, times, of)
                sent = call | of | part.verdict | {"network.transport": part.transport}
                if part.tool:
                    sent["gen_ai.tool.name"] = clean(part.tool)
                name = f"{method} {clean(part.tool)}" if part.tool else method
                yield self._span(trace, name, part.span_id, worker, SpanKind.CLIENT, times, sent)

    def _span(
        self,
        trace: Trace,
        name: str,
        span_id: int,
        parent: int | None,
        kind: SpanKind,
        times: tuple[float, float],
        attributes: dict[str, str],
    ) -> ReadableSpan:
        def context(of: int) -> SpanContext:
            return SpanContext(trace.parent.trace_id, of, False, _SAMPLED, _NO_STATE)  # noqa: FBT003 - positional

        began, ended = sorted(times)
        return ReadableSpan(
            name,
            context(span_id),
            context(parent) if parent is not None else None,
            self._resource,
            attributes,
            kind=kind,
            status=_FAILED if "error.type" in attributes else _FINE,
            start_time=self._epoch_ns + int(began * 1e9),
            end_time=self._epoch_ns + int(ended * 1e9),
            instrumentation_scope=self._scope,
        )


def _shown(trace: Trace, body: bytes) -> str:
    return trace.redact(body.decode("utf-8", "replace"))[:MAX_CONTENT_CHARS]


def _new_id() -> int:
    return getrandbits(64) or 1


def _verdict_of(end: CallEnd | None) -> dict[str, str]:
    """What a span says of how it ended; nothing if all went well."""
    if end is None:
        return {"error.type": "cancelled"}
    if isinstance(end, ProtocolFault):
        reply = {"rpc.response.status_code": str(end.reply.code)} if end.reply is not None else {}
        return {"error.type": end.code or str(end.kind), **reply}
    return {"error.type": "tool_error"} if end.is_error else {}
