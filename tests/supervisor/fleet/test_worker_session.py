"""Taking and leaving a worker's session: what its server is started with, what is remembered, what is released."""

import asyncio
import errno
import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from support.config.places import use_places
from support.fleet.endpoints import EXITED, FAULTED, Stage, stage
from support.fleet.workers import PlayedWorker
from support.waiting import turns

from quarterdeck.config.places import paths as paths_module
from quarterdeck.config.places.paths import UnsafePathError, runtime_dir
from quarterdeck.fleet import worker_session as seats_module
from quarterdeck.fleet.sealed_start import SealedStart
from quarterdeck.fleet.worker_session import WorkerSession
from quarterdeck.fleet.workers.handle import WorkerHandle, WorkerListener
from quarterdeck_protocol.configs import ServerConfig, SseServerConfig, StdioServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.contract import SandboxStatus
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.link.frames import (
    Condemn,
    Hinted,
    Lost,
    OpenOrder,
    RemoteServer,
    ServerStart,
    Started,
    StdioServer,
)
from quarterdeck_protocol.policy import Limits, SandboxPolicy
from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.policy.limits import ProcessTree
from quarterdeck_sandbox.policy.promises import Receipt
from quarterdeck_sandbox.run.monitor import TreeMonitor

from .workers.handles import Owner

STDIO = StdioServerConfig(id="fs", command="x", env={"OWN": "1"}, inherit_env=("WANTED",))
REMOTE = StreamableHttpServerConfig(id="web", url="http://localhost/mcp", headers={"X": "secret"})


@dataclass
class PretendRuntime:
    """A runtime whose workers are played; notes what happens in order."""

    fault: ProtocolFault | None = None
    eras: dict[str, str] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)
    noted: list[str] = field(default_factory=list)
    are_remote: list[bool] = field(default_factory=list)
    workers: list[PlayedWorker] = field(default_factory=list)
    directory: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(digest="abcdefabcdef"))
    monitor: TreeMonitor = field(default_factory=TreeMonitor)

    async def acquire(self) -> "PretendRuntime":
        """See `Runtime`."""
        self.noted.append("acquired")
        return self

    async def release(self) -> None:
        """See `Runtime`."""
        self.noted.append("released")

    async def prepare(self, order: OpenOrder) -> OpenOrder:
        """See `Runtime`."""
        return msgspec.structs.replace(order, prepared="laid out")

    def note_start(self, start: ServerStart) -> None:
        """See `Runtime`."""
        self.noted.append(f"changed: {start.changed}")

    async def start_worker(
        self, name: str, listener: WorkerListener, max_result_bytes: int, *, is_remote: bool
    ) -> WorkerHandle:
        """See `Runtime`."""
        self.are_remote.append(is_remote)
        self.noted.append(f"hired for {name}")
        if self.fault is not None:
            raise self.fault
        self.workers.append(PlayedWorker())
        return self.workers[-1].hired(name, listener)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PretendRuntime:
    """The runtime of the sessions under test, and a state directory of this test's own."""
    pretended = PretendRuntime()
    monkeypatch.setattr(seats_module, "Runtime", pretended)
    monkeypatch.setattr(seats_module, "EXIT_S", 0.0)
    use_places(monkeypatch, tmp_path)
    return pretended


async def taken(config: ServerConfig) -> WorkerSession:
    session = WorkerSession(config)
    await session.start(Owner())
    return session


async def test_a_stdio_server_gets_private_directories_and_no_variable_of_ours_but_what_is_named(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server would see our secrets, or another server's files."""
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("WANTED", "yes")
    session = await taken(STDIO)
    order = session.order()
    home = tmp_path / "state" / "servers" / "abcdefabcdef" / "fs"
    assert order.home == str(home / "home")
    assert order.log_path == str(home / "stderr.log")
    assert (home / "home").stat().st_mode & 0o777 == 0o700
    assert (order.env["HOME"], order.env["TMPDIR"]) == (str(home / "home"), str(home / "tmp"))
    assert (order.env["OWN"], order.env["WANTED"]) == ("1", "yes")
    assert "SECRET_TOKEN" not in order.env
    assert order.server == StdioServer(STDIO.command, STDIO.args, STDIO.cwd, STDIO.sandbox.values)
    assert order.max_result_bytes == STDIO.max_result_bytes
    assert runtime.are_remote == [False]
    await session.end()


async def test_a_sealed_server_keeps_in_its_home_what_it_would_keep_beside_its_code(runtime: PretendRuntime) -> None:
    """The memory server's first write would fail: nobody can write to a seal."""
    row = STDIO.model_copy(update={"command": "npx", "args": ("-y", "@modelcontextprotocol/server-memory"), "env": {}})
    own = {"MEMORY_FILE_PATH": "/mine"}
    for env, seals, expected in (({}, True, "{home}/memory.jsonl"), (own, True, "/mine"), ({}, False, None)):

        async def sealed(config: StdioServerConfig, *, seals: bool = seals) -> SealedStart | None:
            return SealedStart(config, "d" * 64, "p", (), nullcontext, lambda: None) if seals else None

        session = WorkerSession(row.model_copy(update={"env": env}), sealing=sealed)
        await session.start(Owner())
        order = session.order()
        kept = order.env.get("MEMORY_FILE_PATH")
        assert kept == (expected and expected.format(home=order.home)), env
        await session.end()


async def test_a_server_without_room_for_its_directories_is_faulted_alone(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk would look like a bug of ours, or end the whole deck."""

    def fail(path: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    session = WorkerSession(STDIO)
    await session.start(Owner())
    monkeypatch.setattr(paths_module, "make_private_dir", fail)
    with pytest.raises(ProtocolFault) as caught:
        session.order()
    assert (caught.value.kind, caught.value.code) == (FaultKind.SPAWN_FAILED, "directory_unusable")
    assert "there is no room in" in str(caught.value)
    await session.end()


async def test_a_server_without_a_place_for_sockets_is_faulted_alone(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime directory that became read-only would look like a bug of ours."""

    async def acquire() -> None:
        raise UnsafePathError("/run/x cannot be written to")

    monkeypatch.setattr(runtime, "acquire", acquire)
    session = WorkerSession(STDIO)
    with pytest.raises(ProtocolFault, match="/run/x cannot be written to") as caught:
        await session.start(Owner())
    assert (caught.value.kind, caught.value.code) == (FaultKind.SPAWN_FAILED, "directory_unusable")
    await session.end()


async def test_a_worker_is_told_what_its_server_may_not_see_and_where_the_users_things_are(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server could be shown our sockets, or other servers' homes; one from nvm would not start."""
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setenv("NVM_DIR", "/home/u/.nvm")
    session = await taken(STDIO)
    order = session.order()
    assert order.tmp == order.env["TMPDIR"]
    assert order.private == (str(tmp_path / "state"), str(runtime_dir()))
    assert (order.user_home, order.user_env["NVM_DIR"]) == ("/home/u", "/home/u/.nvm")
    assert not order.allow_unsandboxed
    await session.end()


async def test_a_worker_is_told_what_its_server_may_not_write(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with `write` of that folder would give itself a row without a sandbox."""
    monkeypatch.setattr(seats_module, "with_announced", lambda files: (*files, "/of/another/serve.json"))
    now = ["/home/u/mcp.json"]
    session = WorkerSession(STDIO, trusted=lambda: now)
    await session.start(Owner())
    assert session.order().protected == ("/home/u/mcp.json", "/of/another/serve.json")
    now.append("/home/u/key.env")
    assert "/home/u/key.env" in session.order().protected
    await session.end()


async def test_limits_alone_are_enough_only_where_they_were_allowed(runtime: PretendRuntime) -> None:
    """A server would start unconfined on a machine that confines nothing."""
    session = WorkerSession(STDIO, allow_unsandboxed=True)
    await session.start(Owner())
    assert session.order().allow_unsandboxed
    await session.end()


async def test_a_started_server_is_held_to_the_limits_of_its_policy_until_its_end(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No limit would be kept, or a dead server's successor condemned for it."""
    config = STDIO.model_copy(update={"sandbox": SandboxPolicy(limits=Limits(wall_s=1e-6))})
    session = await taken(config)
    start = ServerStart(os.getpid(), os.getpid(), 3, scratch=("/s",), tmpfs=("/t",), enforced=("processes",))
    watch = session.enforce_limits(start)
    assert watch.tree == ProcessTree(os.getpid(), os.getpid(), 3, ("/s",), ("/t",), ("processes",))
    assert session.enforce_limits(start) is watch
    await runtime.monitor.tick()
    async with asyncio.timeout(10):
        order = await runtime.workers[0].condemned.get()
    assert isinstance(order, Condemn)
    assert (order.limit, "the limit is 1e-06 s" in order.detail) == ("wall_s", True)
    await session.end()
    assert not runtime.monitor._watches


async def test_a_remote_server_is_watched_by_nobody(runtime: PretendRuntime) -> None:
    """It has no process here."""
    session = await taken(REMOTE)
    assert session.enforce_limits(ServerStart(1, 1)) is None
    await session.end()


async def test_a_remote_server_gets_its_configuration_alone(runtime: PretendRuntime, tmp_path: Path) -> None:
    """Directories would be made for nobody."""
    session = await taken(REMOTE)
    order = session.order()
    assert (order.env, order.home, order.log_path) == ({}, "", "")
    assert order.server == RemoteServer(REMOTE.url, dict(REMOTE.headers))
    assert runtime.are_remote == [True]
    assert os.listdir(tmp_path) == []
    await session.end()


async def test_leaving_ends_the_worker_then_frees_the_runtime_once(runtime: PretendRuntime) -> None:
    """A worker would outlive its runtime, or the runtime be freed twice under the others."""
    session = await taken(STDIO)
    await session.end()
    await session.end()
    assert runtime.noted == ["acquired", "hired for fs", "released"]
    assert runtime.workers[0].kills == 1


async def test_a_worker_that_goes_by_itself_is_not_killed(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker would be cut off while it writes its last words."""
    monkeypatch.setattr(seats_module, "EXIT_S", 10.0)
    session = await taken(STDIO)
    leaving = asyncio.ensure_future(session.end())
    await turns()
    assert runtime.noted[-1] != "released"
    runtime.workers[0].dies(0)
    await leaving
    assert runtime.workers[0].kills == 0
    assert runtime.noted[-1] == "released"


async def test_a_session_without_a_worker_is_still_released(runtime: PretendRuntime) -> None:
    """A failed start would keep the zygote for ever."""
    runtime.fault = ProtocolFault(FaultKind.SPAWN_FAILED, "none")
    session = WorkerSession(STDIO)
    with pytest.raises(ProtocolFault):
        await session.start(Owner())
    await session.end()
    assert runtime.noted == ["acquired", "hired for fs", "released"]


async def test_a_session_that_was_never_started_ends_without_a_word(runtime: PretendRuntime) -> None:
    """Closing an endpoint early would fail."""
    await WorkerSession(STDIO).end()
    assert runtime.noted == []


@pytest.mark.parametrize(
    ("config", "transports"),
    [
        (REMOTE, ("streamable_http",)),
        (SseServerConfig(id="a", url="http://localhost/sse"), ("streamable_http", "sse")),
        (SseServerConfig(id="a", url="http://localhost/sse", legacy_only=True), ("sse",)),
    ],
)
async def test_a_remote_server_is_reached_by_the_transports_of_its_row(
    runtime: PretendRuntime, config: ServerConfig, transports: tuple[str, ...]
) -> None:
    """An old server could not be reached, or a new one in the wrong way."""
    session = await taken(config)
    assert session.order().server == RemoteServer(config.url, dict(config.headers), transports)  # type: ignore[union-attr, arg-type]
    await session.end()


GAPS = ("network: full", "memory: looks")


def start_of(*gaps: str) -> bytes:
    receipt = Receipt(Tier.LANDLOCK, {}, network="full", gaps=gaps)
    return msgspec.json.encode(ServerStart(7, 5, receipt=msgspec.json.encode(receipt).decode(), gaps=gaps))


async def test_a_start_is_kept_shown_and_guarded(played: Stage) -> None:
    """`ps` and `inspect` would have nothing to show, and no limit would be kept."""
    assert played.endpoint.status().sandbox is None
    played.worker.says(Started(), start_of(*GAPS))
    await turns()
    assert played.endpoint.status().sandbox == SandboxStatus(Tier.LANDLOCK, "full", GAPS)
    assert played.endpoint.confined is not None
    assert [start.pid for start in played.session.limited] == [7]


async def test_the_last_hint_to_a_caller_is_kept_on_one_line(played: Stage) -> None:
    """Whoever asks `ps` why a server finds nothing would not be told; or a server would add lines to it."""
    played.worker.says(Hinted("before its start"))
    played.worker.says(Started(), start_of())
    for hint in ("the first", "the last\n  fix: rm"):
        played.worker.says(Hinted(hint))
    await turns()
    assert played.endpoint.status().sandbox == SandboxStatus(Tier.LANDLOCK, "full", hint="the last\\n  fix: rm")


async def test_what_confined_a_dead_server_is_still_known(played: Stage) -> None:
    """A user could not see how the server that just died was confined."""
    played.worker.says(Started(), start_of())
    played.worker.says(Lost(EXITED))
    await played.until(lambda: played.endpoint.phase is FAULTED)
    assert played.endpoint.status().sandbox == SandboxStatus(Tier.LANDLOCK, "full")


async def test_a_partial_sandbox_is_told_once_for_a_state_directory(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A downgrade would be silent, or stand in 500 characters before every command."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path))
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            async with stage() as played:
                played.worker.says(Started(), start_of(*GAPS))
                await turns()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "fs: its sandbox is partial (memory, network): see quarterdeck inspect fs",
        "Sandbox is partial here (memory, network): see `quarterdeck doctor`",
        "fs: its sandbox is partial (memory, network): see quarterdeck inspect fs",
    ]


async def test_a_start_as_wanted_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Users would learn to overlook the line."""
    with caplog.at_level(logging.WARNING):
        async with stage() as played:
            played.worker.says(Started(), start_of())
            await turns()
    assert caplog.records == []
