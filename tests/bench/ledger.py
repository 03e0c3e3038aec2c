"""The ledger of a busy year, a million events: opening it, looking at every one, and recording one decision."""

import asyncio
import random
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final

from support.config.places import short_folder

from bench.finding import Finding, Target
from bench.rounds import Effort
from quarterdeck.ledger.events.chain import ChainRow, Head, link
from quarterdeck.ledger.events.events import (
    Approved,
    Authority,
    Began,
    Ended,
    Enrolled,
    Gone,
    LedgerEvent,
    Retired,
    Scanned,
    Seen,
    Subject,
    encode_json,
)
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.store import LedgerStore

OPENING: Final = Target(required=5.0, goal=3.0)
"""Seconds: what a user waits at a start."""

VERIFYING: Final = Target(required=20.0, goal=10.0)
"""Seconds; asked for by hand."""

APPENDING: Final = Target(required=50.0, goal=15.0)
"""Milliseconds: a person's `approve`, on the disk with its head."""

EVENTS: Final = 1_000_000

SERVERS: Final = 50

TOOLS: Final = 40
"""Of each server: two thousand live ones in all."""

LOOKS: Final = 3
"""Seconds each: more would tell no more."""


async def measure(effort: Effort) -> list[Finding]:
    return await asyncio.to_thread(_measure, effort)


def _measure(effort: Effort) -> list[Finding]:
    with short_folder() as folder:
        directory = folder / "ledger"
        _plant(directory)
        looks = min(effort.rounds, LOOKS)
        opening = [_timed_opening(directory) for _ in range(looks)]
        with LedgerStore.open(directory) as store:
            live = sum(len(entry.live) for entry in store.book.entries.values())
            verifying = [_timed_verification(store) for _ in range(looks)]
            appending = [_timed_decision(store, number) for number in range(10 * effort.rounds)]
    note = f"{SERVERS} servers, {live:,} live tools"
    return [
        Finding(f"a ledger of {EVENTS:,} events opened for writing", "s", OPENING, median(opening), note=note),
        Finding("all of it verified", "s", VERIFYING, median(verifying)),
        Finding("one decision recorded in it", "ms", APPENDING, median(appending) * 1000, note="synced, with its head"),
    ]


def _plant(directory: Path) -> None:
    with LedgerStore.open(directory) as store:
        store.load(_chain())


def _chain() -> Iterator[tuple[ChainRow, LedgerEvent]]:
    head, at = Head(), audit_time()
    events = islice(_events(random.Random(3)), EVENTS)
    while batch := list(islice(events, 1_000)):
        rows = list(link(head, at, map(encode_json, batch)))
        yield from zip(rows, batch, strict=True)
        head = Head(rows[-1].seq, rows[-1].hash.hex())


def _events(chance: random.Random) -> Iterator[LedgerEvent]:
    """Servers that start, list, change and end; each tool is enrolled before anything else happens to it."""
    forms = [sha256(bytes([number % 256, number // 256])).hexdigest() for number in range(3_000)]
    wheres = [{"scope": "/home/user/.config/quarterdeck/mcp.json", "server": f"server-{n}"} for n in range(SERVERS)]
    tools = [(where, f"tool_{tool}", _key(where["server"], tool)) for where in wheres for tool in range(TOOLS)]
    for where, name, key in tools:
        yield Enrolled(**where, key=key, tool=name, definition=chance.choice(forms))
    while True:
        where, name, key = chance.choice(tools)
        form = chance.choice(forms)
        yield Seen(**where, subject=Subject.TOOL, hash=form, name=name)
        yield Approved(**where, subject=Subject.TOOL, hash=form, name=name, by=Authority.BASELINE)
        yield Scanned(**where, hash=form, version=1, findings=(("hidden-unicode", "/description"),))
        yield Retired(**where, key=key)
        yield Gone(**where, subject=Subject.TOOL, name=name)
        yield Began(**where, pid=chance.randrange(99_999), era="2025-11-25", program="server 1.2.3")
        yield Ended(**where, code="exited", message="it ended with status 1", exit_status=1)
        yield Enrolled(**where, key=key, tool=name, definition=form)


def _key(server: str, tool: int) -> str:
    return f"bk_{sha256(f'{server}__{tool}'.encode()).hexdigest()[:32]}"


def _timed_opening(directory: Path) -> float:
    started = time.perf_counter()
    store = LedgerStore.open(directory)
    taken = time.perf_counter() - started
    store.close()
    return taken


def _timed_verification(store: LedgerStore) -> float:
    started = time.perf_counter()
    assert store.verify().is_intact
    return time.perf_counter() - started


def _timed_decision(store: LedgerStore, number: int) -> float:
    form = sha256(str(number).encode()).hexdigest()
    decision = Approved(scope="/s", server="fs", subject=Subject.TOOL, hash=form, by=Authority.PERSON, name="t")
    started = time.perf_counter()
    store.append([decision], {form: bytes(2_000)})
    return time.perf_counter() - started
