"""What the processes below one cost: CPU and memory, by what each is for.  Linux: it reads /proc.

CPU is what the scheduler counted, in nanoseconds, of the threads that live: what has ended before is not in it, but in
`cost_of_trees`.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

MIB: Final = 1024 * 1024

_PROC: Final = Path("/proc")


class Role(StrEnum):
    """What a process is for."""

    SUPERVISOR = "supervisor"
    DOOR = "door"
    ZYGOTE = "zygote"
    WORKER = "worker"
    GATE = "gate or reaper"
    BUBBLEWRAP = "bubblewrap"
    NETWORK = "network helper"
    SERVER = "server"


@dataclass(slots=True)
class Cost:
    """What some processes cost together; memory in bytes, 0 where it was not asked.

    Attributes:
        private_bytes: memory that no other process has (USS).
        pss_bytes: that, and this process's share of each page that several have (PSS).
    """

    processes: int = 0
    cpu_ns: int = 0
    private_bytes: int = 0
    pss_bytes: int = 0

    @property
    def cpu_ms(self) -> float:
        return self.cpu_ns / 1e6

    @property
    def private_mib(self) -> float:
        return self.private_bytes / MIB

    @property
    def pss_mib(self) -> float:
        return self.pss_bytes / MIB

    def add_memory(self, pid: int) -> None:
        for line in _read(pid, "smaps_rollup").splitlines():
            if line.startswith(b"Private_"):
                self.private_bytes += int(line.split()[1]) * 1024
            elif line.startswith(b"Pss:"):
                self.pss_bytes += int(line.split()[1]) * 1024


@dataclass(slots=True)
class Costs:
    """What a tree costs at one moment, by role."""

    of: dict[Role, Cost] = field(default_factory=lambda: {role: Cost() for role in Role})

    @property
    def ours(self) -> Cost:
        mine = [cost for role, cost in self.of.items() if role is not Role.SERVER]
        return Cost(*(sum(getattr(cost, each) for cost in mine) for each in Cost.__slots__))

    def since(self, before: "Costs") -> "Costs":
        """What was used since `before`; processes and memory as they are now."""
        now = {role: replace(cost, cpu_ns=cost.cpu_ns - before.of[role].cpu_ns) for role, cost in self.of.items()}
        return Costs(now)


def costs_of(root: int, *doors: int, with_memory: bool = False) -> Costs:
    """What `root`, a supervisor, and all below it cost, and the doors to it."""
    found = Costs()
    for pid, role in [*_roles(root), *((door, Role.DOOR) for door in doors)]:
        cost = found.of[role]
        try:
            cost.cpu_ns += _cpu_ns(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if with_memory:
            cost.add_memory(pid)
        cost.processes += 1
    return found


def cost_of_trees(*roots: int) -> Cost:
    """What these processes and all below them cost, of whatever program; those that ended were waited for."""
    found = Cost()
    for root in map(psutil.Process, roots):
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                found.cpu_ns += int((used.user + used.system + used.children_user + used.children_system) * 1e9)
                found.add_memory(process.pid)
                found.processes += 1
    return found


def process_of(root: int, role: Role) -> int:
    """The first process of this role.

    Raises:
        LookupError: there is none.
    """
    found = next((pid for pid, each in _roles(root) if each is role), None)
    if found is None:
        raise LookupError(f"there is no {role} below {root}")
    return found


def _roles(root: int) -> Iterator[tuple[int, Role]]:
    """Every process from `root` on, parents first."""
    yield root, Role.SUPERVISOR
    waiting = [(child, Role.SUPERVISOR) for child in _children(root)]
    while waiting:
        pid, parent = waiting.pop()
        role = _role(pid, parent)
        if role is None:
            continue
        yield pid, role
        waiting += [(child, role) for child in _children(pid)]


def _role(pid: int, parent: Role) -> Role | None:
    """None for what is not ours: a bench's own process has helpers of the tests."""
    name, words = _read(pid, "comm").strip(), _read(pid, "cmdline")
    if name == b"bwrap":
        return Role.BUBBLEWRAP
    if name.startswith((b"slirp4netns", b"pasta")):
        return Role.NETWORK
    if b"quarterdeck_sandbox" in words:
        return Role.GATE
    if parent is Role.SUPERVISOR:
        return Role.ZYGOTE if b"quarterdeck_worker.zygote" in words else None
    return Role.WORKER if parent is Role.ZYGOTE else Role.SERVER


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(_PROC / str(pid) / "task")
        return [int(each) for thread in threads for each in _read(pid, f"task/{thread}/children").split()]
    except FileNotFoundError:
        return []


def _cpu_ns(pid: int) -> int:
    threads = os.listdir(_PROC / str(pid) / "task")
    return sum(int(_read(pid, f"task/{thread}/schedstat").split()[0]) for thread in threads)


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b"0" if name.endswith("schedstat") else b""
