"""What is tried with a remote server, beside what is tried with every one: sessions, statuses, origins.

    legacy    and in the end: a GET, headers that are wrong, sessions that are none, the end of the session
    bytes     bodies that are no requests

It is confined by nobody: tools are called that say that they only read, and others on the user's word alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx2

from quarterdeck.common.words import counted
from quarterdeck_protocol.configs import SseServerConfig, StreamableHttpServerConfig

from .episode import Ending, Episode, Members, Recording
from .http_peer import HttpPeer
from .requests import LONG_LINE_BYTES, NO_VERSION, TRIALS, message
from .scenario import Scenario, Wishes
from .schemas import shown

CONNECT_S: Final = 15.0
"""To reach the host."""

FOLDER: Final = "/tmp"  # noqa: S108 - a folder of the server's machine, if of any
"""Where paths lie that tools are called with."""

FOREIGN_ORIGIN: Final = "https://quarterdeck-check.invalid"
"""Of a page that has no business with the server."""

NO_SESSION: Final = "quarterdeck-check-no-such-session"

MAX_NAMED: Final = 5

NOT_TRIED: Final = "its stdin, stdout, stderr and endings, files, network and memory: it is no process of this machine"


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
