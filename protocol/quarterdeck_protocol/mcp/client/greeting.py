"""Agree with a server on a revision, and learn who it is.  Pure.

The handshake of 2025-11-25 comes first.  There a server that speaks both eras can ask its clients, and a legacy server
never sees an unknown request.  A server that refuses the handshake gets `server/discover`.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp import jsonrpc

from .dialogues import Ask, Dialogue, ErrorReply, SilenceError, Steps
from .eras import HANDSHAKE_REVISIONS, MODERN_REVISIONS, Client, envelope
from .events import Greeted, GreetingFailed, Server

UNSUPPORTED_REVISION: Final = -32022
"""The error of a server that does not speak the revision that it was asked in; its `data` may name those it speaks."""

HEADER_MISMATCH: Final = -32020
"""The error of a modern HTTP server for a request that lacks the headers of its era."""

HANDSHAKE_REFUSED: Final = frozenset(
    {UNSUPPORTED_REVISION, HEADER_MISMATCH, jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS, jsonrpc.INVALID_REQUEST}
)
"""Errors of a server without `initialize`, or of one that misses the fields of every modern request."""

DISCOVER_S: Final = 10.0
"""Seconds that a server may take to answer `server/discover`; the SDK's own limit."""

MAX_GREETING_BYTES: Final = 1024 * 1024
"""Of an answer to a greeting."""

MAX_INSTRUCTIONS_CHARS: Final = 64 * 1024
"""A server's instructions beyond it are cut."""

MAX_NAME_CHARS: Final = 200
"""Of its name, version and title; they are shown in tables."""

MAX_INFO_BYTES: Final = 64 * 1024
"""Of the `serverInfo` that is kept as it came: icons may be images."""

MAX_REVISIONS: Final = 100
"""Of those that a server says it speaks; there are five."""

LISTS: Final = ("tools", "prompts", "resources")
"""Capabilities that may say `listChanged`."""


_T = TypeVar("_T")


class _GreetingError(Exception):
    """It answered, but shares no revision with us, or lacks the forced one."""


class _Info(msgspec.Struct):
    name: str
    version: str
    title: str | None = None


class _Initialized(msgspec.Struct):
    protocolVersion: str  # noqa: N815 - the wire's name
    capabilities: Raw
    serverInfo: Raw  # noqa: N815
    instructions: str | None = None


class _Discovered(msgspec.Struct):
    supportedVersions: list[str]  # noqa: N815
    capabilities: Raw
    instructions: str | None = None
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


class _Unsupported(msgspec.Struct):
    supported: list[str]
    requested: str


def greet(client: Client, forced: str | None, *, newer_first: bool = False) -> Dialogue:
    """Agree on a revision, `forced` or `newer_first`. Ends in `Greeted` or `GreetingFailed`."""
    try:
        if forced is not None:
            server = yield from _insist(client, forced)
        else:
            server = yield from _prefer_newer(client) if newer_first else _agree(client)
    except ErrorReply as error:
        return GreetingFailed(error.message, error.code)
    except SilenceError:
        return GreetingFailed("the server did not answer in time")
    except (_GreetingError, jsonrpc.BodyError) as error:
        return GreetingFailed(str(error))
    return Greeted(server)


def _prefer_newer(client: Client) -> Steps[Server]:
    """Discover the server's revisions; if it refuses, shake hands."""
    try:
        return (yield from _discover(client))
    except (ErrorReply, SilenceError, _GreetingError, jsonrpc.BodyError):
        return (yield from _agree(client))


def _agree(client: Client) -> Steps[Server]:
    """Shake hands; if the server refuses, discover its revisions."""
    refused: Exception
    try:
        server = yield from _initialize(client, HANDSHAKE_REVISIONS[-1])
        if server.era in HANDSHAKE_REVISIONS:
            return server
        refused = _GreetingError(f"Unsupported protocol version from the server: {server.era}")
    except ErrorReply as error:
        if error.code not in HANDSHAKE_REFUSED:
            raise
        refused = error
    except jsonrpc.BodyError as error:
        refused = error
    try:
        return (yield from _discover(client))
    except (ErrorReply, SilenceError, _GreetingError, jsonrpc.BodyError):
        if isinstance(refused, ErrorReply) and refused.code == UNSUPPORTED_REVISION:
            raise  # only a modern server sends this code: its second answer has the reason
        raise refused from None


def _insist(client: Client, revision: str) -> Steps[Server]:
    try:
        if revision in HANDSHAKE_REVISIONS:
            server = yield from _initialize(client, revision)
        else:
            server = yield from _discover(client)
    except ErrorReply as error:
        if error.code not in (UNSUPPORTED_REVISION, jsonrpc.METHOD_NOT_FOUND):
            raise
        message = f"it does not speak {revision}, which the key protocol of its row forces"
        raise _GreetingError(message) from None
    if server.era != revision:
        message = f"it speaks {server.era}, and not {revision}, which the key protocol of its row forces"
        raise _GreetingError(message)
    return server


def _initialize(client: Client, revision: str) -> Steps[Server]:
    params = b'{"protocolVersion":%s,"capabilities":%s,"clientInfo":%s}'
    body = yield Ask("initialize", params % (msgspec.json.encode(revision), client.capabilities, client.info))
    said = _read(body, _initialized)
    return _server(said.protocolVersion[:MAX_NAME_CHARS], said.serverInfo, said, must_say_who=True)


def _discover(client: Client) -> Steps[Server]:
    newest = MODERN_REVISIONS[-1]
    try:
        body = yield _discovery(client, newest)
    except ErrorReply as error:
        shared = _shared(_supported(error))
        if not shared:
            raise
        body = yield _discovery(client, shared)
    said = _read(body, _discovered)
    era = _shared(said.supportedVersions)
    if not era:
        offered = ", ".join(each[:MAX_NAME_CHARS] for each in said.supportedVersions[:MAX_REVISIONS])
        raise _GreetingError(f"it shares no protocol revision with us: it speaks {offered or 'none'}")
    info = (said.meta or {}).get(_SERVER_INFO, Raw())
    return _server(era, info, said, must_say_who=False)


def _discovery(client: Client, revision: str) -> Ask:
    params = b'{"_meta":{%s}}' % envelope(revision, client, with_log_level=False)
    return Ask("server/discover", params, DISCOVER_S)


def _shared(revisions: list[str]) -> str:
    return next((known for known in reversed(MODERN_REVISIONS) if known in revisions), "")


def _supported(error: ErrorReply) -> list[str]:
    """Return the revisions that a server names when it refuses ours; empty for any other error."""
    if error.code != UNSUPPORTED_REVISION:
        return []
    try:
        return _unsupported.decode(error.data).supported
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _read(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    jsonrpc.check_object(body, max_bytes=MAX_GREETING_BYTES)
    jsonrpc.check_depth(body)
    jsonrpc.check_numbers(body)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise jsonrpc.BodyError("the answer does not follow MCP", error) from None


def _server(era: str, info: Raw, said: _Initialized | _Discovered, *, must_say_who: bool) -> Server:
    capabilities = jsonrpc.check_object(bytes(said.capabilities), max_bytes=MAX_GREETING_BYTES)
    flags = {name: _flags(capabilities.get(name)) for name in LISTS}
    try:
        who = _info.decode(info)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if must_say_who:
            raise jsonrpc.BodyError("the answer does not follow MCP", error) from None
        who, info = _Info("", ""), Raw()
    return Server(
        era=era,
        name=who.name[:MAX_NAME_CHARS],
        version=who.version[:MAX_NAME_CHARS],
        title=(who.title or "")[:MAX_NAME_CHARS],
        instructions=(said.instructions or "")[:MAX_INSTRUCTIONS_CHARS],
        capabilities=bytes(said.capabilities),
        info=bytes(info) if 0 < len(info) <= MAX_INFO_BYTES else b"{}",
        announces=frozenset(name for name in LISTS if flags[name].get("listChanged") == _TRUE),
    )


def _flags(capability: Raw | None) -> dict[str, Raw]:
    try:
        return _members.decode(capability or b"{}")
    except msgspec.DecodeError:
        return {}


_initialized: Final = msgspec.json.Decoder(_Initialized)
_discovered: Final = msgspec.json.Decoder(_Discovered)
_unsupported: Final = msgspec.json.Decoder(_Unsupported)
_info: Final = msgspec.json.Decoder(_Info)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_SERVER_INFO: Final = f"{jsonrpc.ENVELOPE_PREFIX}serverInfo"
_TRUE: Final = Raw(b"true")
