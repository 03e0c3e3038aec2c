"""Raw calls: what is written byte for byte, and how every answer, true or forged, ends a call once."""

import json

import msgspec
import pytest

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import Call
from quarterdeck_protocol.mcp.jsonrpc import SplitResult, correlation_key, split_line
from quarterdeck_worker.tool_calls import (
    FIRST_RAW_ID,
    MAX_ERROR_CHARS,
    Ended,
    RawCalls,
    bad_output,
    refusal,
    refused,
)

ID = FIRST_RAW_ID + 1
"""Of the request with the number 1."""
ENVELOPE: dict[str, object] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
STAMP = b'"io.modelcontextprotocol/protocolVersion": "2026-07-28"'


class Wire:
    """A server that a test plays by hand: the lines it was sent, the ends of its calls."""

    def __init__(self, envelope: dict[str, object] | None = None, max_bytes: int = 1_000_000) -> None:
        self.lines: list[bytes] = []
        self.ended: list[tuple[int, SplitResult | FaultRecord]] = []
        self.calls = RawCalls(self.lines.append, envelope=envelope or {}, max_bytes=max_bytes)

    def begin(
        self,
        request_id: int = 1,
        tool: str = "echo",
        arguments: bytes = b"{}",
        *,
        progress: bool = False,
        meta: bytes = b"",
    ) -> None:
        """Begin a call whose end is noted in `ended`."""

        def done(ended: Ended) -> None:
            self.ended.append((request_id, ended.outcome))

        self.calls.begin(Call(request_id, 30.0, tool, progress, meta), arguments, done)

    def answer(self, line: bytes) -> None:
        """Hand a reply on as `StdioLines` does."""
        message = split_line(line)
        key = correlation_key(message.id)
        assert self.calls.is_ours(key)
        assert isinstance(key, int)
        self.calls.answered(key, message)


def _fault(wire: Wire) -> FaultRecord:
    [(_, outcome)] = wire.ended
    assert isinstance(outcome, FaultRecord)
    return outcome


@pytest.mark.parametrize(
    ("envelope", "tool", "arguments", "progress", "meta", "params"),
    [
        ({}, "echo", b'{"a": [1,\t2]}', False, b"", b'"name":"echo","arguments":{"a": [1,\t2]}'),
        ({}, "echo", b"", False, b"", b'"name":"echo","arguments":{}'),
        ({}, 'a"b', b"{}", False, b"", rb'"name":"a\"b","arguments":{}'),
        ({}, "echo", b"{}", True, b"", b'"name":"echo","arguments":{},"_meta":{"progressToken":%d}' % ID),
        ({}, "echo", b"{}", False, b'{"x":1}', b'"name":"echo","arguments":{},"_meta":{"x":1}'),
        ({}, "echo", b"{}", False, b"{}", b'"name":"echo","arguments":{}'),
        (ENVELOPE, "echo", b"{}", False, b"", b'"name":"echo","arguments":{},"_meta":{%s}' % STAMP),
        (
            ENVELOPE,
            "echo",
            b"{}",
            True,
            b'{"x":1}',
            b'"name":"echo","arguments":{},"_meta":{"x":1,%s,"progressToken":%d}' % (STAMP, ID),
        ),
    ],
)
def test_a_call_is_written_byte_for_byte(
    envelope: dict[str, object], tool: str, arguments: bytes, progress: bool, meta: bytes, params: bytes
) -> None:
    """A server would read other arguments than its caller wrote, or miss the envelope of its era."""
    wire = Wire(envelope)
    wire.begin(1, tool, arguments, progress=progress, meta=meta)
    assert wire.lines == [b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s}}\n' % (ID, params)]
    json.loads(wire.lines[0])


def test_a_callers_empty_meta_with_a_space_in_it_still_makes_json() -> None:
    """A caller that writes `{ }` would have the server drop its call as junk."""
    wire = Wire(ENVELOPE)
    wire.begin(meta=b"{ }")
    assert set(json.loads(wire.lines[0])["params"]["_meta"]) == set(ENVELOPE)


def test_each_call_has_an_id_of_its_own_from_our_range() -> None:
    """Two calls would share an answer, or take one of the SDK's."""
    wire = Wire()
    wire.begin(1)
    wire.begin(2)
    assert [json.loads(line)["id"] for line in wire.lines] == [ID, ID + 1]
    assert wire.calls.is_ours(ID)
    for foreign in (FIRST_RAW_ID - 1, 1, None, str(ID), "x"):
        assert not wire.calls.is_ours(foreign)


def test_answers_end_the_calls_they_name_in_any_order() -> None:
    """A quick answer would be held up by a slow one, or given to the wrong caller."""
    wire = Wire()
    wire.begin(1)
    wire.begin(2)
    wire.answer(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"n":2}}' % (ID + 1))
    wire.answer(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"n":1}}' % ID)
    assert wire.ended == [(2, SplitResult(b'{"content":[],"n":2}')), (1, SplitResult(b'{"content":[],"n":1}'))]


def test_an_id_echoed_as_text_ends_its_call() -> None:
    """Servers that echo ids as strings would let every call run into its deadline."""
    wire = Wire()
    wire.begin(1)
    wire.answer(b'{"jsonrpc":"2.0","id":"%d","result":{"content":[]}}' % ID)
    assert wire.ended == [(1, SplitResult(b'{"content":[]}'))]


def test_the_eras_envelope_is_taken_off_a_result() -> None:
    """A client of another era would be shown keys that belong to one hop."""
    wire = Wire()
    wire.begin(1)
    wire.answer(
        b'{"id":%d,"result":{"resultType":"complete","isError":true,"_meta":{"io.modelcontextprotocol/x":1,"k":2}}}'
        % ID
    )
    [(_, outcome)] = wire.ended
    assert isinstance(outcome, SplitResult)
    assert outcome.is_error
    assert outcome.result_type == "complete"
    assert msgspec.json.decode(outcome.body) == {"isError": True, "_meta": {"k": 2}}


def test_late_and_forged_answers_are_dropped() -> None:
    """An answer to nobody would crash the worker, or reach the next caller."""
    wire = Wire()
    wire.begin(1)
    answer = b'{"id":%d,"result":{"content":[]}}' % ID
    wire.answer(answer)
    wire.answer(answer)
    wire.answer(b'{"id":%d,"result":{"content":[]}}' % (ID + 1))
    assert len(wire.ended) == 1
    wire.begin(2)
    assert len(wire.ended) == 1, "an answer forged ahead of its call must not wait for it"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (b'"result":{"content":[]},"error":{"code":1,"message":"x"}', "both"),
        (b'"jsonrpc":"2.0"', "neither"),
        (b'"result":[]', "not one JSON object"),
        (b'"result":{"content":"text"}', "content is not a list"),
        (b'"result":{"resultType":7}', "resultType is not text"),
        (b'"result":{"content":[%s]}' % (b"[" * 300 + b"]" * 300), "nested deeper"),
        (b'"result":{"content":["%s"]}' % (b"x" * 2_000), "exceed the limit"),
        (b'"error":"no"', "not a JSON-RPC error object"),
        (b'"error":{"code":"1"}', "not a JSON-RPC error object"),
    ],
)
def test_an_answer_that_is_none_ends_the_call_as_bad_output(members: bytes, words: str) -> None:
    """A caller would wait for its deadline, or be handed bytes that break its own stream."""
    wire = Wire(max_bytes=1_500)
    wire.begin(1)
    wire.answer(b'{"id":%d,%s}' % (ID, members))
    fault = _fault(wire)
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TOOL_ERROR, "bad_output", Delivery.ANSWERED)
    assert words in fault.message


def test_an_error_reply_says_its_code_message_and_data() -> None:
    """A caller would not learn why the server refused."""
    wire = Wire()
    wire.begin(1)
    wire.answer(b'{"id":%d,"error":{"code":-32602,"message":"no such tool","data":{"tool": "x"}}}' % ID)
    fault = _fault(wire)
    assert fault == FaultRecord(
        FaultKind.TOOL_ERROR,
        'no such tool (JSON-RPC error -32602): {"tool": "x"}',
        code="reply_error",
        delivery=Delivery.ANSWERED,
    )


def test_refusals_are_said_in_a_bounded_number_of_words() -> None:
    """A server's megabyte of error text would travel to every client."""
    assert refusal(-1, "", b"null").message == "the server refused the call (JSON-RPC error -1)"
    assert refusal(1, "x", b"\xff").message == "x (JSON-RPC error 1): �"
    assert len(refusal(1, "x" * 10_000).message) == MAX_ERROR_CHARS
    assert len(bad_output("x" * 10_000).message) == MAX_ERROR_CHARS
    assert refused(b'{"message":"hm"}').message == "hm (JSON-RPC error 0)"


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % ID,
        b'{"jsonrpc":"2.0","id": "%d","result":' % ID,
        b'{"result":{"content":["' + b"x" * 5_000 + b'"},"id":%d' % ID,
        b'{"id":%d,"result":"%s"}' % (ID, b"x" * 5_000),
    ],
)
def test_a_spoiled_answer_ends_its_call_at_once(line: bytes) -> None:
    """The caller of a half-written answer would wait for the deadline."""
    wire = Wire()
    wire.begin(1)
    wire.begin(2)
    wire.calls.spoiled(line)
    assert wire.ended[0][0] == 1
    assert _fault(wire).code == "bad_output"
    wire.calls.spoiled(line)
    assert len(wire.ended) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"id":1,"result":',
        b'{"id":%d,' % (ID + 9),
        b'{"id":%d1234567890,' % ID,
        b'{"x":"' + b"x" * 300 + b'","id":%d,"y":"' % ID + b"y" * 300,
    ],
)
def test_a_spoiled_line_of_nobody_ends_no_call(line: bytes) -> None:
    """Junk on stdout would end calls that go well."""
    wire = Wire()
    wire.begin(1)
    wire.calls.spoiled(line)
    assert wire.ended == []


def test_a_cancelled_call_is_called_off_and_its_answer_is_dropped() -> None:
    """The server would go on working for nobody, and its answer would end another call."""
    wire = Wire()
    wire.begin(1)
    assert wire.calls.cancel(1, 'user said "stop"')
    params = rb'{"requestId":%d,"reason":"user said \"stop\""}' % ID
    assert wire.lines[1] == b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}\n' % params
    wire.answer(b'{"id":%d,"result":{"content":[]}}' % ID)
    assert wire.ended == []
    assert not wire.calls.cancel(1, "again")
    assert len(wire.lines) == 2


def test_cancelling_wears_the_eras_envelope_and_always_has_a_reason() -> None:
    """A modern server would refuse the notification and go on working."""
    wire = Wire(ENVELOPE)
    wire.begin(1)
    wire.calls.cancel(1, "")
    params = json.loads(wire.lines[1])["params"]
    assert params == {"requestId": ID, "reason": "the caller gave up", "_meta": ENVELOPE}


def test_an_ended_call_cannot_be_cancelled() -> None:
    """The server would be told to stop a call that it has finished."""
    wire = Wire()
    wire.begin(1)
    wire.answer(b'{"id":%d,"result":{"content":[]}}' % ID)
    assert not wire.calls.cancel(1, "late")
    assert not wire.calls.cancel(99, "never was")
    assert len(wire.lines) == 1


def test_progress_tokens_belong_to_calls_under_way() -> None:
    """Progress would be shown for another's call."""
    wire = Wire()
    wire.begin(7, progress=True)
    assert wire.calls.owner_of(FIRST_RAW_ID + 7) == 7
    for foreign in (FIRST_RAW_ID + 8, 1, "x", None):
        assert wire.calls.owner_of(foreign) is None
    wire.calls.cancel(7, "")
    assert wire.calls.owner_of(FIRST_RAW_ID + 7) is None


def test_a_call_may_be_begun_from_inside_anothers_end() -> None:
    """Callers that chain calls would find the bookkeeping half done."""
    wire = Wire()
    wire.calls.begin(Call(1, 30.0, "echo"), b"{}", lambda _: wire.begin(2))
    wire.answer(b'{"id":%d,"result":{"content":[]}}' % ID)
    wire.answer(b'{"id":%d,"result":{"content":[]}}' % (ID + 1))
    assert [request_id for request_id, _ in wire.ended] == [2]
