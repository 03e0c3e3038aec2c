"""Read what a client sends: one JSON-RPC message a line.  Nothing inside of it is built."""

from typing import Final, Literal

import msgspec
from msgspec import UNSET

from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST, PARSE_ERROR, BodyError, Message, correlation_key

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""One line of a client; the same as one line of a server."""

Key = int | str


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


class UnreadableError(BodyError):
    """A line that is not a message; `code` is JSON-RPC's."""

    def __init__(self, code: int, reason: object) -> None:
        what = "not JSON" if code == PARSE_ERROR else "not a JSON-RPC 2.0 message"
        super().__init__(f"{what}: {reason}")
        self.code = code


class Cancellation(msgspec.Struct, frozen=True):
    """The client gives up on a request."""

    key: Key
    reason: str
    id_json: bytes = b""


class ClientInfo(msgspec.Struct, frozen=True, gc=False):
    """The name and version by which a client introduces itself."""

    name: str
    version: str


def read_message(line: bytes) -> ClientMessage:
    """Return the parts of one line.

    Raises:
        UnreadableError: it is not a JSON-RPC message, nests too deeply, or is not UTF-8.
    """
    try:
        if not line.isascii():
            line.decode()
        if b"\n" in line or b"\r" in line:
            line = line.rstrip(b"\r\n")
            if b"\n" in line or b"\r" in line:
                # For some readers a line ends there: whoever gets a part of it would get two.
                line = msgspec.json.format(line, indent=-1)
        return _message.decode(line)
    except msgspec.ValidationError as error:
        raise UnreadableError(INVALID_REQUEST, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(PARSE_ERROR, error) from None


def read_cancellation(message: Message) -> Cancellation | None:
    """Return the request that a `notifications/cancelled` names, None for any other message."""
    if message.method != "notifications/cancelled":
        return None
    try:
        params = _cancelled.decode(message.params)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    key = correlation_key(params.request_id)
    return None if key is None else Cancellation(key, params.reason or "", msgspec.json.encode(params.request_id))


class _CancelledParams(msgspec.Struct, gc=False):
    request_id: int | str = msgspec.field(name="requestId")
    reason: str | None = None


_message: Final = msgspec.json.Decoder(ClientMessage)
_cancelled: Final = msgspec.json.Decoder(_CancelledParams)
