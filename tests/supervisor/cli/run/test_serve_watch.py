"""What a serve logs of its servers, how it follows its files, and how it keeps to a lock."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from support.config.places import write_config
from support.serves.products import ProductEndpoint, ProductFleet, product_of
from support.waiting import turns

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.run import serve_watch as module
from quarterdeck.cli.run.request import read_request
from quarterdeck.cli.run.serve_watch import MAX_NAMED, changes_logged, following, reload, serve_locked
from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config import file_watch
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.messages import ServeRequest
from quarterdeck.ledger.events.chain import Head
from quarterdeck.running_product import Product
from quarterdeck.trust.judge.documents import Document, ServerLists, documents_of, listed_documents
from quarterdeck.trust.lock.ignores import Ignores
from quarterdeck.trust.lock.lockfile import DeckLock, lock_of
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import REMEDIES, FaultKind, ProtocolFault

LOST = ProtocolFault(FaultKind.TRANSPORT, "it died", code="exited")


def test_each_change_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A log would not show a death, or repeat it at each change of another server."""
    caplog.set_level(logging.INFO)
    server = ProductEndpoint("fs", "read", phase=EndpointPhase.CONNECTING)
    with product_of(tmp_path, server) as product, changes_logged(product):
        fleet = cast("ProductFleet", product.fleet)
        for phase, fault, restarts in (
            (EndpointPhase.READY, None, 0),
            (EndpointPhase.FAULTED, LOST, 0),
            (EndpointPhase.CONNECTING, None, 1),
            (EndpointPhase.READY, None, 1),
        ):
            server.phase, server.fault, server.restarts = phase, fault, restarts
            fleet.tell()
            fleet.tell()
    server.phase = EndpointPhase.CLOSED
    fleet.tell()
    assert [entry.getMessage() for entry in caplog.records] == [
        "fs is ready (pid None, tools: 1)",
        f"fs is faulted: it died (exited): {REMEDIES['exited'].replace('SERVER', 'fs')}",
        "fs is ready (pid None, tools: 1, restarts: 1)",
    ]


class PlayedProduct:
    """What of a running product is needed here; keeps what it was told to run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reloads: list[Settings] = []
        self.reloaded = asyncio.Event()

    @property
    def secrets(self) -> tuple[str, ...]:
        """No client has any of its own."""
        return self.settings.secrets

    async def reload(self, settings: Settings) -> None:
        self.settings = settings
        self.reloads.append(settings)
        self.reloaded.set()


class Files:
    """The user's configuration, and a `serve` of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.request = ServeRequest(cwd="/", config=(str(path),))
        self.hidden: list[set[str]] = []

    def write(self, **servers: object) -> None:
        """Name these servers."""
        write_config(self.path, **servers)

    def product(self) -> PlayedProduct:
        """A serve that runs what the files say now."""
        return PlayedProduct(self.read())

    def read(self, before: Settings | None = None) -> Settings:
        """What they say now."""
        return read_request(self.request, os.environ, before)

    def withhold(self, secrets: Collection[str]) -> None:
        """These are kept out of the log from now on."""
        self.hidden.append(set(secrets))

    async def reload(self, product: PlayedProduct) -> None:
        """Have it look at the files."""
        await reload(cast("Product", product), self.read, self.withhold)


@pytest.fixture
def files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Files:
    caplog.set_level(logging.INFO, "quarterdeck.config")
    files = Files(tmp_path / "mcp.json")
    files.write(a={"command": "one"}, b={"command": "two"})
    return files


async def test_what_changed_is_said_and_applied_and_nothing_else(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """A user could not see whether an edit was taken; each save would restart servers, or undo the command line."""
    product = files.product()
    files.path.write_text(files.path.read_text() + "\n\n")
    await files.reload(product)
    assert (product.reloads, caplog.messages) == ([], [])
    product = files.product()
    files.write(b={"command": "three"}, c={"command": "four"})
    await files.reload(product)
    [settings] = product.reloads
    assert settings.ids == ("b", "c")
    assert caplog.messages == ["the configuration changed: added: c; removed: a; changed: b"]
    product = files.product()
    files.path.write_text(json.dumps({**json.loads(files.path.read_text()), "max_result_tokens": 7}))
    await files.reload(product)
    assert [settings.max_result_tokens for settings in product.reloads] == [7]
    product = files.product()
    product.settings = replace(product.settings, settle_s=0.25, names=NameBudget(40))
    files.write(a={"command": "one"})
    await files.reload(product)
    assert (product.settings.settle_s, product.settings.names) == (0.25, NameBudget(40))


async def test_a_row_that_breaks_runs_on_and_all_else_changes(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """One bad row would freeze the configuration, or a half-typed row stop the server that works."""
    product = files.product()
    files.write(
        a={"command": "one", "sandbox": {"reed": []}}, b={"command": "three"}, c={"command": 7}, d={"command": "x"}
    )
    await files.reload(product)
    settings = product.settings
    assert {config.id: config.command for config in settings.servers} == {"a": "one", "b": "three", "d": "x"}
    assert [config.id for config in settings.servers] == ["a", "b", "d"]
    assert [row.id for row in settings.broken] == ["c"]
    kept, skipped = settings.troubles
    assert (kept.server, kept.meanwhile, kept.is_listed) == ("a", "a runs as it was before", False)
    assert (skipped.server, skipped.meanwhile, skipped.is_listed) == ("c", "c is not started", True)
    assert kept.message.startswith(f"{files.path}: mcpServers.a.sandbox: unknown key 'reed'")
    assert kept.remedy == REMEDIES["config_invalid"]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [f"{each.message}; {each.meanwhile}" for each in (kept, skipped)]


async def test_a_broken_row_runs_on_until_it_is_mended_or_taken_out_and_keeps_no_edit_out(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """A mended typo would need a restart, or one row freeze the file for ever."""
    product = files.product()
    for row in ({"command": 7}, {"command": 8}, {"command": "mended"}):
        files.write(a=row, b={"command": "two"})
        await files.reload(product)
    assert {config.id: config.command for config in product.settings.servers} == {"a": "mended", "b": "two"}
    assert product.settings.troubles == ()
    assert "the whole configuration can be used again" in caplog.messages
    product = files.product()
    for rows in ({"a": {"command": 7}, "b": {"command": "two"}}, {"b": {"command": "two"}}):
        files.write(**rows)
        await files.reload(product)
    assert product.settings.ids == ("b",)
    files.write(a={"command": "one"}, half={"command": "${NOPE}"})
    product = files.product()
    files.write(a={"command": "one", "call_timeout_s": 5}, half={"command": "${NOPE}"})
    await files.reload(product)
    assert len(product.reloads) == 1


async def test_what_a_running_server_has_stays_hidden_from_clients_logs_and_itself(files: Files) -> None:
    """A client would see hidden tools, a log an old key, a server write what the next edit reads."""
    row = {"command": "one", "env": {"API_KEY": "hunter2-hunter2"}, "hide": ["purge*"]}
    files.write(a=row)
    product = files.product()
    before = product.settings.overrides["a"]
    files.write(a={**row, "hide": [], "command": 7})
    await files.reload(product)
    assert product.settings.overrides == {"a": before}
    assert "hunter2-hunter2" in product.settings.secrets
    assert product.settings.origin("a").row["command"] == "one"
    files.write(a={"command": "one", "env": {"API_KEY": "hunter2-hunter2"}})
    product = files.product()
    files.write(a={"command": "one", "env": {"API_KEY": "swordfish-swordfish"}})
    await files.reload(product)
    assert files.hidden
    assert {"hunter2-hunter2", "swordfish-swordfish"} <= files.hidden[-1]
    files.write(a={"command": "one", "envFile": "old.env"})
    product = files.product()
    files.write(a={"command": "one", "envFile": "new.env"})
    for name in ("old.env", "new.env"):
        (files.path.parent / name).write_text("")
    await files.reload(product)
    kept = {Path(path).name for path in product.settings.trusted}
    assert {"mcp.json", "old.env", "new.env"} <= kept


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"mcpServers": {"a": {"comm'])
async def test_a_file_that_cannot_be_parsed_changes_nothing_until_it_is_mended(
    files: Files, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """An editor that writes in two steps would stop every server, or the edit never be taken."""
    product = files.product()
    before = product.settings
    files.path.write_text(text)
    await files.reload(product)
    assert (product.settings.servers, product.settings.origins) == (before.servers, before.origins)
    [trouble] = product.settings.troubles
    assert trouble.message.startswith(f"{files.path}: ")
    assert (trouble.server, trouble.meanwhile) == ("", "it counts as it was before")
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == f"{trouble.message}; {trouble.meanwhile}"
    files.write(a={"command": "other"})
    await files.reload(product)
    assert product.settings.ids == ("a",)
    assert product.settings.troubles == ()


async def test_a_file_that_is_taken_away_stops_nothing(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """An editor that saves by writing a new file would stop every server for a moment."""
    product = files.product()
    before = product.settings.servers
    files.path.unlink()
    await files.reload(product)
    assert product.settings.servers == before
    assert "it counts as it was before" in caplog.text


async def test_a_projects_trouble_holds_up_no_edit_of_the_users(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write into a project could keep a server running that the user took away."""
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home / ".config/quarterdeck", project):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(project)
    files.path, files.request = home / ".config/quarterdeck/mcp.json", ServeRequest(cwd=os.getcwd())
    files.write(a={"command": "one"}, b={"command": "two"})
    product = files.product()
    write_config(project / ".mcp.json", x={"command": 7})
    (project / "quarterdeck.json").write_text("{")
    files.write(a={"command": "one"})
    await files.reload(product)
    assert [config.id for config in product.settings.servers] == ["a"]


async def test_new_warnings_are_told_once(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """A user would not learn that a row is not used; or be told so at each save."""
    first, second = files, Files(files.path.with_name("second.json"))
    second.write(c={"command": "three"})
    first.request = ServeRequest(cwd="/", config=(str(first.path), str(second.path)))
    product = first.product()
    for servers in ({"a": {"command": "theirs"}}, {"a": {"command": "theirs"}, "d": {"command": "four"}}):
        second.write(**servers)
        await first.reload(product)
    assert len(product.reloads) == 2
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == [f"{second.path}: 'a' is ignored: {first.path} defines it first"]


class Changes:
    """Changes of files that a test makes happen."""

    def __init__(self) -> None:
        self.happen: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.asked: tuple[Path, ...] = ()
        self.is_closed = False

    async def of(self, paths: tuple[Path, ...]) -> AsyncIterator[None]:
        """Stands for `changes_of`."""
        self.asked = paths
        try:
            while True:
                if (error := await self.happen.get()) is not None:
                    raise error
                yield
        finally:
            self.is_closed = True


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    changes = Changes()
    monkeypatch.setattr(file_watch, "changes_of", changes.of)
    return changes


async def test_every_change_is_followed_until_the_serve_ends(files: Files, changes: Changes) -> None:
    """Only the first edit would be taken, or the watching outlive the serve."""
    product = files.product()
    files.write(early={"command": "one"})
    async with asyncio.timeout(30), following(cast("Product", product), files.read, files.withhold):
        await product.reloaded.wait()  # what changed between the first look and the watching
        assert product.settings.ids == ("early",)
        for server in ("first", "second"):
            product.reloaded.clear()
            files.write(**{server: {"command": "one"}})
            changes.happen.put_nowait(None)
            await product.reloaded.wait()
            assert product.settings.ids == (server,)
    assert changes.asked == product.reloads[0].candidates
    assert files.path in changes.asked
    assert changes.is_closed


async def test_a_watching_that_fails_is_said_and_ends_nothing(
    files: Files, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system without watches left would end the serve, or leave its user waiting for an edit to be taken."""
    said: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(module._config_log, "exception", said.put_nowait)
    changes.happen.put_nowait(OSError("no watches left"))
    async with asyncio.timeout(30), following(cast("Product", files.product()), files.read, files.withhold):
        assert (await said.get()).startswith("the configuration files are no longer watched: restart this")


async def test_without_a_file_nothing_is_watched(changes: Changes) -> None:
    """Native tools alone would cost a thread and a watch."""
    product = PlayedProduct(Settings())
    async with asyncio.timeout(30), following(cast("Product", product), lambda _: Settings(), lambda _: None):
        await asyncio.sleep(0)
    assert (changes.asked, product.reloads) == ((), [])


HEAD = Head(1, "ab" * 32)


@contextmanager
def locked_product(place: Path, *endpoints: ProductEndpoint) -> Iterator[tuple[Product, DeckLock]]:
    """A product of these servers, and the lock of what they list now."""
    documents = {
        each.config.id: listed_documents("", [tool.descriptor.definition or b"" for tool in each.tools()])
        for each in endpoints
    }
    with product_of(place, *endpoints) as product:
        yield product, lock_of(documents, Ignores(), HEAD)


def tell(product: Product) -> None:
    cast("ProductFleet", product.fleet).tell()


class Serving:
    """The work that a lock watches over."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self) -> None:
        """Serve until told otherwise."""
        self.has_begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def drift_of(product: Product, lock: DeckLock) -> CommandError:
    """The error that ends a serve which has drifted by now."""
    serving = Serving()
    async with asyncio.timeout(30):
        with pytest.raises(CommandError) as raised:
            await serve_locked(product, lock, serving())
    assert serving.was_cancelled or not serving.has_begun.is_set()
    return raised.value


@asynccontextmanager
async def served_under(lock: DeckLock, product: Product) -> AsyncIterator[Serving]:
    """Serve under this lock inside the block, and to the end."""
    serving = Serving()
    async with asyncio.timeout(30):
        work = asyncio.create_task(serve_locked(product, lock, serving()))
        await serving.has_begun.wait()
        yield serving
        serving.may_end.set()
        await work


async def test_what_is_as_it_was_locked_is_served_to_the_end(tmp_path: Path) -> None:
    """A locked serve would end for no reason, or never."""
    with locked_product(tmp_path, ProductEndpoint("fs", "read")) as (product, lock):
        async with served_under(lock, product) as serving:
            tell(product)
    assert not serving.was_cancelled


async def test_a_server_that_changes_while_it_is_served_ends_it(tmp_path: Path) -> None:
    """A rug pull would go on being served."""
    serving, server = Serving(), ProductEndpoint("fs", "read")
    with locked_product(tmp_path, server) as (product, lock):
        async with asyncio.timeout(30):
            work = asyncio.create_task(serve_locked(product, lock, serving()))
            await serving.has_begun.wait()
            server.offer("read", "write")
            tell(product)
            with pytest.raises(CommandError) as raised:
                await work
    assert serving.was_cancelled
    assert raised.value.code is ExitCode.DRIFTED
    assert raised.value.message == "what servers offer differs from deck.lock: fs write added"
    assert "quarterdeck lock --check" in (raised.value.remedy or "")


async def test_an_event_of_one_server_has_only_its_list_held_against_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among two hundred servers each event would hash what all of them list."""
    looked: list[int] = []

    def looks(lists: ServerLists, home: str) -> tuple[Document, ...]:
        looked.append(1)
        return documents_of(lists, home)

    monkeypatch.setattr(module, "documents_of", looks)
    with locked_product(tmp_path, ProductEndpoint("fs", "read"), ProductEndpoint("git", "log")) as (product, lock):
        async with served_under(lock, product):
            looked.clear()
            cast("ProductFleet", product.fleet).tell("fs")
            await turns(20)
            assert len(looked) == 1


async def test_a_server_that_lacks_what_is_locked_has_drifted_even_when_it_lists_nothing(tmp_path: Path) -> None:
    """A server could hide a tool from review by leaving it out until later."""
    server = ProductEndpoint("fs", "read")
    with locked_product(tmp_path, server) as (product, lock):
        server.offer()
        assert "fs read missing" in (await drift_of(product, lock)).message


async def test_a_server_that_is_not_ready_has_not_drifted(tmp_path: Path) -> None:
    """A server that is down would end the serving of all others."""
    down, early = ProductEndpoint("down", "a"), ProductEndpoint("early", "b")
    with locked_product(tmp_path, down, early) as (product, lock):
        down.phase = EndpointPhase.FAULTED
        early.has_listed = False
        early.offer()
        async with served_under(lock, product):
            tell(product)


async def test_a_server_that_no_lock_names_is_drift(tmp_path: Path) -> None:
    """A server that was added later would be served unreviewed."""
    with product_of(tmp_path, ProductEndpoint("new", "read")) as product:
        error = await drift_of(product, lock_of({}, Ignores(), HEAD))
    assert error.message.endswith(": new added")


async def test_a_long_list_of_differences_is_cut(tmp_path: Path) -> None:
    """One line would fill the screen."""
    server = ProductEndpoint("fs")
    with locked_product(tmp_path, server) as (product, lock):
        server.offer(*(f"t{number}" for number in range(MAX_NAMED + 5)))
        message = (await drift_of(product, lock)).message
    assert message.endswith(" and 5 more")
    assert message.count("added") == MAX_NAMED


async def test_what_serving_raises_is_what_the_command_raises(tmp_path: Path) -> None:
    """A port that is taken would look like drift, or like success."""

    async def fail() -> None:
        raise LookupError("no port")

    with locked_product(tmp_path, ProductEndpoint("fs", "read")) as (product, lock):
        async with asyncio.timeout(30):
            with pytest.raises(LookupError, match="no port"):
                await serve_locked(product, lock, fail())
