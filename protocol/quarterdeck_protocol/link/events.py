"""What the ends of a link agree on and tell their callers: sides, terms, events, which frame may go where.  Pure.

The receiving end turns a forbidden frame into a `Violated`, the sending end into a `LinkMisuseError`.
"""

import hmac
from collections.abc import Callable
from enum import StrEnum
from math import isfinite
from typing import Final, get_args

import msgspec

from quarterdeck_protocol.moments import REST_S

from . import frames
from .frame_bytes import WireLimits

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


class LinkTerms(msgspec.Struct, frozen=True):
    """The limits that both ends hold each other to.

    Attributes:
        greet_s: from creation to a finished handshake.
        beat_s: the longest silence of a worker that lives, while it owes a reply.
        patience_s: a longer one means that it hangs.
        quiet_beat_s: the same while it owes none: each beat wakes two processes, and of a worker that hangs nobody
            waits for anything.  What it is asked next counts from then on.  It beats at its `moments`.
        quiet_patience_s: a longer silence means that it hangs, whatever it owes.
        supervisor_beat_s: the longest silence of a supervisor that lives.  Each of its beats wakes a process, and all
            that one tells is that a worker may go on: a dead supervisor is noticed at once, by the zygote.
        supervisor_patience_s: a longer one means that it hangs; enough for one that somebody has stopped for a while.
        backstop_s: how much later than the worker the supervisor gives up a request itself.
        window_units: what may be under way and not yet credited; see `limits`.
        max_waiting: frames that wait for credit before new requests are refused.
    """

    greet_s: float = 30.0
    beat_s: float = 2.0
    patience_s: float = 6.0
    quiet_beat_s: float = REST_S
    quiet_patience_s: float = 15.0
    supervisor_beat_s: float = 200.0
    supervisor_patience_s: float = 600.0
    backstop_s: float = 2.0
    window_units: int = 2048
    max_waiting: int = 4096
    max_requests: int = 8192
    wire: WireLimits = msgspec.field(default_factory=WireLimits)

    def beat_of(self, side: Side, *, owes: bool) -> float:
        """The longest silence of this end, seconds; `owes`: while it owes a reply."""
        if side is Side.SUPERVISOR:
            return self.supervisor_beat_s
        return self.beat_s if owes else self.quiet_beat_s

    def patience_with(self, side: Side, *, owes: bool) -> float:
        """The silence of this end from which on it hangs, seconds; `owes`: while it owes a reply."""
        if side is Side.SUPERVISOR:
            return self.supervisor_patience_s
        return self.patience_s if owes else self.quiet_patience_s


Requester = tuple[Callable[[frames.Reply, bytes], None], object]
"""The taker of a request's reply, and what its sender keeps with the request: see `Link.request`."""


class Greeted(msgspec.Struct, frozen=True):
    """The handshake is done."""


class Arrived(msgspec.Struct, frozen=True):
    """A frame for the layer above: a request or cancel (worker), news (supervisor).

    `requester` is that of the request whose progress it tells; None for other frames.
    """

    frame: frames.Frame
    body: bytes
    requester: Requester | None = None


class Replied(msgspec.Struct, frozen=True):
    """A request of ours has its reply; `requester` is the one that `Link.request` was given."""

    reply: frames.Reply
    body: bytes
    requester: Requester | None = None


class Expired(msgspec.Struct, frozen=True):
    """The deadline of a request of the peer's has passed: stop it and reply."""

    request_id: int


class Late(msgspec.Struct, frozen=True):
    """Our request has no reply although even the backstop passed; the peer is busy, and has another `patience_s`."""

    request_id: int
    requester: Requester | None = None


class Overdue(msgspec.Struct, frozen=True):
    """Our request has no reply although even the backstop has passed; a later one is swallowed.

    `was_sent`: the peer has it and is unresponsive. Otherwise it still waited for credit and will never be sent.
    `requester` is None if it gave the request up, or was told that it is late.
    """

    request_id: int
    was_sent: bool = True
    requester: Requester | None = None


class Silent(msgspec.Struct, frozen=True):
    """The peer missed its heartbeats, or never greeted; the link is dead."""

    silence_s: float


class Violated(msgspec.Struct, frozen=True):
    """The peer broke the rules; the link is dead."""

    reason: str


LinkEvent = Greeted | Arrived | Replied | Expired | Late | Overdue | Silent | Violated


class Refusal(StrEnum):
    """Why a request was not taken; nothing was sent. `UNSENDABLE`: it is too large, or text is not Unicode."""

    BUSY = "busy"
    DEAD = "dead"
    UNSENDABLE = "unsendable"


class LinkMisuseError(Exception):
    """This side broke the rules: a bug of ours."""


MIN_TOKEN_BYTES: Final = 16
"""A one-time token that cannot be guessed within a handshake's time."""

FREE: Final = frozenset({frames.Hello, frames.Welcome, frames.Beat, frames.Credit})
"""The link's own frames, which cost no credit."""

CARRIERS: Final[frozenset[type]] = frozenset(
    {
        frames.Open,
        frames.Call,
        frames.Forward,
        frames.AskAnswer,
        frames.Tell,
        frames.Listen,
        frames.Authorize,
        frames.Answer,
        frames.Started,
        frames.Log,
        frames.Asked,
        frames.Note,
    }
)
"""Frames that may have a body."""

RECEIVES: Final[dict[Side, frozenset[type]]] = {
    Side.SUPERVISOR: frozenset({*FREE, *get_args(frames.Reply), *get_args(frames.News)} - {frames.Welcome}),
    Side.WORKER: frozenset({*FREE, *get_args(frames.Request), frames.Cancel, *get_args(frames.Told)} - {frames.Hello}),
}
"""What each side may receive, and so what its peer may send."""


def why_wrong(frame: frames.Frame, body: bytes, receiver: Side) -> str:
    """Say why this may not be sent to `receiver` in any state of the link: by `RECEIVES`, or by `CARRIERS`."""
    if type(frame) not in RECEIVES[receiver]:
        return f"{type(frame).__name__} is not for the {receiver}"
    return f"{type(frame).__name__} has a body of {len(body):,} bytes"


def wrong_timeout(request: frames.Request) -> str:
    """Say that a request has no positive, finite number of seconds for its answer."""
    return f"a timeout of {request.timeout_s} s"


def wrong_peer(frame: frames.Hello | frames.Welcome, *, token: bytes, version: str) -> str | None:
    """Why whoever sent this is not our peer; None when it is."""
    link_version = frame.link_version if isinstance(frame, frames.Hello) else frames.LINK_VERSION
    if link_version != frames.LINK_VERSION or frame.package_version != version:
        return (
            f"it is version {frame.package_version[:50]} (link {link_version}), "
            f"we are {version} (link {frames.LINK_VERSION}): reinstall, then start again"
        )
    if isinstance(frame, frames.Hello) and not hmac.compare_digest(frame.token, token):
        return "a wrong token"
    return None


def is_reportable(note: frames.Progress) -> bool:
    """Whether JSON can say its numbers."""
    return isfinite(note.progress) and (note.total is None or isfinite(note.total))
