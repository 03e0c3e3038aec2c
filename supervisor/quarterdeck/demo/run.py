"""Run the demonstration: hang, crash and kill servers, and report which promises are kept meanwhile.

It runs on a `quarterdeck serve` of its own, with a stock MCP client and its control socket, in a temporary directory
that is gone at the end.  What happens is reported as events.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
import psutil
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from quarterdeck.config.places.paths import configuration_digest
from quarterdeck.config.places.runtime_directory import find_serving
from quarterdeck.daemon.control.client import ask
from quarterdeck.daemon.control.protocol import FaultView, Inspect, Inspection, Ps, SandboxView, ServerList, ServerView
from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.policy_values import Tier

from .servers import CRASH_STATUS, SERVERS


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """One event of the demonstration."""


class Scene(Event, frozen=True, tag="scene"):
    """The begin of a chapter."""

    title: str


class Fact(Event, frozen=True, tag="fact"):
    """Something that happened."""

    text: str


class Quote(Event, frozen=True, tag="quote"):
    """A text that the client received, word for word."""

    text: str


class Death(Event, frozen=True, tag="death"):
    """The known facts of a server's death."""

    server: str
    dossier: Dossier


class Table(Event, frozen=True, tag="table"):
    """Rows of one shape."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Promise(Event, frozen=True, tag="promise"):
    """A promise of ours, and whether it was kept."""

    text: str
    is_kept: bool


class End(Event, frozen=True, tag="end"):
    """The last event: how many promises were kept, and how long it all took."""

    kept: int
    broken: int
    took_s: float


AnyEvent = Scene | Fact | Quote | Death | Table | Promise | End

Tell = Callable[[AnyEvent], None]

NOTICEABLE_S: Final = 1.0
"""A call of the well-behaved server that takes this long was delayed: those of the others take longer."""

OPTIONS: Final = ("--own", "--allow-unsandboxed", "--settle", "60")
"""A process that ends with us; servers of ours, which may run where nothing confines them; time for a busy machine."""

HANG_S: Final = 1.5
"""The deadline of a call to the server that hangs: long enough to see, short enough to wait for."""

PATIENCE_S: Final = 10.0
"""For a restart, and for the end of every process."""

POLL_S: Final = 0.02

PAUSE_S: Final = 0.01
"""Between two calls."""


class DemoError(Exception):
    """The demonstration cannot go on."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The client's result of a call, and the seconds that it took."""

    text: str
    is_error: bool
    took_s: float


class Setup:
    """The running `serve` and its client; made by `open_setup`."""

    def __init__(self, client: Client, runtime_root: Path, digest: str) -> None:
        self._client = client
        self._runtime_root = runtime_root
        self._digest = digest

    async def tools(self) -> tuple[tuple[str, str], ...]:
        """Return names and descriptions, as the client sees them."""
        listed = await self._client.list_tools()
        return tuple((tool.name, tool.description or "") for tool in listed.tools)

    async def call(self, tool: str, on_progress: Callable[[], None] | None = None, **arguments: object) -> Reply:
        """Call a tool through the client."""

        async def progressed(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            if on_progress is not None:
                on_progress()

        began = time.perf_counter()
        result = await self._client.call_tool(tool, arguments, progress_callback=progressed if on_progress else None)
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        return Reply(text, bool(result.is_error), time.perf_counter() - began)

    async def servers(self) -> dict[str, ServerView]:
        """Return what `quarterdeck ps` shows."""
        answer = await self._ask(Ps())
        assert isinstance(answer, ServerList)
        return {server.id: server for server in answer.servers}

    async def last_death(self, server: str) -> FaultView | None:
        """Return what `quarterdeck inspect` says of the last death, once there was one; the server may run again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = await self._ask(Inspect(server))
            assert isinstance(answer, Inspection)
            if answer.last_death is not None or time.monotonic() > deadline:
                return answer.last_death
            await asyncio.sleep(POLL_S)

    async def _ask(self, request: Ps | Inspect) -> object:
        directory = find_serving(self._digest, self._runtime_root)
        if directory is None:
            raise DemoError("the serve of the demonstration has ended")
        return await asyncio.to_thread(ask, directory, request)

    async def until(self, server: str, is_so: Callable[[ServerView], bool]) -> ServerView:
        """Return a server's state once `is_so`, or after `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        # It happens in another process, which tells nobody.
        while not is_so(view := (await self.servers())[server]) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return view

    def processes(self) -> list[psutil.Process]:
        """Return every process below this one: serve, zygote, workers, servers."""
        return psutil.Process().children(recursive=True)


@asynccontextmanager
async def open_setup() -> AsyncIterator[Setup]:
    """Yield the running demonstration, its client connected, or raise DemoError."""
    # /tmp itself: the TMPDIR of the moment may be too long for a socket's path.
    with tempfile.TemporaryDirectory(prefix="quarterdeck-demo-", dir="/tmp") as folder:
        base = Path(folder)
        config = base / "servers.json"
        config.write_text(json.dumps({"mcpServers": {server: _row(server) for server in SERVERS}}))
        env = {name: value for name, value in os.environ.items() if not name.startswith("QUARTERDECK_")}
        env |= {"QUARTERDECK_STATE_DIR": str(base / "state"), "QUARTERDECK_RUNTIME_DIR": str(base / "run")}
        words = ["-m", "quarterdeck.cli", "serve", "-c", str(config), *OPTIONS]
        serve = StdioServerParameters(command=sys.executable, args=words, env=env)
        failure: DemoError | None = None
        with (base / "serve.log").open("w+") as log:
            async with AsyncExitStack() as stack:
                try:
                    client = await stack.enter_async_context(Client(stdio_client(serve, errlog=log), cache=None))
                except Exception as error:
                    log.seek(0)
                    raise DemoError(f"`quarterdeck serve` does not start: {log.read().strip() or error}") from error
                try:
                    yield Setup(client, base / "run", configuration_digest([config]))
                except DemoError as error:
                    # Kept from the client's task groups, which would wrap it.
                    failure = error
        if failure is not None:
            raise failure


def _row(server: str) -> dict[str, object]:
    # A server has a HOME of its own, where an interpreter finds no packages that its user has installed.
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    row: dict[str, object] = {"command": sys.executable, "args": ["-m", "quarterdeck.demo.servers", server], "env": env}
    return row | ({"call_timeout_s": HANG_S} if server == "stuck" else {})


@dataclass(slots=True)
class Tally:
    """The outcomes of the constant load so far."""

    answered: int = 0
    failed: int = 0
    slowest_s: float = 0.0


@asynccontextmanager
async def constant_load(setup: Setup) -> AsyncIterator[Tally]:
    """Call the well-behaved server all the time while the body runs."""
    tally = Tally()

    async def keep_calling() -> None:
        for number in count(1):
            reply = await setup.call("tidy__add", a=number, b=1)
            if reply.is_error or reply.text != str(number + 1):
                tally.failed += 1
            else:
                tally.answered += 1
            tally.slowest_s = max(tally.slowest_s, reply.took_s)
            await asyncio.sleep(PAUSE_S)

    task = asyncio.create_task(keep_calling())
    try:
        yield tally
    finally:
        # Calls for ever, unless one broke.
        tally.failed += task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run_demo(tell: Tell) -> bool:
    """Run the demonstration, telling each event as it happens. Return whether every promise was kept."""
    began = time.perf_counter()
    demo = _Demo(tell)
    async with open_setup() as setup:
        await demo.play(setup, time.perf_counter() - began)
        processes = setup.processes()
    await demo.close(processes)
    tell(End(demo.kept, demo.broken, time.perf_counter() - began))
    return demo.broken == 0


class _Demo:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.kept = 0
        self.broken = 0

    async def play(self, setup: Setup, connected_s: float) -> None:
        await self._mount(setup, connected_s)
        await self._list(setup)
        await self._call(setup)
        pid = (await setup.servers())["tidy"].pid
        async with constant_load(setup) as tally:
            await self._hang(setup)
            await self._crash(setup)
            await self._kill(setup)
        self._tell(Scene("All the while, a client kept calling the well-behaved server"))
        tidy = (await setup.servers())["tidy"]
        self._tell(Fact(f"tidy__add answered {tally.answered} times, at the slowest in {_ms(tally.slowest_s)}"))
        is_calm = tally.answered > 0 and tally.failed == 0 and tally.slowest_s < NOTICEABLE_S
        self._promise("unaffected: no call failed or was delayed", is_kept=is_calm)
        self._promise("it is the same process as before", is_kept=tidy.pid == pid and tidy.restarts == 0)

    async def close(self, processes: list[psutil.Process]) -> None:
        self._tell(Scene("The client leaves"))
        _, alive = await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE_S)
        left = [process for process in alive if not _is_gone(process)]
        self._tell(Fact(f"{len(processes)} processes were running: serve, zygote, workers, servers"))
        self._promise("none of them is left", is_kept=not left)

    async def _mount(self, setup: Setup, connected_s: float) -> None:
        self._tell(Scene("Three servers that should not be trusted, as one MCP server"))
        self._tell(Fact(f"a stock MCP client started `quarterdeck serve` and was connected after {connected_s:.1f} s"))
        await setup.tools()
        servers = await setup.servers()
        rows = tuple(
            (server.id, what, server.phase, str(server.tools), str(server.pid), str(server.worker_pid))
            for server, what in zip(servers.values(), ("behaves well", "hangs", "crashes"), strict=True)
        )
        self._tell(Table(("SERVER", "IT", "PHASE", "TOOLS", "PID", "WORKER"), rows))
        if sandbox := servers["tidy"].sandbox:
            self._tell(Fact(describe_sandbox(sandbox)))
        workers = {server.worker_pid for server in servers.values() if server.phase == "ready"} - {None}
        self._promise("each is ready, behind a worker process of its own", is_kept=len(workers) == len(SERVERS))

    async def _list(self, setup: Setup) -> None:
        self._tell(Scene("All their tools, as the client sees them"))
        tools = await setup.tools()
        self._tell(Table(("TOOL", "DESCRIPTION"), tools))
        is_whole = {name.partition("__")[0] for name, _ in tools} == set(SERVERS)
        self._promise("every tool is there, called server__tool", is_kept=is_whole)

    async def _call(self, setup: Setup) -> None:
        self._tell(Scene("Calling them"))
        sums = self._show("tidy__add(2, 40)", await setup.call("tidy__add", a=2, b=40))
        words = self._show("tidy__count_words(…)", await setup.call("tidy__count_words", text="all hands on deck"))
        share = self._show("fragile__divide(84, 2)", await setup.call("fragile__divide", a=84, b=2))
        self._promise("the answers are right", is_kept=(sums.text, words.text, share.text) == ("42", "4", "42"))

    async def _hang(self, setup: Setup) -> None:
        self._tell(Scene("A server hangs"))
        reply = self._show("stuck__think(…)", await setup.call("stuck__think", question="why?"))
        is_timely = reply.is_error and f"{HANG_S:g} s" in reply.text and reply.took_s < HANG_S + NOTICEABLE_S
        self._promise(f"the call ended at its deadline of {HANG_S:g} s, with a fault that says so", is_kept=is_timely)

    async def _crash(self, setup: Setup) -> None:
        self._tell(Scene("A server crashes"))
        before = (await setup.servers())["fragile"]
        reply = self._show("fragile__divide(1, 0)", await setup.call("fragile__divide", a=1, b=0))
        dossier = await self._death(setup, "fragile")
        is_told = dossier.exit_status == CRASH_STATUS and "ZeroDivisionError" in dossier.stderr_tail
        self._promise("the caller was told, and what the server wrote last is kept", is_kept=reply.is_error and is_told)
        await self._return(setup, before)
        again = self._show("fragile__divide(9, 3)", await setup.call("fragile__divide", a=9, b=3))
        self._promise("it answers again", is_kept=again.text == "3")

    async def _kill(self, setup: Setup) -> None:
        self._tell(Scene("kill -9, in the middle of a call"))
        before = (await setup.servers())["stuck"]
        arrived = asyncio.Event()
        call = asyncio.create_task(setup.call("stuck__think", arrived.set, question="why me?"))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await arrived.wait()
        except TimeoutError:
            raise DemoError("a call did not reach its server") from None
        assert before.pid is not None
        killed_at = time.perf_counter()
        os.kill(before.pid, signal.SIGKILL)
        self._tell(Fact(f"kill -9 {before.pid}, while stuck__think(…) was under way"))
        reply = await call
        told_s = time.perf_counter() - killed_at
        self._tell(Fact(f"its caller was told {_ms(told_s)} later:"))
        self._tell(Quote(reply.text))
        is_known = (await self._death(setup, "stuck")).signal == signal.SIGKILL
        self._promise("the call failed at once, and the dossier names the signal", is_kept=reply.is_error and is_known)
        await self._return(setup, before)
        again = self._show("stuck__ping()", await setup.call("stuck__ping"))
        self._promise("it answers again", is_kept=again.text == "pong")

    async def _return(self, setup: Setup, before: ServerView) -> None:
        began = time.perf_counter()
        now = await setup.until(before.id, lambda server: server.phase == "ready" and server.pid != before.pid)
        took_s = time.perf_counter() - began
        self._tell(Fact(f"restarted: process {before.pid} became {now.pid}, ready {_ms(took_s)} later"))
        self._promise("it was started again", is_kept=now.phase == "ready" and now.restarts == before.restarts + 1)

    def _show(self, call: str, reply: Reply) -> Reply:
        if reply.is_error:
            self._tell(Fact(f"{call} failed after {_ms(reply.took_s)}:"))
            self._tell(Quote(reply.text))
        else:
            self._tell(Fact(f"{call} = {reply.text}   ({_ms(reply.took_s)})"))
        return reply

    async def _death(self, setup: Setup, server: str) -> Dossier:
        """Tell and return what is known of a server's death; an empty dossier if nothing is."""
        fault = await setup.last_death(server)
        if fault is None or fault.dossier is None:
            return Dossier()
        self._tell(Death(server, fault.dossier))
        return fault.dossier

    def _promise(self, text: str, *, is_kept: bool) -> None:
        self.kept += is_kept
        self.broken += not is_kept
        self._tell(Promise(text, is_kept))


def describe_sandbox(sandbox: SandboxView) -> str:
    """Return what confines each server here, and where to read what is weaker."""
    if sandbox.tier == Tier.LIMITS:
        return "nothing on this machine confines them, so they run with limits alone: see `quarterdeck doctor`"
    as_root = ", as root without capabilities" if any(gap.startswith("user: root") for gap in sandbox.gaps) else ""
    weaker = "; what is weaker: `quarterdeck doctor`" if sandbox.gaps else ""
    return f"each is confined by {sandbox.tier}{as_root}{weaker}"


def _is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _ms(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
