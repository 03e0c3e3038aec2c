"""Both ends of a link in one process, without a socket or a clock: what one sends, the other is handed."""

from collections.abc import Sequence

from quarterdeck_protocol.envelope import WireLimits, decode
from quarterdeck_protocol.frames import Frame
from quarterdeck_protocol.link import Link, LinkEvent, LinkTerms, Side

TOKEN = b"one time, one worker"
VERSION = "0.1.0"
LIMITS = WireLimits()


def make_link(side: Side, *, terms: LinkTerms | None = None, now: float = 0.0, version: str = VERSION) -> Link:
    """One end that has said and heard nothing yet, but for a worker's waiting Hello."""
    return Link(side, token=TOKEN, version=version, now=now, terms=terms, pid=42)


def carry(source: Link, target: Link, now: float = 0.0) -> list[LinkEvent]:
    """Hand over all that `source` wants to send; what `target` makes of it."""
    return [event for parts in source.take(now) for event in target.receive(parts, now)]


def make_pair(terms: LinkTerms | None = None, now: float = 0.0) -> tuple[Link, Link]:
    """Supervisor and worker after their handshake, with nothing left to send."""
    supervisor, worker = (make_link(side, terms=terms, now=now) for side in (Side.SUPERVISOR, Side.WORKER))
    carry(worker, supervisor, now)
    carry(supervisor, worker, now)
    assert supervisor.is_open
    assert worker.is_open
    return supervisor, worker


def frames_of(messages: Sequence[Sequence[bytes]]) -> list[Frame]:
    """What messages say."""
    return [decode(parts, LIMITS)[0] for parts in messages]
