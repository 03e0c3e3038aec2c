"""Answer without the SDK what most clients say and nothing else: the greeting, pings, lists.  Pure.

Importing the SDK takes longer than a server's start.  So a connection begins here, and every message that is exactly of
these forms is answered here, as the SDK's session would (a test holds the two against each other).  With the first that
is not, that session takes over: it is told of the greeting, and gets all that comes from then on.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec import UNSET, Raw

from quarterdeck.host.raw_calls import ClientMessage
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.mcp.jsonrpc import ENVELOPE_PREFIX
from quarterdeck_protocol.offers import Listing

from .early_reply import TOOLS_ONLY, answer_to

NEWEST: Final = Revision.R2026_07_28.value
"""The revision of the newer era that we speak."""

_LISTS: Final = {listing.method: listing for listing in Listing}

_MEMBERS: Final = ENVELOPE_PREFIX + "protocolVersion", ENVELOPE_PREFIX + "clientInfo"
_CAPABILITIES: Final = ENVELOPE_PREFIX + "clientCapabilities"


class ListRequest(msgspec.Struct, frozen=True):
    """A list is asked for, as a client of `version` is shown it; `id_json` is the request's id."""

    id_json: bytes
    version: str
    listing: Listing = Listing.TOOLS

    @property
    def is_modern(self) -> bool:
        """Whether the answer needs the envelope of 2026-07-28."""
        return self.version == NEWEST


class Capabilities(Protocol):
    """Says what we can, as JSON."""

    def __call__(self, *, is_modern: bool) -> bytes:
        """To a client of 2026-07-28, or of an older era."""


def _tools_only(*, is_modern: bool) -> bytes:  # noqa: ARG001 - the same in each
    return TOOLS_ONLY


class PlainSession:
    """What one client has said of its greeting.

    Attributes:
        greeting: the lines of it, for the session that takes over.
        is_open: whether the handshake of the older era is complete, so that the client is told of changes.
    """

    def __init__(
        self, server_info: bytes, instructions: Callable[[], str], capabilities: Capabilities | None = None
    ) -> None:
        """Nothing was said yet.

        Args:
            server_info: our identity as JSON.
            instructions: what a client is told that comes; asked each time.
            capabilities: what we say we can, asked each time; None where that is tools alone, and other lists are the
                SDK's to refuse.
        """
        self._capabilities = capabilities or _tools_only
        self._lists = _LISTS if capabilities is not None else {"tools/list": Listing.TOOLS}
        self._server_info = server_info
        self._instructions = instructions
        self._version = ""
        self.greeting: Final[list[bytes]] = []
        self.is_open = False

    def take(self, line: bytes, message: ClientMessage) -> bytes | ListRequest | None:
        """The answer, empty where there is none to give; what is to be listed; None for a message of another kind."""
        match message.method:
            case "initialize":
                return self._greet(line)
            case "notifications/initialized" if (
                message.id is UNSET and self._version not in ("", NEWEST) and not self.is_open
            ):
                self.greeting.append(line)
                self.is_open = True
                return b""
            case "ping" if self.is_open and isinstance(message.id, int | str) and _is_bare(message.params):
                return _answer(msgspec.json.encode(message.id), b"{}")
            case str() as method if (method in self._lists or method == "server/discover") and isinstance(
                message.id, int | str
            ):
                is_modern = _is_modern(message.params)
                return self._answer_modern(line, message) if is_modern else self._answer_legacy(message)
        return None

    def _greet(self, line: bytes) -> bytes | None:
        if self._version:
            return None
        request_id, answer = answer_to(line, self._instructions(), self._capabilities(is_modern=False))
        if request_id is None:
            return None
        self._version = msgspec.json.decode(answer, type=_Greeted).result.protocol_version
        self.greeting.append(line)
        return answer.removesuffix(b"\n")

    def _answer_legacy(self, message: ClientMessage) -> ListRequest | None:
        listing = self._lists.get(str(message.method))
        if not self.is_open or listing is None or not _is_bare(message.params):
            return None
        return ListRequest(msgspec.json.encode(message.id), self._version, listing)

    def _answer_modern(self, line: bytes, message: ClientMessage) -> bytes | ListRequest | None:
        if self._version not in ("", NEWEST):
            return None  # the first request decides the era
        if not self._version:
            self._version = NEWEST
            self.greeting.append(line)
        id_json = msgspec.json.encode(message.id)
        if (listing := self._lists.get(str(message.method))) is not None:
            return ListRequest(id_json, NEWEST, listing)
        members = [
            b'"capabilities":' + self._capabilities(is_modern=True),
            b'"supportedVersions":["%b"]' % NEWEST.encode(),
        ]
        if told := self._instructions():
            members.append(b'"instructions":' + msgspec.json.encode(told))
        return _answer(id_json, self.modern_result(b",".join(members)))

    def modern_result(self, members: bytes) -> bytes:
        """A result with these members, in the envelope of 2026-07-28."""
        head = b'{"resultType":"complete","ttlMs":0,"cacheScope":"private",'
        return b'%b%b,"_meta":{"%bserverInfo":%b}}' % (head, members, ENVELOPE_PREFIX.encode(), self._server_info)

    def answer_list(self, request: ListRequest, items: list[bytes]) -> bytes:
        """The answer to a request for a list, each item as JSON."""
        listed = b'"%b":[%b]' % (request.listing.value.encode(), b",".join(items))
        return _answer(request.id_json, self.modern_result(listed) if request.is_modern else b"{%b}" % listed)


def _answer(id_json: bytes, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_json, result)


def _is_bare(params: Raw) -> bool:
    """Whether there are no parameters but a `_meta` without the newer era's envelope."""
    try:
        meta = _bare.decode(params).meta if bytes(params) else None
    except msgspec.DecodeError:
        return False
    return not any(name.startswith(ENVELOPE_PREFIX) for name in meta or ())


def _is_modern(params: Raw) -> bool:
    """Whether there are no parameters but the newer era's envelope, in the form that nobody would refuse."""
    try:
        meta = (_bare.decode(params).meta if bytes(params) else None) or {}
        if {name for name in meta if name.startswith(ENVELOPE_PREFIX)} != {*_MEMBERS, _CAPABILITIES}:
            return False
        version, info = (bytes(meta[name]) for name in _MEMBERS)
        _client_info.decode(info)
        _capabilities.decode(bytes(meta[_CAPABILITIES]))
    except msgspec.DecodeError:
        return False
    return version == b'"%b"' % NEWEST.encode()


class _Bare(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


class _ClientInfo(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    version: str
    title: str | None = None


class _Version(msgspec.Struct, gc=False):
    protocol_version: str = msgspec.field(name="protocolVersion")


class _Greeted(msgspec.Struct, gc=False):
    result: _Version


_bare: Final = msgspec.json.Decoder(_Bare)
_client_info: Final = msgspec.json.Decoder(_ClientInfo)
_capabilities: Final = msgspec.json.Decoder(dict[str, dict[str, dict[str, Raw]]])
