"""The composition root: settings from files, and the product as a whole."""

import asyncio
import gc
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final

import anyio
import pytest
from support.config.places import row, use_places, write_config, write_document
from support.fleet.workers import PlayedSession
from support.processes.leftovers import no_leftovers
from support.processes.programs import SERVERS, server_argv
from support.processes.running import loaded_by
from support.servers.real_endpoints import hostile, pretend
from support.tools.native_decks import DeckMaker, PlayedDeck

from quarterdeck import Settings, open_quarterdeck
from quarterdeck.cli.run.command_server import command_settings
from quarterdeck.common.run_options import REMEDIES_OF_RUN
from quarterdeck.common.tool_names import Profile
from quarterdeck.config.load.file import BrokenRow, ConfigFileError
from quarterdeck.config.native_tools import NativeWish
from quarterdeck.config.places.runtime_directory import announced_files, find_serving
from quarterdeck.daemon.control.views import view_servers
from quarterdeck.daemon.messages import CommandRequest, ServeRequest
from quarterdeck.fleet import from_settings
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import start_server_fleet
from quarterdeck.fleet.workers.requests import ended
from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck.host.http.grants import Grant
from quarterdeck.host.http.token_clients import GrantedTools
from quarterdeck.host.results import fault_result
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.tools import session
from quarterdeck.trust.configured_servers import read_exposure
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig, SseServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.tools import CancelToken, Client, RawCall, ToolCall

pytestmark = pytest.mark.process

GIVEN_UP_S: Final = 1.0
"""Its server has been started by then, and has been asked."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for files, and state and runtime directories of the test's own."""
    use_places(monkeypatch, tmp_path)
    with no_leftovers():
        yield tmp_path


def stdio(server: str, *argv: str) -> StdioServerConfig:
    command, *args = argv or ("true",)
    return StdioServerConfig(id=server, command=command, args=tuple(args))


def test_files_are_read_together_and_the_earlier_one_wins(tmp_path: Path) -> None:
    """A second --config would silently replace a server of the first."""
    first = write_config(tmp_path / "first.json", a={"command": "one"}, half={"command": "${NOT_SET}"})
    second = write_config(
        tmp_path / "second.json", b={"command": "two"}, a={"command": "three"}, half={"command": "four"}
    )
    settings = Settings.load([first, second], {})
    assert [(config.id, getattr(config, "command", "")) for config in settings.servers] == [("a", "one"), ("b", "two")]
    assert [row.id for row in settings.broken] == ["half"]
    assert settings.ids == ("a", "b", "half")
    assert sorted(settings.warnings) == [
        f"{second}: 'a' is ignored: {first} defines it first",
        f"{second}: 'half' is ignored: {first} defines it first",
    ]
    assert settings.config_paths == (first, second)


def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """A typing error in --config would start a product without servers."""
    with pytest.raises(ConfigFileError, match=r"missing\.json"):
        Settings.load([write_config(tmp_path / "good.json"), tmp_path / "missing.json"], {})


def test_the_same_files_are_the_same_configuration_however_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ps` from another directory would not find the serve."""
    path = write_config(tmp_path / "mcp.json")
    monkeypatch.chdir(tmp_path)
    assert Settings.load([Path("mcp.json")], {}).digest == Settings.load([path], {}).digest
    assert Settings.load([path], {}).digest != Settings().digest


def test_what_servers_are_given_in_env_and_headers_is_secret() -> None:
    """A password would be readable in the log."""
    remote = SseServerConfig(id="r", url="https://example.org", headers={"Authorization": "Bearer x"})
    local = StdioServerConfig(id="l", command="true", env={"KEY": "hunter2"})
    assert Settings(servers=(local, remote)).secrets == ("Bearer x", "hunter2")


def test_one_server_can_be_picked() -> None:
    """`call --own` would start every server for one call."""
    broken = BrokenRow("half", "why", "unset_variable")
    settings = Settings(servers=(stdio("a"), stdio("b")), broken=(broken,))
    assert settings.only("b").ids == ("b",)
    assert settings.only("half").ids == ("half",)
    assert settings.only("c").ids == ()


async def test_the_whole_product_runs_and_leaves_nothing(folder: Path) -> None:
    """Embedding programs would have to put the parts together themselves, and clean up."""
    command, *args = server_argv("echo")
    sandbox = {"read": [str(SERVERS)]}
    path = write_config(folder / "mcp.json", echo={"command": command, "args": args, "sandbox": sandbox})
    settings = Settings(
        servers=Settings.load([path], {}).servers,
        broken=(BrokenRow("half", "mcp.json: KEY is not set", "unset_variable"),),
        config_paths=(path,),
    )
    async with open_quarterdeck(settings) as product:
        await product.finished()
        assert {server: status.phase for server, status in product.status().items()} == {
            "echo": "ready",
            "half": "faulted",
        }
        fault = product.status()["half"].fault
        assert fault is not None
        assert (fault.code, fault.message, fault.delivery) == ("unset_variable", "mcp.json: KEY is not set", "not_sent")
        outcome = await product.router.runner.run(ToolCall("1", "echo__echo", {"text": "hello"}), CancelToken())
        assert (outcome.output, outcome.is_error) == ("hello", False)
        assert product.directory.digest == settings.digest
        assert product.directory.path.is_dir()
        assert product.log_path("echo").is_relative_to(folder / "state")
        assert find_serving(settings.digest) is None
    assert not product.directory.path.exists()


async def test_what_the_users_word_is_here_is_announced_before_a_server_runs(folder: Path) -> None:
    """The servers of another deck could change an env file of this one, and with it what runs at the next start."""
    rows = {"a": {"command": "true", "envFile": "a.env"}}
    path = write_config(folder / "mcp.json", **rows)
    (folder / "a.env").write_text("X=1\n")
    settings = Settings.load([path], {"HOME": str(folder)})
    async with open_quarterdeck(settings) as product:
        assert {str(path), str(folder / "a.env")} <= set(announced_files())
        (folder / "b.env").write_text("X=1\n")
        write_config(path, **rows, b={"command": "true", "envFile": "b.env"})
        await product.reload(Settings.load([path], {"HOME": str(folder)}, before=product.settings))
        assert str(folder / "b.env") in announced_files()
    assert str(path) not in announced_files()


async def test_a_program_that_reloads_keeps_a_server_whose_row_broke(folder: Path) -> None:
    """A typo would stop a server of an embedding program, which a `serve` keeps."""
    path = write_config(folder / "mcp.json", a=row("echo"))
    async with open_quarterdeck(Settings.load([path], {"HOME": str(folder)})) as product:
        await product.finished()
        pid = product.status()["a"].pid
        write_config(path, a={"comand": "true"}, b={"command": 7})
        await product.reload(Settings.load([path], {"HOME": str(folder)}, before=product.settings))
        assert pid is not None
        assert (product.status()["a"].pid, product.status()["b"].phase) == (pid, "faulted")
        assert [each.server for each in product.settings.troubles] == ["a", "b"]


async def test_a_server_that_hangs_keeps_nobody_waiting_longer_than_the_settings_say(folder: Path) -> None:
    """The first list of tools would wait for the slowest server's connect deadline."""
    assert Settings().settle_s == 20.0
    stuck = hostile("never_answers")
    settings = Settings(servers=(stuck,), settle_s=0.05)
    async with open_quarterdeck(settings) as product:
        assert not await product.settled()
        assert product.status()["never-answers"].phase == "connecting"


async def test_the_wait_for_a_first_list_counts_from_when_its_client_was_greeted(folder: Path) -> None:
    """Our own imports would come on top, and clients that give up after five seconds would have no tools."""
    async with open_quarterdeck(Settings(servers=(hostile("never_answers"),), settle_s=3600.0)) as product:
        with anyio.fail_after(60):
            assert not await product.settled(monotonic() - 3600.0)
            wait = product.create_host(greeted_at=monotonic() - 3600.0).content.settled
            assert wait is not None
            assert not await wait()
        assert "Still starting: never-answers; its tools" in product.instructions()


async def test_a_client_is_told_of_the_servers_that_it_may_use_and_of_no_others(folder: Path) -> None:
    """A token for one server would learn of all the others, or nothing of its own."""
    one, other = (hostile("never_answers").model_copy(update={"id": server}) for server in ("one", "other"))
    grant = Grant(name="ci", digest="d", created_at=0.0, tools=("one__read*",))
    async with open_quarterdeck(Settings(servers=(one, other), settle_s=0.0)) as product:
        assert "Still starting: one, other;" in product.instructions()
        told = product.instructions(Client("ci", "token ci", GrantedTools(grant)))
    assert "Still starting: one;" in told
    assert "other" not in told


async def test_a_client_and_its_model_are_given_the_fix_of_ps_word_for_word(folder: Path) -> None:
    """A user would be sent to `restart`, which tries the same again, where `ps` knows what helps."""
    (folder / "hidden").mkdir()
    rows = {"fs": {"command": "cat", "args": [str(folder / "hidden")]}, "bad": {"command": 7}}
    path = write_config(folder / "mcp.json", **rows)
    async with open_quarterdeck(Settings.load([path], {"HOME": str(folder), "PATH": os.environ["PATH"]})) as product:
        await product.finished()
        shown = {view.id: view.fault for view in await view_servers(product, product.status().values())}
        server = product.servers.endpoint("fs")
        assert server is not None
        with pytest.raises(ProtocolFault) as caught:
            await ended(partial(server.begin, RawCall("read", b"{}")))
        told = product.instructions()
    fs, bad = shown["fs"], shown["bad"]
    assert fs is not None
    assert bad is not None
    assert fs.remedy is not None
    assert fs.remedy.startswith(f"quarterdeck allow fs -c {path} gives it what its row names")
    assert caught.value.code == "not_connected"
    assert caught.value.remedy == fs.remedy
    assert fs.remedy in fault_result(caught.value)["content"][0]["text"]  # type: ignore[index]
    assert f"fs: {fs.remedy}; bad: {bad.remedy}." in told
    assert str(folder / "hidden") not in told


async def test_the_server_of_a_run_is_given_the_options_of_run(folder: Path) -> None:
    """Its client would be told to run `allow`, which knows no such server."""
    (folder / "hidden").mkdir()
    request = ServeRequest(cwd=str(folder))
    asked = CommandRequest(words=("cat", str(folder / "hidden")))
    settings = command_settings(asked, request, {"HOME": str(folder), "PATH": os.environ["PATH"]})
    async with open_quarterdeck(settings) as product:
        await product.finished()
        [view] = await view_servers(product, product.status().values())
        server = product.servers.endpoint(view.id)
        assert server is not None
        with pytest.raises(ProtocolFault) as caught:
            await ended(partial(server.begin, RawCall("read", b"{}")))
        told = product.instructions()
    assert view.fault is not None
    assert view.fault.remedy == caught.value.remedy == REMEDIES_OF_RUN["sandbox_refused"]
    for text in (view.fault.message, caught.value.message):
        assert f"add --read {folder / 'hidden'} or --write {folder / 'hidden'}" in text
    assert REMEDIES_OF_RUN["sandbox_refused"] in told


async def test_a_decision_whose_command_is_interrupted_counts_all_the_same(folder: Path) -> None:
    """A block would be on record, and the tool go on being offered and called."""
    settings = Settings(servers=(pretend("echo"),))
    async with open_quarterdeck(settings, serves=True) as product:
        await product.finished()
        assert "echo__echo" in {tool.name for tool in product.router.descriptors()}
        (row,) = product.approvals.rows
        deciding = asyncio.create_task(
            product.decide([Decision(row.scope, "echo", ItemKey(Subject.TOOL, "echo"), "", b"")])
        )
        await asyncio.sleep(0)
        deciding.cancel()
        await asyncio.wait((deciding,))
        assert deciding.cancelled()
        assert "echo__echo" not in {tool.name for tool in product.router.descriptors()}


@pytest.mark.parametrize("give_up", [asyncio.timeout, anyio.move_on_after])
async def test_a_fleet_whose_start_is_given_up_is_gone_with_all_that_it_started(
    folder: Path, give_up: Callable[[float], Any]
) -> None:
    """A program that waits no longer would keep a zygote, a worker and a server that nobody can end."""
    with suppress(TimeoutError):
        async with AsyncExitStack() as stack:
            scope = give_up(GIVEN_UP_S)
            await stack.enter_async_context(scope) if hasattr(scope, "__aenter__") else stack.enter_context(scope)
            await start_server_fleet(BridgeConfig(servers=(hostile("never_answers"),)))
            pytest.fail("it never answers")
    # Processes are looked for by `folder`.
    assert list((folder / "run").glob("*")) == []


async def test_the_host_is_called_by_the_products_name(folder: Path) -> None:
    """Clients would show the bare factory's name."""
    async with open_quarterdeck(Settings(names=None)) as product:
        host = product.create_host()
        assert (host.info.name, host.info.version) == ("quarterdeck", CLIENT_VERSION)
        assert host.box is product.router


async def test_a_host_that_was_closed_is_held_by_nothing(folder: Path) -> None:
    """A daemon makes one for each session: its memory, and what each change costs, would grow with every one."""
    async with open_quarterdeck(Settings()) as product:
        for _ in range(2):
            host = product.create_host()
            kept = weakref.ref(host)
            host.close()
            del host
            gc.collect()
            assert kept() is None


async def test_what_servers_and_commands_may_write_is_recorded_before_they_run(folder: Path) -> None:
    """A configuration that one of them put there would be the user's word at the next start."""
    config = folder / "mcp.json"
    servers = {"fs": {"command": "true", "sandbox": {"write": [str(folder / "s")]}}}
    write_document(config, mcpServers=servers, native={"sandbox": {"write": [str(folder / "n")]}})
    for name in "snw":
        (folder / name).mkdir()
    wish = NativeWish(profile=Profile.ALL, workspace=folder / "w")
    async with open_quarterdeck(Settings.load([config], native=wish)):
        exposure = read_exposure(folder / "state")
        assert [exposure.covers(folder / name / "mcp.json") for name in (*"snw", ".")] == [True, True, True, False]


async def test_an_error_of_the_body_still_stops_everything(folder: Path) -> None:
    """A crash of the embedding program would leave servers and a directory."""
    with pytest.raises(LookupError):
        async with open_quarterdeck(Settings(servers=(stdio("echo", *server_argv("echo")),))) as product:
            directory = product.directory.path
            raise LookupError
    assert not directory.exists()


@pytest.mark.parametrize("allowed", [True, False])
async def test_what_servers_may_start_without_reaches_each_of_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """`--allow-unsandboxed` would be ignored, or hold where nobody said it; or a server could write what it is told."""
    said: list[dict[str, Any]] = []

    def create(config: ServerConfig, **options: Any) -> ServerEndpointImpl:
        said.append(options)
        return ServerEndpointImpl(config, PlayedSession())

    monkeypatch.setattr(from_settings, "create_server_endpoint", create)
    servers = (stdio("a"), stdio("b"))
    settings = Settings(servers=servers, allow_unsandboxed=allowed, trusted=("/its/mcp.json",))
    async with open_quarterdeck(settings) as product:
        await product.finished(30)
    assert [options["allow_unsandboxed"] for options in said] == [allowed] * 2
    assert [options["trusted"]() for options in said] == [("/its/mcp.json",)] * 2


@pytest.mark.parametrize(
    ("servers", "started"),
    [((), 0), ((SseServerConfig(id="r", url="http://127.0.0.1:9/"),), 0), ((stdio("a"), stdio("b")), 1)],
)
async def test_only_processes_need_their_zygote(
    folder: Path, monkeypatch: pytest.MonkeyPatch, servers: tuple[ServerConfig, ...], started: int
) -> None:
    """Whoever has remote servers alone would pay for a process that has nothing to fork."""
    warmed: list[Runtime] = []
    monkeypatch.setattr(from_settings, "create_server_endpoint", lambda config, **_: _played(config))
    monkeypatch.setattr(Runtime, "warm_up", lambda runtime: warmed.append(runtime))  # noqa: PLW0108 - to be a method
    async with open_quarterdeck(Settings(servers=servers)) as product:
        await product.finished(30)
    assert len(warmed) == started


def _played(config: ServerConfig) -> ServerEndpointImpl:
    return ServerEndpointImpl(config, PlayedSession())


def wish(folder: Path, **fields: object) -> NativeWish:
    return NativeWish(profile=Profile.ALL, workspace=folder, **fields)


def test_the_files_say_what_native_tools_may_do(tmp_path: Path) -> None:
    """A sandbox that the user wrote would not hold."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps({"native": {"sandbox": {"network": "none"}}}))
    second.write_text(json.dumps({"native": {"sandbox": {}, "webfetch": {"allow": ["x.example:1"]}}}))
    settings = Settings.load([first, second], {}, native=wish(tmp_path))
    assert settings.native is not None
    said = settings.native.settings
    assert said.sandbox is not None
    assert said.sandbox.network == "none"
    assert said.webfetch is not None
    assert said.webfetch.allow == ("x.example:1",)
    assert settings.warnings == (f"{second}: 'native.sandbox' is ignored: {first} defines it first",)
    assert Settings.load([first], {}).native is None


def test_a_native_section_that_cannot_be_used_stops_who_wants_native_tools(tmp_path: Path) -> None:
    """Commands would run without the limits that a typing error hid; servers alone need not stop for it."""
    path = tmp_path / "mcp.json"
    write_document(path, native={"sandbox": {"netwrk": "none"}}, mcpServers={"a": {"command": "true"}})
    with pytest.raises(ConfigFileError, match=r"mcp\.json: native\.sandbox: unknown key 'netwrk'") as refused:
        Settings.load([path], {}, native=wish(tmp_path))
    assert str(refused.value).count(str(path)) == 1
    settings = Settings.load([path], {})
    assert settings.ids == ("a",)
    assert "netwrk" in settings.warnings[0]


def test_without_files_the_workspace_is_the_configuration(tmp_path: Path) -> None:
    """Commands would not find the serve of their directory, or servers lose their homes when --profile is added."""
    other = tmp_path / "other"
    other.mkdir()
    path = write_config(tmp_path / "mcp.json")
    assert Settings(native=wish(tmp_path)).digest != Settings(native=wish(other)).digest
    assert Settings(native=wish(tmp_path)).digest != Settings().digest
    assert Settings.load([path], {}, native=wish(tmp_path)).digest == Settings.load([path], {}).digest


async def test_native_tools_end_with_the_product_and_open_when_they_are_needed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's processes would outlive the server, or every start would pay for tools that nobody uses."""
    maker, wishes = DeckMaker(), []

    def open_deck_session(
        wish: NativeWish,
        *,
        allow_unsandboxed: bool,
        open_port: int | None,
        trusted: Callable[[], tuple[str, ...]],
        environ: Mapping[str, str],
    ) -> AbstractAsyncContextManager[PlayedDeck]:
        assert environ is os.environ
        wishes.append((wish, allow_unsandboxed, trusted()))
        return maker.open()

    monkeypatch.setattr(session, "open_deck_session", open_deck_session)
    native = wish(folder)
    async with open_quarterdeck(Settings(native=native, names=None, allow_unsandboxed=True)) as product:
        assert product.decks is not None
        assert product.create_host().box is product.router
        assert maker.opened == []
        async with product.decks.borrow("a client", is_bound=True) as box:
            assert box.native_names == {"note"}
    assert maker.closed == [0]
    assert wishes == [(native, True, ())]
    async with open_quarterdeck(Settings()) as product:
        assert product.decks is None


def test_a_start_loads_no_tool() -> None:
    """A client would wait longer for its first answer."""
    heavy = {"quarterdeck.tools.session", "quarterdeck.tools.catalogue", "quarterdeck.tools.tools", "httpx2", "mcp"}
    code = "import quarterdeck.app, quarterdeck.config.settings, quarterdeck.host.offers.decks"
    assert not loaded_by(code) & heavy
