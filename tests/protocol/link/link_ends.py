"""Both ends of a link in one process, without a socket or a clock: what one sends, the other is handed."""

from collections.abc import Sequence
from math import inf

from quarterdeck_protocol.faults import FaultKind, FaultRecord
from quarterdeck_protocol.link import frames
from quarterdeck_protocol.link.events import LinkEvent, LinkTerms, Refusal, Side
from quarterdeck_protocol.link.frame_bytes import WireLimits, decode, encode
from quarterdeck_protocol.link.session import Link

TOKEN = b"one time, one worker"
VERSION = "0.1.0"
PID = 40
"""Of a worker whose moments are the multiples of five seconds."""

LIMITS = WireLimits()
FAULT = FaultRecord(FaultKind.TOOL_ERROR, "refused", "reply_error")

SMALL = LinkTerms(window_units=4, max_waiting=3, max_requests=8)
"""Bounds that a test reaches with a handful of frames."""


def make_link(
    side: Side, *, terms: LinkTerms | None = None, now: float = 0.0, version: str = VERSION, pid: int = PID
) -> Link:
    """One end that has said and heard nothing yet, but for a worker's waiting Hello."""
    return Link(side, token=TOKEN, version=version, now=now, terms=terms, pid=pid)


def carry(source: Link, target: Link, now: float = 0.0) -> list[LinkEvent]:
    return [event for parts in source.take(now) for event in target.receive(parts, now)]


def make_pair(terms: LinkTerms | None = None, now: float = 0.0) -> tuple[Link, Link]:
    supervisor, worker = (make_link(side, terms=terms, now=now) for side in (Side.SUPERVISOR, Side.WORKER))
    carry(worker, supervisor, now)
    carry(supervisor, worker, now)
    assert supervisor.is_open
    assert worker.is_open
    return supervisor, worker


def frames_of(messages: Sequence[Sequence[bytes]]) -> list[frames.Frame]:
    return [decode(parts, LIMITS)[0] for parts in messages]


def hello(*, link_version: int = frames.LINK_VERSION, version: str = VERSION, token: bytes = TOKEN) -> frames.Hello:
    return frames.Hello(link_version, version, token, PID)


def fill(link: Link) -> list[int]:
    """Ask on `SMALL` terms until no credit is left; the requests are ready to be taken."""
    asked = [link.next_id() for _ in range(SMALL.window_units)]
    for request_id in asked:
        assert link.request(frames.List(request_id, 10.0), b"", 0.0) is None
    return asked


def is_dead(link: Link, now: float = 1.0) -> bool:
    return (
        not link.is_open
        and link.wake_at == inf
        and link.take(now) == []
        and link.tick(now + 1e6) == []
        and link.receive(encode(frames.Beat()), now) == []
        and (link.side is Side.WORKER or link.request(frames.List(99, 1.0), b"", now) is Refusal.DEAD)
        and (link.side is Side.SUPERVISOR or not link.post(frames.ListChanged()))
        and link.take(now) == []
    )
