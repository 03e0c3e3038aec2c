"""One server's life from start to end, over played processes and scripted sessions: what ends it, and what is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp.client.subscriptions import SubscriptionLost
from support.processes import PlayedProcess
from support.scripted import DISCOVERED, INITIALIZED, LEGACY, MODERN, Answer, JsonObject
from support.workers import PATIENCE_S, turns

from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.frames import Call, ListChanged, Log, OpenOrder, Progress
from quarterdeck_protocol.jsonrpc import SplitResult
from quarterdeck_sandbox.launch import LaunchError, LaunchPlan
from quarterdeck_worker import server_process as server_module
from quarterdeck_worker import session as session_module
from quarterdeck_worker.calls import Ended
from quarterdeck_worker.news import Newsroom
from quarterdeck_worker.session import Life, OpenServer, ServerFault, run_server

pytestmark = pytest.mark.anyio

ANSWERS: dict[str, Answer] = {
    "initialize": INITIALIZED,
    "tools/list": {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}},
    "tools/call": lambda params: {"result": {"content": [], "asked": params}},
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a moment that will not come."""
    monkeypatch.setattr(server_module, "LAST_WORDS_S", 0.0)
    monkeypatch.setattr(server_module, "EXIT_AFTER_EOF_S", 0.0)


class Stage:
    """A life under way, and what it told."""

    def __init__(self, answers: dict[str, Answer], order: OpenOrder) -> None:
        self.process = PlayedProcess(answers)
        self.plans: list[LaunchPlan] = []
        self.opened: list[OpenServer] = []
        self.lost: list[FaultRecord] = []
        self.news: list[Progress | Log | ListChanged] = []
        self.life = Life(Newsroom(self._post, lambda: 0.0), self._on_open, self.lost.append)
        self.is_open = anyio.Event()
        self.task = asyncio.ensure_future(run_server(order, self.life, self._launch))

    def _post(self, frame: Progress | Log | ListChanged) -> bool:
        self.news.append(frame)
        return True

    def _on_open(self, server: OpenServer) -> None:
        self.opened.append(server)
        self.is_open.set()

    async def _launch(self, plan: LaunchPlan) -> Any:
        self.plans.append(plan)
        return self.process

    @property
    def server(self) -> OpenServer:
        """The greeted server."""
        [server] = self.opened
        return server

    async def fault(self) -> FaultRecord:
        """How it ended by itself."""
        with pytest.raises(ServerFault) as caught:
            await self.task
        assert str(caught.value) == caught.value.record.message
        return caught.value.record


def ordered(config: ServerConfig, **members: Any) -> OpenOrder:
    """The order to run this server."""
    return OpenOrder(config.model_dump_json(), **members)


@asynccontextmanager
async def stage(
    answers: dict[str, Answer] | None = None, *, era: str = LEGACY, max_result_bytes: int = 10_000
) -> AsyncIterator[Stage]:
    """The life of a stdio server; stopped at the end, with nothing left."""
    config = StdioServerConfig(id="a", command="/bin/sh", args=("-c", "x"), max_result_bytes=max_result_bytes)
    played = Stage(ANSWERS if answers is None else answers, ordered(config, env={"A": "1"}, home="/", era=era))
    with anyio.fail_after(PATIENCE_S):
        yield played
        played.life.stop.set()
        await asyncio.gather(played.task, return_exceptions=True)
    if played.plans:
        assert len(played.process.stopped) == 1
        assert played.process.is_released
    else:
        played.process.dies(0)
        played.process.close_fds()


async def opened(played: Stage) -> OpenServer:
    """The server, once greeted."""
    await played.is_open.wait()
    return played.server


async def ended(server: OpenServer, request_id: int = 1) -> SplitResult | FaultRecord:
    """The end of a call of `echo`."""
    end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
    server.calls.begin(Call(request_id, 30.0, "echo"), b'{"a":1}', end.set_result)
    return (await end).outcome


async def test_a_server_is_started_greeted_listed_and_called() -> None:
    """Nothing would work."""
    async with stage() as played:
        server = await opened(played)
        assert played.plans == [LaunchPlan("/bin/sh", ("/bin/sh", "-c", "x"), {"A": "1"}, "/")]
        assert (server.card.era, server.card.pid, server.card.name) == (LEGACY, 4711, "scripted")
        assert msgspec.json.decode(await server.list_tools())[0]["name"] == "echo"
        outcome = await ended(server)
        assert isinstance(outcome, SplitResult)
        assert msgspec.json.decode(outcome.body)["asked"] == {"name": "echo", "arguments": {"a": 1}}
        assert played.life.diagnose() is not None
        assert played.lost == []


async def test_a_modern_servers_calls_carry_its_envelope() -> None:
    """A modern server would refuse every call."""
    async with stage({**ANSWERS, "server/discover": DISCOVERED}, era=MODERN) as played:
        outcome = await ended(await opened(played))
        assert isinstance(outcome, SplitResult)
        meta = msgspec.json.decode(outcome.body)["asked"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "quarterdeck"


async def test_a_server_that_is_told_to_stop_ends_in_good_order() -> None:
    """A closed server would be told as a crash."""
    async with stage() as played:
        await opened(played)
        played.life.stop.set()
        await played.task
        assert played.lost == []
        assert played.process.returncode == 0


async def test_cancelling_a_life_leaves_nothing() -> None:
    """A worker that ends would leave its server."""
    async with stage() as played:
        await opened(played)
        played.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await played.task
        assert played.process.stopped


async def test_a_server_that_dies_is_told_before_it_is_buried_and_raised_after() -> None:
    """Callers would wait while a process tree is killed, or the end be told as an orderly one."""
    async with stage() as played:
        await opened(played)
        played.process.complains(b"boom\n")
        played.process.dies(-11)
        fault = await played.fault()
        assert played.lost == [fault]
        assert (fault.kind, fault.code) == (FaultKind.TRANSPORT, "exited")
        assert fault.dossier is not None
        assert (fault.dossier.signal, fault.dossier.stderr_tail) == (11, "boom\n")


async def test_news_flow_once_it_is_open() -> None:
    """A client would not see progress, log lines or new tools."""
    async with stage({**ANSWERS, "tools/call": None}) as played:
        server = await opened(played)
        server.calls.begin(Call(7, 30.0, "echo", progress=True), b"{}", lambda _: None)
        while not any("progressToken" in str(message) for message in played.process.asked):
            await turns(1)
        token = played.process.asked[-1]["params"]["_meta"]["progressToken"]
        played.process.says(
            {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}},
            {"method": "notifications/message", "params": {"level": "info", "data": "hm"}},
            {"method": "notifications/tools/list_changed"},
        )
        while len(played.news) < 3:
            await turns(1)
        assert played.news == [Progress(7, 1.0), Log("info", "", "hm"), ListChanged()]


# What never becomes open


@pytest.mark.parametrize(
    ("command", "cwd", "code"),
    [("no-such-tool", "/", "command_not_found"), ("/etc/passwd", "/", "not_executable"), ("sh", "/none", "bad_cwd")],
)
async def test_a_command_that_cannot_be_planned_is_a_failed_spawn(command: str, cwd: str, code: str) -> None:
    """A typing error would be told as a lost server."""
    config = StdioServerConfig(id="a", command=command, cwd=cwd)
    life = Life(Newsroom(lambda _: True, lambda: 0.0), lambda _: None, lambda _: None)
    with pytest.raises(ServerFault) as caught:
        await run_server(ordered(config, env={"PATH": "/usr/bin:/bin"}, home="/"), life)
    record = caught.value.record
    assert (record.kind, record.code, record.delivery) == (FaultKind.SPAWN_FAILED, code, Delivery.NOT_SENT)


async def test_a_launcher_that_refuses_is_a_failed_spawn() -> None:
    """A sandbox that cannot be had would start the server without it."""

    async def refuses(plan: LaunchPlan) -> Any:
        raise LaunchError("sandbox_refused", "no namespaces here")

    life = Life(Newsroom(lambda _: True, lambda: 0.0), lambda _: None, lambda _: None)
    with pytest.raises(ServerFault, match="no namespaces") as caught:
        await run_server(ordered(StdioServerConfig(id="a", command="sh"), env={}, home="/"), life, refuses)
    assert caught.value.record.code == "sandbox_refused"


async def test_a_server_that_exits_at_its_greeting_says_so_with_its_status() -> None:
    """A user would be told of a handshake, and not that the program ended."""

    def dies(_: JsonObject) -> None:
        played.process.complains(b"no such module\n")
        played.process.dies(1)

    async with stage({"initialize": dies}) as played:
        fault = await played.fault()
        assert (fault.kind, fault.code, fault.delivery) == (
            FaultKind.SPAWN_FAILED,
            "exited_at_handshake",
            Delivery.NOT_SENT,
        )
        assert "exited with status 1 before" in fault.message
        assert fault.dossier is not None
        assert "no such module" in fault.dossier.stderr_tail
        assert played.lost == []


async def test_a_server_that_hangs_up_at_its_greeting_and_lives_on_says_so() -> None:
    """A user would look for a crash that did not happen."""

    def hangs_up(_: JsonObject) -> None:
        played.process.hangs_up()

    async with stage({"initialize": hangs_up}) as played:
        fault = await played.fault()
        assert fault.code == "handshake_failed"
        assert "goes on running" in fault.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"code": -32000, "message": "not today"}}, "not today"),
        ({"result": {**INITIALIZED["result"], "protocolVersion": "1999-01-01"}}, "1999-01-01"),
        ({"result": {"nonsense": 1}}, "handshake failed"),
    ],
    ids=["refuses", "another revision", "nonsense"],
)
async def test_a_greeting_that_fails_is_a_failed_spawn_in_words(answer: JsonObject, words: str) -> None:
    """A user would be shown a nested group of exceptions."""
    async with stage({"initialize": answer}) as played:
        fault = await played.fault()
        assert (fault.kind, fault.code) == (FaultKind.SPAWN_FAILED, "handshake_failed")
        assert words in fault.message
        assert fault.cause is not None


async def test_a_greeting_that_is_too_long_says_which_limit() -> None:
    """A flood at the start would look like a silent server."""

    def floods(_: JsonObject) -> None:
        played.process.writes(b"x" * 20_000)

    async with stage({"initialize": floods}) as played:
        fault = await played.fault()
        assert (fault.kind, fault.code) == (FaultKind.SPAWN_FAILED, "bad_output")


async def test_a_server_that_never_answers_can_be_given_up() -> None:
    """A deadline outside could not end it, nor say what is known of it."""
    async with stage({"initialize": None}) as played:
        while not played.process.asked:
            await turns(1)
        played.process.complains(b"downloading\n")
        await turns()
        dossier = played.life.diagnose()
        assert dossier is not None
        assert dossier.stderr_tail == "downloading\n"
        played.task.cancel()
        await asyncio.wait([played.task])
        assert played.process.stopped
        assert played.opened == []


@pytest.mark.xfail(
    strict=True, reason="worker/session.py: `ServerProcess` is made outside the `try` that ends its process"
)
async def test_a_log_that_cannot_be_opened_ends_the_process_that_was_started(tmp_path: Path) -> None:
    """A server would run on unwatched, and the fault blame the worker."""
    process = PlayedProcess(ANSWERS)

    async def launch(plan: LaunchPlan) -> Any:
        return process

    life = Life(Newsroom(lambda _: True, lambda: 0.0), lambda _: None, lambda _: None)
    order = ordered(
        StdioServerConfig(id="a", command="/bin/sh"), env={}, home="/", log_path=str(tmp_path / "missing" / "err.log")
    )
    try:
        with pytest.raises(ServerFault):
            await run_server(order, life, launch)
        assert process.stopped
    finally:
        process.dies(0)
        process.close_fds()


# Remote servers


async def test_a_remote_server_that_cannot_be_reached_is_a_transport_fault_with_its_url() -> None:
    """A user would not know which address is wrong."""
    config = StreamableHttpServerConfig(id="a", url="http://127.0.0.1:9/mcp")
    life = Life(Newsroom(lambda _: True, lambda: 0.0), lambda _: None, lambda _: None)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ServerFault, match=r"127\.0\.0\.1:9") as caught:
        await run_server(ordered(config, era=LEGACY), life)
    record = caught.value.record
    assert (record.kind, record.code, record.delivery) == (FaultKind.TRANSPORT, "connect_failed", Delivery.NOT_SENT)


# News of a modern server


async def test_a_modern_server_that_cannot_be_listened_to_stays_open() -> None:
    """A server that announces more than it does would be thrown away."""
    asked: list[JsonObject] = []
    modern: JsonObject = {"result": {**DISCOVERED["result"], "capabilities": {"tools": {"listChanged": True}}}}

    def refuses(params: JsonObject) -> JsonObject:
        asked.append(params)
        return {"error": {"code": -32601, "message": "no"}}

    async with stage({**ANSWERS, "server/discover": modern, "subscriptions/listen": refuses}, era=MODERN) as played:
        server = await opened(played)
        assert server.card.announces_tools
        while not asked:
            await turns(1)
        await turns()
        assert not played.task.done()
        assert isinstance(await ended(server), SplitResult)


async def test_a_lost_subscription_means_that_tools_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed while nobody listened would never be seen."""
    monkeypatch.setattr(session_module, "RELISTEN_S", 0.0)
    scenes: list[str] = ["lost", "event", "lost", "end"]
    news: list[str] = []

    @asynccontextmanager
    async def listen(session: object, *, tools_list_changed: bool) -> AsyncIterator[AsyncIterator[object]]:
        scene = scenes.pop(0)
        if scene == "lost":
            raise SubscriptionLost("the stream broke")

        async def events() -> AsyncIterator[object]:
            if scene == "event":
                yield object()
                raise SubscriptionLost("the stream broke")

        yield events()

    class Newsdesk:
        def tools_changed(self) -> None:
            news.append(scenes[0] if scenes else "none")

    monkeypatch.setattr(session_module, "listen", listen)
    with anyio.fail_after(PATIENCE_S):
        await session_module._subscribe(None, Newsdesk())  # type: ignore[arg-type]
    assert scenes == []
    assert news == ["event", "lost", "lost", "end"]
