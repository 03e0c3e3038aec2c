"""Count events, in bounded memory whatever servers and clients make up; the families of all metrics. Pure.

The names of `mcp.*` are those of OpenTelemetry's semantic conventions for MCP (still in development), pinned at
`CONVENTIONS`, in the spelling of Prometheus.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from quarterdeck.common.events import CallEnded, Event, ServerChanged, SessionEnded

CONVENTIONS: Final = "https://opentelemetry.io/schemas/1.41.0"
"""The version of the conventions that the names are from."""

MAX_TOOLS: Final = 200
"""Tools of one server that have figures of their own; the others count as `OTHER`."""

MAX_SETS: Final = 4000
"""Sets of labels of one family; what would need another counts as `OTHER` throughout: at most 2 MiB a family."""

MAX_LABEL_CHARS: Final = 128

OTHER: Final = "other"

SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The boundaries that the conventions advise for `mcp.*.duration`."""

WAITS: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0)
"""Boundaries for time spent waiting, which is mostly none."""


class Kind(StrEnum):
    """How a family changes."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(Struct, frozen=True, eq=False):
    """A metric.

    Attributes:
        name: as Prometheus has it.
        labels: their names, in the order of the values.
        bounds: of a histogram's buckets, ascending.
        otel: as OpenTelemetry has it, with `unit`.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    otel: str = ""
    unit: str = "1"


_SERVER: Final = ("deck", "server")
_OPERATION: Final = ("mcp_method_name", "gen_ai_tool_name", "error_type", "network_transport")

SERVER_OPERATION: Final = Family(
    "mcp_server_operation_duration_seconds",
    Kind.HISTOGRAM,
    "Clients' requests, from their arrival to the answer.",
    (*_SERVER, *_OPERATION),
    SECONDS,
    "mcp.server.operation.duration",
    "s",
)
CLIENT_OPERATION: Final = Family(
    "mcp_client_operation_duration_seconds",
    Kind.HISTOGRAM,
    "Requests at servers, without the time before they were sent.",
    (*_SERVER, *_OPERATION),
    SECONDS,
    "mcp.client.operation.duration",
    "s",
)
SERVER_SESSION: Final = Family(
    "mcp_server_session_duration_seconds",
    Kind.HISTOGRAM,
    "Clients' sessions, once they have ended.",
    ("deck", "network_transport"),
    SECONDS,
    "mcp.server.session.duration",
    "s",
)
CALLS: Final = Family(
    "quarterdeck_calls_total",
    Kind.COUNTER,
    "Clients' requests by how they ended (ok, error, fault, cancelled), and whether the server has seen them "
    "(answered, not_sent, unknown).",
    (*_SERVER, "outcome", "delivery"),
)
DENIALS: Final = Family(
    "quarterdeck_denials_total",
    Kind.COUNTER,
    "Calls that failed because the sandbox denied something: read, write or network.",
    (*_SERVER, "property"),
)
FAULT_TIME: Final = Family(
    "quarterdeck_time_to_fault_seconds",
    Kind.HISTOGRAM,
    "How long clients waited for an answer that was a fault.",
    _SERVER,
    SECONDS,
    unit="s",
)
QUEUE_WAIT: Final = Family(
    "quarterdeck_queue_wait_seconds", Kind.HISTOGRAM, "How long calls waited for their turn.", _SERVER, WAITS, unit="s"
)
WAKE: Final = Family(
    "quarterdeck_wake_seconds",
    Kind.HISTOGRAM,
    "How long calls waited for a server that slept or was starting.",
    _SERVER,
    WAITS,
    unit="s",
)
STARTS: Final = Family("quarterdeck_starts_total", Kind.COUNTER, "Starts of a server, restarts included.", _SERVER)
CUT: Final = Family(
    "quarterdeck_labels_cut",
    Kind.GAUGE,
    f"Whether figures are lumped together as `{OTHER}` because a server has too many tools, or a family too many "
    "sets of labels: how often that happened.",
)
DROPPED: Final = Family(
    "quarterdeck_events_dropped_total", Kind.COUNTER, "Events that are in no figure: they came too fast."
)


class Count:
    """A counter's value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """Counts by bucket; the last one has what is above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Labels = tuple[str, ...]


class _Figures(Struct, eq=False):
    """Where calls of one kind are counted, found once."""

    calls: Count
    in_all: Histogram
    queued: Histogram
    sent: Histogram
    woke: Histogram
    faults: Histogram


class Tally:
    """What was counted since the first event.

    Attributes:
        counters, histograms: by family and values of labels.
        cut: how often a figure went to `OTHER`.
    """

    def __init__(self) -> None:
        self.counters: defaultdict[Family, dict[Labels, Count]] = defaultdict(dict)
        self.histograms: defaultdict[Family, dict[Labels, Histogram]] = defaultdict(dict)
        self.cut = 0
        self._figures: dict[Labels, _Figures] = {}
        self._tools: dict[tuple[str, str], set[str]] = {}
        self._phases: dict[tuple[str, str], str] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Count events."""
        for event in events:
            if type(event) is CallEnded:  # as nearly all are: to match a pattern takes longer
                self._take_call(event)
                continue
            match event:
                case ServerChanged(deck, server, phase):
                    # Told after each change of its lists, too.
                    before, self._phases[deck, server] = self._phases.get((deck, server)), phase
                    if phase == "connecting" != before:
                        self._counter(STARTS, (deck, server)).value += 1
                case SessionEnded(deck, transport, took_s):
                    self._histogram(SERVER_SESSION, (deck, transport)).observe(took_s)

    def keep(self, decks: Collection[str]) -> None:
        """Forget the figures of all decks but these: each command line of `run` is a deck of its own."""
        all_rows: tuple[dict[Any, Any], ...] = (*self.counters.values(), *self.histograms.values())
        for rows in (*all_rows, self._figures, self._tools, self._phases):
            for key in [key for key in rows if key[0] not in decks and key[0] != OTHER]:
                del rows[key]

    def _take_call(self, event: CallEnded) -> None:
        name, outcome, code, delivery = event.tool, event.outcome, event.code, event.delivery
        key = (event.deck, event.server, event.method, name, outcome, code, delivery, event.transport)
        figures = self._figures.get(key)
        if figures is None:
            figures = self._figures_of(event)
        figures.calls.value += 1
        in_all_s = event.queued_s + event.woke_s + event.took_s
        figures.in_all.observe(in_all_s)
        if event.server:
            figures.queued.observe(event.queued_s)
            if event.took_s:
                figures.sent.observe(event.took_s)
            if event.woke_s:
                figures.woke.observe(event.woke_s)
        if outcome == "fault":
            figures.faults.observe(in_all_s)
        if event.denied:
            self._counter(DENIALS, (event.deck, event.server, event.denied.partition(" ")[0])).value += 1

    def _figures_of(self, event: CallEnded) -> _Figures:
        of = event.deck, event.server
        tool = self._tool(event) if event.method == "tools/call" else ""
        error = {"ok": "", "error": "tool_error", "fault": event.code}.get(event.outcome, event.outcome)
        key = (*of, event.method, tool, event.outcome, event.code, event.delivery, event.transport)
        if (found := self._figures.get(key)) is not None:
            return found
        figures = _Figures(
            self._counter(CALLS, (*of, event.outcome, event.delivery)),
            self._histogram(SERVER_OPERATION, (*of, event.method, tool, error, event.transport)),
            self._histogram(QUEUE_WAIT, of),
            # Without the transport of its server, which is looked up where this is shown.
            self._histogram(CLIENT_OPERATION, (*of, event.method, tool, error)),
            self._histogram(WAKE, of),
            self._histogram(FAULT_TIME, of),
        )
        if len(self._figures) < MAX_SETS:
            self._figures[key] = figures
        return figures

    def _tool(self, event: CallEnded) -> str:
        """The tool as a label; a name that a client made up has no label of its own."""
        known, name = self._tools.setdefault((event.deck, event.server), set()), clean(event.tool)
        if name in known:
            return name
        is_invented = not name or (event.outcome == "fault" and event.delivery == "not_sent")
        if is_invented or len(known) >= MAX_TOOLS:
            self.cut += not is_invented
            return OTHER
        known.add(name)
        return name

    def _counter(self, family: Family, labels: Labels) -> Count:
        rows = self.counters[family]
        labels = self._admitted(rows, labels)
        return rows.setdefault(labels, Count())

    def _histogram(self, family: Family, labels: Labels) -> Histogram:
        rows = self.histograms[family]
        labels = self._admitted(rows, labels)
        if (found := rows.get(labels)) is None:
            found = rows[labels] = Histogram(family.bounds)
        return found

    def _admitted(self, rows: Collection[Labels], labels: Labels) -> Labels:
        if labels in rows or len(rows) < MAX_SETS:
            return labels
        self.cut += 1
        return (OTHER,) * len(labels)


def clean(text: str) -> str:
    """Text as the value of a label: of bounded length, and valid Unicode."""
    return text[:MAX_LABEL_CHARS].encode("utf-8", "replace").decode()
