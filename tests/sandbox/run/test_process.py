"""Starting a server's process and ending it, politely, firmly and for certain, in every tier."""

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from support.processes.leftovers import is_running
from support.sandbox.confinements import TierHome
from support.waiting import eventually_async

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.program.launch import LaunchError, LaunchPlan
from quarterdeck_sandbox.run.process import ConfinedProcess, SandboxResources
from quarterdeck_sandbox.run.start import start

pytestmark = pytest.mark.process

PATIENCE_S = 20.0
GRACE_S = 0.05  # each step of a stop that has to be waited out
POLITE = "echo ready; read line; exit 7"
DEAF = "echo ready; exec tail -f /dev/null"
STUBBORN = "trap '' TERM; echo ready; while :; do /bin/sleep 1000; done"


@asynccontextmanager
async def running(tier_home: TierHome, script: str, **changes: Any) -> AsyncIterator[ConfinedProcess]:
    """A started script; it is gone at the end."""
    with anyio.fail_after(PATIENCE_S):
        process = await start(tier_home.shell(script, **changes))
        try:
            yield process
        finally:
            await process.stop(GRACE_S)
            process.close_fds()
    assert not is_running(process.pid)


async def line(process: ConfinedProcess) -> bytes:
    await anyio.wait_readable(process.stdout_fd)
    return os.read(process.stdout_fd, 1000)


async def test_a_network_that_is_lost_is_told_unless_the_program_ends_with_it(
    tier_home: TierHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server would be blamed for its network's end, or the other way round."""

    async def lost(_: SandboxResources) -> str:
        return "it is gone"

    monkeypatch.setattr(SandboxResources, "network_lost", lost)
    async with running(tier_home, POLITE) as process:
        assert await process.network_lost() == "it is gone"
        process.close_stdin()
        await process.wait()
        loss = asyncio.ensure_future(process.network_lost())
        await anyio.wait_all_tasks_blocked()
        assert not loss.done()
        loss.cancel()


async def test_a_started_process_has_its_pipes_environment_and_place(tier_home: TierHome) -> None:
    """A server would not hear us, or run somewhere else."""
    script = 'read a; echo "$0 $a $X $PWD"; echo oops >&2'
    plan = LaunchPlan("/bin/sh", ("own", "-c", script), {"X": "1"}, str(tier_home.home))
    with anyio.fail_after(PATIENCE_S):
        process = await start(tier_home.confine(plan))
        os.write(process.stdin_fd, b"hello\n")
        assert await line(process) == f"own hello 1 {tier_home.home}\n".encode()
        assert await process.wait() == 0
        assert os.read(process.stderr_fd, 1000) == b"oops\n"
        await process.stop(GRACE_S)
        process.close_fds()


async def test_the_end_of_a_process_is_told_with_its_usage(tier_home: TierHome) -> None:
    """A dossier would be empty, or tell our memory as the server's (a child begins as a copy of its parent)."""
    async with running(tier_home, "echo ready; read line; exit 3") as process:
        assert process.returncode is None
        await line(process)
        process.look()
        process.close_stdin()
        assert await process.wait() == 3
        assert process.returncode == 3
        known = process.dossier("last", ["hint"])
        assert (known.exit_status, known.signal, known.stderr_tail, known.hints) == (3, None, "last", ("hint",))
        assert 100_000 < (known.peak_rss_bytes or 0) < largest_of_ours() / 4
        assert known.cpu_s is not None
        assert known.uptime_s is not None
        assert process.dossier("", ()).uptime_s == known.uptime_s > 0


async def test_memory_that_no_look_has_seen_is_told_by_the_kernel(tier_home: TierHome) -> None:
    """A command that takes 400 MiB for a moment, and ends, would be said to have used two."""
    if tier_home.tier is Tier.BUBBLEWRAP:
        pytest.skip("bubblewrap ends before what it started was waited for: only a control group knows")
    wanted = largest_of_ours() + (64 << 20)
    async with running(tier_home, f"dd if=/dev/zero of=/dev/null bs={wanted} count=1 2>/dev/null") as process:
        await process.wait()
        known = process.dossier("", ())
        assert wanted < (known.peak_rss_bytes or 0) < 2 * wanted
        assert not known.peak_is_sampled


async def test_memory_that_the_kernel_cannot_tell_from_ours_is_told_as_it_was_seen(tier_home: TierHome) -> None:
    """Each small command would be said to have used as much as we do, of which it began as a copy."""
    async with running(tier_home, POLITE) as process:
        await line(process)
        process.look()
        process.close_stdin()
        await process.wait()
        known = process.dossier("", ())
        assert 0 < (known.peak_rss_bytes or 0) < largest_of_ours()
        assert known.peak_is_sampled


async def test_memory_is_told_by_its_control_group_where_it_has_one(tier_home: TierHome) -> None:
    """What all its processes held together would be nowhere, though their limit is one for all."""

    class Group:
        peak_bytes = 1 << 40

        def hit(self) -> None: ...

        def kill(self) -> None: ...

        async def destroy(self) -> None: ...

    async with running(tier_home, POLITE) as process:
        await line(process)
        process.look()
        process._resources.cgroup = Group()  # type: ignore[assignment]
        process.close_stdin()
        await process.wait()
        known = process.dossier("", ())
        assert (known.peak_rss_bytes, known.peak_is_sampled) == (1 << 40, False)


def largest_of_ours() -> int:
    """Our own high-water mark, which a child inherits."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def test_two_may_wait_for_the_same_end(tier_home: TierHome) -> None:
    """The second would wait for ever, or be told another status."""
    async with running(tier_home, POLITE) as process, anyio.create_task_group() as tasks:
        ends: list[int] = []

        async def wait() -> None:
            ends.append(await process.wait())

        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await line(process)
        process.close_stdin()
        await eventually_async(lambda: len(ends) == 2)
        assert ends == [7, 7]


async def test_a_wait_that_is_given_up_leaves_the_process_alone(tier_home: TierHome) -> None:
    """A deadline that passes would end the server, or leak a descriptor each time."""
    async with running(tier_home, POLITE) as process:
        await line(process)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with anyio.move_on_after(0):
                await process.wait()
        assert is_running(process.pid)
        assert len(os.listdir("/proc/self/fd")) == before


# Stopping


async def test_a_polite_server_is_only_asked(tier_home: TierHome) -> None:
    """Every server would be killed in the middle of its clean end."""
    async with running(tier_home, "echo ready; read line; echo bye >&2; exit 7") as process:
        await line(process)
        await process.stop(PATIENCE_S)
        assert process.returncode == 7
        assert os.read(process.stderr_fd, 100) == b"bye\n"
        assert process.stdin_fd == -1


async def test_a_server_that_ignores_that_too_is_killed_with_its_children(tier_home: TierHome) -> None:
    """A stubborn server would hold the whole shutdown, its children would stay."""
    async with running(tier_home, STUBBORN) as process:
        await line(process)
        await eventually_async(lambda: psutil.Process(process.pid).children())
        children = psutil.Process(process.pid).children()
        await process.stop(GRACE_S)
        assert process.returncode == -signal.SIGKILL
        await eventually_async(lambda: not any(is_running(child.pid) for child in children))


async def test_one_that_cannot_be_looked_at_is_killed_all_the_same(
    tier_home: TierHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server would run on because its memory cannot be read."""

    def fail(_: ConfinedProcess) -> None:
        raise ValueError("no such line in its status")

    async with running(tier_home, DEAF) as process:
        await line(process)
        monkeypatch.setattr(ConfinedProcess, "look", fail)
        process.kill()
        assert await process.wait() == -signal.SIGKILL


async def test_the_children_of_a_server_that_went_politely_are_killed(tier_home: TierHome) -> None:
    """A server's helper would outlive it."""
    async with running(tier_home, "/bin/sleep 1000 & echo ready; read line; exit 0") as process:
        await line(process)
        [child] = [child.pid for child in psutil.Process(process.pid).children()]
        await process.stop(PATIENCE_S)
        assert process.returncode == 0
        await eventually_async(lambda: not is_running(child))


async def test_a_server_that_ignores_the_end_of_its_stdin_is_told_to_end_though_its_stop_is_given_up(
    tier_home: TierHome,
) -> None:
    """A server that does not watch its stdin would stay, or one whose caller gives up."""
    async with running(tier_home, DEAF) as process:
        await line(process)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await process.stop(GRACE_S)
        assert process.returncode == -signal.SIGTERM


async def test_stopping_twice_and_releasing_twice_is_harmless(tier_home: TierHome) -> None:
    """Whoever closes second would signal, or close, what is somebody else's by then."""
    async with running(tier_home, POLITE) as process:
        await line(process)
        await process.stop(PATIENCE_S)
        await process.stop(PATIENCE_S)
        process.close_fds()
        process.close_fds()
        assert (process.stdin_fd, process.stdout_fd, process.stderr_fd) == (-1, -1, -1)


# What cannot be started


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def resources() -> tuple[int, set[int]]:
    ourselves = psutil.Process()
    return ourselves.num_fds(), {child.pid for child in ourselves.children()}


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: script(path, "#!/no/such/interpreter\n"), "command_not_found"),
        (lambda path: script(path, "not a program\n"), "not_executable"),
        (str, "command_not_found"),
        (lambda path: str(path.parent), "not_executable"),
    ],
    ids=["interpreter", "not a program", "gone", "directory"],
)
async def test_a_program_that_cannot_be_executed_says_why_and_leaves_nothing(
    tier_home: TierHome, make: Any, code: str
) -> None:
    """A user would be told that the server exited at once, without a reason."""
    path = tier_home.home / "program"
    program = make(path)
    path.exists() and tier_home.own(path)
    before = resources()
    with anyio.fail_after(PATIENCE_S), pytest.raises(LaunchError) as caught:
        await start(tier_home.confine(LaunchPlan(program, (program,), {}, "/")))
    assert caught.value.code == code
    assert program in str(caught.value)
    assert resources() == before


@pytest.mark.parametrize(
    "plan",
    [
        LaunchPlan("/bin/sh", ("sh", "nul\0"), {}, "/"),
        LaunchPlan("/bin/sh", ("sh",), {"A=B": "1"}, "/"),
        LaunchPlan("/bin/sh", ("sh",), {"A": "nul\0"}, "/"),
        LaunchPlan("/bin/sh", ("sh", "x" * 3_000_000), {}, "/"),
        LaunchPlan("/bin/sh", ("sh",), {}, "/no/such/place"),
    ],
    ids=["nul in argument", "bad name", "nul in value", "too large", "place is gone"],
)
async def test_what_no_system_can_start_is_an_error_in_words(tier_home: TierHome, plan: LaunchPlan) -> None:
    """A configuration's oddity would be a traceback."""
    before = resources()
    with pytest.raises(LaunchError, match="/bin/sh") as caught:
        await start(tier_home.confine(plan))
    assert caught.value.code == "spawn_failed"
    assert resources() == before


# What ended it


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 128", 128), ("exit 190", 190), ("kill -9 $$", -9), ("kill -XCPU $$", -24)],
)
async def test_the_status_is_the_programs_own(tier_home: TierHome, script: str, code: int) -> None:
    """A dossier would tell what stands between us and the program as its end."""
    async with running(tier_home, script) as process:
        assert await process.wait() == code
        assert process.limit is None


@pytest.mark.parametrize(
    ("script", "number", "value", "limit"),
    [
        ("kill -XCPU $$", resource.RLIMIT_CPU, 600, "cpu_s"),
        ('exec head -c 100000 /dev/zero >"$HOME/file"', resource.RLIMIT_FSIZE, 4096, "file_size_bytes"),
    ],
    ids=["cpu", "file size"],
)
async def test_a_limit_that_the_kernel_keeps_is_named(
    tier_home: TierHome, script: str, number: int, value: int, limit: str
) -> None:
    """A user would see a signal, and not which limit to raise."""
    plan = LaunchPlan("/bin/sh", ("sh", "-c", script), {"PATH": "/usr/bin:/bin", "HOME": str(tier_home.home)}, "/")
    with anyio.fail_after(PATIENCE_S):
        process = await start(tier_home.confine(plan, rlimits=((number, value),)))
        await process.wait()
        await process.stop(GRACE_S)
        process.close_fds()
    assert process.limit == limit


async def test_a_condemned_tree_dies_at_once_and_its_limit_is_named(tier_home: TierHome) -> None:
    """A tree that takes all memory would be asked politely, and its end would have no reason."""
    async with running(tier_home, STUBBORN) as process:
        await line(process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill_for("memory_bytes")
        process.kill_for("wall_s")
        assert await process.wait() == -signal.SIGKILL
        assert process.limit == "memory_bytes"
        await eventually_async(lambda: not any(is_running(child.pid) for child in children))


async def test_a_condemnation_that_comes_too_late_changes_nothing(tier_home: TierHome) -> None:
    """A clean end would be told as the hit of a limit."""
    async with running(tier_home, "exit 0") as process:
        await process.wait()
        process.kill_for("wall_s")
        assert process.limit is None


async def test_a_monitor_is_told_where_the_tree_and_its_memory_files_are(tier_home: TierHome) -> None:
    """Files in memory, or the processes above the program, would count for nobody."""
    async with running(tier_home, POLITE) as process:
        await line(process)
        tree = process.tree(("/scratch",))
        assert (tree.pid, tree.scratch) == (process.pid, ("/scratch",))
        assert process.pid in {child.pid for child in psutil.Process(tree.top).children(recursive=True)}
        if tier_home.tier is Tier.BUBBLEWRAP:
            assert psutil.Process(tree.root_pid).ppid() == tree.top
            assert tree.tmpfs == ("/dev/shm", "/tmp")
        else:
            assert (tree.root_pid, tree.tmpfs) == (0, ())
