"""Run the demonstration: hang, crash and kill servers, and report which promises are kept meanwhile."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psutil

from quarterdeck.control.protocol import SandboxView, ServerView
from quarterdeck.demo.servers import CRASH_STATUS
from quarterdeck_protocol.policy import Tier

from .setup import (
    HANG_S,
    PATIENCE_S,
    SERVERS,
    AnyEvent,
    Death,
    DemoError,
    End,
    Fact,
    Promise,
    Quote,
    Reply,
    Scene,
    Setup,
    Table,
    open_setup,
)

PAUSE_S: Final = 0.01
"""Between two calls."""


@dataclass(slots=True)
class Tally:
    """How the calls of the constant load went so far."""

    answered: int = 0
    failed: int = 0
    slowest_s: float = 0.0


@asynccontextmanager
async def constant_load(setup: Setup) -> AsyncIterator[Tally]:
    """Call the well-behaved server all the time while the body runs."""
    tally = Tally()

    async def keep_calling() -> None:
        number = 0
        while True:
            number += 1
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


Tell = Callable[[AnyEvent], None]

NOTICEABLE_S: Final = 1.0
"""A call of the well-behaved server that takes this long was delayed: those of the others take longer."""


async def run_demo(tell: Tell) -> bool:
    """Run the demonstration, telling each event as it happens; whether every promise was kept."""
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
        workers = {server.worker_pid for server in servers.values() if server.phase == "ready"}
        self._promise(
            "each is ready, behind a worker process of its own", is_kept=len(workers - {None}) == len(SERVERS)
        )

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
        dead = await setup.until("fragile", lambda server: server.fault is not None)
        self._show_dossier(dead)
        dossier = dead.fault.dossier if dead.fault is not None else None
        is_told = (
            dossier is not None and dossier.exit_status == CRASH_STATUS and "ZeroDivisionError" in dossier.stderr_tail
        )
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
        dead = await setup.until("stuck", lambda server: server.fault is not None)
        self._show_dossier(dead)
        dossier = dead.fault.dossier if dead.fault is not None else None
        is_known = dossier is not None and dossier.signal == signal.SIGKILL
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

    def _show_dossier(self, server: ServerView) -> None:
        if server.fault is not None and server.fault.dossier is not None:
            self._tell(Death(server.id, server.fault.dossier))

    def _promise(self, text: str, *, is_kept: bool) -> None:
        self.kept += is_kept
        self.broken += not is_kept
        self._tell(Promise(text, is_kept))


def describe_sandbox(sandbox: SandboxView) -> str:
    """What confines each of the servers here, and where to read what is weaker."""
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
