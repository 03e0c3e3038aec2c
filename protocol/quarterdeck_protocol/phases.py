"""The life of an endpoint as a table.  Pure: a phase and a step in, a phase out; a missing row is the error."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class EndpointPhase(StrEnum):
    """Where an endpoint is in its single life."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    FAULTED = "faulted"


class PhaseStep(StrEnum):
    """What moves an endpoint."""

    OPEN = "open"
    CONNECTED = "connected"
    FAILED = "failed"
    LOST = "lost"
    CLOSE = "close"
    RELEASED = "released"


TRANSITIONS: Final[Mapping[tuple[EndpointPhase, PhaseStep], EndpointPhase]] = MappingProxyType(
    {
        (EndpointPhase.IDLE, PhaseStep.OPEN): EndpointPhase.CONNECTING,
        (EndpointPhase.IDLE, PhaseStep.CLOSE): EndpointPhase.CLOSED,
        (EndpointPhase.CONNECTING, PhaseStep.CONNECTED): EndpointPhase.READY,
        (EndpointPhase.CONNECTING, PhaseStep.FAILED): EndpointPhase.FAULTED,
        (EndpointPhase.CONNECTING, PhaseStep.CLOSE): EndpointPhase.CLOSED,
        (EndpointPhase.READY, PhaseStep.LOST): EndpointPhase.FAULTED,
        (EndpointPhase.READY, PhaseStep.CLOSE): EndpointPhase.CLOSING,
        (EndpointPhase.CLOSING, PhaseStep.LOST): EndpointPhase.CLOSING,
        (EndpointPhase.CLOSING, PhaseStep.RELEASED): EndpointPhase.CLOSED,
    }
)
"""Every legal step; another is a KeyError: a bug of ours.

Closing releases what a faulted endpoint still holds, but moves it nowhere."""


def is_usable_phase(phase: EndpointPhase) -> bool:
    """Whether an endpoint in `phase` takes calls."""
    return phase == EndpointPhase.READY


def is_terminal_phase(phase: EndpointPhase) -> bool:
    """Whether `phase` is never left."""
    return phase in (EndpointPhase.CLOSED, EndpointPhase.FAULTED)
