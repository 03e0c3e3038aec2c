"""A fleet whose every worker a test plays, without processes and sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from support.fleet.workers import PlayedSession, lists
from support.waiting import PATIENCE_S, until

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import ServerFleetImpl
from quarterdeck_protocol.configs import BridgeConfig, RestartPolicy, ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import List, Open

IDLE, CONNECTING, READY, CLOSING, CLOSED, FAULTED = EndpointPhase
NO_COMMAND = FaultRecord(FaultKind.SPAWN_FAILED, "no such command", "command_not_found")
AT_ONCE = RestartPolicy(backoff_s=0.001, backoff_max_s=0.001, max_restarts=2)


@dataclass
class PretendRuntime:
    """A runtime that starts nothing; notes its users."""

    users: int = 0
    most: int = 0

    async def acquire(self) -> "PretendRuntime":
        """See `Runtime`."""
        await asyncio.sleep(0)
        self.users += 1
        self.most = max(self.most, self.users)
        return self

    async def release(self) -> None:
        """See `Runtime`."""
        self.users -= 1


@dataclass
class PlayedFleet:
    """A fleet and every endpoint that it ever made."""

    runtime: PretendRuntime
    sessions: dict[str, list[PlayedSession]] = field(default_factory=dict)
    prepare: dict[str, Callable[[PlayedSession], None]] = field(default_factory=dict)
    installs: Callable[[ServerConfig], bool] | None = None

    def __post_init__(self) -> None:
        self.fleet = ServerFleetImpl(self.make, installs=self.installs)

    def make(self, config: ServerConfig) -> ServerEndpointImpl:
        session = PlayedSession()
        session.worker.rules[List] = lists(f"of-{config.id}")
        self.prepare.get(config.id, lambda _: None)(session)
        self.sessions.setdefault(config.id, []).append(session)
        return ServerEndpointImpl(config, session)

    def phases(self) -> dict[str, EndpointPhase]:
        return {server: status.phase for server, status in self.fleet.status().items()}

    async def until(self, is_true: Callable[[], bool]) -> None:
        await until(is_true)


@asynccontextmanager
async def played_fleet(
    runtime: PretendRuntime, installs: Callable[[ServerConfig], bool] | None = None
) -> AsyncIterator[PlayedFleet]:
    made = PlayedFleet(runtime, installs=installs)
    with anyio.fail_after(PATIENCE_S):
        yield made
        await made.fleet.tear_down()
    assert runtime.users == 0
    assert not made.fleet._tasks
    for session in (session for sessions in made.sessions.values() for session in sessions):
        if session.worker._handle is not None:
            session.worker.leaves()


def config(*servers: str, restart: RestartPolicy = AT_ONCE, **commands: str) -> BridgeConfig:
    return BridgeConfig(
        servers=tuple(
            StdioServerConfig(id=server, command=commands.get(server, server), restart=restart) for server in servers
        )
    )


def refuses(session: PlayedSession) -> None:
    session.worker.rules[Open] = lambda worker, request, _: worker.fail(request, NO_COMMAND)


def hangs(session: PlayedSession) -> None:
    del session.worker.rules[Open]
