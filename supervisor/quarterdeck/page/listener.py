"""Serve the page from the daemon's process, on a loopback port of its own, from its first link until the daemon ends.

While the page is used, the user's own deck stays open: a person who looks at their servers is one of its clients.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic, time
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quarterdeck.app import Shared
from quarterdeck.common.shielding import cancelled
from quarterdeck.daemon.control.protocol import OpenPage, PageLink
from quarterdeck.daemon.decks import LINGER_S, Decks, ToRefusal
from quarterdeck.daemon.messages import DaemonStatus
from quarterdeck.host.http.admission import USER_DECK, Scope
from quarterdeck.host.http.connection import MAX_HEAD_BYTES
from quarterdeck.host.http.grants import GrantState
from quarterdeck.host.http.listener import ServerPart, config_of_part
from quarterdeck.host.http.token_file import GrantReader

from .access import Access
from .app import Decide, PageApp
from .state import DaemonState

MAX_CONNECTIONS: Final = 160
"""Open at a time: `MAX_STREAMS` pages that follow what happens, and room to load others."""

UNREAD_S: Final = 30.0
"""Seconds that a browser may leave an answer unread; then its connection is closed."""

REQUEST_S: Final = UNREAD_S
"""Seconds from connecting, or from the answer before, which may still be read, to the end of a request."""

OPEN_S: Final = 5.0
"""Seconds that a link waits for the user's own deck to open, which takes a fraction of one."""

LOOK_S: Final = 5.0
"""Between two looks whether the page is used."""

STOP_S: Final = 1
"""Whole seconds that open pages may take to close when the daemon ends."""

_log = logging.getLogger("quarterdeck.page")


class Page:
    """The page of one daemon; nothing listens before `link` is called."""

    def __init__(
        self,
        shared: Shared,
        decks: Decks,
        status: Callable[[], DaemonStatus],
        decide: Decide,
        to_refusal: ToRefusal,
        tokens: Path,
    ) -> None:
        self._decks = decks
        self._to_refusal = to_refusal
        self._grants = GrantReader(tokens)
        self._access = Access(lambda: secrets.token_urlsafe(32), self._may_look)
        self._secret = secrets.token_urlsafe(16)
        self._state = DaemonState(decks, status, shared.recorder)
        self._app = PageApp(self._state, self._access, decide, self._secret, shared.bus)
        self._server: ServerPart | None = None
        self._serving: asyncio.Task[None] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._address = ""

    @property
    def is_used(self) -> bool:
        """Whether a person has the page open, or was just given a link to it."""
        return self._holding is not None and not self._holding.done()

    async def link(self, request: OpenPage) -> PageLink:
        """Return a new link, once the page listens and the user's own deck is open, or was waited for. May raise
        OSError.
        """
        if self._server is None:
            listener = socket.create_server(("127.0.0.1", 0))
            self._address = "http://{}:{}".format(*listener.getsockname())
            self._server = ServerPart(config_of_part(self._app, stop_s=STOP_S, http=PageConnection))
            self._serving = asyncio.create_task(self._server.serve([listener]))
            _log.info("the page listens at %s", self._address)
        secret = self._access.link(monotonic(), may_act=not request.read_only)
        if not self.is_used:
            opened = asyncio.Event()
            self._holding = asyncio.create_task(self._hold_deck(opened))
            self._decks.changed.set()  # the daemon stays from now on
            with suppress(TimeoutError):
                async with asyncio.timeout(OPEN_S):
                    await opened.wait()
        return PageLink(f"{self._address}/{self._secret}/open/{secret}")

    async def close(self) -> None:
        """Close all pages, and listen no more. Repeatable."""
        if self._holding is not None:
            await cancelled(self._holding)
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving])

    def _may_look(self, token: str) -> bool:
        grant = self._grants.current().find(token)
        return grant is not None and grant.scope is Scope.READ and grant.state(time()) is GrantState.LIVE

    async def _hold_deck(self, opened: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._decks.borrow_named(USER_DECK, os.environ))
                self._state.problem = ""
            except Exception as error:
                refusal = self._to_refusal(error)
                if refusal is None:
                    _log.exception("the page cannot open the user's deck")
                self._state.problem = f"{refusal.message}. Fix: {refusal.remedy}" if refusal is not None else str(error)
            opened.set()
            while self._access.is_used(monotonic(), LINGER_S):  # noqa: ASYNC110 - time alone ends it
                await asyncio.sleep(LOOK_S)
        self._decks.changed.set()  # the daemon may end now


class PageConnection(HttpToolsProtocol):
    """A connection that sends whole requests with small heads, and reads its answers in time: anybody on this machine
    can connect.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._asking = self.loop.call_later(REQUEST_S, transport.abort)
        self._reading: asyncio.TimerHandle | None = None
        self._allowance = MAX_HEAD_BYTES
        """Bytes that may still come beside bodies: the parser bounds nothing."""
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._asking.cancel()
        super().connection_lost(exc)  # which resumes writing

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        # What of this is body is given back as it is found.
        self._allowance -= len(data)
        super().data_received(data)
        if self._allowance < 0:
            self.transport.abort()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().pause_writing()
        self._reading = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._allowance = min(self._allowance + len(body), MAX_HEAD_BYTES)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._allowance = MAX_HEAD_BYTES
        # The rest of a request that was answered before its end begins no other one.
        if not self.cycle.response_complete:
            self._asking.cancel()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn."""
        self._asking.cancel()
        self._asking = self.loop.call_later(REQUEST_S, self.transport.abort)
        super().on_response_complete()
