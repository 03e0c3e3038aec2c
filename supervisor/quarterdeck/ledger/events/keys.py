"""The names and keys of grafted tools: what makes two enrolments the same.

A content key is a pure function of what a tool is, so that the same tool has one key in every session; a ULID key
makes each enrolment an event of its own.
"""

import threading
from collections.abc import Mapping
from typing import Final, NewType

from ulid import ULID

from quarterdeck_protocol import names
from quarterdeck_protocol.names import RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.schema.canonical import digest

BridgeKey = NewType("BridgeKey", str)
"""`bk_` and 32 hex digits, or `bk_` and a ULID."""

KEY_PREFIX: Final = "bk_"

KEY_DIGITS: Final = 32
"""128 bits of SHA-256: no two tools of anybody's collide by chance."""


def qualify_bridge_name(server: str, tool: str) -> str:
    """`<server>__<tool>`."""
    return qualify_tool_name(RemoteToolRef(server, tool))


def server_of_qualified(name: str) -> str:
    """The server of a qualified name: what stands before the first `__`; empty when there is none."""
    return names.server_of_qualified(name) or ""


def bridge_content_key(server: str, tool: str, parameters: Mapping[str, object] | None = None) -> BridgeKey:
    """The key of a tool by its qualified name and its portable parameters.

    The order of object keys does not matter, that of arrays does; no schema is another key than any schema.

    Raises:
        TypeError: something in `parameters` is no JSON value.
    """
    return key_of_qualified(qualify_bridge_name(server, tool), parameters)


def key_of_qualified(name: str, parameters: Mapping[str, object] | None) -> BridgeKey:
    """`bridge_content_key` for a name that is qualified already."""
    return BridgeKey(KEY_PREFIX + digest({"name": name, "schema": parameters})[:KEY_DIGITS])


def bridge_ulid_key() -> BridgeKey:
    """A key that nobody else has, larger than every one minted before in this process, whatever its clock does."""
    return BridgeKey(f"{KEY_PREFIX}{_ulids.mint()}")


class _RisingUlids:
    """ULIDs that rise even within a millisecond, and when the clock goes back (ULID specification, Monotonicity)."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._last = 0

    def mint(self) -> ULID:
        with self._turn:
            self._last = max(int(_now()), self._last + 1)
            return ULID.from_int(self._last)


_now: Final = ULID
_ulids: Final = _RisingUlids()
