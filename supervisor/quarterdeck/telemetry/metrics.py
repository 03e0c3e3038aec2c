"""Metrics of a process: what was counted of its calls, and how its servers are at the moment of a scrape.

Counting begins with the first scrape, so that figures cost nothing until they are read. The text of Prometheus is
written here: its own library takes half a second for 200 servers.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate, chain, repeat
from time import monotonic
from typing import Final

import psutil
from msgspec import Struct

from quarterdeck.common.events import Bus
from quarterdeck.common.shielding import cancelled
from quarterdeck.running_product import Product
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus

from .tally import CLIENT_OPERATION, CUT, DROPPED, Family, Histogram, Kind, Labels, Tally, clean

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

CACHED_S: Final = 1.0
"""How old an answer may be: a scraper that asks more often gets the last one."""

TAKE_S: Final = 0.25
"""Between two looks at what was told: a task that is woken by each event would cost each call more than counting."""

BOUND: Final = 20_000
"""Events that wait for that: of 80,000 calls a second."""

SLICE: Final = 50
"""Servers or rows at a turn of the loop, which calls wait for."""

MAX_COUNTED: Final = 250
"""Events at a turn of the loop: half a millisecond."""

CLOSING_S: Final = 10.0
"""How long processes of a server may take to end: it is closed within six seconds, or killed."""

_SERVER: Final = ("deck", "server")
SERVERS: Final = Family("quarterdeck_servers", Kind.GAUGE, "Servers by phase.", ("phase",))
ORPHANS: Final = Family(
    "quarterdeck_orphans", Kind.GAUGE, "Processes of servers and workers that run on though their server has ended."
)
HELD: Final = Family(
    "quarterdeck_held", Kind.GAUGE, "What waits for a person's approval: tools, launches, …", (*_SERVER, "kind")
)
MEMORY: Final = Family(
    "quarterdeck_server_memory_bytes", Kind.GAUGE, "Resident memory of a server's processes.", _SERVER, unit="By"
)
CPU: Final = Family(
    "quarterdeck_server_cpu_seconds_total",
    Kind.COUNTER,
    "CPU time of a server's processes, since it was last started.",
    _SERVER,
    unit="s",
)
LEDGER_HEAD: Final = Family("quarterdeck_ledger_head", Kind.GAUGE, "The number of the ledger's last event.")

_PHASES: Final = (*(phase.value for phase in EndpointPhase), "asleep", "installing")

Rows = dict[Labels, float | Histogram]

Decks = Callable[[], Iterable[tuple[str, str, Product]]]
"""Gives the key, the name and the product of each deck that is open."""


class _Look(Struct):
    """What is seen of all servers at one moment."""

    phases: Counter[str]
    held: Rows = {}
    memory: dict[Labels, float] = {}
    cpu: dict[Labels, float] = {}
    pids: set[int] = set()
    head: int = 0
    names: dict[str, str] = {}
    remote: set[Labels] = set()

    def transport(self, labels: Labels) -> str:
        """How we reach the server that these labels name."""
        return "tcp" if labels[:2] in self.remote else "pipe"


class Metrics:
    """The metrics of the decks that are open, with the events of `bus`."""

    def __init__(self, bus: Bus, decks: Decks) -> None:
        self._decks = decks
        self._tally = Tally()
        self._heard = bus.subscribe(BOUND)
        self._taking: asyncio.Task[None] | None = None
        self._processes: dict[int, psutil.Process] = {}
        self._ended_at: dict[int, float] = {}
        self._scraping = asyncio.Lock()
        self._text, self._scraped_at = b"", float("-inf")

    def begin(self) -> None:
        """Begin to count; harmless when repeated."""
        if self._taking is None:
            self._heard.__enter__()
            self._taking = asyncio.get_running_loop().create_task(self._take(), name="metrics")

    async def close(self) -> None:
        """Stop counting.  Repeatable."""
        if self._taking is not None:
            self._heard.__exit__()
            await cancelled(self._taking)

    async def scrape(self) -> bytes:
        """Return the text of all metrics, at most `CACHED_S` old."""
        self.begin()
        async with self._scraping:
            if monotonic() - self._scraped_at >= CACHED_S:
                texts: list[bytes] = []
                for family, rows in await self.collect():
                    texts.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n".encode())
                    for number, (labels, value) in enumerate(rows.items()):
                        texts.append(_text_of(family, labels, value))
                        if number % SLICE == SLICE - 1:
                            await asyncio.sleep(0)
                self._text, self._scraped_at = b"".join(texts), monotonic()
            return self._text

    async def collect(self) -> list[tuple[Family, Rows]]:
        """Return every family that has rows."""
        await self._count()
        look = await self._look()
        self._tally.keep(look.names.keys())
        orphans = await asyncio.to_thread(self._orphans, look.pids)
        found: list[tuple[Family, Rows]] = [
            (SERVERS, {(phase,): look.phases[phase] for phase in _PHASES}),
            (ORPHANS, {(): orphans}),
            (HELD, look.held),
            (MEMORY, {**look.memory}),
            (CPU, {**look.cpu}),
            (LEDGER_HEAD, {(): look.head}),
            (CUT, {(): self._tally.cut}),
            (DROPPED, {(): self._heard.dropped}),
        ]
        for family, counts in self._tally.counters.items():
            found.append((family, {_named(look, labels): count.value for labels, count in counts.items()}))
        for family, histograms in self._tally.histograms.items():
            # What was made for a kind of call, and not met yet, is left out.
            met = {labels: each for labels, each in histograms.items() if any(each.counts)}
            ends = {labels: (look.transport(labels),) if family is CLIENT_OPERATION else () for labels in met}
            found.append((family, {(*_named(look, labels), *ends[labels]): each for labels, each in met.items()}))
            await asyncio.sleep(0)
        return [(family, rows) for family, rows in found if rows]

    async def _take(self) -> None:
        while True:
            await asyncio.sleep(TAKE_S)
            await self._count()

    async def _count(self) -> None:
        events = self._heard.take()
        for start in range(0, len(events), MAX_COUNTED):
            self._tally.take(events[start : start + MAX_COUNTED])
            await asyncio.sleep(0)

    async def _look(self) -> _Look:
        look, seen, number = _Look(Counter()), set[object](), 0
        for key, name, product in self._decks():
            named = clean(name or key)
            # A configuration is several decks where clients' environments differ: no set of labels may be two rows.
            look.names[key] = named if named not in look.names.values() else f"{named} {key}"
            look.head = max(look.head, product.approvals.book.last_seq)
            held = set(product.approvals.held_launches)
            for server in product.servers.endpoints():
                _look_at(look, product, key, server.config, seen)
                if server.config.id in held:
                    look.held[look.names[key], server.config.id, "launch"] = 1
                number += 1
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            look.phases[EndpointPhase.FAULTED] += len(product.settings.broken)
        return look

    def _orphans(self, present: set[int]) -> int:
        """Count the processes that were of a server, and are of none any more.  Blocks for a millisecond or two."""
        now = monotonic()
        for pid in present - self._processes.keys():
            try:
                self._processes[pid] = psutil.Process(pid)
            except psutil.Error:
                continue
        for pid, process in tuple(self._processes.items()):
            if pid in present:
                self._ended_at.pop(pid, None)
            elif not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                del self._processes[pid]
                self._ended_at.pop(pid, None)
            else:
                self._ended_at.setdefault(pid, now)
        return sum(now - ended_at > CLOSING_S for ended_at in self._ended_at.values())


def _look_at(look: _Look, product: Product, deck: str, config: ServerConfig, seen: set[object]) -> None:
    server = config.id
    status, endpoint = product.status_of(server), product.fleet.endpoint(server)
    if status is None:
        return
    labels = look.names[deck], server
    if not isinstance(config, StdioServerConfig):
        look.remote.add((deck, server))
    for subject, count in product.approvals.held_of(server).items():
        look.held[*labels, subject] = count
    # One that several decks share is one server, with the processes of the first of them.
    is_counted, of_sessions = endpoint is not None and endpoint in seen, product.sessions.statuses(server)
    if endpoint is not None:
        seen.add(endpoint)
    for one in (*(() if is_counted else (status,)), *(each.status for each in of_sessions)):
        look.phases[_phase(one)] += 1
        look.pids |= {pid for pid in (one.pid, one.worker_pid) if pid is not None}
    for each in (
        *((endpoint,) if endpoint is not None and not is_counted else ()),
        *product.sessions.endpoints(server),
    ):
        watch = each.confined.watch if each.confined is not None else None
        if watch is not None and watch.present is not None and each.status().pid is not None:
            look.memory[labels] = look.memory.get(labels, 0) + watch.present.memory_bytes
            look.cpu[labels] = look.cpu.get(labels, 0) + watch.present.cpu_s


def _named(look: _Look, labels: Labels) -> Labels:
    """Labels with the name of the deck in place of its key."""
    return look.names.get(labels[0], labels[0]), *labels[1:]


def _phase(status: EndpointStatus) -> str:
    return "installing" if status.installing else "asleep" if status.is_asleep else status.phase


def _text_of(family: Family, labels: Labels, value: float | Histogram) -> bytes:
    """The lines of one set of labels."""
    said = ",".join([f'{name}="{_escaped(text)}"' for name, text in zip(family.labels, labels, strict=True)]).encode()
    if not isinstance(value, Histogram):
        return b"%b%b %r\n" % (family.name.encode(), b"{%b}" % said if said else b"", value)
    counts = tuple(accumulate(value.counts))
    return _form_of(family) % (*chain.from_iterable(zip(repeat(said), counts)), said, value.total, said, counts[-1])


@cache
def _form_of(family: Family) -> bytes:
    """The lines of a histogram, for the labels and value of each."""
    name = family.name
    buckets = "".join([f'{name}_bucket{{%b,le="{bound}"}} %d\n' for bound in (*family.bounds, "+Inf")])
    return f"{buckets}{name}_sum{{%b}} %r\n{name}_count{{%b}} %d\n".encode()


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text
