"""Control groups: values that are read back, joining, what was hit, the end, and what dead owners left.

The pure parts are tried on plain directories that stand for a hierarchy, the rest on this machine's own, where we may.
"""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.processes.running import pid_of_nobody, python_child

from quarterdeck_protocol.policy_values import LimitValues, Property
from quarterdeck_sandbox.policy.machine import Cgroups
from quarterdeck_sandbox.run import cgroup as cgroup_module
from quarterdeck_sandbox.run.cgroup import Cgroup, sweep_cgroups

pytestmark = pytest.mark.process

MIB = 1 << 20
LIMITS = LimitValues(memory_bytes=64 * MIB, processes=20, cpu_share=0.5)
ROOT = Path("/sys/fs/cgroup")


def group_name(pid: int | None = None) -> str:
    return f"qd-{pid or os.getpid()}-{secrets.token_hex(4)}"


def delegated(root: Path) -> Cgroups:
    """A plain directory in the place of a delegated one of version 2: it takes every value."""
    return Cgroups(str(root), dict.fromkeys(("memory", "pids", "cpu"), str(root)))


@pytest.fixture
def legacy() -> Iterator[Cgroups]:
    """This machine's hierarchies of version 1, each with a directory of this test's own."""
    places = {}
    for controller in ("memory", "pids", "cpu"):
        place = ROOT / controller / f"test-{os.getpid()}-{secrets.token_hex(4)}"
        if not (ROOT / controller / "cgroup.clone_children").exists() or not os.access(place.parent, os.W_OK):
            break
        place.mkdir()
        places[controller] = str(place)
    try:
        if len(places) < 3:
            pytest.skip("no control groups of version 1 that we may write to")
        yield Cgroups("", places, frozenset(places))
    finally:
        for path in places.values():
            for left in Path(path).iterdir():
                if left.is_dir():
                    left.rmdir()
            Path(path).rmdir()


@pytest.fixture
def unified() -> Iterator[str]:
    """A directory of this test's own on a writable mount of version 2, which can at least kill."""
    for parent in (ROOT, ROOT / "unified"):
        if (parent / "cgroup.controllers").exists() and os.access(parent, os.W_OK):
            place = parent / f"test-{os.getpid()}-{secrets.token_hex(4)}"
            place.mkdir()
            yield str(place)
            place.rmdir()
            return
    pytest.skip("no control groups of version 2 that we may write to")


@asynccontextmanager
async def made(cgroups: Cgroups, limits: LimitValues = LIMITS) -> AsyncIterator[Cgroup]:
    group = Cgroup.create(cgroups, group_name(), limits)
    try:
        yield group
    finally:
        group.kill()
        await group.destroy()


# On plain directories


def test_every_limit_is_written_where_version_2_keeps_it(tmp_path: Path) -> None:
    """A tree would run without a limit that its receipt names."""
    group = Cgroup.create(delegated(tmp_path), "qd-1-ab", LIMITS)
    place = tmp_path / "qd-1-ab"
    assert {file.name: file.read_text() for file in place.iterdir()} == {
        "memory.max": str(64 * MIB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "20",
        "cpu.max": "50000 100000",
    }
    assert group.unmet == {}
    assert group.enforced == {"memory_bytes", "processes", "cpu_share"}


def test_what_is_not_limited_is_not_written(tmp_path: Path) -> None:
    """A trusted server would be held to a limit of nobody's."""
    unlimited = LimitValues(memory_bytes=None, processes=None)
    group = Cgroup.create(delegated(tmp_path), "qd-1-ab", unlimited)
    assert list((tmp_path / "qd-1-ab").iterdir()) == []
    assert (group.unmet, group.enforced) == ({}, frozenset())


def test_a_value_that_does_not_stick_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels and managers accept values that they ignore: a receipt would promise what nobody enforces."""
    monkeypatch.setattr(cgroup_module, "_read", lambda file: "max" if file.name == "pids.max" else file.read_text())
    group = Cgroup.create(delegated(tmp_path), "qd-1-ab", LIMITS)
    assert list(group.unmet) == [Property.PROCESS_COUNT]
    assert "says 'max' after '20' was written" in group.unmet[Property.PROCESS_COUNT]
    assert "processes" not in group.enforced


def test_a_by_way_that_the_kernel_does_not_have_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without swap accounting every server would be refused."""
    original = Path.mkdir

    def mkdir(self: Path, *args: int) -> None:
        original(self, *args)
        original(self / "memory.swap.max")  # a file that cannot be written

    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = Cgroup.create(delegated(tmp_path), "qd-1-ab", LIMITS)
    assert group.unmet == {}
    assert "memory_bytes" in group.enforced


async def test_a_group_that_cannot_be_made_is_reported_for_all_that_it_was_for(tmp_path: Path) -> None:
    """The start would fail, or pass as limited."""
    group = Cgroup.create(delegated(tmp_path / "gone"), "qd-1-ab", LIMITS)
    assert set(group.unmet) == {Property.MEMORY, Property.PROCESS_COUNT, Property.CPU_SHARE}
    assert group.enforced == frozenset()
    assert (group.hit(), group.peak_bytes) == (None, None)
    group.kill()
    await group.destroy()


@pytest.mark.parametrize(
    ("files", "hit"),
    [
        ({}, None),
        ({"memory.events": "low 0\noom 1\noom_kill 0\n", "pids.events": "max 0\n"}, None),
        ({"memory.events": "oom_kill 2\n", "pids.events": "max 3\n"}, "memory_bytes"),
        ({"memory.events": "oom_kill x\n", "pids.events": "max 3\n"}, "processes"),
    ],
)
def test_the_limit_that_was_hit_is_named(tmp_path: Path, files: dict[str, str], hit: str | None) -> None:
    """A dossier would say `killed by SIGKILL`, and nobody would know why."""
    group = Cgroup.create(delegated(tmp_path), "qd-1-ab", LIMITS)
    for name, text in files.items():
        (tmp_path / "qd-1-ab" / name).write_text(text)
    assert group.hit() == hit


def test_the_peak_is_the_kernels_own(tmp_path: Path) -> None:
    """What is allocated between two looks would be in no dossier."""
    group = Cgroup.create(delegated(tmp_path), "qd-1-ab", LIMITS)
    assert group.peak_bytes is None
    (tmp_path / "qd-1-ab" / "memory.peak").write_text("4096\n")
    assert group.peak_bytes == 4096


def test_a_sweep_removes_what_dead_owners_left_and_nothing_else(tmp_path: Path) -> None:
    """Groups would pile up for ever, or a living server lose its limits."""
    ours, dead, strange = group_name(), group_name(pid_of_nobody()), "qd-x-1"
    for name in (ours, dead, strange):
        (tmp_path / name).mkdir()
    assert sweep_cgroups(Cgroups(str(tmp_path), {"memory": str(tmp_path)})) == (tmp_path / dead,)
    assert sorted(os.listdir(tmp_path)) == sorted([ours, strange])


def test_a_sweep_leaves_what_lives_in_another_process_namespace(tmp_path: Path) -> None:
    """Two containers that share a hierarchy would kill each other's servers."""
    dead = tmp_path / group_name(pid_of_nobody())
    dead.mkdir()
    (dead / "cgroup.procs").write_text("0\n")
    assert sweep_cgroups(Cgroups(str(tmp_path))) == ()
    assert dead.is_dir()
    shutil.rmtree(dead)


def test_a_sweep_of_nothing_finds_nothing(tmp_path: Path) -> None:
    """Most machines give us no group at all."""
    assert sweep_cgroups(Cgroups()) == ()
    assert sweep_cgroups(Cgroups(str(tmp_path / "gone"))) == ()


# On this machine's


async def test_real_limits_stick_and_hold_the_tree_that_joins(legacy: Cgroups) -> None:
    """A fork bomb would take the machine."""
    script = (
        "import os, sys; sys.stdin.readline(); made = 0\n"
        "try:\n"
        "    while made < 50:\n"
        "        if os.fork() == 0: os.read(0, 1); os._exit(0)\n"
        "        made += 1\n"
        "except OSError: print(made, flush=True)"
    )
    async with made(legacy) as group:
        assert (group.unmet, group.enforced) == ({}, {"memory_bytes", "processes", "cpu_share"})
        with python_child(script) as child:
            group.join(child.process.pid)
            assert group.hit() is None
            child.write(b"\n")
            assert child.read_line() == b"19"
            assert group.hit() == "processes"
            assert (group.peak_bytes or 0) > 0
            group.kill()


async def test_a_real_tree_that_takes_too_much_memory_is_killed_and_the_limit_is_named(legacy: Cgroups) -> None:
    """One server would push the others out of memory."""
    script = "import sys; sys.stdin.readline(); x = bytearray(256 << 20); print(len(x))"
    async with made(legacy) as group:
        with python_child(script) as child:
            group.join(child.process.pid)
            child.write(b"\n")
            assert child.process.wait() == -9
        assert group.hit() == "memory_bytes"


async def test_killing_reaches_what_left_its_session_and_the_group_can_be_removed(unified: str) -> None:
    """A daemon would outlive its server."""
    script = (
        "import os, signal, sys; sys.stdin.readline()\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    os.write(w, b'x'); signal.pause()\n"
        "os.read(r, 1); print('ready', flush=True); signal.pause()"
    )
    async with made(Cgroups(unified)) as group:
        with python_child(script) as child:
            group.join(child.process.pid)
            child.write(b"\n")
            assert child.read_line() == b"ready"
            group.kill()
            assert child.process.wait() == -9
        await group.destroy()
        assert not any(entry.is_dir() for entry in os.scandir(unified))


async def test_a_process_joins_by_itself_and_is_not_moved_again(legacy: Cgroups) -> None:
    """Each start would wait for all processors, and hold up what else forks, executes or ends."""
    script = (
        "import sys\n"
        "for fd in sys.argv[1:]: open(int(fd), 'w').write('0')\n"
        "print('joined', flush=True); sys.stdin.readline()"
    )
    async with made(legacy) as group:
        with group.entrances() as entrances:
            fds = tuple(entrances.values())
            with python_child(script, *map(str, fds), pass_fds=fds) as child:
                assert child.read_line() == b"joined"
                assert len(entrances) == 3
                for place in entrances:
                    assert (place / "cgroup.procs").read_text() == f"{child.process.pid}\n"
                group.join(pid_of_nobody(), entrances)
                assert group.unmet == {}
                child.write(b"\n")


def test_what_cannot_be_entered_has_no_entrance(tmp_path: Path) -> None:
    """The start would fail for a limit that is only wished for."""
    group = Cgroup.create(delegated(tmp_path), "qd-1-ab", LIMITS)
    with group.entrances() as entrances:
        assert entrances == {}


async def test_a_process_that_cannot_join_is_reported(legacy: Cgroups) -> None:
    """Its tree would run without the limits that its receipt names."""
    async with made(legacy) as group:
        group.join(pid_of_nobody())
        assert set(group.unmet) == {Property.MEMORY, Property.PROCESS_COUNT, Property.CPU_SHARE}
        assert "cannot join" in group.unmet[Property.MEMORY]
        assert group.enforced == frozenset()
