"""One client's session, in the era that its first request decides: a message comes in, an event goes out.

Above it the carriers' host, which carries out requests; below it `requests`, which judges one.  It knows which requests
are under way, so that each is answered once and no more, and nothing is written for one that was cancelled.

    line → receive → Request        to be carried out and answered, by `answer` or `refuse`
                     Answer         is the answer already
                     Cancelled      a request that its client gave up
                     Notice         another notification that counts
                     None           nothing is to be done
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec import UNSET

from quarterdeck_protocol.mcp.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ClientMessage,
    Key,
    UnreadableError,
    correlation_key,
    read_message,
)

from .answers import Part, error_parts, refusal_parts
from .client_requests import ClientRequests
from .methods import (
    DECODERS,
    HANDSHAKE_VERSIONS,
    METHODS_OF,
    MODERN_VERSION,
    TOOL_METHODS,
    UNSUPPORTED_VERSION,
    Initialize,
)
from .requests import Check, ClientInfo, Params, Refused, Request, claims_modern, judge, nothing_to_check, read_params

MAX_UNDER_WAY: Final = 4096
"""Requests of one client under way at once; more are refused, so that cancellations are always still read."""

BUSY: Final = -32000
"""JSON-RPC's first implementation-defined code: too many requests under way."""

GREETED_ALREADY: Final = (
    "this session is initialized already: to begin anew, open another connection; over HTTP, send initialize without "
    "Mcp-Session-Id"
)
"""Why there is no second `initialize`, which would change what is agreed under requests that are under way."""

_LEGACY_ALONE: Final = (
    "this connection serves the handshake protocol era; "
    "requests carrying the 2026-07-28 envelope are not accepted on it"
)
_MODERN_ALONE: Final = "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted"


class Answer(msgspec.Struct, frozen=True):
    """An answer that needs nobody; `code` is that of its error, 0 for none."""

    id_json: bytes
    parts: tuple[Part, ...]
    code: int


class Cancelled(msgspec.Struct, frozen=True):
    """The client gave this request up; it is not under way any more."""

    request: Request
    reason: str


class _Cancellation(msgspec.Struct, gc=False):
    """The parameters of `notifications/cancelled`."""

    request_id: Key = msgspec.field(name="requestId")
    reason: str | None = None


class Notice(Enum):
    """A notification."""

    OPENED = auto()
    """The handshake of the legacy era is complete."""
    ROOTS_CHANGED = auto()


Event = Request | Answer | Cancelled | Notice | None


class ServerSession:
    """See the module.

    Attributes:
        version: the revision that is spoken; empty before the first request that decides it.
        is_open: whether the handshake of the legacy era is complete: the client may be told and asked things.
        client: who it says it is, once it did.
        asking: our requests to a client of the legacy era, and what it can be asked.
        max_under_way: how many requests may be under way at once.
    """

    max_under_way = MAX_UNDER_WAY

    def __init__(self, call_soon: Callable[..., object], *, version: str = "", has_offers: bool = True) -> None:
        """Nothing was said yet.

        Args:
            call_soon: calls back at the next turn of whoever drives the session.
            version: `MODERN_VERSION` where the carrier has decided the era.
            has_offers: whether there is more than tools here.
        """
        self.version = version
        self.is_open = False
        self.client: ClientInfo | None = None
        self.asking: Final = ClientRequests(call_soon)
        self._has_offers = has_offers
        self._is_legacy = False
        self._is_stateless = bool(version)
        self._under_way: dict[Key, Request] = {}
        self._older = 0  # of those under way, how many share their id with a newer one

    @property
    def under_way(self) -> int:
        """How many requests have no answer yet."""
        return len(self._under_way) + self._older

    @property
    def requests(self) -> tuple[Request, ...]:
        """Those requests."""
        found = []
        for request in self._under_way.values():
            each: Request | None = request
            while each is not None:
                found.append(each)
                each = each.older
        return tuple(found)

    def receive(self, line: bytes) -> Event:
        """Take one message as it came."""
        try:
            message = read_message(line)
        except UnreadableError as error:
            return Answer(b"", refusal_parts(b"null", Refused(error.code, str(error))), error.code)
        return self.take(message)

    def take(self, message: ClientMessage, check: Check = nothing_to_check) -> Event:
        """Take one message whose parts are known; `check` raises `Refused` where its envelope is not its carrier's."""
        if message.method is UNSET:
            self.asking.take(message)
            return None
        if (key := correlation_key(message.id)) is None:
            return self._take_notification(message)
        try:
            params = read_params(message)
            is_initialize = message.method == "initialize"
            if not self.version or params.meta or is_initialize:
                self._judge_era(message.method, params)
            if len(self._under_way) + self._older >= self.max_under_way:
                raise Refused(BUSY, f"more than {self.max_under_way:,} requests are under way")
            version = self.version or HANDSHAKE_VERSIONS[-1]
            request, envelope = judge(message, key, params, version, check=check, has_offers=self._has_offers)
        except Refused as refused:
            id_json = message.id_json
            return Answer(id_json, refusal_parts(id_json, refused), refused.code)
        if is_initialize:
            self._greet(request, bytes(params.capabilities))
        elif envelope is not None and self.client is None:
            self.client = envelope.info
        if key in self._under_way:
            request.older = self._under_way[key]
            self._older += 1
        self._under_way[key] = request
        return request

    def answer(self, request: Request, result: Iterable[Part]) -> tuple[Part, ...]:
        """Return the answer to a request, which is over with it; empty where it was over before."""
        if not self.forget(request):
            return ()
        return (b'{"jsonrpc":"2.0","id":', request.id_json, b',"result":', *result, b"}")

    def refuse(self, request: Request, error: object) -> tuple[Part, ...]:
        """Return the error that answers a request, likewise."""
        return error_parts(request.id_json, error) if self.forget(request) else ()

    def forget(self, request: Request) -> bool:
        """Have a request be over without an answer; False where it was before."""
        latest, older = self._under_way.get(request.key), request.older
        if latest is request:
            if older is None:
                del self._under_way[request.key]
                return True
            self._under_way[request.key] = older
        else:
            while latest is not None and latest.older is not request:
                latest = latest.older
            if latest is None:
                return False
            latest.older = older
        self._older -= 1
        return True

    # What came

    def _judge_era(self, method: str, params: Params) -> None:
        """Decide the session's era by a request that may, and refuse one of the other era, or out of turn."""
        if self._is_stateless:
            return
        is_initialize = method == "initialize"
        if not is_initialize and (self.version == MODERN_VERSION or (params.meta and claims_modern(params.meta))):
            if self._is_legacy:
                raise Refused(INVALID_REQUEST, _LEGACY_ALONE)
            self.version = MODERN_VERSION
            return
        if self.version == MODERN_VERSION:
            asked = {"requested": params.protocol_version} if params.protocol_version else {}
            raise Refused(UNSUPPORTED_VERSION, _MODERN_ALONE, {"supported": [MODERN_VERSION], **asked})
        self._is_legacy = True
        if is_initialize and self.version:
            raise Refused(INVALID_REQUEST, GREETED_ALREADY)
        if not self.version and method not in ("initialize", "ping"):
            raise self._too_early(method)

    def _too_early(self, method: str) -> Refused:
        """The refusal of a request before `initialize`: that of an unknown method says so, for whoever probes."""
        if method not in METHODS_OF or not (self._has_offers or method in TOOL_METHODS):
            return Refused(METHOD_NOT_FOUND, "Method not found", method)
        return Refused(INVALID_PARAMS, "Invalid request parameters", "")

    def _greet(self, request: Request, capabilities: bytes) -> None:
        asked = DECODERS["initialize"].decode(request.arguments)
        assert isinstance(asked, Initialize)
        wanted = asked.protocol_version
        self.version = request.version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        self.client = ClientInfo(asked.client_info.name, asked.client_info.version)
        self.asking.capabilities = capabilities

    def _take_notification(self, message: ClientMessage) -> Event:
        match message.method:
            case "notifications/cancelled":
                try:
                    named = _cancellation.decode(message.params)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    return None
                key = correlation_key(named.request_id)
                request = self._under_way.get(key) if key is not None else None
                if request is not None and request.method != "initialize":
                    self.forget(request)
                    return Cancelled(request, named.reason or "")
            case "notifications/initialized" if self.version not in ("", MODERN_VERSION) and not self.is_open:
                self.is_open = True
                return Notice.OPENED
            case "notifications/roots/list_changed" if self.version not in ("", MODERN_VERSION):
                return Notice.ROOTS_CHANGED
        return None


_cancellation: Final = msgspec.json.Decoder(_Cancellation)
