"""What is actually enforced on one confined process: per property its mechanism and strength, as observed.

Pure values.  A receipt is written when the process is started, kept with its endpoint and shown by `ps` and `inspect`.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from quarterdeck_protocol.policy import Property, Tier


class Strength(StrEnum):
    """How far a property holds.  Only `FULL` satisfies a policy's `require`."""

    FULL = "full"
    """By the kernel, without a gap that we know of."""

    PARTIAL = "partial"
    """By looking now and then, or with the gap that the mechanism's text names."""

    NONE = "none"


class Finding(msgspec.Struct, frozen=True):
    """One property of a receipt: `mechanism` is a short phrase for people, `strength` what it is worth."""

    mechanism: str
    strength: Strength


class Receipt(msgspec.Struct, frozen=True):
    """What confines one process.

    Attributes:
        tier: how.
        findings: every property, promised by the plan and confirmed by the probes inside.
        uid: the user it runs as, None where it is ours; 0 is root without capabilities.
        network: the mode in force, in words for people.
        shown: one line for each path, grant or prefix that the policy or the program's own needs opened.
        gaps: one line for each way in which this is weaker than wanted.
    """

    tier: Tier
    findings: Mapping[Property, Finding]
    uid: int | None = None
    network: str = ""
    shown: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
