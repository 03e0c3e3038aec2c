"""A link's edge: what it says is sent, its timer rings when it is due, and a peer is heard out before it is judged."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import anyio
from support.waiting import PATIENCE_S, until

from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link.events import Arrived, Expired, Greeted, LinkEvent, LinkTerms, Replied, Side, Silent
from quarterdeck_protocol.link.frames import Answer, Call, Log, Request
from quarterdeck_protocol.link.session import Link
from quarterdeck_protocol.moments import REST_S, last_moment

TOKEN = b"t" * 16


@dataclass
class ScriptedLink:
    """A link that rings when the test says so, and notes when it was judged."""

    wake_at: float = inf
    soonest_s: float = 0.0
    soonest: float = inf
    owes_credit: bool = False
    asked: list[Request] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ready: list[list[bytes]] = field(default_factory=list)
    next_wake: float = inf
    late_s: float = 0.0

    def take(self, now: float) -> list[list[bytes]]:
        ready, self.ready = self.ready, []
        return ready

    def tick(self, now: float, waited_s: float, late_s: float) -> list[LinkEvent]:
        self.said.append("tick")
        self.late_s = late_s
        self.wake_at = self.next_wake
        self.ready.append([b"beat"])
        return [Expired(1)]

    def request(self, frame: Request, body: bytes, now: float, requester: object) -> None:
        self.asked.append(frame)

    def receive(self, parts: Sequence[bytes], now: float) -> list[LinkEvent]:
        self.said.append("receive")
        self.ready.append([b"credit"])
        return [Silent(0.0), Expired(2)]


class Way:
    """A way that notes what it carries, in one list with the events."""

    def __init__(self) -> None:
        self.noted: list[object] = []
        self.on_drain = lambda: None

    def send(self, parts: Sequence[bytes]) -> None:
        self.noted.append(list(parts))

    def drain(self) -> None:
        """Note it, and do what the test wants then."""
        self.noted.append("drain")
        self.on_drain()


class MemoryWay:
    """A way in memory: a message arrives in the loop's next turn, as it would from a socket."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.receive: Callable[[Sequence[bytes]], None] = lambda _: None

    def send(self, parts: Sequence[bytes]) -> None:
        self._loop.call_soon(lambda: self.receive(parts))

    def drain(self) -> None:
        """Nothing ever waits."""


def driven(wake_s: float, soonest_s: float = 0.0) -> tuple[ScriptedLink, Way, LinkDriver]:
    """A driver of a link that is to ring in so many seconds."""
    link, way = ScriptedLink(asyncio.get_running_loop().time() + wake_s, soonest_s), Way()
    return link, way, LinkDriver(link, way, way.noted.append)  # type: ignore[arg-type]


def rings_at(driver: LinkDriver) -> float | None:
    """When it looks at its link next."""
    return None if driver.timer is None else driver.timer.when()


class Ends:
    """Two real links joined in memory, and all events of each."""

    def __init__(self, terms: LinkTerms | None = None) -> None:
        now = asyncio.get_running_loop().time()
        to_worker, to_supervisor = self.to_worker, self.to_supervisor = MemoryWay(), MemoryWay()
        self.events: dict[Side, asyncio.Queue[LinkEvent]] = {side: asyncio.Queue() for side in Side}
        ours, theirs = (Link(side, token=TOKEN, version="1", now=now, terms=terms) for side in Side)
        self.supervisor = LinkDriver(ours, to_worker, self.events[Side.SUPERVISOR].put_nowait)
        self.worker = LinkDriver(theirs, to_supervisor, self.events[Side.WORKER].put_nowait)
        to_worker.receive, to_supervisor.receive = self.worker.receive, self.supervisor.receive

    async def next(self, side: Side) -> LinkEvent:
        with anyio.fail_after(PATIENCE_S):
            return await self.events[side].get()

    async def greeted(self) -> None:
        for side in Side:
            assert isinstance(await self.next(side), Greeted)

    def close(self) -> None:
        self.supervisor.close()
        self.worker.close()


async def test_two_ends_greet_ask_answer_and_tell() -> None:
    """Nothing would work."""
    ends = Ends()
    await ends.greeted()
    assert ends.supervisor.request(Call(1, 30.0, "echo"), b"{}") is None
    assert await ends.next(Side.WORKER) == Arrived(Call(1, 30.0, "echo"), b"{}")
    assert ends.worker.post(Log("info", ""))
    assert await ends.next(Side.SUPERVISOR) == Arrived(Log("info", ""), b"")
    ends.worker.reply(Answer(1), b"[]")
    assert await ends.next(Side.SUPERVISOR) == Replied(Answer(1), b"[]")
    ends.close()


async def test_a_deadline_rings_at_the_worker_first() -> None:
    """A call without an answer would wait for ever."""
    ends = Ends()
    await ends.greeted()
    ends.supervisor.request(Call(1, 0.001, "echo"), b"")
    await ends.next(Side.WORKER)
    assert await ends.next(Side.WORKER) == Expired(1)
    ends.close()


async def test_beats_keep_a_quiet_link_alive() -> None:
    """An idle worker would be taken for a hung one."""
    ends = Ends(LinkTerms(quiet_beat_s=0.001))
    await ends.greeted()
    heard: list[Sequence[bytes]] = []
    ends.to_supervisor.receive = heard.append
    await until(lambda: len(heard) >= 5)
    assert ends.supervisor.link.is_open
    ends.close()


async def test_a_peer_is_heard_out_before_it_is_judged() -> None:
    """A beat that has arrived but was not read yet would be called missing."""
    link, way, driver = driven(0.0)
    way.on_drain = lambda: driver.receive([b"last words"])
    await until(lambda: "tick" in link.said)
    assert link.said == ["receive", "tick"]
    assert way.noted == ["drain", [b"credit"], Silent(0.0), Expired(2), [b"beat"], Expired(1)]
    driver.close()


async def test_a_ring_for_what_has_come_meanwhile_judges_nothing() -> None:
    """Each would ask the system how long a peer waited, forty of them for nothing."""
    link, way, driver = driven(0.001)
    first, link.wake_at = driver.timer, link.wake_at + 1_000
    await until(lambda: driver.timer is not first)
    assert (link.said, way.noted) == ([], [])
    driver.close()


async def test_a_ring_that_is_far_off_comes_early_with_others() -> None:
    """Every link of an idle supervisor would wake it for itself."""
    loop, way = asyncio.get_running_loop(), Way()
    moment = last_moment(loop.time() + 1_000, os.getpid())
    wishes = [moment + 1.0, moment + 2.0]
    drivers = [LinkDriver(ScriptedLink(wake_at=wish), way, way.noted.append) for wish in wishes]  # type: ignore[arg-type]
    assert {rings_at(driver) for driver in drivers} == {moment}
    soon = loop.time() + REST_S / 2
    drivers.append(LinkDriver(ScriptedLink(wake_at=soon), way, way.noted.append))  # type: ignore[arg-type]
    assert rings_at(drivers[-1]) == soon
    for driver in drivers:
        driver.close()


async def test_a_ring_that_comes_late_says_by_how_much() -> None:
    """A process that was stopped would judge its peer by the time in which it could hear nothing."""
    link, _, driver = driven(-30.0)
    await until(lambda: "tick" in link.said)
    assert link.late_s >= 30.0
    driver.close()


async def test_what_is_heard_while_draining_may_end_it() -> None:
    """A worker found dead in its last words would be judged once more."""
    link, way, driver = driven(0.0)
    way.on_drain = driver.close
    await until(lambda: way.noted)
    assert link.said == []


async def test_the_timer_follows_the_earliest_wish() -> None:
    """A short deadline would wait for a long one, or every call would make a timer of its own."""
    link, _, driver = driven(1_000)
    first = driver.timer
    link.wake_at += 1_000
    driver.receive([b"x"])
    assert driver.timer is first
    link.wake_at -= 1_500
    driver.receive([b"x"])
    assert first is not None
    assert first.cancelled()
    driver.close()
    link.wake_at = 0.0
    driver.receive([b"x"])
    assert driver.timer is None


async def test_what_comes_brings_the_timer_forward_for_a_deadline_or_a_beat_and_nothing_else() -> None:
    """A worker would look for its next beat at every call of a flood, or miss the deadline of a short one."""
    link, _, driver = driven(1_000, soonest_s=2.0)
    link.wake_at -= 998.0
    driver.receive([b"first call"])
    first = driver.timer
    assert rings_at(driver) == link.wake_at
    link.wake_at -= 1.0
    driver.receive([b"second call"])
    assert driver.timer is first
    link.soonest = link.wake_at
    driver.receive([b"short call"])
    assert driver.timer is not first
    assert rings_at(driver) == link.wake_at
    driver.close()


async def test_an_end_can_be_told_to_catch_up() -> None:
    """A worker's last words would be thrown away when its death is told first."""
    way = Way()
    LinkDriver(ScriptedLink(), way, way.noted.append).catch_up()  # type: ignore[arg-type]
    assert way.noted == ["drain"]


async def test_a_request_brings_the_timer_forward_for_the_patience_with_who_owes_a_reply() -> None:
    """A worker that hangs would be noticed as late as if nobody waited for it."""
    link, _, driver = driven(1_000, soonest_s=6.0)
    first = driver.timer
    link.wake_at -= 994.0
    driver.request(Call(1, 300.0, "echo"), b"{}")
    assert first is not None
    assert first.cancelled()
    second = driver.timer
    driver.request(Call(2, 300.0, "echo"), b"{}")
    assert driver.timer is second
    driver.close()
