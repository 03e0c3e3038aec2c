"""The provider host: any tool box as an MCP server, over any pair of the SDK's streams.

A connection runs in an owner task of its own, which its handle signals and awaits.  The SDK is imported with the first
that needs it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import msgspec

from quarterdeck.common.events import Bus
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.offers import OfferSource
from quarterdeck_protocol.tools import Client, ToolBox, as_source

from .budget.kept_results import KeptResults
from .offers.content import Content, NoteNative
from .offers.decks import Decks
from .offers.groups import LiveGroups
from .program_names import ProgramNames

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

    from quarterdeck.login.broker import LoginBroker

    from .sdk_streams import StreamServer

    StreamPair = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
    """What the SDK's transports yield, seen from the server."""


@dataclass(frozen=True, slots=True)
class ProviderHostInfo:
    """Who the host says it is."""

    name: str = "indus-provider-host"
    version: str = "0.1.0"


class ProviderHost(Protocol):
    """A tool box as an MCP server."""

    async def connect(self, transport: "StreamPair") -> "RunningProviderHost":
        """Serve one client over `transport`, in the background; the streams are closed when it ends.

        Raises:
            ProtocolFault: `transport`, when serving cannot start.
        """
        ...


class RunningProviderHost:
    """One connection being served."""

    def __init__(self, server: "StreamServer", transport: "StreamPair") -> None:
        self._server = server
        self._scope = anyio.CancelScope()
        self._ended: Final = asyncio.Event()
        self._fault: ProtocolFault | None = None
        self._owner = asyncio.get_running_loop().create_task(self._own(transport))

    @property
    def fault(self) -> ProtocolFault | None:
        """What ended the connection other than its client or `cancel`."""
        return self._fault

    async def waiting(self) -> None:
        """Wait until the client is gone.

        Raises:
            ProtocolFault: `transport`, when serving broke.
        """
        await self._ended.wait()
        if self._fault is not None:
            raise self._fault.with_traceback(None)

    async def cancel(self) -> None:
        """End the connection and wait until it has; calls in flight are cancelled.  Harmless when it has ended."""
        self._scope.cancel()
        await self._ended.wait()

    async def _own(self, transport: "StreamPair") -> None:
        try:
            with self._scope:
                await self._server.serve(transport)
        except ProtocolFault as fault:
            self._fault = fault
        finally:
            self._ended.set()


_connections: Final = count(1)
"""Of this process: servers of single sessions, and the turns of calls, are told apart by it."""


class ProviderHostImpl:
    """The one provider host.  Holds every connection until it ends, so that a dropped handle ends nothing."""

    def __init__(self, content: Content) -> None:
        self.box: Final = content.box
        self.info: Final = ProviderHostInfo(content.name, content.version)
        self.content: Final = content
        self._running: set[RunningProviderHost] = set()

    def close(self) -> None:
        """Keep nothing of what is served, once nobody is served any longer.  Repeatable."""
        self.content.close()

    @property
    def server_info(self) -> bytes:
        """Our identity as JSON, as 2026-07-28 results carry it."""
        return msgspec.json.encode({"name": self.info.name, "version": self.info.version})

    async def connect(self, transport: "StreamPair", client: Client | None = None) -> RunningProviderHost:
        """Serve one client over `transport`; see `ProviderHost.connect`.

        Args:
            transport: the client.
            client: who it is; None for one that differs from all others, and of whom nothing else is known.
        """
        from .sdk_streams import StreamServer  # the SDK's types: a quarter of a second of imports

        if client is None:
            client = Client(key=f"connection {next(_connections)}")
        running = RunningProviderHost(StreamServer(self, client), _checked(transport))
        self._running.add(running)
        running._owner.add_done_callback(lambda _: self._running.discard(running))  # noqa: SLF001 - its other half
        # Once around the loop, so that the session reads before the caller goes on.
        await asyncio.sleep(0)
        if running.fault is not None:
            raise running.fault
        return running


def create_provider_host(
    box: ToolBox,
    info: ProviderHostInfo | None = None,
    *,
    portable_schemas: bool = False,
    settled: Callable[[], Awaitable[object]] | None = None,
    instructions: Callable[[Client], str] = lambda _: "",
    decks: Decks | None = None,
    offers: OfferSource | None = None,
    groups: LiveGroups | None = None,
    results: KeptResults | None = None,
    logins: "LoginBroker | None" = None,
    on_opened: Callable[[str], None] = lambda _: None,
    on_ended: Callable[[str], None] = lambda _: None,
    on_revoked: Callable[[str], None] = lambda _: None,
    programs: ProgramNames | None = None,
    note: NoteNative = lambda *_: None,
    bus: Bus | None = None,
    redact: Callable[[str], str] = str,
) -> ProviderHostImpl:
    """A provider host over `box`.

    Args:
        box: read at each list and each call; one that can be watched announces its changes.
        info: who it says it is.
        portable_schemas: publish the portable input schemas instead of the servers' own.
        settled: awaited before the first list of tools is answered; bounded by its maker.
        instructions: what this client is told when it comes; asked each time, an empty text is none.
        decks: over the same box, native tools for each client beside it; closed by their maker.
        offers: what servers have beside tools; None to show tools alone.
        groups: parts of what is offered, of which clients may be shown some; None for none.
        results: bounds what servers' tools answer, and keeps what is cut of it; None for no bound.
        logins: where the people of clients of this machine may be asked to log in; None for nowhere.
        on_opened: told the key of each client's session that will end.
        on_ended: told it when it has.
        on_revoked: told the user of a token that opens nothing any more.
        programs: keeps the names by which clients introduce themselves.
        note: takes the ends of native tools' calls.
        bus: has the tracer, where requests are traced; None for nowhere.
        redact: takes secrets out of a text.
    """
    info = info or ProviderHostInfo()
    return ProviderHostImpl(
        Content(
            box=as_source(box),
            name=info.name,
            version=info.version,
            portable_schemas=portable_schemas,
            settled=settled,
            instructions=instructions,
            decks=decks,
            offers=offers,
            groups=groups or LiveGroups({}),
            results=results,
            logins=logins,
            on_opened=on_opened,
            on_ended=on_ended,
            on_revoked=on_revoked,
            note=note,
            bus=bus or Bus(),
            redact=redact,
            programs=programs if programs is not None else ProgramNames(),
        )
    )


def _checked(transport: "StreamPair") -> "StreamPair":
    try:
        read, write = transport
    except (TypeError, ValueError) as error:
        raise ProtocolFault(FaultKind.TRANSPORT, "a transport is a pair of streams (read, write)", error) from None
    if not hasattr(read, "receive") or not hasattr(write, "send"):
        raise ProtocolFault(FaultKind.TRANSPORT, "a transport is a pair of streams: the first reads, the second writes")
    return read, write
