"""Cores of fleets brought to where a test begins, by events alone."""

from collections.abc import Sequence

from quarterdeck.fleet.core.supervision import (
    Closed,
    Connected,
    FleetCore,
    FleetStarted,
    Instruction,
    Mint,
    ServerLost,
)
from quarterdeck_protocol.configs import BridgeConfig, StdioServerConfig
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

EXITED = ProtocolFault(FaultKind.TRANSPORT, "it exited", code="exited")
NO_COMMAND = ProtocolFault(FaultKind.SPAWN_FAILED, "no such command", code="command_not_found")
WORKER_LOST = ProtocolFault(FaultKind.SPAWN_FAILED, "its worker died", code="worker_lost")


def row(server: str, command: str | None = None) -> StdioServerConfig:
    return StdioServerConfig(id=server, command=command or server)


def config(*servers: str | StdioServerConfig) -> BridgeConfig:
    return BridgeConfig(servers=tuple(row(server) if isinstance(server, str) else server for server in servers))


def mint(server: str, generation: int = 1, command: str | None = None) -> Mint:
    return Mint(server, generation, row(server, command))


def core(*servers: str, max_starting: int = 4) -> FleetCore:
    """A core that has just been told to start these; chance leaves each delay as it is."""
    made = FleetCore(lambda: 0.5, max_starting=max_starting)
    made.handle(FleetStarted(config(*servers)), 0.0)
    return made


def serving(*servers: str) -> FleetCore:
    made = core(*servers, max_starting=max(len(servers), 1))
    for server in servers:
        made.handle(Connected(server, 1), 0.0)
    return made


def minted(said: Sequence[Instruction]) -> list[str]:
    return [instruction.server for instruction in said if isinstance(instruction, Mint)]


def phases(made: FleetCore) -> list[tuple[str, str]]:
    return [(server, member.phase.value) for server, member in made.members.items()]


def crash_looped() -> tuple[FleetCore, float]:
    """A core whose server `a` was lost right after each of its starts until it is left alone, and the time then."""
    made, now = serving("a"), 0.0
    for generation in range(1, 7):
        made.handle(ServerLost("a", generation, EXITED), now)
        if generation < 6:
            now = max(now, made.members["a"].start_at)
        made.handle(Closed("a", generation), now)
        if generation < 6:
            made.handle(Connected("a", generation + 1), now)
    return made, now


def backing_off(server: str = "a") -> FleetCore:
    """A core whose server died twice in the moment 10.0, so that its next start waits until 11.0."""
    made = serving(server)
    for generation in (1, 2):
        made.handle(ServerLost(server, generation, EXITED), 10.0)
        made.handle(Closed(server, generation), 10.0)
        if generation == 1:
            made.handle(Connected(server, 2), 10.0)
    return made
