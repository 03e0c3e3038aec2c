"""Which clients share a deck, and how long one stays: with decks that hold nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.config.places import write_config
from support.waiting import until

from quarterdeck.cli.run.request import read_request
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.deck_names import DeckNames
from quarterdeck.daemon.decks import DeckEndedError, Decks, current_deck, deck_key
from quarterdeck.daemon.messages import NativeRequest, ServeRequest
from quarterdeck_protocol.configs import StdioServerConfig

REQUEST = ServeRequest(cwd="/here", config=("/mcp.json",))


@dataclass
class Opened:
    """What was opened and closed, and in which context it ran."""

    log: list[str] = field(default_factory=list)
    failure: Exception | None = None
    environs: list[Mapping[str, str]] = field(default_factory=list)

    @asynccontextmanager
    async def open(
        self, request: ServeRequest, environ: Mapping[str, str], settings: Settings
    ) -> AsyncIterator[SimpleNamespace]:
        if self.failure is not None:
            raise self.failure
        key = current_deck.get()
        assert key == deck_key(request, settings)
        self.environs.append(environ)
        self.log.append(f"open {key}")
        yield SimpleNamespace(product=SimpleNamespace(status=dict, settings=settings))
        self.log.append(f"close {key}")


def read(_: ServeRequest, environ: Mapping[str, str], before: Settings | None = None) -> Settings:
    return Settings(config_paths=(Path("/mcp.json"),), environ=environ)


@pytest.fixture
def opened() -> Opened:
    return Opened()


async def test_clients_that_want_the_same_share_a_deck(opened: Opened) -> None:
    """Each window of an editor would start every server anew."""
    decks = Decks(read, opened.open)
    async with decks.borrow(REQUEST, {"PATH": "/bin"}) as (one, _), decks.borrow(REQUEST, {"PATH": "/bin"}) as (two, _):
        assert one is two
        assert one.clients == 2
    await decks.close()
    assert opened.log == [f"open {one.key}", f"close {one.key}"]


@pytest.mark.parametrize(
    ("request_", "environ"),
    [
        (ServeRequest(cwd="/here", config=("/mcp.json",), allow_unsandboxed=True), {"PATH": "/bin"}),
        (ServeRequest(cwd="/here", config=("/mcp.json",), native=NativeRequest("all", "/p")), {"PATH": "/bin"}),
        (REQUEST, {"PATH": "/other/bin"}),
        (REQUEST, {"PATH": "/bin", "LANG": "de_AT"}),
    ],
)
async def test_who_wants_something_else_has_a_deck_of_its_own(
    opened: Opened, request_: ServeRequest, environ: dict[str, str]
) -> None:
    """A client would call tools with another's rights, or servers be started with another's programs."""
    decks = Decks(read, opened.open)
    async with decks.borrow(REQUEST, {"PATH": "/bin"}) as (one, _), decks.borrow(request_, environ) as (two, _):
        assert one.key != two.key
    await decks.close()


def test_a_deck_is_named_by_what_its_servers_get_and_by_nothing_else_of_the_environment() -> None:
    """Each terminal would have servers of its own, by variables that nobody reads; or share another's password."""
    server = StdioServerConfig(id="s", command="s", inherit_env=("TOKEN",))

    def key(asked: tuple[str, ...] = (), **environ: str) -> str:
        return deck_key(REQUEST, Settings(servers=(server,), environ=environ, asked=frozenset(asked)))

    assert key(TERM_SESSION_ID="1") == key(TERM_SESSION_ID="2")
    assert key(TOKEN="mine") != key(TOKEN="yours")
    assert key(("USED",), USED="1") != key(("USED",), USED="2")
    assert key(("USED",)) != key(("USED",), USED="1")


def test_a_folder_names_a_deck_only_where_it_changes_what_runs() -> None:
    """Two windows with the same files would have servers, approvals and a name of their own."""
    here, there = ServeRequest(cwd="/here"), ServeRequest(cwd="/there")
    elsewhere = ServeRequest(cwd="/there", config=("/mcp.json",))
    assert deck_key(REQUEST, Settings(environ={})) == deck_key(elsewhere, Settings(environ={}))
    found = Settings(environ={}, is_found=True, candidates=(Path("/here/.mcp.json"),))
    other = Settings(environ={}, is_found=True, candidates=(Path("/there/.mcp.json"),))
    assert deck_key(here, found) == deck_key(there, other)
    of_folder = replace(found, is_of_folder=True)
    assert deck_key(here, of_folder) not in {deck_key(there, of_folder), deck_key(here, found)}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in (".config/quarterdeck", "plain", "project", "state"):
        (tmp_path / folder).mkdir(parents=True)
    write_config(tmp_path / ".config/quarterdeck/mcp.json", a={"command": "one"})
    write_config(tmp_path / "project/.mcp.json", b={"command": "two"})
    return tmp_path


async def test_the_users_own_files_are_one_deck_from_every_folder_without_a_project(opened: Opened, home: Path) -> None:
    """One file would be two decks, `home` and `user`, with servers and a place of each in every view."""
    names, environ = DeckNames(home / "state/decks.json"), {"HOME": str(home)}
    decks = Decks(read_request, opened.open, names=names)
    async with (
        decks.borrow(ServeRequest(cwd=str(home)), environ) as (one, _),
        decks.borrow(ServeRequest(cwd=str(home / "plain")), environ) as (two, _),
        decks.borrow_named("user", environ) as (over_http, _),
        decks.borrow(ServeRequest(cwd=str(home / "project")), environ) as (other, _),
    ):
        assert one is two is over_http
        assert (one.name, one.clients, other.name) == ("user", 3, "project")
        assert not any(str(home / "plain") in str(path) for path in one.settings.candidates)  # type: ignore[union-attr]
    await decks.close()


@pytest.mark.parametrize("text", ["", '{"mcpServers": {"a": {"comand": "${QD_X}"}}}'])
async def test_a_client_that_comes_while_the_file_is_broken_is_served_what_runs(
    opened: Opened, home: Path, text: str
) -> None:
    """It would be refused, or have a second deck without the server, for one second of an editor's."""
    path, environ = home / ".config/quarterdeck/mcp.json", {"HOME": str(home), "QD_X": "1"}
    write_config(path, a={"command": "${QD_X}"})
    decks = Decks(read_request, opened.open, names=DeckNames(home / "state/decks.json"))
    async with decks.borrow(ServeRequest(cwd=str(home)), environ) as (one, _):
        path.write_text(text)
        async with decks.borrow(ServeRequest(cwd=str(home / "plain")), environ) as (two, served):
            assert one is two
            assert served.product.settings.ids == ("a",)
        async with decks.borrow(ServeRequest(cwd=str(home)), {**environ, "QD_X": "2"}) as (other, served):
            assert other is not one, "another client's values are never its"
            assert not served.product.settings.servers
    await decks.close()


async def test_an_edit_that_changes_what_is_asked_of_the_environment_makes_no_second_deck(
    opened: Opened, home: Path
) -> None:
    """Clients of before and after an edit would have two decks of one name."""
    environ = {"HOME": str(home), "QD_X": "1"}
    decks = Decks(read_request, opened.open, names=DeckNames(home / "state/decks.json"))
    async with decks.borrow(ServeRequest(cwd=str(home)), environ) as (one, served):
        write_config(home / ".config/quarterdeck/mcp.json", a={"command": "${QD_X}"})
        served.product.settings = read_request(one.request, environ, served.product.settings)
        async with decks.borrow(ServeRequest(cwd=str(home)), environ) as (two, _):
            assert one is two
    await decks.close()


async def test_a_deck_stays_for_a_while_and_is_found_again(opened: Opened) -> None:
    """A window that is closed and opened again would wait for all servers."""
    decks = Decks(read, opened.open, linger_s=60)
    for _ in range(2):
        async with decks.borrow(REQUEST, {}) as (deck, _served):
            pass
    assert deck.clients == 0
    assert len(opened.log) == 1
    await decks.close()
    assert len(opened.log) == 2


async def test_an_idle_deck_ends_and_tells_so(opened: Opened) -> None:
    """Servers that nobody uses would run for ever, and the daemon with them."""
    decks = Decks(read, opened.open, linger_s=0)
    async with decks.borrow(REQUEST, {}):
        pass
    decks.changed.clear()
    await until(lambda: not len(decks))
    assert decks.changed.is_set()
    assert len(opened.log) == 2


async def test_a_deck_that_cannot_be_opened_fails_all_who_wait_and_is_tried_again_by_the_next(opened: Opened) -> None:
    """One broken file at the wrong moment would lock every client out until the daemon ends."""
    opened.failure = LookupError("no such file")
    decks = Decks(read, opened.open)

    async def come() -> str:
        try:
            async with decks.borrow(REQUEST, {}):
                return "served"
        except LookupError as error:
            return str(error)

    assert await asyncio.gather(come(), come()) == ["no such file"] * 2
    opened.failure = None
    assert await come() == "served"
    await decks.close()


async def test_a_deck_that_ended_by_itself_ends_its_sessions_and_is_nobodys_any_more(opened: Opened) -> None:
    """A client would stay connected to what is dead, and every window of that project be served by it."""
    broken = asyncio.Event()
    ends: list[str] = []

    @asynccontextmanager
    async def open_breaking(
        request: ServeRequest, environ: Mapping[str, str], settings: Settings
    ) -> AsyncIterator[SimpleNamespace]:
        async with opened.open(request, environ, settings) as served, asyncio.TaskGroup() as tasks:
            if len(opened.log) == 1:
                tasks.create_task(fail())
            yield served

    async def fail() -> None:
        await broken.wait()
        raise LookupError("its zygote is gone")

    async def serve() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("session")

    decks = Decks(read, open_breaking)
    async with decks.borrow(REQUEST, {}) as (first, _):
        serving = asyncio.create_task(first.lasting(serve()))
        broken.set()
        with pytest.raises(DeckEndedError, match="ended by itself"):
            await serving
        assert ends == ["session"]
        await until(lambda: not list(decks))
        async with decks.borrow(REQUEST, {}) as (second, _):
            assert second is not first
    assert list(decks) == [second]
    await decks.close()


async def test_a_client_that_leaves_while_its_deck_opens_takes_nobody_along(opened: Opened) -> None:
    """Closing one window during a start would end the start of the others."""
    may_read = asyncio.Event()

    @asynccontextmanager
    async def open_slowly(
        request: ServeRequest, environ: Mapping[str, str], settings: Settings
    ) -> AsyncIterator[SimpleNamespace]:
        await may_read.wait()
        async with opened.open(request, environ, settings) as served:
            yield served

    decks = Decks(read, open_slowly)

    async def come() -> str:
        async with decks.borrow(REQUEST, {}) as (deck, _):
            return deck.key

    leaving, staying = asyncio.create_task(come()), asyncio.create_task(come())
    await until(lambda: any(deck.clients == 2 for deck in decks))
    leaving.cancel()
    await asyncio.wait([leaving])
    may_read.set()
    assert opened.log == []
    assert await staying == deck_key(REQUEST, read(REQUEST, {}))
    assert len(opened.log) == 1
    await decks.close()


async def test_a_session_that_ends_first_says_how(opened: Opened) -> None:
    """Its own error would be taken for the deck's."""

    async def serve() -> None:
        raise ValueError("mine")

    decks = Decks(read, opened.open)
    async with decks.borrow(REQUEST, {}) as (deck, _):
        with pytest.raises(ValueError, match="mine"):
            await deck.lasting(serve())
    await decks.close()
