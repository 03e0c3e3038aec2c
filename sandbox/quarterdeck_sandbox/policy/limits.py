"""What a tree of processes uses, and which of its limits it exceeds: looks come in, sums and verdicts go out.

A `UsageMeter` follows one tree from look to look; it keeps the peaks, and the processor time of what has ended.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from quarterdeck_protocol.policy_values import LimitValues

INODE_BYTES: Final = 1024
"""What an empty file of a tmpfs costs the kernel, about: no size limit of the mount counts it."""

RECONFIRM_S: Final = 2.0
"""Between two exact looks at a tree whose pages are shared: each walks its page tables, a millisecond a 100 MiB."""

REGROWN: Final = 1.1  # a tree that grew by a tenth since it was acquitted is looked at again at once


class Process(msgspec.Struct, frozen=True, gc=False):
    """One process at one look; times are seconds since its start, `started` tells a reused pid apart.

    No dataclass: hundreds are made at each look, in a tenth of the time.  Vast page tables count as resident;
    `unseen_bytes` is the most shared memory that it can hold without having it in view.
    """

    pid: int
    parent: int
    started: float
    rss_bytes: int
    threads: int
    cpu_s: float
    reaped_cpu_s: float
    unseen_bytes: int = 0


class ProcessTree(msgspec.Struct, frozen=True):
    """A tree of processes to watch; process ids as we see them."""

    pid: int  # the confined program
    top: int  # the topmost process of its tree, the program itself if nothing of ours is above it
    root_pid: int = 0  # a process whose root is the program's, 0 if that is ours
    scratch: tuple[str, ...] = ()  # directories outside whose files are its scratch
    tmpfs: tuple[str, ...] = ()  # mount points inside that hold its temporary files in memory
    enforced: tuple[str, ...] = ()  # names of limits that the kernel holds on the whole tree


class DiskUse(msgspec.Struct, frozen=True):
    """Room on disk (holes count nothing, hard links once) and all entries; not `is_whole` if part was unreadable."""

    size_bytes: int = 0
    files: int = 0
    is_whole: bool = True

    def __add__(self, other: Self) -> Self:
        both = self.is_whole and other.is_whole
        return type(self)(self.size_bytes + other.size_bytes, self.files + other.files, both)


class Pages(msgspec.Struct, frozen=True):
    """Memory of several processes, each shared page once, without pages of files, which the kernel can drop."""

    own_bytes: int = 0  # anonymous pages, swapped ones included
    shared_bytes: int = 0  # mapped shared memory, named or not: much of it may lie in a tmpfs

    def __add__(self, other: Self) -> Self:
        return type(self)(self.own_bytes + other.own_bytes, self.shared_bytes + other.shared_bytes)


class Usage(msgspec.Struct, frozen=True):
    """What a tree uses at one moment, or the peak of each."""

    memory_bytes: int = 0  # resident pages, shared ones once per process, and the content of its tmpfs
    processes: int = 0  # threads included
    cpu_s: float = 0.0  # of all that ever ran in it, as far as the looks and the kernel's sums tell
    scratch_bytes: int = 0
    scratch_inodes: int = 0

    def most(self, other: "Usage") -> "Usage":
        """Return the larger of each value."""
        return Usage(*map(max, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class Excess(msgspec.Struct, frozen=True):
    """An exceeded limit: its name in the policy, and a sentence with the numbers."""

    limit: str
    detail: str


class Suspicion(msgspec.Struct, frozen=True):
    """The tree seems to hold too much memory: confirm by an exact look at these processes."""

    pids: tuple[int, ...]


Verdict = Excess | Suspicion | None


class UsageMeter:
    """The resource use of one tree, from look to look.

    Processes between the topmost one and the program (a bubblewrap, a reaper) are ours: what they reap counts, their
    memory and their number do not.

    Attributes:
        present: the use at the last look; None before the first.
        peak: the largest of each that any look has seen; None before the first.
        tmpfs: content of its temporary filesystems in memory, as far as known.
        walked: content of its directories for temporary files.
        relies_on_looks: whether only looks at its processes keep one of its limits.
    """

    def __init__(self, tree: ProcessTree, limits: LimitValues, now: float) -> None:
        self.present: Usage | None = None
        self.peak: Usage | None = None
        self.tmpfs = self.walked = DiskUse()
        self.relies_on_looks = _relies_on_looks(tree, limits)
        self._tree = tree
        self._limits = limits
        self._started_at = now
        self._ours: frozenset[int] | None = None
        self._birth: float | None = None
        self._alive: Mapping[tuple[int, float], float] = {}
        self._cpu_s = self._ended_cpu_s = 0.0
        self._acquitted_at = self._acquitted_bytes = 0.0
        self._most_bytes = 0

    def look(self, processes: Mapping[int, Process], children: Mapping[int, list[int]], now: float) -> Verdict:
        """Judge the tree after one look at all processes of the machine, `children` by parent; `now` in seconds."""
        members = self._members(processes, children)
        counted = [member for member in members if member.pid not in (self._ours or ())]
        scratch = self.tmpfs + self.walked
        resident = sum(member.rss_bytes for member in counted)
        used = self.present = Usage(
            memory_bytes=resident + self.tmpfs.size_bytes + self.tmpfs.files * INODE_BYTES,
            processes=sum(member.threads for member in counted),
            cpu_s=self._cpu(members),
            scratch_bytes=scratch.size_bytes,
            scratch_inodes=scratch.files,
        )
        self._most_bytes = used.memory_bytes + sum(member.unseen_bytes for member in counted)
        self.peak = used if self.peak is None else self.peak.most(used)
        return self._judge(used, now, tuple(member.pid for member in counted))

    def confirm(self, pages: Pages, now: float) -> Excess | None:
        """Judge memory by an exact look, after a `Suspicion`."""
        files = max(self.tmpfs.size_bytes, pages.shared_bytes) + self.tmpfs.files * INODE_BYTES
        memory = pages.own_bytes + files
        limit = self._limits.memory_bytes
        if limit is not None and memory > limit:
            return Excess("memory_bytes", f"its processes hold {_mib(memory)} of memory; the limit is {_mib(limit)}")
        self._acquitted_at, self._acquitted_bytes = now, self._most_bytes
        return None

    def _members(self, processes: Mapping[int, Process], children: Mapping[int, list[int]]) -> list[Process]:
        top = processes.get(self._tree.top)
        if top is None or (self._birth is not None and top.started != self._birth):
            return []
        self._birth = top.started
        if self._ours is None and self._tree.pid in processes:
            self._ours = _above(processes, self._tree)
        return [processes[pid] for pid in below([self._tree.top], children)]

    def _cpu(self, members: list[Process]) -> float:
        """Return processor time, the larger of two lower bounds: a parent's sum has the children that it waited for."""
        alive = {(member.pid, member.started): member.cpu_s for member in members}
        self._ended_cpu_s += sum(cpu for key, cpu in self._alive.items() if key not in alive)
        self._alive = alive
        seen = self._ended_cpu_s + sum(alive.values())
        told = sum(member.cpu_s + member.reaped_cpu_s for member in members)
        self._cpu_s = max(self._cpu_s, seen, told)
        return self._cpu_s

    def _judge(self, used: Usage, now: float, pids: tuple[int, ...]) -> Verdict:
        limits, lived = self._limits, now - self._started_at
        if limits.wall_s is not None and lived > limits.wall_s:
            return Excess("wall_s", f"it ran for {lived:.1f} s; the limit is {limits.wall_s:g} s")
        if limits.cpu_s is not None and used.cpu_s > limits.cpu_s:
            return Excess("cpu_s", f"it used {used.cpu_s:.1f} s of processor time; the limit is {limits.cpu_s:g} s")
        for name, unit in (("processes", "processes and threads"), ("scratch_inodes", "temporary files")):
            most, found = getattr(limits, name), getattr(used, name)
            if most is not None and found > most and name not in self._tree.enforced:
                return Excess(name, f"it has {found:,} {unit}; the limit is {most:,}")
        most = limits.scratch_bytes
        if most is not None and used.scratch_bytes > most and "scratch_bytes" not in self._tree.enforced:
            found = _mib(used.scratch_bytes)
            return Excess("scratch_bytes", f"its temporary files hold {found}; the limit is {_mib(most)}")
        return Suspicion(pids) if self._is_suspicious(now) else None

    def _is_suspicious(self, now: float) -> bool:
        limit, found = self._limits.memory_bytes, self._most_bytes
        if limit is None or found <= limit or "memory_bytes" in self._tree.enforced:
            return False
        return now >= self._acquitted_at + RECONFIRM_S or found > self._acquitted_bytes * REGROWN


def _relies_on_looks(tree: ProcessTree, limits: LimitValues) -> bool:
    if limits.wall_s is not None or limits.cpu_s is not None:
        return True
    kept = (("memory_bytes", limits.memory_bytes), ("processes", limits.processes))
    return any(most is not None and name not in tree.enforced for name, most in kept)


def family(processes: Mapping[int, Process]) -> dict[int, list[int]]:
    """Return the pids of each process's children."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    return children


def members(processes: Mapping[int, Process], tree: ProcessTree) -> tuple[int, ...]:
    """Return the program of `tree` and its descendants, orphans included; not our processes above it."""
    if tree.top not in processes or tree.pid not in processes:
        return ()
    ours = _above(processes, tree)
    if tree.pid != tree.top and not ours:
        return ()
    return tuple(pid for pid in below([tree.top], family(processes)) if pid not in ours)


def below(tops: Iterable[int], children: Mapping[int, list[int]]) -> list[int]:
    """Return these processes and all their descendants."""
    found = list(tops)
    seen = set(found)
    for pid in found:
        new = [child for child in children.get(pid, ()) if child not in seen]
        found += new
        seen.update(new)
    return found


def _above(processes: Mapping[int, Process], tree: ProcessTree) -> frozenset[int]:
    """Return the processes from the top of a tree down to its program, itself excluded; none if it is not below."""
    above: set[int] = set()
    pid = tree.pid
    while pid != tree.top:
        if pid not in processes or processes[pid].parent in above:
            return frozenset()
        pid = processes[pid].parent
        above.add(pid)
    return frozenset(above)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"
