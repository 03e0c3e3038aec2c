"""Where the registrar stands with one server: its row, what its launch was judged to be, what it may offer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase

from .judging import Verdict
from .offers import NOTHING, Offer, launch_held
from .rows import Row

RETRY_S: Final = 5.0
"""Between two attempts to record what could not be recorded."""


@dataclass(slots=True)
class Desk:
    """One row's state.

    Attributes:
        verdict: of its launch.
        loosened: by what it asks for more than before, where it came while a `serve` ran.
        offer: what it may offer.
        judged: the endpoint whose list the offer is of, and that list, or None when it is to be judged again; None
            before the first of this process.
        snapshot: by tool, the hashes of what was offered before the first list.
        retry_at: loop time before which it is not judged again.
        is_unrecorded: whether the last list that was judged could not be recorded.
    """

    row: Row
    verdict: Verdict
    loosened: tuple[str, ...] = ()
    offer: Offer = NOTHING
    judged: tuple[ServerEndpointImpl, tuple[RemoteTool, ...] | None] | None = None
    snapshot: Mapping[str, str] = field(default_factory=dict)
    retry_at: float = 0.0
    is_unrecorded: bool = False
    work: asyncio.Task[None] | None = field(default=None, repr=False)
    launch_fault: ProtocolFault | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # One for as long as it lasts: who watches tells what is new by its identity.
        self.launch_fault = None if is_admitted(self) else launch_held(self.row, self.verdict, self.loosened)


def postpone(desk: Desk) -> None:
    """Have it judged again, but not at once."""
    desk.retry_at = asyncio.get_running_loop().time() + RETRY_S


def is_admitted(desk: Desk) -> bool:
    """Whether the server may be started."""
    return desk.verdict is Verdict.ADMITTED


def has_list(desk: Desk, endpoint: ServerEndpointImpl) -> bool:
    """Whether a ready server, started as this row wants it, has listed what was not judged yet."""
    if not is_admitted(desk) or endpoint.phase is not EndpointPhase.READY or not endpoint.has_listed:
        return False
    is_new = desk.judged is None or desk.judged[0] is not endpoint or desk.judged[1] is not endpoint.tools()
    return is_new and endpoint.config == desk.row.config
