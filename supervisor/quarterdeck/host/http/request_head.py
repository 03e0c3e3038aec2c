"""What the short way needs to know of a request's head, and which heads are left to the SDK.  Pure."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from quarterdeck.common.in_flight import who_of
from quarterdeck_protocol.tools import Client

from .admission import Header

_UNUSUAL: Final = frozenset({b"content-encoding", b"expect", b"upgrade", b"last-event-id"})
_MIRRORED: Final = b"mcp-param-"


class Head(msgspec.Struct, gc=False):
    """What matters of a request's head.

    Attributes:
        client: who asks.
        headers: for the response.
        session: of a legacy request; empty for a modern one.
        body_bytes: as it is declared; where it is not, as large as it may be.
    """

    client: Client
    headers: tuple[Header, ...]
    session: bytes = b""
    version: bytes = b""
    method: bytes = b""
    name: bytes = b""
    body_bytes: int = 0

    @property
    def who(self) -> str:
        """Who was let in, whichever of its sessions this is."""
        return who_of(self.client.key)


def read_head(
    client: Client, answer_headers: tuple[Header, ...], headers: Iterable[Header], max_body_bytes: int
) -> Head | None:
    """What matters of a head; None where its body is too large, or where it says anything that the SDK has to judge.

    Args:
        client: who asks.
        answer_headers: for the response.
        headers: of the request.
        max_body_bytes: a larger body is too large.
    """
    head = Head(client, answer_headers, body_bytes=max_body_bytes)
    accept = kind = b""
    for name, value in headers:
        if name == b"content-length":
            if not value.isdigit() or int(value) > max_body_bytes:
                return None
            head.body_bytes = int(value)
        elif name == b"accept":
            accept = accept + b"," + value if accept else value
        elif name == b"content-type":
            kind = value
        elif name == b"mcp-session-id":
            head.session = value
        elif name == b"mcp-protocol-version":
            head.version = value
        elif name == b"mcp-method":
            head.method = value
        elif name == b"mcp-name":
            head.name = value
        elif name in _UNUSUAL or name.startswith(_MIRRORED):
            return None
    is_json = kind.partition(b";")[0].strip() == b"application/json"
    return head if is_json and _accepts_both(accept) else None


@lru_cache(maxsize=64)
def _accepts_both(accept: bytes) -> bool:
    """Whether a client with this header takes JSON and events, as the SDK asks; a wildcard is left to the SDK."""
    kinds = {kind.partition(b";")[0].strip().lower() for kind in accept.split(b",")}
    return {b"application/json", b"text/event-stream"} <= kinds
