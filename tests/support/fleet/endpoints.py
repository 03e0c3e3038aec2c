"""Endpoints on sessions that a test plays: brought into any phase, and closed in the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig, StreamableHttpServerConfig, ToolFilter
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.frames import Call, Close, Open, ServerCard
from support.fleet.workers import PlayedSession, closes, opens_as
from support.waiting import PATIENCE_S, turns

IDLE, CONNECTING, READY, CLOSING, CLOSED, FAULTED = EndpointPhase

STDIO = StdioServerConfig(id="fs", command="x", tools=ToolFilter(deny=("secret*",)), call_timeout_s=20.0)
REMOTE = StreamableHttpServerConfig(id="fs", url="http://localhost/mcp")
EXITED = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3))


class Stage:
    """An endpoint on a played session."""

    def __init__(self, config: ServerConfig = STDIO, *, session_fault: ProtocolFault | None = None) -> None:
        self.session = PlayedSession(fault=session_fault)
        self.worker = self.session.worker
        self.endpoint = ServerEndpointImpl(config, self.session)
        self.seen: list[tuple[EndpointPhase, int]] = []
        self.endpoint.watch(lambda: self.seen.append((self.endpoint.phase, len(self.endpoint.tools()))))
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def bring_to(self, phase: EndpointPhase) -> None:
        """Lead it there by the shortest way; what the last step waits for is left waiting."""
        match phase:
            case EndpointPhase.CONNECTING:
                del self.worker.rules[Open]
                self.start(self.endpoint.open())
                self.connecting, _ = await self.worker.next(Open)
            case EndpointPhase.READY:
                await self.endpoint.open()
            case EndpointPhase.CLOSING:
                await self.endpoint.open()
                del self.worker.rules[Close]
                self.start(self.endpoint.close())
                self.closing, _ = await self.worker.next(Close)
            case EndpointPhase.CLOSED:
                await self.endpoint.close()
            case EndpointPhase.FAULTED:
                self.worker.rules[Open] = lambda worker, request, _: worker.fail(request, EXITED)
                with pytest.raises(ProtocolFault):
                    await self.endpoint.open()
        assert self.endpoint.phase is phase

    async def called(self, work: Any) -> "tuple[asyncio.Task[Any], Call, bytes]":
        task = self.start(work)
        frame, body = await self.worker.next(Call)
        return task, frame, body

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Let the loop run until it is so."""
        while not is_true():
            await turns(1)

    async def end(self) -> None:
        """Leave no task behind."""
        self.worker.rules[Close] = closes
        if self.endpoint.phase is CLOSING:
            closes(self.worker, self.closing, b"")
        await self.endpoint.close()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(error, ProtocolFault | asyncio.CancelledError) for error in errors), errors
        if self.worker._handle is not None:
            self.worker.leaves()


@asynccontextmanager
async def stage(
    phase: EndpointPhase = READY,
    config: ServerConfig = STDIO,
    *,
    session_fault: ProtocolFault | None = None,
    card: ServerCard | None = None,
) -> AsyncIterator[Stage]:
    """An endpoint in some phase, whose server says this of itself; it is closed at the end."""
    played = Stage(config, session_fault=session_fault)
    if card is not None:
        played.worker.rules[Open] = opens_as(card)
    with anyio.fail_after(PATIENCE_S):
        await played.bring_to(phase)
        yield played
        await played.end()


def assert_not_connected(fault: BaseException | None, phase: EndpointPhase) -> None:
    assert isinstance(fault, ProtocolFault)
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.NOT_CONNECTED, "not_connected", Delivery.NOT_SENT)
    assert str(phase) in fault.message
