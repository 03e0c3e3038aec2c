"""The lists of one endpoint's server as they last came: asked for once, and again when the server says so."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from typing import Final, Generic, TypeVar

from quarterdeck.fleet.core.offerset import has_capability, parse_offers, promised
from quarterdeck.fleet.core.toolset import Parsed, ToolsetError, parse_tools
from quarterdeck.fleet.workers.handle import WorkerHandle
from quarterdeck.fleet.workers.requests import ask
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.link.frames import List
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.offers import Listing, Offered

REFRESH_S: Final = 1.0
"""Seconds between two lists after `list_changed`: a storm of those costs one list a second."""

OTHER_LISTS_S: Final = 5.0
"""Seconds that a server's tools wait for its other lists."""

DECODE_IN_THREAD_BYTES: Final = 256 * 1024
"""Larger lists are decoded in a thread."""

_log = logging.getLogger("quarterdeck.fleet")

T = TypeVar("T")

StartTask = Callable[[str, Coroutine[None, None, None]], asyncio.Task[None]]
"""Starts a task of this name, which its giver ends."""

Parse = Callable[[bytes, Callable[[], bool]], Parsed[T]]
"""Makes items of a list's bytes, as long as it is wanted; raises `ToolsetError`."""


class ServerList(Generic[T]):
    """One list. Its `items` are the same tuple until they change; before `has_come`, having none means nothing."""

    def __init__(
        self,
        config: ServerConfig,
        listing: Listing,
        parse: Parse[T],
        *,
        is_wanted: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        """Begin without items. `is_wanted` tells whether the list is still of use; `on_change` follows each change."""
        self.items: tuple[T, ...] = ()
        self.has_come = False
        self._config = config
        self._listing = listing
        self._parse = parse
        self._is_wanted = is_wanted
        self._on_change = on_change
        self._digest = b""
        self._read: Parsed[T] = Parsed()
        self._refresh: asyncio.TimerHandle | None = None
        self._refreshed_at = -inf

    def follow(self, other: "ServerList[T]") -> None:
        """Know what another generation of the same server has listed: the same bytes are the same items."""
        self._digest, self._read = other._digest, other._read  # noqa: SLF001 - of its own kind

    async def fetch(self, handle: WorkerHandle) -> None:
        """Fetch the list. Raise ProtocolFault (`protocol` or `timeout`) if that fails."""
        try:
            frame = List(handle.next_id(), self._config.list_timeout_s, self._listing.value)
            read = await self._parsed(await ask(handle, frame))
        except ToolsetError as error:
            raise ProtocolFault(FaultKind.PROTOCOL, str(error), error, code="bad_output") from error
        except ProtocolFault as fault:
            if fault.kind is not FaultKind.TIMEOUT:
                fault.kind = FaultKind.PROTOCOL
            raise
        for warning in read.warnings:
            _log.warning("%s", warning)
        self.come(read.items)

    def come(self, items: tuple[T, ...]) -> None:
        """Take these items."""
        self.has_come = True
        if items is not self.items and items != self.items:
            self.items = items
            self._on_change()

    async def _parsed(self, body: bytes) -> Parsed[T]:
        """Parse a list, unless it has the same bytes as the last one."""
        digest = hashlib.blake2b(body, digest_size=32).digest()
        if digest == self._digest:
            return self._read
        if len(body) > DECODE_IN_THREAD_BYTES:
            until = time.monotonic() + self._config.list_timeout_s
            # A thread cannot be called off, and would keep a process that ends.
            read = await asyncio.to_thread(self._parse, body, lambda: self._is_wanted() and time.monotonic() < until)
        else:
            read = self._parse(body, lambda: True)
        self._digest, self._read = digest, read
        return read

    def refresh_soon(self, refresh: Callable[[], None]) -> None:
        """Call `refresh`, which is to `fetch`, once for all asks within `REFRESH_S`."""
        if self._refresh is None:
            delay_s = max(0.0, self._refreshed_at + REFRESH_S - time.monotonic())
            self._refresh = asyncio.get_running_loop().call_later(delay_s, self._refresh_now, refresh)

    def stop(self) -> None:
        """Refresh no more."""
        if self._refresh is not None:
            self._refresh.cancel()
            self._refresh = None

    def _refresh_now(self, refresh: Callable[[], None]) -> None:
        self._refresh = None
        if self._is_wanted():
            self._refreshed_at = time.monotonic()
            refresh()


class ServerLists:
    """All lists of one server: its tools always, the others if it says that it has them.

    Attributes:
        version: changes with each list.
        fault: why no list of tools has ever come; None before one was requested, and once one has come.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        is_wanted: Callable[[], bool],
        on_change: Callable[[], None],
        on_same: Callable[[Listing], None] = lambda _: None,
    ) -> None:
        """Begin without lists. `on_same` gets a list that is unchanged although its server announced a change."""
        self._config = config
        self._on_same = on_same
        self._is_wanted = is_wanted
        self._notify = on_change
        self.version = 0
        self.fault: ProtocolFault | None = None
        self._tools = ServerList[RemoteTool](
            config,
            Listing.TOOLS,
            lambda body, is_wanted: parse_tools(config, body, is_wanted),
            is_wanted=is_wanted,
            on_change=self._changed,
        )
        self._others: dict[Listing, ServerList[Offered]] = {}
        self._earlier: dict[Listing, ServerList[Offered]] = {}
        self._has_tools = True
        self._taking_others: asyncio.Task[None] | None = None
        self._has_waited = False

    def promise(self, capabilities: bytes) -> None:
        """The server was greeted, and says that it can do this."""
        self._has_tools = has_capability(capabilities, "tools")
        for listing in sorted(promised(capabilities)):
            each = self._others[listing] = ServerList(
                self._config,
                listing,
                partial(self._parse_offers, listing),
                is_wanted=self._is_wanted,
                on_change=self._changed,
            )
            if (earlier := self._earlier.pop(listing, None)) is not None:
                each.follow(earlier)

    def follow(self, other: "ServerLists") -> None:
        """See `ServerList.follow`; before `promise`."""
        self._tools.follow(other._tools)  # noqa: SLF001 - of its own kind
        self._earlier = dict(other._others)  # noqa: SLF001

    @property
    def tools(self) -> tuple[RemoteTool, ...]:
        """The cached list; the same tuple until it changes."""
        return self._tools.items

    @property
    def has_settled(self) -> bool:
        """Whether any list of tools has come, and the others have, or were waited for long enough."""
        return self._tools.has_come and self._has_waited

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        """Any other list likewise."""
        found = self._others.get(listing)
        return found.items if found is not None else ()

    def has_come(self, listing: Listing) -> bool:
        """Whether this list has come, or the server says that it has none."""
        if listing is Listing.TOOLS:
            return self._tools.has_come
        return listing not in self._others or self._others[listing].has_come

    async def take(self, handle: WorkerHandle, start: StartTask) -> None:
        """Fetch all lists, each once: the others in a task of `start`, awaited for `OTHER_LISTS_S` at most.

        Raise ProtocolFault (`protocol` or `timeout`) if the tools cannot be listed.
        """
        if self._taking_others is None:
            self._taking_others = start("lists", self._fetch_others(handle))
        if not self._tools.has_come:
            await self._fetch_tools(handle)
        if not self._has_waited:
            await asyncio.wait((self._taking_others,), timeout=OTHER_LISTS_S)
            self._has_waited = True

    async def _fetch_tools(self, handle: WorkerHandle) -> None:
        """Fetch the tools; none from a server that has none and refuses."""
        try:
            await self._tools.fetch(handle)
        except ProtocolFault as fault:
            if self._has_tools or fault.reply is None or fault.reply.code != METHOD_NOT_FOUND:
                self.fault = None if self._tools.has_come else fault
                raise
            self._tools.come(())
        self.fault = None

    async def _fetch_others(self, handle: WorkerHandle) -> None:
        """Fetch the other lists; one that fails is a warning, and stays unchanged. Watchers are told at the end, also
        of empty lists, which they may await.
        """
        for listing, each in self._others.items():
            await self._fetch(listing, each, handle)
        if self._others and self._is_wanted():
            self._changed()

    def on_changed(self, kind: str, handle: WorkerHandle, start: StartTask) -> None:
        """Fetch the announced lists again, soon, except those that the server said it does not have."""
        for listing in (Listing.RESOURCES, Listing.TEMPLATES) if kind == "resources" else (Listing(kind),):
            each = self._tools if listing is Listing.TOOLS else self._others.get(listing)
            if each is not None:
                each.refresh_soon(partial(self._start_refresh, listing, handle, start))

    def _start_refresh(self, listing: Listing, handle: WorkerHandle, start: StartTask) -> None:
        start(f"refresh {listing}", self._refresh_announced(listing, handle))

    async def _refresh_announced(self, listing: Listing, handle: WorkerHandle) -> None:
        each = self._tools if listing is Listing.TOOLS else self._others[listing]
        before = each.items
        if listing is not Listing.TOOLS:
            await self._fetch(listing, self._others[listing], handle)
        else:
            try:
                await self._fetch_tools(handle)
            except ProtocolFault as fault:
                # A server that is closed or lost meanwhile has no tools to list: that is told where it happened.
                if self._is_wanted():
                    _log.warning("%s changed its tools, but does not list them: %s", self._config.id, fault)
        # One notification announces both templates and resources.
        if each.items is before and listing is not Listing.TEMPLATES and self._is_wanted():
            self._on_same(listing)

    def stop(self) -> None:
        """Refresh no more."""
        self._tools.stop()
        for each in self._others.values():
            each.stop()

    async def _fetch(self, listing: Listing, each: ServerList[Offered], handle: WorkerHandle) -> None:
        try:
            await each.fetch(handle)
        except ProtocolFault as fault:
            if fault.reply is not None and fault.reply.code == METHOD_NOT_FOUND:
                each.come(())  # many have resources, and no word for templates
            elif self._is_wanted():
                _log.warning("%s does not list its %s: %s", self._config.id, listing.noun, fault)

    def _changed(self) -> None:
        self.version += 1
        self._notify()

    def _parse_offers(self, listing: Listing, body: bytes, is_wanted: Callable[[], bool]) -> Parsed[Offered]:
        return parse_offers(self._config, listing, body, is_wanted)
