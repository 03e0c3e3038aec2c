"""Spans of clients' requests."""

from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from support.waiting import until

from quarterdeck.telemetry import traces as module
from quarterdeck.telemetry.traces import MAX_AT_ONCE, MAX_CONTENT_CHARS, MAX_RATE, RequestTracer, Trace
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.trace_context import parent_of
from quarterdeck_protocol.tools import Client, WireResult

ADA = Client("ada", "door", is_local=True)
FS = StdioServerConfig(id="fs", command="fs")
DONE = WireResult(b'{"content":["hunter2"]}', "2025-11-25")
ABOVE = b'{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-%s","own":1}'


class Spans(list[ReadableSpan]):
    """Takes spans."""

    on_end = list.append

    def named(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> ReadableSpan:
        [found] = [span for span in self if span.name == name and span.kind is kind]
        return found


def tracer_of(spans: Spans, **options: Any) -> RequestTracer:
    return RequestTracer(spans, Resource({"service.name": "test"}), "0", **{"content": False, **options})


def request_of(meta: bytes = b"", **more: Any) -> Request:
    return Request(7, b"7", "tools/call", "2025-11-25", "fs__read", b'{"path":"hunter2"}', meta, **more)


def redact(text: str) -> str:
    return text.replace("hunter2", "***")


def begun(tracer: RequestTracer, meta: bytes = b"") -> Trace:
    trace = tracer.begin(request_of(meta), ADA, redact)
    assert trace is not None
    return trace


async def test_a_call_is_one_trace_from_its_client_to_its_server() -> None:
    """Nobody could see where a call's time went, or which server's span is whose."""
    spans = Spans()
    tracer = tracer_of(spans)
    trace = begun(tracer, ABOVE % b"01")
    told = parent_of(trace.sent(request_of(ABOVE % b"01").meta))
    assert told is not None
    now = trace.began
    trace.ended(DONE)
    trace.left(FS, "read", now, now + 1.0, now + 3.0, DONE)
    tracer.close()
    server = spans.named("tools/call fs__read", SpanKind.SERVER)
    sent = spans.named("tools/call read", SpanKind.CLIENT)
    queue, wake, worker = map(spans.named, ("queue", "wake", "worker"))
    assert {span.context.trace_id for span in spans} == {told.trace_id} == {0x0AF7651916CD43DD8448EB211C80319C}
    assert server.parent.span_id == 0xB7AD6B7169203331
    assert {span.parent.span_id for span in (queue, wake, worker)} == {server.context.span_id}
    assert sent.parent.span_id == worker.context.span_id
    assert sent.context.span_id == told.span_id, "what the server was told"
    assert (queue.end_time - queue.start_time, wake.end_time - wake.start_time) == pytest.approx((1e9, 2e9), abs=1e6)
    assert dict(server.attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "fs__read",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-11-25",
        "jsonrpc.request.id": "7",
        "network.transport": "pipe",
        "quarterdeck.client": "ada",
    }
    assert dict(sent.attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "read",
        "gen_ai.operation.name": "execute_tool",
        "quarterdeck.server": "fs",
        "network.transport": "pipe",
    }
    assert not [span for span in spans if span.status.status_code is StatusCode.ERROR]


async def test_a_fault_and_a_refusal_and_a_cancellation_are_errors_of_their_spans() -> None:
    """A trace of a failed call would look as one that went well."""
    reply = ReplyError(-32602, "Invalid params")
    fault = ProtocolFault(FaultKind.TOOL_ERROR, "no", code="busy", reply=reply)
    for end, error in ((fault, "busy"), (None, "cancelled"), (WireResult(b"{}", "x", is_error=True), "tool_error")):
        spans = Spans()
        tracer = tracer_of(spans)
        trace = begun(tracer)
        trace.left(FS, "read", trace.began, None, None, end)
        trace.ended(end)
        tracer.close()
        server = spans.named("tools/call fs__read", SpanKind.SERVER)
        assert (server.attributes["error.type"], server.status.status_code) == (error, StatusCode.ERROR)
        assert server.attributes.get("rpc.response.status_code") == ("-32602" if end is fault else None)
        assert server.parent is None
        assert not [span for span in spans if span.kind is SpanKind.CLIENT], "it was never sent"


async def test_arguments_and_results_are_in_spans_only_by_wish_and_without_secrets() -> None:
    """A receiver would be told what nobody wanted it to know."""
    for content in (False, True):
        spans = Spans()
        tracer = tracer_of(spans, content=content)
        trace = begun(tracer)
        trace.ended(DONE)
        tracer.close()
        told = dict(spans.named("tools/call fs__read", SpanKind.SERVER).attributes)
        assert "hunter2" not in str(told)
        assert (told.get("gen_ai.tool.call.result") == '{"content":["***"]}') is content
        assert (told.get("gen_ai.tool.call.arguments") == '{"path":"***"}') is content
    tracer = tracer_of(spans := Spans(), content=True)
    begun(tracer).ended(WireResult(b"x" * 100_000, "x"))
    tracer.close()
    [span] = spans
    assert len(span.attributes["gen_ai.tool.call.result"]) == MAX_CONTENT_CHARS


async def test_a_flood_of_calls_is_no_flood_of_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing would cost each call more than the call itself; or what is not traced be told so to no one."""
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    tracer = tracer_of(Spans())
    assert tracer.begin(request_of(ABOVE % b"00"), ADA, redact) is None, "its client does not trace it"
    followed = [tracer.begin(request_of(), ADA, redact) for _ in range(3 * MAX_AT_ONCE)]
    assert sum(each is not None for each in followed) == MAX_AT_ONCE
    now[0] += 0.25
    assert sum(tracer.begin(request_of(), ADA, redact) is not None for _ in range(MAX_RATE)) == MAX_RATE // 4


async def test_traces_are_made_into_spans_after_the_calls_and_dropped_above_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls would wait for spans; or spans that nobody takes fill the memory."""
    monkeypatch.setattr(module, "AFTER_S", 0.0)
    monkeypatch.setattr(module, "MAX_WAITING", 7)
    spans = Spans()
    tracer = tracer_of(spans)
    for _ in range(9):
        begun(tracer).ended(DONE)
    assert (spans, tracer.dropped) == ([], 2)
    await until(lambda: len(spans) >= 7)
    tracer.close()
    assert len(spans) == 7
