"""What a tree uses and which limit it exceeds, judged from looks that a test makes up."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quarterdeck_protocol.policy_values import LimitValues
from quarterdeck_sandbox.policy.limits import (
    INODE_BYTES,
    RECONFIRM_S,
    DiskUse,
    Excess,
    Pages,
    Process,
    ProcessTree,
    Suspicion,
    Usage,
    UsageMeter,
    Verdict,
    family,
)

MIB = 1 << 20
UNLIMITED = LimitValues(memory_bytes=None, processes=None, scratch_bytes=None, scratch_inodes=None)


def process(pid: int, parent: int, **members: float) -> Process:
    return replace(Process(pid, parent, float(pid), 10 * MIB, 1, 0.0, 0.0), **members)


REAPER, PROGRAM, CHILD, FOREIGN = process(10, 1), process(11, 10), process(12, 11), process(20, 1)


def meter(limits: LimitValues = UNLIMITED, enforced: tuple[str, ...] = ()) -> UsageMeter:
    return UsageMeter(ProcessTree(pid=11, top=10, enforced=enforced), limits, now=0.0)


def look(watched: UsageMeter, processes: Iterable[Process], now: float = 1.0) -> Verdict:
    seen = {each.pid: each for each in processes}
    return watched.look(seen, family(seen), now)


def test_the_tree_is_the_program_and_all_below_it() -> None:
    """Another server's memory, or our own reaper's, would be a server's fault."""
    watched = meter()
    assert look(watched, [REAPER, PROGRAM, CHILD, FOREIGN]) is None
    assert (watched.present.memory_bytes, watched.present.processes) == (20 * MIB, 2)


def test_an_orphan_that_the_reaper_adopted_still_counts() -> None:
    """A daemon would be outside every limit; so would the program's children once it has ended."""
    watched = meter()
    look(watched, [REAPER, PROGRAM, CHILD])
    look(watched, [REAPER, replace(CHILD, parent=10)])
    assert watched.present.processes == 1


def test_a_program_without_anything_of_ours_above_it_is_its_own_tree() -> None:
    """A command that is started plainly would not be counted."""
    watched = UsageMeter(ProcessTree(pid=11, top=11), UNLIMITED, 0.0)
    look(watched, [PROGRAM, CHILD])
    assert watched.present.processes == 2


def test_another_process_that_got_the_pid_is_not_the_tree() -> None:
    """A stranger would be condemned for a server that has ended."""
    watched = meter(LimitValues(processes=1))
    look(watched, [REAPER, PROGRAM])
    assert look(watched, [replace(REAPER, started=99.0), PROGRAM, CHILD]) is None
    assert watched.present.processes == 0
    assert watched.peak.processes == 1


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=60))
def test_no_family_makes_it_loop_or_fail(pairs: list[tuple[int, int]]) -> None:
    """A process that is reparented in the middle of a look makes circles and gaps."""
    processes = [process(pid, parent) for pid, parent in pairs]
    watched = meter()
    look(watched, processes)
    assert watched.present.processes <= len({each.pid for each in processes})


@pytest.mark.parametrize(
    ("limits", "child", "limit"),
    [
        (LimitValues(processes=3), {"threads": 2}, None),
        (LimitValues(processes=3), {"threads": 3}, "processes"),
        (LimitValues(cpu_s=5), {"cpu_s": 5.0}, None),
        (LimitValues(cpu_s=5), {"cpu_s": 5.5}, "cpu_s"),
        (LimitValues(cpu_s=5), {"reaped_cpu_s": 5.5}, "cpu_s"),
        (LimitValues(wall_s=1), {}, None),
        (LimitValues(wall_s=0.5), {}, "wall_s"),
    ],
)
def test_a_limit_is_exceeded_above_it_and_not_at_it(
    limits: LimitValues, child: dict[str, float], limit: str | None
) -> None:
    """A server would be killed for what it is allowed."""
    verdict = look(meter(limits), [REAPER, PROGRAM, replace(CHILD, **child)])
    assert (verdict.limit if isinstance(verdict, Excess) else None) == limit


def test_an_excess_tells_the_numbers() -> None:
    """A user could not tell by how much to raise a limit."""
    verdict = look(meter(LimitValues(processes=1)), [REAPER, PROGRAM, CHILD])
    assert verdict == Excess("processes", "it has 2 processes and threads; the limit is 1")


@pytest.mark.parametrize(
    ("seen", "limit"),
    [(DiskUse(MIB, 100), None), (DiskUse(MIB + 1, 100), "scratch_bytes"), (DiskUse(MIB, 101), "scratch_inodes")],
)
def test_scratch_is_bytes_and_files_of_all_places_together(seen: DiskUse, limit: str | None) -> None:
    """A server could fill the disk beside its tmpfs, or fill the kernel with empty files."""
    limits = LimitValues(scratch_bytes=MIB, scratch_inodes=100)
    for first, second in ((DiskUse(), seen), (seen, DiskUse())):
        watched = meter(limits)
        watched.tmpfs = first
        watched.walked = second
        verdict = look(watched, [REAPER, PROGRAM])
        assert (verdict.limit if isinstance(verdict, Excess) else None) == limit


@pytest.mark.parametrize("name", ["processes", "scratch_bytes", "scratch_inodes", "memory_bytes"])
def test_what_the_kernel_holds_is_not_judged_a_second_time(name: str) -> None:
    """A tree would be killed at a limit where the kernel just says no."""
    limits = LimitValues(memory_bytes=MIB, processes=1, scratch_bytes=MIB, scratch_inodes=16)
    others = tuple({"processes", "scratch_bytes", "scratch_inodes", "memory_bytes"} - {name})
    watched, judged = meter(limits, (name, *others)), meter(limits, others)
    for each in (watched, judged):
        each.walked = DiskUse(2 * MIB, 20)
    assert look(watched, [REAPER, PROGRAM, CHILD]) is None
    assert look(judged, [REAPER, PROGRAM, CHILD]) is not None


# Memory


MEMORY = LimitValues(memory_bytes=16 * MIB)


def test_memory_is_judged_only_after_an_exact_look_at_the_programs_own_processes() -> None:
    """Sixty forks of one interpreter share their pages: their resident sizes together would be a false alarm."""
    watched = meter(MEMORY)
    assert look(watched, [REAPER, PROGRAM, CHILD]) == Suspicion((11, 12))
    assert watched.confirm(Pages(16 * MIB), 1.0) is None
    excess = watched.confirm(Pages(17 * MIB), 1.0)
    assert excess == Excess("memory_bytes", "its processes hold 17.0 MiB of memory; the limit is 16.0 MiB")


def test_an_acquitted_tree_is_left_alone_for_a_while_unless_it_grows() -> None:
    """Each exact look walks all its page tables: a tree of many forks would cost as much as it uses."""
    watched = meter(MEMORY)
    family_ = [REAPER, PROGRAM, CHILD]
    assert look(watched, family_, 1.0) is not None
    watched.confirm(Pages(), 1.0)
    assert look(watched, family_, 1.5) is None
    assert look(watched, [*family_, process(13, 11)], 1.5) is not None
    assert look(watched, family_, 1.0 + RECONFIRM_S) is not None


def test_files_in_memory_count_as_memory_and_so_do_their_inodes() -> None:
    """A server would hide its weight in /tmp, or in a million empty files."""
    watched = meter(MEMORY)
    watched.tmpfs = DiskUse(7 * MIB, 0)
    assert look(watched, [REAPER, PROGRAM]) is not None
    assert watched.confirm(Pages(10 * MIB), 1.0) is not None
    watched.tmpfs = DiskUse(0, 7 * MIB // INODE_BYTES)
    assert watched.confirm(Pages(10 * MIB), 1.0) is not None


def test_a_mapped_file_in_memory_counts_once() -> None:
    """Workers that share an array through /dev/shm would pay for it twice."""
    watched = meter(MEMORY)
    watched.tmpfs = DiskUse(6 * MIB, 0)
    assert watched.confirm(Pages(8 * MIB, shared_bytes=6 * MIB), 1.0) is None
    assert watched.confirm(Pages(8 * MIB, shared_bytes=9 * MIB), 1.0) is not None


# Processor time


def test_the_time_of_the_dead_is_kept_whether_or_not_they_were_waited_for() -> None:
    """A server that ignores SIGCHLD would burn processors for ever, a short-lived child at a time."""
    watched = meter(LimitValues(cpu_s=10))
    for number in range(6):
        burning = process(100 + number, 11, cpu_s=1.5)
        assert look(watched, [REAPER, PROGRAM, burning]) is None
    assert watched.present.cpu_s == 9.0
    verdict = look(watched, [REAPER, PROGRAM, process(200, 11, cpu_s=1.5)])
    assert isinstance(verdict, Excess)


def test_time_that_a_parent_was_told_is_not_counted_twice() -> None:
    """An honest server would be killed at half its limit."""
    watched = meter()
    look(watched, [REAPER, PROGRAM, replace(CHILD, cpu_s=4.0)])
    look(watched, [REAPER, replace(PROGRAM, reaped_cpu_s=4.0)])
    assert watched.present.cpu_s == 4.0


@given(st.lists(st.lists(st.floats(0, 9), max_size=4), max_size=6))
def test_processor_time_never_runs_backwards(looks: list[list[float]]) -> None:
    """`ps` would show a server that gives time back."""
    watched, last = meter(), 0.0
    for number, times in enumerate(looks):
        children = [process(100 * number + 50 + index, 11, cpu_s=used) for index, used in enumerate(times)]
        look(watched, [REAPER, PROGRAM, *children])
        assert watched.present.cpu_s >= last
        last = watched.present.cpu_s


def test_the_peak_of_each_is_kept() -> None:
    """A dossier would tell what was left at the end."""
    watched = meter()
    look(watched, [REAPER, PROGRAM, CHILD])
    look(watched, [REAPER, PROGRAM])
    look(watched, [])
    assert watched.present == Usage()
    assert (watched.peak.memory_bytes, watched.peak.processes) == (20 * MIB, 2)
