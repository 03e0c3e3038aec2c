"""What the two ends of a link agree on and say to their layers: sides, terms, events, refusals.  Values only.

`link` is the session that deals in them, and re-exports them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from quarterdeck_protocol.envelope import WireLimits
from quarterdeck_protocol.frames import Frame, Reply

MAX_REASON_CHARS: Final = 500
"""A reason is for people; clients and hostile peers may write anything there."""


class Side(StrEnum):
    """Which end of the link this is."""

    SUPERVISOR = "supervisor"
    WORKER = "worker"

    @property
    def peer(self) -> "Side":
        """The other end."""
        return Side.WORKER if self is Side.SUPERVISOR else Side.SUPERVISOR


@dataclass(frozen=True, slots=True)
class LinkTerms:
    """What both ends hold each other to.

    Attributes:
        greet_s: from creation to a finished handshake.
        beat_s: the longest silence of an end that lives.
        patience_s: a longer silence means the peer hangs.
        backstop_s: how much later than the worker the supervisor gives up a request itself.
        window_units: what may be under way and not yet credited; see `link_credit`.
        max_waiting: frames that wait for credit before new requests are refused.
        max_requests: requests without a reply.
    """

    greet_s: float = 30.0
    beat_s: float = 2.0
    patience_s: float = 6.0
    backstop_s: float = 2.0
    window_units: int = 2048
    max_waiting: int = 4096
    max_requests: int = 8192
    wire: WireLimits = field(default_factory=WireLimits)


class Greeted(msgspec.Struct, frozen=True):
    """The handshake is done; `peer_version` is the peer's package, `pid` what a worker says of itself."""

    peer_version: str
    pid: int | None = None


class Arrived(msgspec.Struct, frozen=True):
    """A frame for the layer above: a request or cancel (worker), news (supervisor)."""

    frame: Frame
    body: bytes


class Settled(msgspec.Struct, frozen=True):
    """A request of ours has its reply."""

    reply: Reply
    body: bytes


class Expired(msgspec.Struct, frozen=True):
    """The deadline of a request of the peer's has passed: stop it and reply."""

    request_id: int


class Late(msgspec.Struct, frozen=True):
    """A request of ours has no reply although even the backstop has passed, and the peer lives: it is busy.

    A later reply is swallowed.  One that does not come within another `patience_s` is `Overdue`.
    """

    request_id: int


class Overdue(msgspec.Struct, frozen=True):
    """A request of ours has no reply although even the backstop has passed; a later one is swallowed.

    `was_sent`: the peer has it and is unresponsive.  Otherwise it still waited for credit and will never be sent.
    """

    request_id: int
    was_sent: bool = True


class Silent(msgspec.Struct, frozen=True):
    """The peer let its beats go missing, or never greeted; the link is dead."""

    silence_s: float


class Violated(msgspec.Struct, frozen=True):
    """The peer broke the rules; the link is dead."""

    reason: str


LinkEvent = Greeted | Arrived | Settled | Expired | Late | Overdue | Silent | Violated


class Refusal(StrEnum):
    """Why a request was not taken; nothing of it was sent.

    `UNSENDABLE`: no message can carry it, because it is too large or holds text that is not Unicode.
    """

    BUSY = "busy"
    DEAD = "dead"
    UNSENDABLE = "unsendable"


class LinkMisuseError(Exception):
    """Our own side broke the rules."""
