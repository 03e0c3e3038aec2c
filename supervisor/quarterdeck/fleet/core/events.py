"""What the fleet's core is told and what it says: frozen values in two unions, `Event` and `Instruction`.

Pure.  The edge turns what happens to endpoints into events, and carries instructions out in their order.
"""

from dataclasses import dataclass

from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.faults import ProtocolFault


@dataclass(frozen=True, slots=True)
class Started:
    """Run these servers in place of those that run now; duplicate ids are resolved by the core."""

    config: BridgeConfig


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """After a `Started`: run these servers from now on, and leave those alone whose configuration is the same."""

    config: BridgeConfig


@dataclass(frozen=True, slots=True)
class Report:
    """What one generation of one server has to say."""

    server: str
    generation: int


@dataclass(frozen=True, slots=True)
class Connected(Report):
    """It is ready."""


@dataclass(frozen=True, slots=True)
class ConnectFailed(Report):
    """It faulted before it was ready.

    Attributes:
        was_installing: whether its command had to fetch the program first.
    """

    fault: ProtocolFault
    was_installing: bool = False


@dataclass(frozen=True, slots=True)
class Lost(Report):
    """It faulted after it was ready."""

    fault: ProtocolFault


@dataclass(frozen=True, slots=True)
class ToolsChanged(Report):
    """It lists other tools than before."""


@dataclass(frozen=True, slots=True)
class Closed(Report):
    """Nothing of it is left: the answer to each `Close`, and unasked when its owner closed it by hand."""


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """A person wants a fresh start with a clean past, whatever the phase.  An unknown id means nothing."""

    server: str


@dataclass(frozen=True, slots=True)
class TearDown:
    """Close everything for good: nothing is minted from here on, whatever is asked."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the last `WakeAt` has come."""


Event = (
    Started | Reconfigured | Connected | ConnectFailed | Lost | ToolsChanged | Closed | RestartAsked | TearDown | Tick
)


@dataclass(frozen=True, slots=True)
class Mint:
    """Make a new endpoint from `config` and open it.

    Attributes:
        patience: how many times its usual deadline its connect may take.
    """

    server: str
    generation: int
    config: ServerConfig
    patience: int = 1


@dataclass(frozen=True, slots=True)
class Close:
    """Close this endpoint, alive or dead, then report `Closed`."""

    server: str
    generation: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a `Tick` at this monotonic time, seconds; replaces the one before."""

    at: float


@dataclass(frozen=True, slots=True)
class Publish:
    """This server's state or tools changed; it is gone when the core's `members` lack it."""

    server: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Every first connect of the `start`-th `Started`, from 1, is ready, given up or closed; said once for each.

    What a `Reconfigured` brings before that counts, what it takes away does not; what it brings later says nothing.
    """

    start: int


Instruction = Mint | Close | WakeAt | Publish | Settled
