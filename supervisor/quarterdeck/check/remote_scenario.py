"""Try what only a remote server has: sessions, statuses, origins.

    legacy    and in the end: a GET, headers that are wrong, sessions that are none, the end of the session
    bytes     bodies that are no requests

It is confined by nobody: tools are called that say that they only read, and others on the user's word alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import httpx2
import msgspec
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value

from quarterdeck.common.words import counted
from quarterdeck_protocol.configs import SseServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.mcp.client.eras import HANDSHAKE_REVISIONS, is_modern
from quarterdeck_protocol.mcp.jsonrpc import ENVELOPE_PREFIX

from .episode import Ending, Episode, HttpTrial, Members, Recording, RequestId
from .requests import LONG_LINE_BYTES, NO_VERSION, TRIALS, message
from .scenario import Scenario, Wishes
from .schemas import shown
from .speaker import OpenRequest, Outcome, Speaker

CONNECT_S: Final = 15.0
"""To reach the host."""

FOLDER: Final = "/tmp"  # noqa: S108 - a folder of the server's machine, if of any
"""The folder of paths that tools are called with."""

FOREIGN_ORIGIN: Final = "https://quarterdeck-check.invalid"

NO_SESSION: Final = "quarterdeck-check-no-such-session"

MAX_NAMED: Final = 5

NOT_TRIED: Final = "its stdin, stdout, stderr and endings, files, network and memory: it is no process of this machine"


MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of one answer, or of one event."""

MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of one connection; more ends it."""

MAX_SESSION_CHARS: Final = 1024

NOTE_S: Final = 10.0
"""Seconds for a message without an answer of its own."""

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

_HEADERS: Final = {"Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}

_UNCANCELLED: Final = frozenset({"initialize", "server/discover"})


@dataclass(slots=True)
class _Head:
    status: int = 0
    content_type: str = ""


class HttpPeer(Speaker):
    """Speaks to a remote server, each message a POST of its own. Call `close` in the end.

    Late answers are read until the end; a request is cancelled by a notification, in 2026-07-28 by hanging up. Bodies,
    events and waits are bounded.
    """

    def __init__(self, client: httpx2.AsyncClient, url: str, episode: Episode) -> None:
        super().__init__(episode)
        self._client = client
        self._url = url
        self._session: str | None = None
        self._read = 0
        self._posts: set[asyncio.Task[None]] = set()

    async def carry(self, request: OpenRequest, wait_s: float, *, in_pieces: bool) -> Outcome:  # noqa: ARG002 - no lines
        """Post a request, and wait for its answer."""
        head = _Head()
        post = self._begin(request.message, self._headers(request.method, request.sent), head, request.request_id)
        await asyncio.wait((request.answer, post), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        request.close()
        if request.reply is not None:
            ending = Ending.ANSWERED
            if head.content_type and head.content_type not in self.episode.content_types:
                self.hearing.note(self.episode.content_types, head.content_type)
        elif not post.done():
            ending = Ending.SILENT
            await self._cancel(request.request_id, request.method, post)
        else:
            ending = Ending.REFUSED if head.status and not post.cancelled() and not post.exception() else Ending.LOST
        return Outcome(ending, status=head.status)

    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Post a notification. Return whether it was accepted."""
        trial = await self.attempt("notification", "POST", message(method, params), self._headers(method, {}))
        return trial.status == httpx2.codes.ACCEPTED

    async def attempt(
        self, purpose: str, verb: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None
    ) -> HttpTrial:
        """Make an HTTP request for the sake of its status, and record it.

        `headers` replace those of a request in this session; None leaves one out.
        """
        given = self._headers("", {}) if headers is None else {**self._headers("", {}), **headers}
        sent = {name: value for name, value in given.items() if value is not None}
        head = _Head()
        with suppress(httpx2.HTTPError, httpx2.StreamError, TimeoutError):
            async with (
                asyncio.timeout(NOTE_S),
                self._client.stream(verb, self._url, content=body, headers=sent) as response,
            ):
                head = _head_of(response)
        trial = HttpTrial(purpose, head.status, head.content_type)
        self.episode.http.append(trial)
        return trial

    async def end_session(self) -> HttpTrial | None:
        """End the session. Return the outcome, None without a session."""
        if self._session is None:
            return None
        return await self.attempt("end-session", "DELETE")

    async def close(self) -> None:
        """End the session and every open request."""
        posts = tuple(self._posts)
        for post in posts:
            post.cancel()
        if posts:
            await asyncio.wait(posts)
        if not any(trial.purpose == "end-session" for trial in self.episode.http):
            await self.end_session()

    def _begin(self, body: bytes, headers: Mapping[str, str], head: _Head, request_id: RequestId) -> asyncio.Task[None]:
        post = asyncio.create_task(self._send(body, headers, head, request_id))
        self._posts.add(post)
        post.add_done_callback(self._ended)
        return post

    def _ended(self, post: "asyncio.Task[None]") -> None:
        self._posts.discard(post)
        if not post.cancelled():
            post.exception()  # looked at: what broke off after its request was given up is nobody's any more

    async def _send(self, body: bytes, headers: Mapping[str, str], head: _Head, request_id: RequestId) -> None:
        """Send one message, and take its answers; raise ConnectionError if these break off, or none comes."""
        try:
            async with self._client.stream("POST", self._url, content=body, headers=dict(headers)) as response:
                found = _head_of(response)
                head.status, head.content_type = found.status, found.content_type
                if self._session is None and (said := response.headers.get("mcp-session-id")):
                    self.episode.session_id = said
                    self._session = said if len(said) <= MAX_SESSION_CHARS and is_visible(said) else None
                await self._hear(response, head, request_id)
        except httpx2.ConnectError as error:
            self.gone.set()
            raise ConnectionError(str(error)) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise ConnectionError(str(error)) from None

    async def _hear(self, response: httpx2.Response, head: _Head, request_id: RequestId) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            self.hearing.note(self.episode.misshapen, "an answer is compressed, which was not asked for")
        elif head.content_type == EVENTS:
            async for event in httpx2.EventSource(response, MAX_BODY_BYTES):
                if event.data:
                    self._take(event.data.encode("utf-8", "replace"))
        else:
            content = bytearray()
            async for piece in response.aiter_raw():
                content += piece
                if len(content) > MAX_BODY_BYTES:
                    self.hearing.note(self.episode.misshapen, "an answer is longer than 8 MiB")
                    return
            if head.content_type == JSON and (response.is_success or _answers(bytes(content), request_id)):
                self._take(bytes(content))

    def _take(self, data: bytes) -> None:
        """Take one message, and answer the server's own requests; raise ConnectionError after 64 MiB."""
        self._read += len(data)
        if self._read > MAX_READ_BYTES:
            self.gone.set()
            raise ConnectionError("it sent more than 64 MiB")
        self.hearing.receive(data, time.monotonic())
        while self.hearing.answers:
            self._begin(self.hearing.answers.pop(0), self._headers("", {}), _Head(), "")

    async def _cancel(self, request_id: RequestId, method: str, post: "asyncio.Task[None]") -> None:
        if method in _UNCANCELLED or is_modern(self.episode.era):
            post.cancel()
            return
        self.hearing.cancelled(request_id, time.monotonic())
        await self.notify("notifications/cancelled", {"requestId": request_id, "reason": "no longer wanted"})

    def _headers(self, method: str, params: Members) -> dict[str, str]:
        meta = params.get("_meta")
        version = meta.get(f"{ENVELOPE_PREFIX}protocolVersion") if isinstance(meta, dict) else None
        if isinstance(version, str):
            name = params.get(NAME_BEARING_METHODS.get(method, ""))
            named = {"Mcp-Name": encode_header_value(name)} if isinstance(name, str) else {}
            return {**_HEADERS, "MCP-Protocol-Version": version, "Mcp-Method": method, **named}
        headers = dict(_HEADERS)
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        if self.episode.era in HANDSHAKE_REVISIONS and method != "initialize":
            headers["MCP-Protocol-Version"] = self.episode.era
        return headers


def is_visible(session: str) -> bool:
    """Return whether a session's id has only visible ASCII characters."""
    return all("!" <= char <= "~" for char in session)


def _head_of(response: httpx2.Response) -> _Head:
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return _Head(response.status_code, content_type[:100])


def _answers(content: bytes, request_id: RequestId) -> bool:
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("id") == request_id


async def record(config: StreamableHttpServerConfig | SseServerConfig, wishes: Wishes) -> Recording:
    """Try everything."""
    return await _RemoteScenario(config, wishes).record()


class _RemoteScenario(Scenario[HttpPeer]):
    def __init__(self, config: StreamableHttpServerConfig | SseServerConfig, wishes: Wishes) -> None:
        super().__init__(wishes)
        self._config = config
        self._uncalled: list[str] = []

    async def record(self) -> Recording:
        self.skip(NOT_TRIED)
        await self.go_through()
        if self._uncalled:
            more = "" if len(self._uncalled) <= MAX_NAMED else ", …"
            names = ", ".join(map(shown, self._uncalled[:MAX_NAMED])) + more
            count = counted(len(self._uncalled), "tool")
            self.skip(f"{count} not said to only read ({names}): --call-all calls such tools, too")
        return Recording(tuple(self.episodes), self.untried, is_remote=True)

    @property
    def folder(self) -> str:
        return FOLDER

    def is_called(self, tool: Members) -> bool:
        hints = tool.get("annotations")
        if self.wishes.call_all or (isinstance(hints, dict) and hints.get("readOnlyHint") is True):
            return True
        self._uncalled.append(str(tool["name"]))
        return False

    @asynccontextmanager
    async def opened(self, episode: Episode, *, with_network: bool = False) -> AsyncIterator[HttpPeer]:  # noqa: ARG002
        headers = {"Accept-Encoding": "identity", **self._config.headers}
        timeout = httpx2.Timeout(CONNECT_S, read=None)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout) as client:
            peer = HttpPeer(client, self._config.url, episode)
            try:
                yield peer
            finally:
                await asyncio.shield(asyncio.create_task(peer.close()))

    async def end_legacy(self, peer: HttpPeer) -> None:
        ping = message("ping", {}, "quarterdeck-trial")
        await peer.attempt("get", "GET", headers={"Accept": "text/event-stream", "Content-Type": None})
        await peer.attempt("origin", "POST", ping, {"Origin": FOREIGN_ORIGIN})
        await peer.attempt("unknown-version", "POST", ping, {"MCP-Protocol-Version": NO_VERSION})
        if peer.episode.session_id:
            await peer.attempt("no-session", "POST", ping, {"Mcp-Session-Id": None})
            await peer.attempt("unknown-session", "POST", ping, {"Mcp-Session-Id": NO_SESSION})
            ended = await peer.end_session()
            if ended is not None and httpx2.codes.is_success(ended.status):
                await peer.attempt("ended-session", "POST", ping)

    async def end_modern(self, peer: HttpPeer) -> None:
        pass  # such a connection has no end

    async def odd_bytes(self) -> None:
        async with self.episode("bytes") as peer:
            meta = await self.greet_any(peer)
            if meta is None:
                return
            for name, lines in TRIALS:
                for line in lines:
                    await peer.attempt(name, "POST", line)
                await self.probe(peer, f"after:{name}", meta)
                if peer.episode.exchanges[-1].ending is Ending.SILENT:
                    return
            await self.probe(peer, "long-line", {**meta, "filler": "a" * LONG_LINE_BYTES})
