"""Servers that several decks hold: started once, and ended by the last."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field

import pytest
from support.waiting import turns, until

from quarterdeck.fleet import shared_servers as module
from quarterdeck.fleet.deck_fleet import DeckFleet
from quarterdeck.fleet.shared_servers import SharedServers, StartSlots, Trusted, Wish, on_behalf_of
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.link.frames import Close, Log
from quarterdeck_protocol.offers import LogLine, News

from .played_fleets import CLOSED, IDLE, READY, PlayedFleet, PretendRuntime, config, hangs

deck_name: ContextVar[str] = ContextVar("deck_name", default="")


@dataclass
class PlayedDecks:
    """Decks of one process; servers whose id begins with `own` are not shared, others are by id and command.

    Attributes:
        shared: the played fleet of each shared server, in the order of their making.
        trusted: what each deck's shared servers are told.
    """

    runtime: PretendRuntime
    servers: SharedServers = field(default_factory=SharedServers)
    shared: list[PlayedFleet] = field(default_factory=list)
    trusted: list[Trusted] = field(default_factory=list)
    prepare: dict[str, Callable[..., None]] = field(default_factory=dict)
    owns: list[PlayedFleet] = field(default_factory=list)
    decks: list[DeckFleet] = field(default_factory=list)
    needing: set[str] = field(default_factory=set)

    def deck(self, name: str = "", files: Iterable[str] = ()) -> DeckFleet:
        def wish(wanted: ServerConfig) -> Wish | None:
            if wanted.id.startswith("own"):
                return None
            key, is_needed = wanted.model_dump_json(), lambda: not name or name in self.needing
            return Wish(key, wanted.id, wanted, lambda: files, self._make, is_needed)

        own = PlayedFleet(self.runtime)
        self.owns.append(own)
        context = copy_context()
        context.run(deck_name.set, name)
        self.decks.append(context.run(DeckFleet, own.fleet, self.servers, wish))
        return self.decks[-1]

    async def sharing(self, *servers: str) -> tuple[DeckFleet, DeckFleet]:
        """Two decks that have the same servers, all of which are ready."""
        one, two = self.deck(), self.deck()
        for deck in (one, two):
            await deck.reconfigure(config(*servers))
            await ready(deck, *servers)
        return one, two

    def _make(self, trusted: Trusted) -> "object":
        made = PlayedFleet(self.runtime, prepare=self.prepare)
        self.shared.append(made)
        self.trusted.append(trusted)
        return made.fleet


@pytest.fixture
async def at(runtime: PretendRuntime) -> AsyncIterator[PlayedDecks]:
    decks = PlayedDecks(runtime)
    yield decks
    for deck in decks.decks:
        await deck.tear_down()
    await decks.servers.close()
    assert runtime.users == 0
    for made in (*decks.shared, *decks.owns):
        for session in (session for sessions in made.sessions.values() for session in sessions):
            if session.worker._handle is not None:
                session.worker.leaves()


def phases(deck: DeckFleet) -> dict[str, EndpointPhase]:
    return {server: status.phase for server, status in deck.status().items()}


async def ready(deck: DeckFleet, *servers: str) -> None:
    await until(lambda: phases(deck) == dict.fromkeys(servers, READY))


async def test_decks_share_what_they_wish_alike_and_nothing_else(at: PlayedDecks) -> None:
    """Each project would start the user's servers anew, or be given another project's."""
    one, two = at.deck(), at.deck()
    await one.reconfigure(config("own-a", "b", "c"))
    await two.reconfigure(config("c", "own-a", "b", b="another"))
    await ready(one, "own-a", "b", "c")
    await ready(two, "c", "own-a", "b")
    assert one.endpoint("c") is two.endpoint("c") is not None
    assert one.endpoint("b") is not two.endpoint("b")
    assert one.endpoint("own-a") is not two.endpoint("own-a")
    assert [endpoint.config.id for endpoint in two.endpoints()] == ["c", "own-a", "b"]
    assert len(at.shared) == 3
    for deck in (one, two):
        await deck.tear_down()
        assert deck.endpoint("c") is None


async def test_a_server_ends_when_the_last_deck_lets_go(at: PlayedDecks) -> None:
    """A project that is closed would end another's calls; or servers that nobody uses run for ever."""
    one, two = await at.sharing("a")
    endpoint = one.endpoint("a")
    await one.tear_down()
    assert phases(two) == {"a": READY}
    await two.reconfigure(BridgeConfig())
    assert two.endpoints() == ()
    await at.servers.close()
    assert endpoint.phase is CLOSED


async def test_a_restart_is_one_for_all(at: PlayedDecks) -> None:
    """One deck would go on with an endpoint that is gone."""
    one, two = await at.sharing("a", "own")
    before, own = one.endpoint("a"), one.endpoint("own")
    await two.restart("a")
    await two.restart("own")
    await until(lambda: one.endpoint("a") is not before)
    await ready(one, "a", "own")
    assert one.endpoint("a") is two.endpoint("a")
    assert one.endpoint("own") is own
    await until(lambda: not one.is_coming("a"))
    assert one.has_settled("a")
    assert one.last_fault("a") is None
    with pytest.raises(KeyError):
        await one.restart("none")


async def test_a_shared_server_sleeps_only_once_no_deck_needs_it(at: PlayedDecks) -> None:
    """A client of one project would stop the server below a client of another."""
    one, two = at.deck("one"), at.deck("two")
    for deck in (one, two):
        await deck.reconfigure(config("a", "own"))
        await ready(deck, "a", "own")
    at.needing = {"two"}
    one.sleep("a")
    one.sleep("own")
    await until(lambda: one.is_asleep("own"))
    assert (one.is_asleep("a"), two.is_asleep("own")) == (False, False)
    at.needing = set()
    two.sleep("a")
    assert one.is_asleep("a")
    await until(lambda: phases(one)["a"] is IDLE)
    assert two.wake("a")
    await until(lambda: phases(one)["a"] is READY)
    at.needing = {"two"}
    one.sleep("a", by_hand=True)
    assert two.is_asleep("a"), "a person stops it for all"


async def test_a_shared_server_that_may_sleep_starts_with_the_first_call_of_any_deck(at: PlayedDecks) -> None:
    """Each window would start every server, or a call that comes at once be lost."""
    one, two = at.deck("one"), at.deck("two")
    await one.reconfigure(config("a"), frozenset("a"))
    assert two.wake("a") is False
    await two.reconfigure(config("a"), frozenset("a"))
    await turns()
    assert two.is_asleep("a")
    assert two.wake("a")
    await ready(one, "a")
    await two.reconfigure(config("a"), frozenset("a"))
    assert phases(two) == {"a": READY}
    early = at.deck("early")
    await early.reconfigure(config("b"), frozenset("b"))
    assert early.wake("b"), "before it has begun"
    await ready(early, "b")


async def test_a_shared_server_falls_asleep_with_the_deck_that_needed_it(at: PlayedDecks) -> None:
    """It would run on for a window that was closed."""
    one, two = at.deck("one"), at.deck("two")
    for deck in (one, two):
        await deck.reconfigure(config("a"))
        await ready(deck, "a")
    at.needing = {"one"}
    two.sleep("a")
    assert not two.is_asleep("a")
    await one.tear_down()
    assert two.is_asleep("a")


async def test_a_server_that_comes_back_waits_for_the_end_of_the_one_before(at: PlayedDecks) -> None:
    """Two processes would write into one home."""
    one, two = at.deck(), at.deck()
    await one.reconfigure(config("a"))
    await ready(one, "a")
    [old] = at.shared[0].sessions["a"]
    del old.worker.rules[Close]
    await one.reconfigure(BridgeConfig())
    request, _ = await old.worker.next(Close)
    await two.reconfigure(config("a"))
    await turns()
    assert phases(two) == {"a": IDLE}
    assert two.is_coming("a")
    assert not two.has_settled("a")
    await two.restart("a")  # it is about to start as it is
    assert at.shared[1].sessions == {}
    old.worker.answer(request, b"{}")
    old.worker.dies(0)
    await ready(two, "a")


@pytest.mark.parametrize("follows", [True, False])
async def test_decks_that_read_a_changed_file_one_after_the_other_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, follows: bool, at: PlayedDecks
) -> None:
    """Two forms of a server would run in one home; or one deck wait for ever for another that keeps the old form."""
    monkeypatch.setattr(module, "REPLACE_S", 30.0 if follows else 0.01)
    one, two = await at.sharing("a")
    await one.reconfigure(config("a", a="new"))
    if follows:
        await turns()
        assert phases(one) == {"a": IDLE}
        await two.reconfigure(config("a", a="new"))
        await ready(two, "a")
    await ready(one, "a")
    assert (one.endpoint("a") is two.endpoint("a")) is follows


async def test_a_deck_that_leaves_before_the_start_leaves_nothing(at: PlayedDecks) -> None:
    """A window that is opened and closed at once would leave a server."""
    at.prepare["b"] = hangs
    one = at.deck()
    await one.reconfigure(config("a", "b"))
    await one.tear_down()
    await one.tear_down()
    assert not at.servers._servers


async def test_what_a_shared_server_tells_is_told_to_all_who_hold_it_each_in_its_own_context(at: PlayedDecks) -> None:
    """The log of one window would show what happens in another, or nothing of the servers that it shares."""
    heard: list[tuple[str, str]] = []
    one, two = at.deck("one"), at.deck("two")
    behalf: list[set[str]] = []
    unwatch = [deck.watch_each(lambda _: heard.append((deck_name.get(), "told"))) for deck in (one, two)]
    for deck in (one, two):
        await deck.reconfigure(config("a"))
        await ready(deck, "a")
    at.shared[0].fleet.watch_each(lambda _: behalf.append({context[deck_name] for context in on_behalf_of()}))
    heard.clear()
    await one.restart("a")
    await until(lambda: len(at.shared[0].sessions["a"]) == 2)
    await ready(two, "a")
    assert {name for name, _ in heard} == {"one", "two"}
    assert all(each == {"one", "two"} for each in behalf)
    assert behalf
    for deck, forget in zip((one, two), unwatch, strict=True):
        forget()
        await deck.tear_down()
    assert [context.get(deck_name, "") for context in on_behalf_of()] == [""]


async def test_what_a_shared_server_says_is_told_to_all_who_hold_it_each_in_its_own_context(at: PlayedDecks) -> None:
    """One window's log would show the words of another's servers, or none of those that it shares."""
    heard: list[tuple[str, News]] = []
    decks = [at.deck("one"), at.deck("two")]
    for deck in decks:
        deck.watch_news(lambda news: heard.append((deck_name.get(), news)))
        await deck.reconfigure(config("a", "own"))
        await ready(deck, "a", "own")

    async def told(speaker: PlayedFleet, server: str) -> list[tuple[str, News]]:
        heard.clear()
        speaker.sessions[server][0].worker.says(Log("info", ""), b'"hm"')
        await turns()
        return list(heard)

    line = LogLine("a", "info", "", b'"hm"')
    assert await told(at.shared[0], "a") == [("one", line), ("two", line)]
    assert [name for name, _ in await told(at.owns[1], "own")] == ["two"]
    await decks[0].tear_down()
    assert await told(at.shared[0], "a") == [("two", line)]


async def test_no_file_that_any_deck_trusts_may_be_written(at: PlayedDecks) -> None:
    """A server that one project starts could write what another believes."""
    one, two = at.deck(files=["/one", "/both"]), at.deck(files=["/both", "/two"])
    for deck in (one, two):
        await deck.reconfigure(config("a"))
    assert list(at.trusted[0]()) == ["/one", "/both", "/two"]
    await one.tear_down()
    assert list(at.trusted[0]()) == ["/both", "/two"]


async def test_a_fleet_that_was_torn_down_starts_again(at: PlayedDecks) -> None:
    """`spin_up` would bring back half of the servers."""
    one = at.deck()
    await one.reconfigure(config("a", "own"))
    await ready(one, "a", "own")
    await one.tear_down()
    await one.reconfigure(config("b", "own"))
    assert one.endpoint("b") is None
    await one.spin_up()
    await until(lambda: phases(one).get("b") is READY)


async def test_few_servers_of_all_decks_start_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred shared servers would start at once and miss their deadlines; or one that hangs hold up all others."""
    slots, started = StartSlots(2), list[int]()
    done = asyncio.Event()

    async def start(number: int) -> None:
        async with slots.hold():
            started.append(number)
            await done.wait()

    tasks = [asyncio.create_task(start(number)) for number in range(5)]
    await turns()
    assert started == [0, 1]
    monkeypatch.setattr(module, "SLOT_HOLD_S", 0.0)
    done.set()
    await asyncio.gather(*tasks)
    assert started == [0, 1, 2, 3, 4]

    never = asyncio.Event()

    async def hang() -> None:
        async with slots.hold():
            await never.wait()

    hanging = [asyncio.create_task(hang()) for _ in range(2)]
    await turns()
    async with slots.hold():
        pass
    never.set()
    await asyncio.gather(*hanging)
