"""The protocol's revisions, in their two eras, and what our requests carry in each.  Pure."""

from functools import lru_cache
from typing import Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import ENVELOPE_PREFIX

HANDSHAKE_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Agreed by `initialize`, oldest first; the last is the one that is offered."""

MODERN_REVISIONS: Final = ("2026-07-28",)
"""Without a handshake, oldest first: each request says its own, and `server/discover` asks which are spoken."""


def is_modern(era: str) -> bool:
    """Whether requests of this era carry an envelope, and servers ask nothing."""
    return era in MODERN_REVISIONS


def discovery(name: str, version: str) -> bytes:
    """Return the `_meta` of a legacy connection's request that asks whether the server speaks the newest revision."""
    return b"{%s}" % envelope(MODERN_REVISIONS[-1], Client(name, version), with_log_level=False)


class Client(msgspec.Struct, frozen=True):
    """Our word about ourselves to servers.

    Attributes:
        capabilities: what the maker of a request can be asked, as a JSON object.
        log_level: the lowest wanted of a modern server's log.
        handshake: the capabilities of all who may make requests, told once to a legacy server, and for lists, which are
            taken for all; empty for `capabilities`.
    """

    name: str
    version: str
    capabilities: bytes = b"{}"
    log_level: str = "info"
    handshake: bytes = b""

    @property
    def info(self) -> bytes:
        """The protocol's `clientInfo`."""
        return msgspec.json.encode({"name": self.name, "version": self.version})

    @property
    def for_all(self) -> "Client":
        """As whom we speak for all."""
        return msgspec.structs.replace(self, capabilities=self.handshake, handshake=b"") if self.handshake else self


@lru_cache(maxsize=64)
def envelope(era: str, client: Client, *, with_log_level: bool = True) -> bytes:
    """The members of `_meta` that every message of this era carries, without braces; empty in the handshake's era."""
    if not is_modern(era):
        return b""
    members: dict[str, object] = {
        f"{ENVELOPE_PREFIX}protocolVersion": era,
        f"{ENVELOPE_PREFIX}clientInfo": msgspec.Raw(client.info),
        f"{ENVELOPE_PREFIX}clientCapabilities": msgspec.Raw(client.capabilities),
    }
    if with_log_level:
        members[f"{ENVELOPE_PREFIX}logLevel"] = client.log_level
    return msgspec.json.encode(members)[1:-1]
