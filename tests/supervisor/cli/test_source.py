"""Whom a command asks: a running serve, or servers of its own."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import msgspec
import pytest
from support.config.places import use_places, write_config

from quarterdeck import app
from quarterdeck.cli import source as source_module
from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.options import native_wish
from quarterdeck.cli.source import Source, ask, check_server, load
from quarterdeck.config.load.origin import candidates, candidates_digest
from quarterdeck.config.places.paths import configuration_digest
from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control import server
from quarterdeck.daemon.control.client import NoAnswerError, NotServingError, TooLargeError
from quarterdeck.daemon.control.protocol import Answer, Call, Ps, Refused, Request, Restart, ServerList, Tools
from quarterdeck.daemon.messages import NativeRequest
from quarterdeck.fleet.workers import interpreters
from quarterdeck_protocol.configs import ServerConfig, SseServerConfig, StdioServerConfig

NOTHING = ServerList(())


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration without servers, and directories of its own."""
    use_places(monkeypatch, tmp_path)
    return write_config(tmp_path / "mcp.json")


@pytest.fixture
def serving(config: Path) -> Iterator[RuntimeDirectory]:
    """A serve of the configuration, as far as others can see."""
    with RuntimeDirectory.create(configuration_digest([config])) as directory:
        directory.announce([config], "1")
        yield directory


def say(monkeypatch: pytest.MonkeyPatch, answer: Answer | Exception) -> list[Path]:
    asked = []

    def ask_serving(directory: Path, request: Request) -> Answer:
        asked.append(directory)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(source_module, "ask_serving", ask_serving)
    return asked


def test_the_serve_of_the_same_configuration_alone_is_asked(
    config: Path, serving: RuntimeDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ps` would show servers that it started itself, or restart those of another project."""
    asked = say(monkeypatch, NOTHING)
    assert ask(Source((config,)), Ps()) is NOTHING
    assert asked == [serving.path]
    asked = say(monkeypatch, NOTHING)
    other = config.with_name("other.json")
    other.write_text(config.read_text())
    assert ask(Source((other,)), Ps()) == NOTHING
    assert asked == []


@pytest.mark.parametrize("own", [True, False])
def test_servers_of_its_own_are_started_when_asked_for_or_when_nobody_serves(
    config: Path, serving: RuntimeDirectory, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """`--own` would be ignored, or a serve that just ended would be an error."""
    asked = say(monkeypatch, NotServingError("gone"))
    assert ask(Source((config,), own=own), Ps()) == NOTHING
    assert asked == ([] if own else [serving.path])


@pytest.mark.parametrize(
    ("answer", "code", "remedy"),
    [
        (Refused("no_such_server", "there is none"), ExitCode.NOT_FOUND, "quarterdeck ps lists"),
        (Refused("no_such_tool", "there is none"), ExitCode.NOT_FOUND, "quarterdeck tools lists"),
        (Refused("busy", "later"), ExitCode.NO_ANSWER, "--own"),
        (NoAnswerError("it hangs"), ExitCode.NO_ANSWER, ""),
        (TooLargeError("too large"), ExitCode.USAGE, ""),
    ],
)
def test_what_cannot_be_served_is_an_error_with_its_code_and_remedy(
    config: Path,
    serving: RuntimeDirectory,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer | Exception,
    code: ExitCode,
    remedy: str,
) -> None:
    """A call could be made twice: once by a serve that did not answer, once by servers of our own."""
    say(monkeypatch, answer)
    with pytest.raises(CommandError) as refused:
        ask(Source((config,)), Ps())
    assert refused.value.code == code
    assert remedy in refused.value.remedy


def test_a_server_that_the_configuration_does_not_name_is_told_with_those_that_it_does(config: Path) -> None:
    """A typing error would start every server to find out."""
    with pytest.raises(CommandError, match="there is no server 'fs': the configuration has no servers") as refused:
        ask(Source((config,)), Restart("fs"), only="fs")
    assert refused.value.code == ExitCode.NOT_FOUND
    write_config(config, a={"command": "true"}, b={"command": "${NOT_SET_QD}"})
    with pytest.raises(CommandError, match="the servers are a, b"):
        check_server(source_module.load(Source((config,))), "c")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mcpServer": {}}'])
def test_a_configuration_that_cannot_be_used_is_a_usage_error(config: Path, text: str) -> None:
    """A user would see a traceback of the JSON parser."""
    config.write_text(text)
    with pytest.raises(CommandError, match=r"mcp\.json") as refused:
        ask(Source((config,)), Ps())
    assert refused.value.code == ExitCode.USAGE


def test_the_users_own_files_are_found_from_wherever_they_are_asked_for(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ps` in another folder, with -c or beside two decks, would not show the deck that runs the user's own file."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    own = candidates(tmp_path, os.environ)[1].path
    assert own.is_relative_to(tmp_path)
    write_config(own)
    there, elsewhere, project = (tmp_path / name for name in ("there", "elsewhere", "project"))
    for folder in (there, elsewhere, project):
        folder.mkdir()
    write_config(project / ".mcp.json")
    asked = say(monkeypatch, NOTHING)
    found = candidates_digest(each.path for each in candidates(there, os.environ))
    with RuntimeDirectory.create(found) as deck, RuntimeDirectory.create(configuration_digest([config])) as other:
        deck.announce([own], "1")
        other.announce([config], "1")
        monkeypatch.chdir(elsewhere)
        for source in (Source(), Source((own,))):
            for request in (Ps(), Tools(), Restart("a")):
                assert ask(source, request) is NOTHING
        call = Call("a__t", msgspec.Raw(b"{}"))
        assert source_module.ask_running(Source(), call) is NOTHING
        assert asked == [deck.path] * 7
        write_config(own, a={"command": "c", "cwd": "${workspaceFolder}"})
        assert source_module.ask_running(Source(), call) is None, "what is called depends on the folder"
        monkeypatch.chdir(project)
        assert source_module.ask_running(Source(), Ps()) is None
        assert len(asked) == 7


def test_a_directory_that_others_may_use_is_a_usage_error(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets would be where others can connect, or the user would see a traceback."""
    # Short: a root that is too long for a socket's path is replaced by one of ours.
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        Path(root).chmod(0o777)
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", root)
        with pytest.raises(CommandError, match="chmod 700") as refused:
            ask(Source((config,)), Ps())
    assert refused.value.code == ExitCode.USAGE


@pytest.mark.parametrize("allowed", [True, False])
def test_what_a_server_may_start_without_is_the_commands_to_say(config: Path, allowed: bool) -> None:
    """`--allow-unsandboxed` would be ignored, or hold where nobody said it."""
    source = Source((config,), own=True, allow_unsandboxed=allowed)
    assert source_module.load(source).allow_unsandboxed is allowed


def native(folder: Path, profile: str = "authoring") -> NativeRequest:
    return NativeRequest(profile, str(folder))


def test_a_serve_that_offers_the_same_native_tools_alone_is_asked(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one command has started, the next would not find; or a look be run by one that writes."""
    wanted = native(config.parent)
    asked = say(monkeypatch, NOTHING)
    with RuntimeDirectory.create(configuration_digest([config.parent])) as directory:
        directory.announce([], "1", native_wish(wanted).fingerprint)
        assert ask(Source((), native=wanted), Tools()) is NOTHING
        assert asked == [directory.path]
    asked = say(monkeypatch, NOTHING)
    with (
        RuntimeDirectory.create(configuration_digest([config.parent])) as alone,
        RuntimeDirectory.create(configuration_digest([config])) as plain,
    ):
        alone.announce([], "1", native_wish(native(config.parent, "all")).fingerprint)
        plain.announce([config], "1")
        assert isinstance(ask(Source((), native=native(config.parent)), Ps()), ServerList)
        assert isinstance(ask(Source((config,), native=native(config.parent)), Ps()), ServerList)
        assert asked == []
        assert ask(Source((config,)), Ps()) is NOTHING
        assert asked == [plain.path]


@pytest.mark.parametrize(
    ("servers", "is_started"),
    [
        ((StdioServerConfig(id="a", command="true"),), True),
        ((SseServerConfig(id="r", url="http://127.0.0.1:9/"),), False),
        ((), False),
    ],
)
async def test_the_zygote_of_processes_imports_beside_us_where_there_are_any(
    config: Path, monkeypatch: pytest.MonkeyPatch, servers: tuple[ServerConfig, ...], is_started: bool
) -> None:
    """A first call would wait for one import after the other, or remote servers cost a process for nothing."""
    steps: list[str] = []

    @asynccontextmanager
    async def open_quarterdeck(settings: Settings, **_: object) -> AsyncIterator[None]:
        steps.append("opened")
        yield

    monkeypatch.setattr(app, "open_quarterdeck", open_quarterdeck)
    monkeypatch.setattr(server, "open_control", lambda *_, **__: nullcontext())
    monkeypatch.setattr(interpreters, "start_zygote_early", lambda: steps.append("zygote"))
    async with source_module.start_product(Settings(servers=servers)):
        pass
    assert steps == (["zygote", "opened"] if is_started else ["opened"])


def test_a_native_call_of_its_own_starts_no_server(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read a file, every server of the configuration would be started and waited for."""
    write_config(config, a={"command": "true"})
    seen: list[Settings] = []

    @asynccontextmanager
    async def start_product(settings: Settings) -> AsyncIterator[None]:
        seen.append(settings)
        raise CommandError(ExitCode.NO_ANSWER, "far enough", "nothing")
        yield

    monkeypatch.setattr(source_module, "start_product", start_product)
    for request in (Call("read", msgspec.Raw(b"{}")), Tools()):
        with pytest.raises(CommandError, match="far enough"):
            ask(Source((config,), own=True, native=native(config.parent)), request)
    assert [settings.ids for settings in seen] == [(), ("a",)]
    assert all(settings.native is not None for settings in seen)


def test_native_tools_need_no_configuration(config: Path) -> None:
    """A user without servers would have to write an empty file."""
    source = Source(native=native(config.parent))
    assert source.config == ()
    settings = source_module.load(source)
    assert settings.native is not None
    assert settings.digest == configuration_digest([config.parent])


def test_no_configuration_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would be served, and nobody told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with pytest.raises(CommandError, match="no configuration is given, and none is found"):
        load(Source())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a configuration, in a directory without one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(tmp_path / "run"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def test_without_named_files_those_that_are_found_are_meant_and_their_serve_is_found(home: Path) -> None:
    """Every command would have to name the file that serve has found by itself."""
    assert load(Source(), may_be_empty=True).ids == ()
    write_config(home / ".mcp.json", theirs={"command": "true"})
    settings = load(Source())
    assert settings.ids == ("theirs",)
    assert settings.config_paths == (home / ".mcp.json",)
    source = Source()
    before = source.digest
    assert before == candidates_digest(each.path for each in candidates(home, os.environ))
    write_config(home / ".mcp.json")
    assert (source.digest, load(source).digest) == (before, before)
    named = Source((home / ".mcp.json",))
    assert named.digest == load(named).digest == configuration_digest([home / ".mcp.json"])
    assert named.digest != before
