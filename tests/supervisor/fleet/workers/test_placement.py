"""Starting workers: starts and ends are reported once each, nothing started for nobody, nothing left."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import msgspec
import pytest
from support.fleet.played_zygote import ORDER, PlayedInterpreter, PlayedZygote, Stage, stage
from support.processes.running import a_process, pid_of_nobody
from support.sandbox.machine_facts import LINUX_ONLY
from support.waiting import turns, until

from quarterdeck.fleet.workers import interpreters
from quarterdeck.fleet.workers import placement as placement_module
from quarterdeck.fleet.workers.interpreters import INHERITED, NEEDED, SPAWN_VARIABLE, isolated, start_zygote_early
from quarterdeck.fleet.workers.placement import FreshPlacement, PidHandle, ZygotePlacement
from quarterdeck_protocol.spawn_orders import Died, Forked
from quarterdeck_sandbox import Machine


@pytest.fixture
async def played(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with stage(monkeypatch) as played:
        yield played


async def test_a_zygote_that_is_ready_tells_what_its_machine_can_enforce(played: Stage) -> None:
    """Every worker would have to lay out its sandbox itself."""
    assert played.placement.machine is None
    machine = Machine("linux", landlock_abi=7)
    played.zygote.says(Forked(0, 10, msgspec.json.encode(machine).decode()))
    await turns()
    assert played.placement.machine == machine


async def test_an_order_is_a_birth_then_a_death_each_told_once(played: Stage) -> None:
    """A server would not start, or its death stay unknown."""
    birth = played.spawn()
    assert await played.zygote.order() == ORDER
    played.zygote.says(Forked(0, 10), Forked(1, 4711))
    assert (await birth).pid == 4711
    assert played.exits == []
    played.zygote.says(Died(1, 4711, -9))
    played.zygote.says(Died(1, 4711, -9), Died(8, 1, 0))
    await turns()
    assert played.exits == [-9]
    assert played.lost == 0


async def test_a_worker_that_dies_at_once_is_born_first(played: Stage) -> None:
    """A crash at the first instruction would be a wait without end."""
    birth = played.spawn()
    await played.zygote.order()
    played.zygote.says(Forked(1, 4711), Died(1, 4711, 70))
    assert (await birth).pid == 4711
    assert played.exits == [70]


async def test_reports_may_come_in_any_pieces(played: Stage) -> None:
    """A busy machine's split writes would lose a birth."""
    births = [played.spawn(1), played.spawn(2)]
    await turns()
    data = b"".join(msgspec.json.encode(Forked(number, number + 100)) + b"\n" for number in (2, 1))
    for index in range(len(data)):
        played.zygote.writes(data[index : index + 1])
        await turns(2)
    assert [worker.pid for worker in await asyncio.gather(*births)] == [101, 102]


async def test_a_worker_that_nobody_waits_for_any_more_is_killed_at_birth(
    monkeypatch: pytest.MonkeyPatch, played: Stage
) -> None:
    """A connection that was given up would leave a worker behind."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(placement_module.os, "kill", lambda pid, number: killed.append((pid, number)))
    birth = played.spawn()
    await played.zygote.order()
    birth.cancel()
    await turns()
    played.zygote.says(Forked(1, 4711), Died(1, 4711, -9))
    await turns()
    assert killed == [(4711, signal.SIGKILL)]
    assert played.exits == []


@pytest.mark.process
async def test_a_worker_that_nobody_wants_and_that_is_gone_keeps_no_other_from_its_owner(played: Stage) -> None:
    """A server whose start was given up would leave another one connecting for ever."""
    wanted = played.spawn(2)
    await played.zygote.order()
    played.zygote.says(Forked(1, pid_of_nobody()), Forked(2, 4711))
    assert (await wanted).pid == 4711


async def test_a_dead_zygote_takes_its_workers_with_it_and_is_told_once(played: Stage) -> None:
    """Servers would look alive although their workers are gone."""
    await played.born(4711)
    waiting = played.spawn(2)
    await played.zygote.order()
    played.zygote.dies()
    with pytest.raises(OSError, match="zygote"):
        await waiting
    assert played.exits == [-9]
    assert (played.lost, played.workers_lost) == (1, 1)
    with pytest.raises(OSError, match="zygote"):
        await played.spawn(3)
    assert played.lost == 1


async def test_an_order_to_a_zygote_that_just_died_is_an_error(played: Stage) -> None:
    """The first connect after a crash would wait for ever."""
    played.zygote.dies()
    with pytest.raises(OSError):
        await played.spawn()
    await turns()
    assert (played.lost, played.workers_lost) == (1, 0)


async def test_closing_ends_all_and_waits_for_the_process(played: Stage) -> None:
    """Workers would outlive their supervisor, or the zygote stay a zombie."""
    await played.born(4711)
    await played.placement.close()
    await played.placement.close()
    assert played.exits == [-9]
    assert played.lost == 0
    assert played.zygote.waited[0] == placement_module.EXIT_S
    assert played.zygote.killed == 0


async def test_a_zygote_that_does_not_obey_is_killed(played: Stage) -> None:
    """Closing would hang."""
    played.zygote.obeys = False
    played.zygote.says(Forked(0, 4710))
    await turns()
    await played.placement.close()
    assert played.zygote.killed == 1
    assert played.zygote.waited == [placement_module.EXIT_S, None]


async def test_a_zygote_that_is_still_importing_is_told_to_end(played: Stage) -> None:
    """A command that ends at once would take another two seconds to do so, or leave what the zygote was trying."""
    await played.placement.close()
    assert (played.zygote.terminated, played.zygote.killed) == (1, 0)
    assert played.zygote.waited == [placement_module.EXIT_S]


async def test_a_zygote_is_waited_for_even_when_the_wait_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is ended while it ends would leave a zygote that nobody kills, dead or alive."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    others = threading.Event()
    asyncio.get_running_loop().run_in_executor(None, others.wait)
    played = Stage(monkeypatch)
    closing = asyncio.ensure_future(played.placement.close())
    await turns()
    closing.cancel()
    await turns()
    assert closing.cancelled()
    assert played.zygote.waited == []
    others.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert played.zygote.waited == [placement_module.EXIT_S]
    played.zygote.dies()


async def test_a_zygote_that_is_stopped_is_killed_and_its_orders_fail(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that has to start would be connecting for minutes; `ps` would not say why."""
    monkeypatch.setattr(placement_module, "LOOK_S", 0.0)
    monkeypatch.setattr(placement_module, "is_stopped", lambda pid: pid == PlayedZygote.pid)
    async with stage(monkeypatch) as played:
        monkeypatch.setattr(played.zygote, "kill", played.zygote.dies)
        with pytest.raises(OSError, match="zygote"):
            await played.spawn()
        assert played.lost == 1
    assert "hangs (it has been stopped for" in caplog.text


@pytest.mark.process
async def test_nobody_looks_at_a_zygote_that_owes_nothing(monkeypatch: pytest.MonkeyPatch, played: Stage) -> None:
    """An idle deck would wake up every second; one in a debugger would be killed although nobody needs it."""
    looks: list[int] = []
    monkeypatch.setattr(placement_module, "LOOK_S", 0.0)
    monkeypatch.setattr(placement_module, "is_stopped", lambda pid: bool(looks.append(pid)))
    birth = played.spawn()
    await played.zygote.order()
    await turns()
    assert looks
    played.zygote.says(Forked(0, 10), Forked(1, pid_of_nobody()))
    await birth
    await turns()
    looks.clear()
    await turns()
    assert looks == []


@pytest.mark.process
async def test_an_end_that_a_hanging_zygote_does_not_report_is_told_without_its_status(
    monkeypatch: pytest.MonkeyPatch, played: Stage
) -> None:
    """A dead worker would look alive, and closing it take many seconds, while the zygote hangs."""
    monkeypatch.setattr(placement_module, "REPORT_S", 0.0)
    process = await a_process()
    (await played.born(process.pid)).kill()
    assert await process.wait() == -signal.SIGKILL
    await until(lambda: played.exits)
    played.zygote.says(Died(1, process.pid, -9))
    await turns()
    assert played.exits == [None]


@pytest.mark.process
async def test_a_zygote_that_is_stopped_while_it_owes_a_report_is_killed(
    monkeypatch: pytest.MonkeyPatch, played: Stage
) -> None:
    """The next server that has to start would find it hanging, and wait all over again."""
    monkeypatch.setattr(placement_module, "LOOK_S", 0.0)
    process = await a_process()
    monkeypatch.setattr(played.zygote, "kill", played.zygote.dies)
    worker = await played.born(process.pid)
    monkeypatch.setattr(placement_module, "is_stopped", lambda pid: pid == PlayedZygote.pid)
    worker.kill()
    await process.wait()
    await until(lambda: played.lost)


@pytest.mark.process
async def test_one_that_owes_a_report_when_all_closes_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, played: Stage
) -> None:
    """Ctrl-C would take seconds more because of a zygote that cannot answer."""
    monkeypatch.setattr(placement_module, "REPORT_S", 0.0)
    process = await a_process()
    played.zygote.obeys = False
    (await played.born(process.pid)).kill()
    await process.wait()
    await until(lambda: played.exits)
    await played.placement.close()
    assert played.zygote.waited == [0, None]


@pytest.mark.process
async def test_a_worker_born_in_the_moment_in_which_it_is_given_up_is_killed(played: Stage) -> None:
    """A connection that was given up would leave a worker behind."""
    process = await a_process()
    birth = played.spawn()
    await played.zygote.order()
    played.placement._report_start(1, process.pid)
    birth.cancel()
    with pytest.raises(asyncio.CancelledError):
        await birth
    assert await process.wait() == -signal.SIGKILL


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.process
@LINUX_ONLY
async def test_a_dead_worker_keeps_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps dying would use up our descriptors until the collector runs, if it ever does."""
    gc.disable()
    try:
        async with stage(monkeypatch) as played:
            before = descriptors()
            for generation in range(1, 21):
                process = await a_process()
                (await played.born(process.pid, generation)).kill()
                await process.wait()
                played.zygote.says(Died(generation, process.pid, -9))
                while len(played.exits) < generation:
                    await turns(1)
            assert played.exits == [-9] * 20
            assert descriptors() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["ends", "closed"])
async def test_a_fresh_interpreter_gets_its_order_and_tells_its_end(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fork does not serve nothing would start, or be left behind."""
    made = PlayedInterpreter()
    monkeypatch.setattr(placement_module, "isolated", lambda *_, **__: made)
    placement = FreshPlacement()
    exits: list[int | None] = []
    assert (await placement.spawn(ORDER, exits.append)).pid == 4711
    assert made.written == msgspec.json.encode(ORDER) + b"\n"
    if how == "ends":
        made.ended.set()
        await until(lambda: exits)
    await placement.close()
    assert exits == [0 if how == "ends" else -9]


def test_an_isolated_interpreter_gets_nothing_of_ours_but_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of ours would be in the memory that every worker is forked from."""
    started: list[tuple[list[str], dict[str, Any]]] = []

    def note(argv: list[str], **options: Any) -> BytesIO:
        started.append((argv, options))
        return BytesIO()

    monkeypatch.setattr(subprocess, "Popen", note)
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("PYTHONPATH", "/evil")
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    isolated("some.module", "7", pass_fds=[7])
    [(argv, options)] = started
    assert argv[:2] == [sys.executable, "-I"]
    assert argv[2].endswith("boot.py")
    assert argv[3] == str(os.getpid())
    assert argv[4] == "0"
    assert argv[6:] == ["some.module", "7"]
    assert all(os.path.isabs(folder) for folder in argv[5].split(os.pathsep))
    assert set(options["env"]) <= set(INHERITED)
    assert options["env"]["LC_CTYPE"] == "C.UTF-8"
    assert options["pass_fds"] == [7]
    assert options["stdin"] == options["stdout"] == subprocess.DEVNULL
    assert options["start_new_session"]
    assert options["cwd"] == "/"


def test_what_an_isolated_interpreter_needs_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-done installation would be a worker that dies without a word."""
    monkeypatch.setattr(interpreters, "NEEDED", (*NEEDED, "no_such_package_at_all"))
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        isolated("some.module")


async def test_a_zygote_that_was_started_early_is_taken_by_the_first_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be started twice, or import for nobody; or two decks have one."""
    started: list[tuple[str, ...]] = []

    def isolated(*words: str, pass_fds: list[int]) -> PlayedZygote:
        started.append(words[:1])
        return PlayedZygote(pass_fds[0])

    monkeypatch.setattr(interpreters, "isolated", isolated)
    monkeypatch.delenv(SPAWN_VARIABLE, raising=False)
    start_zygote_early()
    start_zygote_early()
    assert started == [("quarterdeck_worker.zygote",)]
    placements = []
    for count in (1, 2):
        placements.append(ZygotePlacement(lambda _: None))
        assert len(started) == count
    for placement in placements:
        await placement.close()
        placement._process.dies()  # type: ignore[attr-defined]


@pytest.mark.parametrize("why", ["fresh", "darwin"])
def test_no_zygote_is_started_early_where_nothing_is_forked(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process would wait for orders that nobody gives."""
    monkeypatch.setenv(SPAWN_VARIABLE, "fresh" if why == "fresh" else "")
    monkeypatch.setattr(sys, "platform", "darwin" if why == "darwin" else "linux")
    monkeypatch.setattr(interpreters, "isolated", lambda *_, **__: pytest.fail("it was started"))
    start_zygote_early()


@pytest.mark.process
@pytest.mark.parametrize("has_descriptors", [True, False])
async def test_a_handle_kills_its_process_and_nothing_after_it(
    has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung worker would live on, or whoever has its process id later would die."""
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = await a_process()
    ends: list[None] = []
    handle = PidHandle(process.pid, lambda: ends.append(None))
    handle.kill()
    assert await process.wait() == -signal.SIGKILL
    while has_descriptors and not ends:
        await turns(1)
    handle.close()
    handle.close()
    handle.kill()
    PidHandle(process.pid, lambda: ends.append(None)).close()
    assert len(ends) == has_descriptors
