"""What a frame may be, whatever the state of the link: who may send it, with what in it.  Pure.

The receiving end turns a reason into a `Violated`, the sending end into a `LinkMisuseError`.
"""

import hmac
from math import inf, isfinite
from typing import Final, get_args

from quarterdeck_protocol.frames import (
    LINK_VERSION,
    Answer,
    Beat,
    Call,
    Cancel,
    Close,
    Condemn,
    Credit,
    Failed,
    Frame,
    Hello,
    List,
    ListChanged,
    Log,
    Lost,
    Open,
    Progress,
    Request,
    Started,
    Welcome,
)
from quarterdeck_protocol.link_events import Side

MIN_TOKEN_BYTES: Final = 16
"""A one-time token that cannot be guessed within a handshake's time."""

RECEIVES: Final[dict[Side, tuple[type, ...]]] = {
    Side.SUPERVISOR: (Hello, Beat, Credit, Answer, Failed, Progress, Log, ListChanged, Lost, Started),
    Side.WORKER: (Welcome, Beat, Credit, Open, List, Call, Close, Cancel, Condemn),
}
"""What each side may receive, and so what its peer may send."""

GREETINGS: Final = (Hello, Welcome)
"""The frames of the handshake."""

CARRIERS: Final = (Open, Call, Answer, Started)
"""The frames that have a body."""

FREE: Final = frozenset({*GREETINGS, Beat, Credit})
"""The link's own frames, which cost no credit."""


def misfit(frame: Frame, body: bytes, receiver: Side) -> str | None:
    """Why this may not be sent to `receiver` in any state of the link; None when it may."""
    kind = type(frame)
    if kind not in (_TO_SUPERVISOR if receiver is Side.SUPERVISOR else _TO_WORKER):
        return f"{type(frame).__name__} is not for the {receiver}"
    if body and kind not in _CARRIERS:
        return f"{type(frame).__name__} has a body of {len(body):,} bytes"
    if kind in _REQUESTS:
        assert isinstance(frame, Request)
        if not 0 < frame.timeout_s < inf:
            return f"a timeout of {frame.timeout_s} s"
    return None


def stranger(frame: Hello | Welcome, *, token: bytes, version: str) -> str | None:
    """Why whoever sent this is not our peer; None when it is."""
    link_version = frame.link_version if isinstance(frame, Hello) else LINK_VERSION
    if link_version != LINK_VERSION or frame.package_version != version:
        return (
            f"it is version {frame.package_version[:50]} (link {link_version}), "
            f"we are {version} (link {LINK_VERSION}): reinstall, then start again"
        )
    if isinstance(frame, Hello) and not hmac.compare_digest(frame.token, token):
        return "a wrong token"
    return None


def can_be_told(note: Progress) -> bool:
    """Whether JSON can say its numbers."""
    return isfinite(note.progress) and (note.total is None or isfinite(note.total))


# Every frame is judged at both ends: a set of types answers at once, and no enumeration is hashed.
_TO_SUPERVISOR: Final = frozenset(RECEIVES[Side.SUPERVISOR])
_TO_WORKER: Final = frozenset(RECEIVES[Side.WORKER])
_CARRIERS: Final = frozenset(CARRIERS)
_REQUESTS: Final = frozenset(get_args(Request))
