"""A server's process as its session sees it: every way to end is noticed once and explained."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.servers.greetings import INITIALIZED, Answer
from support.servers.remote_calls import silent_run
from support.waiting import PATIENCE_S, eventually_async, turns

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import CLOSE_GRACE_S, Call, Forward, Hinted, Log, News, OpenOrder, Quarantined
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_protocol.policy_values import LimitValues
from quarterdeck_sandbox import HOME_NOTE
from quarterdeck_sandbox.policy.mounts import AbsentHook, Mount, MountKind, View
from quarterdeck_sandbox.run.stderr import split_time
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import Outcome, ServerRun
from quarterdeck_worker.stdio import process as server_module
from quarterdeck_worker.stdio.process import JUNK_LINES_LOGGED, ServerProcess

from .played_process import PlayedProcess

pytestmark = pytest.mark.usefixtures("impatient")

LIMITS = LimitValues()
SECRETS = ("a-long-secret",)


@asynccontextmanager
async def running(
    log_path: str = "", limits: LimitValues = LIMITS, answers: dict[str, Answer] | None = None
) -> AsyncIterator[tuple[PlayedProcess, ServerProcess]]:
    """A played process and what watches over it; closed at the end."""
    process = PlayedProcess(answers)
    order = OpenOrder(max_result_bytes=2_000, log_path=log_path, secrets=SECRETS)
    server = ServerProcess(process, limits, order, silent_run())  # type: ignore[arg-type]
    with anyio.fail_after(PATIENCE_S):
        try:
            yield process, server
        finally:
            await server.close()
    assert process.stopped == [CLOSE_GRACE_S]
    assert process.is_released


ECHOED = {"content": [{"type": "text", "text": "hi"}]}


@pytest.mark.parametrize("result", [ECHOED, {"contents": []}], ids=["a tool's result", "another result"])
async def test_a_file_that_other_programs_run_is_gone_before_the_answer_goes_out(
    tmp_path: Path, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would run `git status` with what the answered call has planted."""
    monkeypatch.setattr(server_module, "FIRST_LOOK_S", PATIENCE_S)  # the answer's own look finds it, and no other
    posted: list[News] = []
    folder = tmp_path / "proj"
    folder.mkdir()
    process = PlayedProcess({"initialize": INITIALIZED, "tools/call": {"result": result}})
    view = View(absent=(AbsentHook(str(folder), ".envrc"),))
    process.confinement = msgspec.structs.replace(process.confinement, view=view)
    order = OpenOrder(server_id="fs", quarantine=str(tmp_path / "quarantine"))
    ended: list[Outcome] = []

    def on_end(_: int, outcome: Outcome) -> None:
        assert not (folder / ".envrc").exists()
        ended.append(outcome)

    notifier = Notifier(lambda frame, body=b"": posted.append(frame) is None, lambda: 0.0)
    run = ServerRun(notifier, lambda _: None, lambda _: None, on_end)
    server = ServerProcess(process, LIMITS, order, run)  # type: ignore[arg-type]
    try:
        await server.connection.greeted()
        (folder / ".envrc").write_text("evil")
        server.connection.ask(Forward(7, 5.0, "tools/call"), b"{}")
        await eventually_async(lambda: ended)
        [outcome] = ended
        assert isinstance(outcome, SplitResult)
    finally:
        await server.close()
    [frame] = [frame for frame in posted if isinstance(frame, Quarantined)]
    assert (frame.path, frame.why) == (f"{folder}/.envrc", "")
    assert frame.kept.startswith(order.quarantine)
    assert [frame.level for frame in posted if isinstance(frame, Log)] == ["warning"]
    body = msgspec.json.decode(outcome.body)
    if "content" in result:
        assert [".envrc was created" in block["text"] for block in body["content"]] == [True, False]
    else:
        assert body == result


@pytest.mark.parametrize("is_result", [True, False], ids=["a tool's error", "a JSON-RPC error"])
@pytest.mark.parametrize("is_named", [True, False], ids=["in its words", "in the call's arguments"])
@pytest.mark.parametrize("is_marked", [True, False], ids=["marked as one", "as a result like others"])
async def test_an_error_about_a_hidden_path_says_who_can_grant_it(
    tmp_path: Path, *, is_result: bool, is_named: bool, is_marked: bool
) -> None:
    """A model would answer that there is no such file, and its user look for it in vain."""
    hidden = tmp_path / "my-notes+"
    hidden.mkdir()
    words = f"{hidden} does not exist" if is_named else "see the log"
    place = str(hidden) if is_result else hidden.as_uri()
    given = msgspec.json.encode({"text": f"as in {tmp_path}", "files": [] if is_named and is_marked else ["~", place]})
    said = {"content": [{"type": "image"}, {"type": "text", "text": words}], "isError": is_marked}
    error = {"code": -32000, "message": words, "data": {"own": 1}}
    posted: list[News] = []
    ended: list[Outcome] = []
    process = PlayedProcess(
        {"initialize": INITIALIZED, "tools/call": {"result": said} if is_result else {"error": error}}
    )
    view = View((Mount(MountKind.READ, "/usr", "/usr"),), shown=("read: /x", f"{HOME_NOTE}~/x is its own"))
    process.confinement = msgspec.structs.replace(process.confinement, view=view, user_home="/nowhere")
    run = ServerRun(
        Notifier(lambda frame, body=b"": posted.append(frame) is None, lambda: 0.0),
        lambda _: None,
        lambda _: None,
        lambda _, outcome: ended.append(outcome),
    )
    log = tmp_path / "log"
    order = OpenOrder(server_id="fs", allow="quarterdeck allow fs", log_path=str(log))
    server = ServerProcess(process, LIMITS, order, run)  # type: ignore[arg-type]
    try:
        await server.connection.greeted()
        for number in (7, 8):
            server.connection.ask(Call(number, 5.0, "read"), given)
        await eventually_async(lambda: len(ended) == 2)
    finally:
        await server.close()
    if is_result and not is_marked and not is_named:
        assert [outcome.denied for outcome in ended] == ["", ""], "nothing says that it failed"
        return
    hint = f"quarterdeck: {hidden} is hidden from this server. To show it: quarterdeck allow fs --read {hidden}"
    [frame] = [frame for frame in posted if isinstance(frame, Hinted)]  # a second one says nothing new
    assert frame.hint.startswith(hint)
    assert log.read_text().count(hint) == 1
    assert "read: /x" not in log.read_text()
    assert f"[quarterdeck] {HOME_NOTE}~/x is its own\n" in log.read_text()
    for outcome in ended:
        assert outcome.denied == f"read {hidden}"
        if isinstance(outcome, SplitResult):
            texts = [block.get("text") for block in msgspec.json.decode(outcome.body)["content"]]
            assert texts == [None, words, frame.hint]
        else:
            assert outcome.message.endswith(frame.hint)
            assert outcome.reply is not None
            assert msgspec.json.decode(outcome.reply.data) == {"own": 1, "quarterdeck/hint": frame.hint}


async def test_why_a_listed_host_is_not_reached_is_told_to_the_user_alone(tmp_path: Path) -> None:
    """A user would see a connection that is reset, and no reason; or a client be told addresses of their network."""
    log, posted, ended = tmp_path / "log", list[News](), list[Outcome]()
    process = PlayedProcess({"initialize": INITIALIZED, "tools/call": {"result": {"content": [], "isError": True}}})
    process.failed_connections = ("no connection to one.example:443: why", "no connection to two.example:443: why")
    run = ServerRun(
        Notifier(lambda frame, body=b"": posted.append(frame) is None, lambda: 0.0),
        lambda _: None,
        lambda _: None,
        lambda _, outcome: ended.append(outcome),
    )
    server = ServerProcess(process, LIMITS, OpenOrder(server_id="fs", log_path=str(log)), run)  # type: ignore[arg-type]
    try:
        await server.connection.greeted()
        await eventually_async(lambda: any(isinstance(frame, Hinted) for frame in posted))
        server.connection.ask(Call(7, 5.0, "read"), b"{}")
        await eventually_async(lambda: len(ended) == 1)
    finally:
        await server.close()
    assert [frame.hint for frame in posted if isinstance(frame, Hinted)] == [process.failed_connections[-1]]
    assert f"[quarterdeck] {process.failed_connections[-1]}\n" in log.read_text()
    assert isinstance(ended[0], SplitResult)
    assert b"two.example" not in ended[0].body


def losing(server: ServerProcess) -> "asyncio.Task[FaultRecord]":
    return asyncio.ensure_future(server.lost())


@pytest.mark.parametrize(
    ("returncode", "dossier", "words"),
    [
        (3, {"exit_status": 3}, "exited with status 3"),
        (0, {"exit_status": 0}, "exited with status 0"),
        (-11, {"signal": 11, "hints": ("it crashed in native code",)}, "was killed by SIGSEGV"),
    ],
)
async def test_a_death_is_a_loss_with_its_dossier(returncode: int, dossier: dict[str, Any], words: str) -> None:
    """A user would not learn how a server died."""
    async with running() as (process, server):
        loss = losing(server)
        await turns()
        assert not loss.done()
        process.complains(b"last words with a-long-secret\n")
        process.dies(returncode)
        fault = await loss
        assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TRANSPORT, "exited", Delivery.UNKNOWN)
        assert words in fault.message
        assert fault.dossier == Dossier(
            **dossier,
            stderr_tail="last words with [redacted]\n",
            peak_rss_bytes=1_000_000,
            peak_is_sampled=True,
            cpu_s=0.25,
            uptime_s=1.5,
        )
        assert server.returncode is not None


@pytest.mark.parametrize("watch", ["look", "network_lost"])
async def test_a_server_that_cannot_be_watched_any_more_is_ended_and_told(
    watch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would run on without limits, and nobody know."""

    def fail(_: PlayedProcess) -> None:
        raise ValueError("no such line in its status")

    monkeypatch.setattr(PlayedProcess, watch, fail)
    log = tmp_path / "err.log"
    async with running(str(log)) as (process, server):
        fault = await losing(server)
        assert process.returncode == -signal.SIGKILL
        assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TRANSPORT, "worker_lost", Delivery.UNKNOWN)
        why = "it could not be watched any more (ValueError: no such line in its status)"
        assert fault.message == f"the server was ended because {why}"
        assert fault.dossier is not None
        assert fault.dossier.hints == ()
    assert "[quarterdeck] it cannot be watched any more: ValueError" in log.read_text()


async def test_one_that_cannot_be_watched_at_its_handshake_is_no_mystery(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would look for the mistake in the server."""

    def fail(_: PlayedProcess) -> None:
        raise ValueError("no such line in its status")

    monkeypatch.setattr(PlayedProcess, "look", fail)
    async with running() as (_, server):
        await server.connection.ended.wait()
        await server.settle()
        fault = server.not_greeted(None)
        assert (fault.kind, fault.code) == (FaultKind.SPAWN_FAILED, "worker_lost")
        assert "could not be watched any more" in fault.message


@pytest.mark.parametrize(
    ("act", "code", "words", "returncode"),
    [
        (PlayedProcess.network_ends, "network_lost", "slirp4netns was killed by SIGKILL", -signal.SIGKILL),
        (PlayedProcess.hangs_up, "server_lost", "goes on running", None),
        (lambda process: process.writes(b"x" * 2_001), "result_too_large", "2,000", None),
    ],
    ids=["its network is gone", "it hangs up and lives on", "a line is too long"],
)
async def test_a_server_that_is_of_no_use_any_more_is_lost_before_it_dies(
    act: Callable[[PlayedProcess], None], code: str, words: str, returncode: int | None
) -> None:
    """It would look ready, and answer nothing, or fail every call with errors of its own."""
    async with running() as (process, server):
        loss = losing(server)
        await turns()
        act(process)
        fault = await loss
        assert (fault.kind, fault.code) == (FaultKind.TRANSPORT, code)
        assert words in fault.message
        assert server.returncode == returncode
        assert fault.dossier is not None
        assert (fault.dossier.uptime_s, fault.dossier.hints) == (1.5, ())


async def test_a_server_that_hangs_up_has_a_moment_to_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every crash would be told without its status, since the pipe closes first."""
    monkeypatch.setattr(server_module, "EXIT_AFTER_EOF_S", PATIENCE_S)
    async with running() as (process, server):
        loss = losing(server)
        process.hangs_up()
        await turns()
        process.dies(9)
        assert (await loss).code == "exited"


async def test_what_a_dead_server_wrote_before_is_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that a server gave before it died would be lost."""
    monkeypatch.setattr(server_module, "LAST_WORDS_S", PATIENCE_S)
    async with running() as (process, server):
        loss = losing(server)
        process.writes(b"junk\n" * 300)
        process.dies(1)
        fault = await loss
        assert server.connection.junk_lines == 300
        assert fault.dossier is not None
        assert fault.dossier.hints == ("it wrote 300 lines on stdout that are not MCP messages",)


def texts(log: Path) -> list[bytes]:
    return [split_time(line)[1] for line in log.read_bytes().splitlines()]


async def test_junk_on_stdout_is_logged_for_its_author_within_bounds(tmp_path: Path) -> None:
    """Whoever wrote the server would not see which print it was, or the log would be flooded."""
    log = tmp_path / "err.log"
    async with running(str(log)) as (process, server):
        process.writes(b"Listening on port 8080\n" + (b"y" * 1_000 + b"\n") * 30)
        await turns()
        assert server.connection.junk_lines == 31
    lines = texts(log)
    assert lines[0] == b"[quarterdeck] not MCP on stdout: Listening on port 8080"
    assert len(lines) == JUNK_LINES_LOGGED
    assert max(map(len, lines)) < 400


async def test_stderr_is_kept_as_it_comes_and_to_its_end(tmp_path: Path) -> None:
    """Logs would lag behind, or miss the last line."""
    log = tmp_path / "err.log"
    async with running(str(log)) as (process, server):
        process.complains(b"one\n")
        await turns()
        assert texts(log) == [b"one"]
        process.complains(b"x" * 40_000 + b"\nlast")
        await turns()
        assert server.dossier().stderr_tail.endswith("last")
    assert texts(log)[-1] == b"last"


async def test_a_server_that_closed_its_stderr_is_no_trouble() -> None:
    """The loop would spin on a closed pipe."""
    async with running() as (process, server):
        process.closes_stderr()
        await turns()
        assert not asyncio.get_running_loop().remove_reader(process.stderr_fd)
        loss = losing(server)
        process.dies(0)
        assert (await loss).code == "exited"


async def test_a_log_that_cannot_be_opened_is_an_error_before_anything_is_watched(tmp_path: Path) -> None:
    """A link in the log's place would be followed, or the loop keep a watch on closed pipes."""
    process = PlayedProcess()
    order = OpenOrder(log_path=str(tmp_path / "missing" / "err.log"))
    with pytest.raises(OSError):
        ServerProcess(process, LIMITS, order, silent_run())  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    assert not loop.remove_reader(process.stdout_fd)
    assert not loop.remove_reader(process.stderr_fd)
    process.dies(0)
    process.close_fds()


@asynccontextmanager
async def at_rest(
    monkeypatch: pytest.MonkeyPatch, limits: LimitValues = LIMITS
) -> AsyncIterator[tuple[PlayedProcess, ServerProcess, list[object]]]:
    """A greeted server that is not looked at any more, and the looks at it: the pause of a quiet one never ends."""
    looks: list[object] = []
    monkeypatch.setattr(server_module, "LOOK_S", server_module.FIRST_LOOK_S)
    monkeypatch.setattr(server_module, "QUIET_LOOK_S", 100 * PATIENCE_S)
    monkeypatch.setattr(PlayedProcess, "look", lambda self: looks.append(self))  # noqa: PLW0108 - a builtin binds no self
    answers: dict[str, Answer] = {"initialize": INITIALIZED, "tools/call": lambda _: None}
    async with running(limits=limits, answers=answers) as (process, server):
        await server.connection.greeting
        await eventually_async(lambda: server.connection.is_at_rest)
        count = -1
        while count != (count := len(looks)):
            await turns(50)
        looks.clear()
        yield process, server, looks


async def test_a_quiet_server_is_looked_at_again_as_soon_as_something_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much memory it had at its death would be from before the call that it died of."""
    async with at_rest(monkeypatch) as (_, server, looks):
        server.connection.ask(Call(7, 5.0, "echo"), b"{}")
        await eventually_async(lambda: len(looks) > 5)
        assert not server.connection.is_at_rest


async def test_memory_is_given_back_once_for_each_time_that_a_server_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker would keep what each call left behind; or look through its memory although nothing has happened."""
    given: list[bool] = []
    monkeypatch.setattr(server_module, "give_back", lambda: given.append(True))
    async with at_rest(monkeypatch) as (_, server, looks):
        await eventually_async(lambda: given)
        monkeypatch.setattr(server_module, "QUIET_LOOK_S", server_module.FIRST_LOOK_S)
        for number in (2, 3):
            server.connection.ask(Call(number, 5.0, "echo"), b"{}")
            server.connection.cancel(number, "enough")
            await eventually_async(lambda: len(given) == number)  # noqa: B023 - called before the next
            looks.clear()
            await eventually_async(lambda: len(looks) > 5)
            assert len(given) == number


@pytest.mark.parametrize(
    ("limits", "wrote"),
    [(LimitValues(output_bytes=1_000), b"x" * 1_100 + b"\n"), (LimitValues(partial_line_s=0.001), b"x")],
    ids=["output_bytes", "partial_line_s"],
)
async def test_what_a_quiet_server_suddenly_writes_is_judged_at_once(
    monkeypatch: pytest.MonkeyPatch, limits: LimitValues, wrote: bytes
) -> None:
    """One that waits until nobody looks could write on for a long time."""
    async with at_rest(monkeypatch, limits) as (process, server, _):
        loss = losing(server)
        process.writes(wrote)
        assert (await loss).code == "limit_hit"
