"""Decks as HTTP clients reach them: taken up once, let go, and what is said of one that cannot be served."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.tools.tool_boxes import LiveBox
from support.waiting import until

from quarterdeck.config.settings import Settings
from quarterdeck.daemon import http_decks
from quarterdeck.daemon.deck_names import DeckNames
from quarterdeck.daemon.decks import Decks, RefusalError
from quarterdeck.daemon.http_decks import HttpDecks
from quarterdeck.daemon.messages import ServeRequest
from quarterdeck.host.http.http_host import HttpHost
from quarterdeck.host.http.options import HttpOptions
from quarterdeck.host.http.readiness import Obstacle, Unready
from quarterdeck.host.http.serve import HttpFace, NoHostError
from quarterdeck.host.provider import ProviderHostImpl, create_provider_host


class FakeProduct:
    """Serves nothing."""

    settings = Settings()
    obstacles: tuple[Unready, ...] = ()

    def unready(self) -> tuple[Unready, ...]:
        return self.obstacles

    def create_host(self, **_: Any) -> ProviderHostImpl:
        return create_provider_host(LiveBox())


class FakeServed:
    """An open deck, which may not be served any more once `broken` is set."""

    def __init__(self) -> None:
        self.product: Any = FakeProduct()
        self.broken = asyncio.Event()

    async def guard(self, serving: Coroutine[None, None, None]) -> None:
        """See `Served`."""
        task = asyncio.ensure_future(serving)
        broken = asyncio.ensure_future(self.broken.wait())
        await asyncio.wait([task, broken], return_when=asyncio.FIRST_COMPLETED)
        broken.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            raise RefusalError(3, "it drifted", "quarterdeck lock")


class Lab:
    """Decks that open nothing."""

    def __init__(self, folder: Path) -> None:
        self.opened: list[FakeServed] = []
        self.failure: Exception | None = None
        self.decks = Decks(self._read, self._open, linger_s=0.0, names=DeckNames(folder / "decks.json"))
        self.http = HttpDecks(
            self.decks, HttpFace(HttpOptions()), {}, lambda error: error if isinstance(error, RefusalError) else None
        )

    @staticmethod
    def _read(request: ServeRequest, environ: Mapping[str, str], before: Settings | None) -> Settings:
        return Settings(is_found=True, environ=environ)

    @asynccontextmanager
    async def _open(self, *_: Any) -> AsyncIterator[FakeServed]:
        if self.failure is not None:
            raise self.failure
        self.opened.append(FakeServed())
        yield self.opened[-1]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    await lab.http.close()
    await lab.decks.close()


async def test_a_deck_is_taken_up_once_for_all_who_ask_at_a_time(lab: Lab) -> None:
    """Each of the first requests would have sessions that the others do not know."""
    assert lab.http.present("user") is None
    found = await asyncio.gather(*(lab.http.find("user") for _ in range(4)))
    assert {id(host) for host in found} == {id(lab.http.present("user"))}
    assert len(lab.opened) == 1
    assert [deck.name for deck, _ in lab.http] == ["user"]


async def test_who_comes_before_a_deck_s_host_is_ready_gets_the_same_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session would be opened at one host, and its next request come to another: 404, session not found."""
    may_go_on, ready = asyncio.Event(), HttpHost.ready

    async def ready_late(host: HttpHost) -> None:
        await ready(host)
        await may_go_on.wait()

    monkeypatch.setattr(HttpHost, "ready", ready_late)
    first = asyncio.create_task(lab.http.find("user"))
    await until(lambda: bool(list(lab.http)))
    second = asyncio.create_task(lab.http.find("user"))
    await asyncio.sleep(0)
    may_go_on.set()
    assert await first is await second
    assert len(lab.opened) == 1


async def test_one_that_nobody_uses_is_let_go_and_taken_up_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of a project would run until the daemon ends, for one request."""
    monkeypatch.setattr(http_decks, "LOOK_S", 0.01)
    monkeypatch.setattr(http_decks, "IDLE_S", 0.02)
    first = await lab.http.find("user")
    await until(lambda: not len(lab.decks))
    assert first.has_ended
    assert lab.http.present("user") is None
    assert await lab.http.find("user") is not first


async def test_one_that_must_not_be_served_any_more_ends_for_its_clients(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients would be shown tools that the lock does not name; or the daemon end with them."""
    first = await lab.http.find("user")
    lab.opened[0].broken.set()
    await until(lambda: "it drifted; quarterdeck lock" in caplog.text)
    assert first.has_ended
    assert await lab.http.find("user") is not first


@pytest.mark.parametrize(
    ("deck", "failure", "status", "says"),
    [
        ("api", None, 404, "there is no deck 'api': `quarterdeck status`"),
        (
            "user",
            RefusalError(2, "it is broken", "mend it"),
            503,
            "the deck 'user' cannot be served: it is broken; mend it",
        ),
        ("user", KeyError("x"), 500, "quarterdeck logs --daemon"),
    ],
)
async def test_who_asks_for_what_cannot_be_served_is_told_why(
    lab: Lab, deck: str, failure: Exception | None, status: int, says: str
) -> None:
    """A client would get an empty answer, and go on getting it after the cause is mended."""
    lab.failure = failure
    for _ in range(2):
        with pytest.raises(NoHostError) as told:
            await lab.http.find(deck)
        assert told.value.status == status
        assert says in str(told.value)
    lab.failure = None
    assert await lab.http.find("user") is not None


async def test_the_first_look_at_readiness_opens_the_own_deck_and_no_later_one_does(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A required server would be judged only once a client has come; or a watchdog keep every server from its end."""
    monkeypatch.setattr(http_decks, "ledger_obstacles", lambda _: ())
    monkeypatch.setattr(http_decks, "LOOK_S", 0.01)
    monkeypatch.setattr(http_decks, "IDLE_S", 0.02)
    opening = [Unready(Obstacle.DECK_OPENING, "user")]
    assert list(lab.http.unready()) == list(lab.http.unready()) == opening
    await lab.http.find("user")
    lab.opened[0].product.obstacles = (Unready(Obstacle.SERVER_FAILED, "s"),)
    assert list(lab.http.unready()) == [Unready(Obstacle.SERVER_FAILED, "s")]
    await until(lambda: not len(lab.decks))
    assert list(lab.http.unready()) == []
    assert len(lab.opened) == 1


async def test_a_deck_that_cannot_be_opened_is_not_ready_until_it_can(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon with a broken file would get the requests of all clients; or none, after the file is mended."""
    monkeypatch.setattr(http_decks, "ledger_obstacles", lambda _: ())
    monkeypatch.setattr(http_decks, "LOOK_S", 0.0)
    lab.failure = RefusalError(2, "it is broken", "mend it")
    await until(lambda: [each.kind for each in lab.http.unready()] == [Obstacle.DECK_FAILED])
    assert "it is broken; mend it" in next(iter(lab.http.unready())).why
    lab.failure = None
    await until(lambda: not list(lab.http.unready()))


async def test_when_the_daemon_ends_nothing_more_is_taken_up(lab: Lab) -> None:
    """Its end would wait for servers that have just begun to start."""
    host = await lab.http.find("user")
    await lab.http.close()
    assert host.has_ended
    with pytest.raises(NoHostError, match="about to end"):
        await lab.http.find("user")
