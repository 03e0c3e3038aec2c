"""One confined server as its supervisor holds it: what confines it, and what it uses of its limits.  Values only."""

from dataclasses import dataclass

from quarterdeck_protocol.contract import SandboxStatus
from quarterdeck_protocol.frames import ServerStart
from quarterdeck_sandbox.monitor import Watch
from quarterdeck_sandbox.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Custody:
    """What is known of one started process, and kept after its end.

    Attributes:
        start: what its worker said when it let it go.
        receipt: what was observed to confine it.
        watch: what is known of its use, None when nobody looks.
    """

    start: ServerStart
    receipt: Receipt
    watch: Watch | None = None

    @property
    def status(self) -> SandboxStatus:
        """It in short."""
        return SandboxStatus(self.receipt.tier, self.receipt.network, self.start.gaps)
