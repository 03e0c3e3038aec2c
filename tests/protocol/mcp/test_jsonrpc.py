"""Lines of JSON-RPC and the stream they come in, from ordinary servers and from ones that write junk."""

import itertools
import tracemalloc
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from quarterdeck_protocol.mcp.jsonrpc import (
    BodyError,
    LineBuffer,
    LineTooLongError,
    check_object,
    correlation_key,
    split_line,
    split_result,
    without_envelope,
)

from .json_text import OBJECTS, dumped

MIB = 1 << 20


# Lines


def test_a_request_is_split_into_its_parts() -> None:
    """The parts are the client's own bytes."""
    message = split_line(b'{"jsonrpc":"2.0", "id":7,"method":"tools/call","params": {"name" : "x"} }')
    assert (message.id, message.method) == (7, "tools/call")
    assert bytes(message.params) == b'{"name" : "x"}'
    assert bytes(message.result) == bytes(message.error) == b""


def test_a_reply_is_split_into_its_parts() -> None:
    """A result of null is there; an absent one is empty."""
    assert bytes(split_line(b'{"id":1,"result":null}').result) == b"null"
    assert bytes(split_line(b'{"id":1,"error":{"code":1}}').error) == b'{"code":1}'


def test_a_notification_has_no_id_and_a_reply_no_method() -> None:
    """That is how the two ways tell lines apart; null is an id that is there."""
    assert split_line(b'{"method":"n"}').id is UNSET
    assert split_line(b'{"id":null,"error":{}}').id is None
    assert split_line(b'{"id":1,"result":{}}').method is UNSET


def test_a_line_may_end_like_on_windows_and_escape_its_keys() -> None:
    """White space and escapes are JSON; what they mean is not changed by them."""
    message = split_line(b' {"\\u0069d":"a","\\u006dethod":"m"}\r')
    assert (message.id, message.method) == ("a", "m")


def test_of_a_member_that_is_there_twice_the_last_counts() -> None:
    """Every common parser reads it so; two answers to one id are not two messages."""
    message = split_line(b'{"id":1,"id":2,"result":{},"result":[]}')
    assert (message.id, bytes(message.result)) == (2, b"[]")


def test_a_view_of_a_buffer_is_split_like_bytes() -> None:
    """A caller need not copy a line to have it looked at."""
    assert split_line(memoryview(b'{"id":1}')).id == 1


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b" ", b"hello", b"[]", b'[{"id":1}]', b"null", b'"x"', b'{"id":1}{"id":2}', b'{"id":1} x', b'{"id":1'),
        *(b'{"id":1.0}', b'{"id":1.5}', b'{"id":true}', b'{"id":{}}', b'{"id":"\\ud800"}'),
        *(b'{"id":' + b"9" * 5000 + b"}", b'{"method":1}', b'{"method":null}', b'{"id":1,"result":{"a":"\n"}}'),
        *(b'{"id":1,"result":NaN}', b'{"id":1,"result":tru}', b'{"id":1,"result":[1,]}', b"\xff", b"\xef\xbb\xbf{}"),
        *(b'{"method":"\xff"}', b'{"x":' + b"[" * 100_000),
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"result":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
    ids=lambda line: repr(line[:30]),
)
def test_what_is_no_message_is_said_to_be_none(line: bytes) -> None:
    """Junk on stdout is counted, never obeyed, and never an exception of another kind."""
    with pytest.raises(BodyError):
        split_line(line)


@given(line=st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_body_error(line: bytes) -> None:
    """A server's bytes must not find an exception that nobody expects."""
    takers = (split_line, without_envelope, partial(check_object, max_bytes=50), partial(split_result, max_bytes=50))
    for take in takers:
        try:
            take(line)
        except BodyError:
            continue


@pytest.mark.parametrize(
    ("message_id", "key"),
    [
        (7, 7),
        ("7", 7),
        ("0", 0),
        (str(1 << 40), 1 << 40),
        *(("abc", "abc"), ("", ""), ("-7", "-7"), ("7.0", "7.0"), ("٣", "٣"), ("²", "²"), ("9" * 30, "9" * 30)),
        *((None, None), (UNSET, None)),
    ],
)
def test_a_reply_is_matched_by_its_id_even_when_that_came_back_as_text(message_id: Any, key: object) -> None:
    """Some servers echo numbers as strings; nothing else is guessed."""
    assert correlation_key(message_id) == key


# Streams


def _lines(chunks: Sequence[bytes], max_bytes: int = MIB) -> list[bytes]:
    buffer = LineBuffer(max_bytes)
    return [line for chunk in chunks for line in buffer.feed(chunk)]


@given(stream=st.lists(st.binary(max_size=8) | st.just(b"\n"), max_size=20), cuts=st.lists(st.integers(0, 60)))
def test_lines_do_not_depend_on_how_they_arrive(stream: list[bytes], cuts: list[int]) -> None:
    """A pipe cuts where it likes."""
    data = b"".join(stream)
    *whole, rest = data.split(b"\n")
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    buffer = LineBuffer(MIB)
    lines = [line for start, end in itertools.pairwise(bounds) for line in buffer.feed(data[start:end])]
    assert lines == [line for line in whole if line.strip()]
    assert buffer.pending_bytes == len(rest)


def test_a_half_line_waits_for_its_end() -> None:
    """A server that writes half a line and stops gets no answer, and costs only that half."""
    buffer = LineBuffer(100)
    assert list(buffer.feed(b'{"id"')) == []
    assert buffer.pending_bytes == 5
    assert list(buffer.feed(b':1}\n{"id":2}\nx')) == [b'{"id":1}', b'{"id":2}']
    assert buffer.pending_bytes == 1


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"\n \n\t\r\n"], []),
        ([b"a\r\n"], [b"a\r"]),
        ([b"a", b"", b"\n"], [b"a"]),
        ([b"a\x0bb\x85c\xe2\x80\xa8\n"], [b"a\x0bb\x85c\xe2\x80\xa8"]),
        ([b" ", b" \n", b"a\n"], [b"a"]),
    ],
)
def test_only_a_newline_ends_a_line_and_blank_ones_are_left_out(chunks: list[bytes], lines: list[bytes]) -> None:
    """Other line breaks of other languages are content."""
    assert _lines(chunks) == lines


@pytest.mark.parametrize(
    "chunks", [[b"12345\n"], [b"12345"], [b"1234", b"5\n"], [b"1234", b"5"], [b"ok\n", b"12345\n"]]
)
def test_a_line_over_the_limit_ends_the_stream(chunks: list[bytes]) -> None:
    """The limit is noticed when it is passed, not when the line ends."""
    with pytest.raises(LineTooLongError, match="longer than 4 bytes") as caught:
        _lines(chunks, max_bytes=4)
    assert caught.value.max_bytes == 4


def test_a_line_as_long_as_the_limit_passes() -> None:
    """Limits name the largest thing that is allowed."""
    assert _lines([b"1234\n", b"12", b"34\n"], max_bytes=4) == [b"1234", b"1234"]


def test_lines_before_one_that_is_too_long_are_not_lost() -> None:
    """Answers that arrived still reach their callers."""
    lines: list[bytes] = []
    with pytest.raises(LineTooLongError):
        lines.extend(LineBuffer(4).feed(b"a\nb\n12345\n"))
    assert lines == [b"a", b"b"]


class _Watched(bytes):
    """Bytes that count how many of them are searched."""

    searched = 0

    def find(self, sub: Any, start: Any = 0, end: Any = None) -> int:
        found = super().find(sub, start)
        type(self).searched += (len(self) if found < 0 else found + 1) - start
        return found


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_each_byte_is_searched_once_however_long_the_line(size: int) -> None:
    """The SDK's reader searches its whole buffer again with each piece: twelve seconds for 40 MB."""
    _Watched.searched = 0
    data = b"x" * 20_000 + b"\n" + b"y" * 20_000 + b"\n"
    lines = _lines([_Watched(data[at : at + size]) for at in range(0, len(data), size)])
    assert [len(line) for line in lines] == [20_000, 20_000]
    assert _Watched.searched == len(data)


def test_a_line_in_tiny_pieces_costs_no_more_memory_than_its_bytes() -> None:
    """A server that writes two bytes at a time must not fill memory with small objects."""
    buffer = LineBuffer(MIB)
    tracemalloc.start()
    try:
        for _ in range(10_000):
            assert list(buffer.feed(b"xy")) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert buffer.pending_bytes == 20_000
    assert held < 2 * buffer.pending_bytes


@given(written=dumped(OBJECTS), data=st.data())
def test_a_message_survives_its_way_through_pipe_and_splitter(written: tuple[Any, bytes], data: st.DataObject) -> None:
    """What a server put into `result` is what its caller gets, byte for byte."""
    _, body = written
    assume(b"\n" not in body)
    message_id = data.draw(st.integers(0, 1 << 62))
    line = msgspec.json.encode({"jsonrpc": "2.0", "id": message_id, "result": Raw(body)})
    cut = data.draw(st.integers(0, len(line)))
    (received,) = _lines([line[:cut], line[cut:] + b"\n"])
    message = split_line(received)
    assert (correlation_key(message.id), bytes(message.result)) == (message_id, body)


def test_junk_is_put_into_words_only_for_who_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that floods its stdout with junk would cost nine times the processor time."""
    worded: list[object] = []
    monkeypatch.setattr("quarterdeck_protocol.mcp.jsonrpc.plain_words", lambda error: worded.append(error) or "wrong")
    with pytest.raises(BodyError) as caught:
        split_line(b"junk")
    assert worded == []
    assert str(caught.value) == "not a JSON-RPC message: wrong"
