"""What was enrolled and what was withdrawn, as events, and the one fold that says what is live.

The log is the truth; a snapshot is a cache of its fold.  Pure: no clock, no store; every transition gives a new value.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Self

from quarterdeck.ledger.events.keys import BridgeKey, key_of_qualified

from .capability import BridgeCapability


class BridgeOp(StrEnum):
    """What an event does."""

    ENROLL = "enroll"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True)
class BridgeEntry:
    """One event.

    Attributes:
        capability: what is enrolled; None on retire.
        seq: orders the events; of two equal ones the later in the log wins.
        at: when, for people: ISO-8601 UTC with milliseconds and `Z`.
    """

    op: BridgeOp
    key: BridgeKey
    server: str
    capability: BridgeCapability | None
    seq: int
    at: str


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """What is live.

    Attributes:
        live: by key, in the order of enrolment; enrolling a live key anew keeps its place.
        by_server: how many live keys each server has; none is no entry.
        high_water: the largest sequence number of all events; 0 before the first.
        owners: the server of each live key, as the last event that touched it says.
    """

    live: Mapping[BridgeKey, BridgeCapability]
    by_server: Mapping[str, int]
    high_water: int
    owners: Mapping[BridgeKey, str]


def reduce_ledger(log: Iterable[BridgeEntry]) -> LedgerSnapshot:
    """What `log` amounts to, in whatever order its events come.

    Total: an event that means nothing (an unknown key retired, nothing enrolled) counts for `high_water` alone.
    """
    live: dict[BridgeKey, BridgeCapability] = {}
    owners: dict[BridgeKey, str] = {}
    high_water = 0
    for entry in sorted(log, key=attrgetter("seq")):
        high_water = max(high_water, entry.seq)
        match entry.op:
            case BridgeOp.RETIRE:
                live.pop(entry.key, None)
                owners.pop(entry.key, None)
            case BridgeOp.ENROLL if entry.capability is not None:
                live[entry.key] = entry.capability
                owners[entry.key] = entry.server
    return LedgerSnapshot(
        MappingProxyType(live), MappingProxyType(Counter(owners.values())), high_water, MappingProxyType(owners)
    )


@dataclass(frozen=True, slots=True)
class EnrollRequest:
    """What an enrolment says; the ledger adds operation, number and time.  `key` None is minted from the content."""

    capability: BridgeCapability
    server: str
    key: BridgeKey | None = None


@dataclass(frozen=True, slots=True)
class BridgeLedger:
    """All events so far, and what they amount to.

    Immutable: a method that changes something returns another ledger.
    """

    log: tuple[BridgeEntry, ...] = ()
    snapshot: LedgerSnapshot = field(default_factory=lambda: reduce_ledger(()), compare=False, repr=False)
    next_seq: int = 1

    @classmethod
    def empty(cls) -> Self:
        """Nothing has happened; the first event gets number 1."""
        return cls()

    @classmethod
    def from_log(cls, log: Iterable[BridgeEntry]) -> Self:
        """The ledger of a kept log; numbers go on after its largest."""
        kept = tuple(log)
        snapshot = reduce_ledger(kept)
        return cls(kept, snapshot, snapshot.high_water + 1)

    def enroll(self, request: EnrollRequest, at: str) -> Self:
        """With one capability more, or in place of the one that has its key."""
        return self.enroll_all([request], at)

    def enroll_all(self, requests: Iterable[EnrollRequest], at: str) -> Self:
        """With all of `requests`, in their order, for the price of one fold."""
        return self._after(
            BridgeEntry(BridgeOp.ENROLL, request.key or _key_of(request), request.server, request.capability, seq, at)
            for seq, request in enumerate(requests, self.next_seq)
        )

    def retire(self, key: BridgeKey, server: str, at: str) -> Self:
        """Without the capability of `key`; an unknown key is recorded and changes nothing else."""
        return self._after([BridgeEntry(BridgeOp.RETIRE, key, server, None, self.next_seq, at)])

    def withdraw_server(self, server: str, at: str) -> Self:
        """Without everything that `server` has live, in one batch; the very same when that is nothing."""
        keys = [key for key, owner in self.snapshot.owners.items() if owner == server]
        return self._after(
            BridgeEntry(BridgeOp.RETIRE, key, server, None, seq, at) for seq, key in enumerate(keys, self.next_seq)
        )

    def live_capabilities(self) -> list[BridgeCapability]:
        """Everything live, in order."""
        return list(self.snapshot.live.values())

    def live_capabilities_for_server(self, server: str) -> list[BridgeCapability]:
        """What one server has live, in order."""
        owners = self.snapshot.owners
        return [capability for key, capability in self.snapshot.live.items() if owners[key] == server]

    def _after(self, entries: Iterable[BridgeEntry]) -> Self:
        added = tuple(entries)
        return type(self).from_log((*self.log, *added)) if added else self


def _key_of(request: EnrollRequest) -> BridgeKey:
    return key_of_qualified(request.capability.name, request.capability.parameters)
