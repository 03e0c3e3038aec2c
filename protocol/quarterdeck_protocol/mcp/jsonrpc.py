"""Split lines of JSON-RPC without building what is inside them.

The same code stands towards a server (in the worker) and towards a client (in the host).  It decides what a line
is, hands out the parts as raw bytes, and takes the envelope of a protocol era off a result.  It knows no method.

    BodyError              the bytes are not what they must be
      LineTooLongError     more bytes than the limit, and still no newline
      UnreadableError      no message of a client
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck_protocol.plain_words import plain_words

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""JSON-RPC 2.0, section 5.1."""

ENVELOPE_PREFIX: Final = "io.modelcontextprotocol/"
"""`_meta` keys under it belong to one hop and are never forwarded (2026-07-28, basic/index, "_meta"), but for these."""

PASSED_ON: Final = frozenset({f"{ENVELOPE_PREFIX}related-task", f"{ENVELOPE_PREFIX}model-immediate-response"})
"""Keys of tasks (2025-11-25, basic/utilities/tasks): they are for the other end, however many hops away."""

LF: Final = 10
CR: Final = 13
"""As numbers: to look for these takes a third of the time that it takes for bytes (measured)."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""One line of a client; the same as one line of a server."""

MAX_DEPTH: Final = 256
"""Nesting allowed in a server's message; client libraries refuse more, some by crashing."""

MAX_DIGITS: Final = 4_299
"""Of a number in a server's message; Python's parsers refuse more (CVE-2020-10735), and clients with them."""

MAX_OTHER_BYTES: Final = 256 * 1024
"""Of a result beside a tool's, a resource's, a prompt's and a task's content: each member there is an object of its own
for whoever looks."""

MAX_RESULT_TYPE_CHARS: Final = 128
"""A result's type is a word or an extension's tag; it travels in a frame's header."""


class BodyError(ValueError):
    """Bytes that are not the one JSON value that they must be.

    The decoder's complaint is put into plain words only when the text is read: a server's junk is counted and dropped.
    """

    def __init__(self, problem: str, complaint: Exception | None = None) -> None:
        super().__init__(problem)
        self._complaint = complaint

    def __str__(self) -> str:
        problem = super().__str__()
        return problem if self._complaint is None else f"{problem}: {plain_words(self._complaint)}"


class LineTooLongError(BodyError):
    """A line that exceeds its limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"a line is longer than {max_bytes:,} bytes")
        self.max_bytes = max_bytes


class UnreadableError(BodyError):
    """A line that is not a message; `code` is JSON-RPC's."""

    def __init__(self, code: int, reason: object) -> None:
        what = "not JSON" if code == PARSE_ERROR else "not a JSON-RPC 2.0 message"
        super().__init__(f"{what}: {reason}")
        self.code = code


Key = int | str


class Message(msgspec.Struct, gc=False):
    """One JSON-RPC message, its parts still raw.  `id` is `UNSET` in a notification."""

    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


class ClientMessage(Message, kw_only=True, gc=False):
    """One message of a client."""

    jsonrpc: Literal["2.0"]

    @property
    def is_request(self) -> bool:
        """Whether an answer is due.  A null id is nobody's, so that its message is a notification."""
        return self.method is not UNSET and isinstance(self.id, int | str)

    @property
    def id_json(self) -> bytes:
        """The id as JSON; `null` where there is none."""
        return msgspec.json.encode(self.id if isinstance(self.id, int | str) else None)


class _Result(msgspec.Struct, gc=False):
    content: Raw = Raw()
    structuredContent: Raw = Raw()  # noqa: N815 - the wire's name
    contents: Raw = Raw()
    messages: Raw = Raw()
    result: Raw = Raw()


class SplitResult(msgspec.Struct, frozen=True):
    """A result without its era's envelope.

    Attributes:
        body: the JSON object; the very bytes that came when there was nothing to take off.
        result_type: what `resultType` said, "complete" when it was absent.
        is_error: a tool result's own `isError`.
        denied: see `WireResult`.
    """

    body: bytes
    result_type: str = "complete"
    is_error: bool = False
    denied: str = ""


class _Block(msgspec.Struct):
    text: str = ""


class _Content(msgspec.Struct):
    content: list[_Block] = []


def with_notice(result: SplitResult, text: str, *, is_last: bool = False) -> SplitResult:
    """Put a text before the content of a tool's result, or behind it; return any other result unchanged."""
    try:
        body = msgspec.json.decode(result.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return result
    if not isinstance(body, dict) or not isinstance(body.get("content"), list):
        return result
    content = body["content"]
    content.insert(len(content) if is_last else 0, {"type": "text", "text": text})
    return msgspec.structs.replace(result, body=msgspec.json.encode(body))


def texts_of(result: SplitResult) -> str:
    """Return the texts of a tool's result as lines; empty for any other result."""
    try:
        blocks = _content.decode(result.body).content
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return "\n".join(block.text for block in blocks)


def split_line(line: bytes | memoryview) -> Message:
    """The parts of one line.

    Raises:
        BodyError: it is no single JSON object with JSON-RPC's members, or nested too deeply to check.
    """
    try:
        return _message.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not a JSON-RPC message", error) from None


def read_message(line: bytes) -> ClientMessage:
    """Return the parts of one line.

    Raises:
        UnreadableError: it is not a JSON-RPC message, nests too deeply, or is not UTF-8.
    """
    try:
        if not line.isascii():
            line.decode()
        if LF in line or CR in line:
            line = line.rstrip(b"\r\n")
            if LF in line or CR in line:
                # For some readers a line ends there: whoever gets a part of it would get two.
                line = msgspec.json.format(line, indent=-1)
        return _client_message.decode(line)
    except msgspec.ValidationError as error:
        raise UnreadableError(INVALID_REQUEST, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(PARSE_ERROR, error) from None


def correlation_key(message_id: int | str | UnsetType | None) -> int | str | None:
    """The id that a reply answers; a number echoed as text is that number, None for none."""
    if isinstance(message_id, int):
        return message_id
    if isinstance(message_id, str):
        return int(message_id) if message_id.isascii() and message_id.isdigit() and len(message_id) < 20 else message_id
    return None


def check_object(body: bytes, *, max_bytes: int) -> dict[str, Raw]:
    """Prove that `body` may be spliced into a stream of lines, and give its members, still raw.

    One complete JSON object, valid UTF-8, no raw newline, no lone surrogate even as an escape, at most `max_bytes`
    long; nesting is bounded by the interpreter's own guard (about 1,000 levels on CPython 3.11).  Nothing is built
    but the one dict.  Of a member that is there twice the last one counts, as in every common parser.

    Raises:
        BodyError: it is not that.
    """
    if len(body) > max_bytes:
        raise BodyError(f"{len(body):,} bytes exceed the limit of {max_bytes:,}")
    if LF in body or CR in body:
        raise BodyError("a raw line break stands inside the object")
    try:
        members = _object.decode(body)
        if not body.isascii():
            body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not one JSON object", error) from None
    return members


def check_result(body: bytes, *, max_bytes: int) -> dict[str, Raw]:
    """`check_object` of a result, whose members cannot be so many that looking at them would stop the process.

    Raises:
        BodyError: it is no such object.
    """
    if MAX_OTHER_BYTES < len(body) <= max_bytes:
        try:
            known = _result.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BodyError("not one JSON object", error) from None
        large = (known.content, known.structuredContent, known.contents, known.messages, known.result)
        if len(body) - sum(map(len, large)) > MAX_OTHER_BYTES:
            raise BodyError(f"beside its content there are more than {MAX_OTHER_BYTES:,} bytes")
    return check_object(body, max_bytes=max_bytes)


def check_numbers(body: bytes) -> None:
    """Prove that `body`, known to be JSON, has no number that its reader refuses.

    Raises:
        BodyError: one has more than `MAX_DIGITS` digits in a row.
    """
    if len(body) <= MAX_DIGITS or _TOO_LONG not in body.translate(_DIGITS):
        return
    outside = _STRING.sub(b"", body.replace(rb"\\", b"").replace(rb"\"", b""))
    if _TOO_LONG in outside.translate(_DIGITS):
        raise BodyError(f"a number has more than {MAX_DIGITS:,} digits")


def check_depth(body: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Prove that `body`, known to be JSON, nests at most `max_depth` levels.

    Costs a count where few brackets stand, else a few passes over the bytes, whatever they are: a worker can afford
    it, the supervisor leaves it at `check_object`.

    Raises:
        BodyError: it nests deeper.
    """
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return
    # Without escapes every quote bounds a string; without all else most strings are two quotes, and gone.
    sketch = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_SIGNS).replace(b'""', b"")
    steps = _STRING.sub(b"", sketch).translate(_STEPS)
    if max(accumulate(memoryview(steps).cast("b")), default=0) > max_depth:
        raise BodyError(f"nested deeper than {max_depth} levels")


def checked_value(data: bytes) -> bytes:
    """A JSON value of a server's, known to be JSON, that may be passed on in a line.

    Raises:
        BodyError: it is no UTF-8, too deep, or holds a number or a line break that its reader refuses.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise BodyError("not UTF-8", error) from None
    if CR in data:
        raise BodyError("a raw line break stands inside")
    check_depth(data)
    check_numbers(data)
    return data


def checked_object(body: bytes, *, max_bytes: int) -> bytes:
    """An object of a server's that may be passed on in a line.

    Raises:
        BodyError: it is none; see `check_result`, `check_depth`, `check_numbers`.
    """
    check_result(body, max_bytes=max_bytes)
    check_depth(body)
    check_numbers(body)
    return body


def split_result(body: bytes, *, max_bytes: int, is_call: bool = True) -> SplitResult:
    """Take the era's envelope off a result: `resultType`, and `_meta` keys under `ENVELOPE_PREFIX`.

    Raises:
        BodyError: it is no result's object: see `check_object`; or `resultType` is no short text, or, where `is_call`
            says that a tool was called, `content` is not a list.
    """
    members = check_result(body, max_bytes=max_bytes)
    check_depth(body)
    check_numbers(body)
    content = members.get("content")
    if is_call and content is not None and memoryview(content)[0] != _LIST_OPENS:
        raise BodyError("the result's content is not a list")
    is_error = members.get("isError") == _TRUE
    if "resultType" not in members and "_meta" not in members:
        return SplitResult(body, is_error=is_error)
    rest = dict(members)
    result_type = _result_type(rest.pop("resultType", _COMPLETE))
    # Servers that serialise every absent field say null.
    if members.get("_meta", _NULL) != _NULL:
        if kept := without_envelope(bytes(members["_meta"])):
            rest["_meta"] = Raw(kept)
        else:
            del rest["_meta"]
    is_untouched = rest == members
    return SplitResult(body if is_untouched else msgspec.json.encode(rest), result_type, is_error)


def without_envelope(meta: bytes) -> bytes:
    """A `_meta` object without its envelope keys: the very bytes when it has none, empty when nothing is left.

    Raises:
        BodyError: it is no JSON object.
    """
    try:
        members = _object.decode(meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("_meta is not an object", error) from None
    kept = {key: value for key, value in members.items() if not key.startswith(ENVELOPE_PREFIX) or key in PASSED_ON}
    if len(kept) == len(members):
        return meta
    return msgspec.json.encode(kept) if kept else b""


def params_without_envelope(params: bytes) -> bytes:
    """The params of a server's message without the envelope keys of their `_meta`; the very bytes when they have none.

    Raises:
        BodyError: they, or their `_meta`, are no JSON object.
    """
    # Decoded, not searched: what writes `\/` for a slash, as PHP does, has the same keys.
    members = check_object(params, max_bytes=len(params))
    meta = members.pop("_meta", _NULL)
    if meta == _NULL or (kept := without_envelope(bytes(meta))) == bytes(meta):
        return params
    return msgspec.json.encode({**members, "_meta": Raw(kept)} if kept else members)


class LineBuffer:
    """Cut a stream of bytes into lines, each byte searched once; a partial line waits for its end.

    Unlike the SDK's reader it is linear in what comes, and bounded, however small the pieces.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._partial = bytearray()
        self.ahead_bytes = 0
        """How much of what is being fed comes after the line that was fetched last."""

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished line waits."""
        return len(self._partial)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes, without their newlines; blank ones are left out.

        To be exhausted: what is not fetched is lost.

        Raises:
            LineTooLongError: a line exceeds the limit; the buffer is of no further use.
        """
        start, size, partial, most = 0, len(data), self._partial, self._max_bytes
        while start < size:
            end = data.find(b"\n", start)
            if len(partial) + (end if end >= 0 else size) - start > most:
                raise LineTooLongError(most)
            if end < 0:
                partial += data[start:]
                return
            line = data[start:end]
            if partial:
                partial += line
                line = bytes(partial)
                partial.clear()
            start = end + 1
            self.ahead_bytes = size - start
            if line and not line.isspace():
                yield line


_message: Final = msgspec.json.Decoder(Message)
_client_message: Final = msgspec.json.Decoder(ClientMessage)
_object: Final = msgspec.json.Decoder(dict[str, Raw])
_result: Final = msgspec.json.Decoder(_Result)
_content: Final = msgspec.json.Decoder(_Content)
_LIST_OPENS: Final = ord("[")
_COMPLETE: Final = Raw(b'"complete"')
_TRUE: Final = Raw(b"true")
_NULL: Final = Raw(b"null")
_NO_SIGNS: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STRING: Final = re.compile(rb'"[^"]*+"')
_DIGITS: Final = bytes(ord("0") if byte in b"0123456789" else ord("-") for byte in range(256))
_TOO_LONG: Final = b"0" * (MAX_DIGITS + 1)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _result_type(raw: Raw) -> str:
    try:
        text = msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BodyError("resultType is not text") from None
    if len(text) > MAX_RESULT_TYPE_CHARS:
        raise BodyError(f"resultType is longer than {MAX_RESULT_TYPE_CHARS} characters")
    return text
