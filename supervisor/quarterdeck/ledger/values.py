"""The ledger of values for embedding programs: which tools are enrolled, as events and the one fold of them.

The log is the truth; a snapshot is a cache of its fold.  No store, and no clock but that of `bridge_ulid_key`: every
transition gives a new value.  `embedding.attach` fills it from live servers; `quarterdeck.ledger` names what is public.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Self

import msgspec
from ulid import ULID

from quarterdeck.ledger.events.events import KEY_PREFIX, BridgeKey, key_of_qualified
from quarterdeck.tools.card_types import CapabilityCard, capability_id
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import TextContentBlock, ToolResult
from quarterdeck_protocol import names
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.contract import FleetStatus, ServerFleet
from quarterdeck_protocol.names import RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.tools import ToolBox, ToolCall, ToolDescriptor, ToolHints, ToolOutcome, ToolRunner


@dataclass(frozen=True, slots=True)
class BridgeCapability:
    """One server's tool as a `Card`; `runner` finds the server by the descriptor's qualified name."""

    descriptor: ToolDescriptor
    runner: ToolRunner

    @property
    def name(self) -> str:
        """The qualified name."""
        return self.descriptor.name

    @property
    def label(self) -> str:
        """The qualified name: a server must not choose what people are shown."""
        return self.descriptor.name

    @property
    def description(self) -> str:
        """Its server's description."""
        return self.descriptor.description

    @property
    def parameters(self) -> dict[str, object]:
        """The portable schema of its input."""
        return dict(self.descriptor.parameters)

    @property
    def read_only(self) -> bool:
        """Always false: a server's word must not skip a permission."""
        return False

    @property
    def hints(self) -> ToolHints | None:
        """None: they are in the definition."""
        return None

    @property
    def definition(self) -> bytes | None:
        """Its server's whole tool object."""
        return self.descriptor.definition

    @property
    def output_schema(self) -> Mapping[str, object] | None:
        """None for a server's tool: it is in the definition."""
        return self.descriptor.output_schema

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run one call on its server."""
        call = ToolCall(f"{self.name}-bridged", self.name, value, ctx.report)
        return project_outcome(await self.runner.run(call, ctx.cancel))


class BridgeOp(StrEnum):
    """The effect of an event."""

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
    """The live set.

    Attributes:
        live: by key, in the order of enrolment; enrolling a live key again keeps its place.
        by_server: how many live keys each server has; no entry without any.
        high_water: the largest sequence number of all events; 0 before the first.
        owners: the server of each live key, by the last event that touched it.
    """

    live: Mapping[BridgeKey, BridgeCapability]
    by_server: Mapping[str, int]
    high_water: int
    owners: Mapping[BridgeKey, str]


def reduce_ledger(log: Iterable[BridgeEntry]) -> LedgerSnapshot:
    """Fold `log`, in whatever order its events come.

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
    """The content of an enrolment; the ledger adds operation, number and time.  `key` None is minted from
    the content.
    """

    capability: BridgeCapability
    server: str
    key: BridgeKey | None = None


@dataclass(frozen=True, slots=True)
class BridgeLedger:
    """All events so far, and their fold.  Immutable: a method that changes something returns another ledger."""

    log: tuple[BridgeEntry, ...] = ()
    snapshot: LedgerSnapshot = field(default_factory=lambda: reduce_ledger(()), compare=False, repr=False)
    next_seq: int = 1

    @classmethod
    def empty(cls) -> Self:
        """Return a ledger without events; the first one gets number 1."""
        return cls()

    @classmethod
    def from_log(cls, log: Iterable[BridgeEntry]) -> Self:
        """Return the ledger of a kept log; numbers go on after its largest."""
        kept = tuple(log)
        snapshot = reduce_ledger(kept)
        return cls(kept, snapshot, snapshot.high_water + 1)

    def enroll(self, request: EnrollRequest, at: str) -> Self:
        """Add one capability, or replace the one that has its key."""
        return self.enroll_all([request], at)

    def enroll_all(self, requests: Iterable[EnrollRequest], at: str) -> Self:
        """Add all of `requests`, in their order, for the price of one fold."""
        return self._after(
            BridgeEntry(
                BridgeOp.ENROLL,
                each.key or key_of_qualified(each.capability.name, each.capability.parameters),
                each.server,
                each.capability,
                seq,
                at,
            )
            for seq, each in enumerate(requests, self.next_seq)
        )

    def retire(self, key: BridgeKey, server: str, at: str) -> Self:
        """Remove the capability of `key`; an unknown key is recorded and changes nothing else."""
        return self._after([BridgeEntry(BridgeOp.RETIRE, key, server, None, self.next_seq, at)])

    def withdraw_server(self, server: str, at: str) -> Self:
        """Remove everything that `server` has live, in one batch; return the very same if there is nothing."""
        keys = [key for key, owner in self.snapshot.owners.items() if owner == server]
        return self._after(
            BridgeEntry(BridgeOp.RETIRE, key, server, None, seq, at) for seq, key in enumerate(keys, self.next_seq)
        )

    def live_capabilities(self) -> list[BridgeCapability]:
        """Return everything live, in order."""
        return list(self.snapshot.live.values())

    def live_capabilities_for_server(self, server: str) -> list[BridgeCapability]:
        """Return what one server has live, in order."""
        owners = self.snapshot.owners
        return [capability for key, capability in self.snapshot.live.items() if owners[key] == server]

    def _after(self, entries: Iterable[BridgeEntry]) -> Self:
        added = tuple(entries)
        return type(self).from_log((*self.log, *added)) if added else self


def bridge_box_to_capabilities(box: ToolBox) -> tuple[BridgeCapability, ...]:
    """Return every tool that `box` offers at this moment, over its one runner."""
    return tuple(BridgeCapability(descriptor, box.runner) for descriptor in box.descriptors())


def project_outcome(outcome: ToolOutcome) -> ToolResult:
    """Return an outcome as one text block: a text verbatim, None as empty, all else as indented JSON.

    `is_error`, the wire form and structured content go along.
    """
    output = outcome.output
    if output is None:
        output = ""
    elif not isinstance(output, str):
        output = msgspec.json.format(msgspec.json.encode(output, enc_hook=str), indent=2).decode()
    return ToolResult((TextContentBlock(output),), outcome.is_error, outcome.wire, outcome.structured)


def bridge_config(servers: Iterable[ServerConfig]) -> BridgeConfig:
    """Return the configuration of these servers together."""
    return BridgeConfig(servers=tuple(servers))


def bridge_tool_names(ledger: BridgeLedger) -> list[str]:
    """Return the qualified names of everything live, in order."""
    return [capability.name for capability in ledger.live_capabilities()]


def bridge_tool_counts(ledger: BridgeLedger) -> Mapping[str, int]:
    """Return how many live tools each server has."""
    return ledger.snapshot.by_server


def bridge_status(fleet: ServerFleet) -> FleetStatus:
    """Return every server's phase, and its fault if it has one."""
    return fleet.status()


def bridge_capability_card(capability: BridgeCapability) -> CapabilityCard:
    """Return a server's tool as a row beside the catalogue's; in no profile, and building it gives the live one."""
    server = server_of_qualified(capability.name)
    return CapabilityCard(
        id=capability_id(capability.name),
        title=capability.label,
        summary=f"{capability.description} (from the MCP server {server!r})".lstrip(),
        profiles=(),
        build=lambda _: capability,
    )


# Names and keys: what makes two enrolments the same


def qualify_bridge_name(server: str, tool: str) -> str:
    """Return `<server>__<tool>`."""
    return qualify_tool_name(RemoteToolRef(server, tool))


def server_of_qualified(name: str) -> str:
    """Return the server of a qualified name, the part before the first `__`; empty without one."""
    return names.server_of_qualified(name) or ""


def bridge_content_key(server: str, tool: str, parameters: Mapping[str, object] | None = None) -> BridgeKey:
    """Return the key of a tool by its qualified name and portable parameters: the same in every session.

    The order of object keys does not matter, that of arrays does; no schema is another key than any schema.  Raises
    `TypeError` if `parameters` contain something that is no JSON value.
    """
    return key_of_qualified(qualify_bridge_name(server, tool), parameters)


def bridge_ulid_key() -> BridgeKey:
    """Return a unique key, larger than every one minted before in this process, whatever its clock does."""
    return BridgeKey(f"{KEY_PREFIX}{_ulids.mint()}")


class _RisingUlids:
    """ULIDs that rise even within a millisecond, and when the clock goes back (ULID specification, Monotonicity)."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._last = 0

    def mint(self) -> ULID:
        with self._turn:
            self._last = max(int(_now()), self._last + 1)
            return ULID.from_int(self._last)


_now: Final = ULID
_ulids: Final = _RisingUlids()
