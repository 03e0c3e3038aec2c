"""Limits on a whole tree by control groups, version 2 where it is delegated to us, else version 1.

A group is a directory in each hierarchy of `machine.Cgroups`; its name tells its owner, so that the next owner sweeps
what a dead one left.  Values are read back: one that did not stick is in `unmet`, and no method raises for a refusal of
the machine.
"""

import os
import re
import signal
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Final, Self

import anyio

from quarterdeck_protocol.policy_values import LimitValues, Property
from quarterdeck_sandbox.policy.machine import CONTROLLERS, Cgroups

CPU_PERIOD_US: Final = 100_000  # the kernel's own default: a share is a part of each tenth of a second
MIN_QUOTA_US: Final = 1_000  # the kernel takes no less
REMOVE_ATTEMPTS: Final = 40
REMOVE_PAUSE_S: Final = 0.025
"""A group is busy until the last of its killed processes is reaped; a second is long for that."""

_NAME: Final = re.compile(r"qd-(?P<pid>[0-9]{1,10})-[0-9a-f]{1,32}")
_LIMIT: Final = {Property.MEMORY: "memory_bytes", Property.PROCESS_COUNT: "processes", Property.CPU_SHARE: "cpu_share"}


class Cgroup:
    """A control group.  `unmet`: properties whose limits were not set, and why; `enforced`: the others."""

    def __init__(self, cgroups: Cgroups, name: str) -> None:
        self._of = {name_: Path(parent) / name for name_, parent in cgroups.controllers.items()}
        self._legacy = cgroups.legacy
        self._unified = Path(cgroups.unified) / name if cgroups.unified else None
        self.unmet: dict[Property, str] = {}
        self.enforced: frozenset[str] = frozenset()

    @classmethod
    def create(cls, cgroups: Cgroups, name: str, limits: LimitValues) -> Self:
        """Make the group `name` (`qd-<our pid>-<hex>`) and set its limits; `unmet` has the failures."""
        group = cls(cgroups, name)
        for place in group._places():
            try:
                place.mkdir()
            except OSError as error:
                group._fail(place, f"{place} cannot be made: {error.strerror}")
        for controller, (wanted, settings) in _settings(limits).items():
            if wanted is None or controller not in group._of or CONTROLLERS[controller] in group.unmet:
                continue
            for number, (file, text) in enumerate(settings[controller in group._legacy]):
                problem = _set(group._of[controller] / file, text)
                # The first is the limit; the others close its by-ways where the kernel has them.
                if problem is not None and number == 0:
                    group.unmet[CONTROLLERS[controller]] = problem
                    break
            else:
                group.enforced |= {_LIMIT[CONTROLLERS[controller]]}
        return group

    @contextmanager
    def entrances(self) -> Iterator[dict[Path, int]]:
        """Open descriptors by which a process joins itself, and what it starts from then on, by writing 0 to each.

        In version 1 that is instant, by the file for threads, which for a process of one thread is the same.  Moving
        another process, and in version 2 oneself, waits some ten milliseconds, and holds up all that forks, executes or
        ends meanwhile.
        """
        with ExitStack() as cleanup:
            found: dict[Path, int] = {}
            for place in self._places():
                with suppress(OSError):  # `join` says it
                    is_legacy = any(self._of[name] == place for name in self._legacy)
                    fd = os.open(place / ("tasks" if is_legacy else "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)
                    cleanup.callback(os.close, fd)
                    found[place] = fd
            yield found

    def join(self, pid: int, joined: Collection[Path] = ()) -> None:
        """Move the process into the group, except for the directories that it has `joined`; `unmet` notes a failure."""
        for place in self._places():
            if place in joined:
                continue
            try:
                _write(place / "cgroup.procs", str(pid))
            except OSError as error:
                self._fail(place, f"process {pid} cannot join {place}: {error.strerror}")

    def hit(self) -> str | None:
        """Return the limit that its processes ran into, by its policy's name; memory, which kills, before processes."""
        memory, pids = self._of.get("memory"), self._of.get("pids")
        if memory is not None:
            file = "memory.oom_control" if "memory" in self._legacy else "memory.events"
            if _count(memory / file, "oom_kill"):
                return _LIMIT[Property.MEMORY]
        if pids is not None and _count(pids / "pids.events", "max"):
            return _LIMIT[Property.PROCESS_COUNT]
        return None

    @property
    def peak_bytes(self) -> int | None:
        """The most memory at once, page cache included; None if the kernel does not tell."""
        place = self._of.get("memory")
        if place is None:
            return None
        text = _read(place / ("memory.max_usage_in_bytes" if "memory" in self._legacy else "memory.peak"))
        return int(text) if text.isdigit() else None

    def kill(self) -> None:
        """Kill all in it: at once where the kernel can, else each process that is listed at this moment."""
        for place in self._places():
            _kill(place)

    async def destroy(self) -> None:
        """Remove the group once its processes are gone; after a second of trying it is left to `sweep_cgroups`."""
        for place in self._places():
            for _ in range(REMOVE_ATTEMPTS):
                if _remove(place):
                    break
                await anyio.sleep(REMOVE_PAUSE_S)

    def _places(self) -> list[Path]:
        unified = [self._unified] if self._unified is not None else []
        return list(dict.fromkeys([*unified, *self._of.values()]))

    def _fail(self, place: Path, why: str) -> None:
        for controller, used in self._of.items():
            if used == place:
                self.unmet.setdefault(CONTROLLERS[controller], why)
                self.enforced -= {_LIMIT[CONTROLLERS[controller]]}


def sweep_cgroups(cgroups: Cgroups) -> tuple[Path, ...]:
    """Remove groups whose owner is gone, and kill what still lives in them; busy ones wait for the next sweep."""
    parents = [cgroups.unified] if cgroups.unified else []
    removed = []
    for parent in dict.fromkeys([*parents, *cgroups.controllers.values()]):
        for place in _leftovers(Path(parent)):
            _kill(place)
            if _remove(place):
                removed.append(place)
    return tuple(removed)


def _leftovers(parent: Path) -> Iterator[Path]:
    with suppress(OSError):
        for name in sorted(os.listdir(parent)):
            match = _NAME.fullmatch(name)
            # A member that we see as 0 belongs to another process namespace, whose owners we cannot judge.
            if match and not _lives(int(match["pid"])) and 0 not in _members(parent / name):
                yield parent / name


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass  # another user's, or no pid that we could ask for
    return True


_Settings = tuple[object, tuple[list[tuple[str, str]], list[tuple[str, str]]]]


def _settings(limits: LimitValues) -> dict[str, _Settings]:
    """Return per controller the wanted limit, and the files with their values in version 2 and in version 1."""
    memory, quota = f"{limits.memory_bytes or 0:d}", 0
    if limits.cpu_share is not None:
        quota = max(MIN_QUOTA_US, round(limits.cpu_share * CPU_PERIOD_US))
    return {
        "memory": (
            limits.memory_bytes,
            (
                [("memory.max", memory), ("memory.swap.max", "0"), ("memory.oom.group", "1")],
                [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)],
            ),
        ),
        "pids": (limits.processes, ([("pids.max", str(limits.processes))], [("pids.max", str(limits.processes))])),
        "cpu": (
            limits.cpu_share,
            (
                [("cpu.max", f"{quota} {CPU_PERIOD_US}")],
                [("cpu.cfs_quota_us", str(quota)), ("cpu.cfs_period_us", str(CPU_PERIOD_US))],
            ),
        ),
    }


def _set(file: Path, wanted: str) -> str | None:
    try:
        _write(file, wanted)
    except OSError as error:
        return f"{file} cannot be written: {error.strerror}"
    found = _read(file)
    return None if _is_as_strict(found, wanted) else f"{file} says {found or 'nothing'!r} after {wanted!r} was written"


def _is_as_strict(found: str, wanted: str) -> bool:
    """Return whether the value found is no looser than the wanted one; the kernel rounds memory to whole pages."""
    pairs = list(zip(found.split(), wanted.split(), strict=False))
    return len(pairs) == len(wanted.split()) and all(
        mine.isdigit() and int(mine) <= int(theirs) for mine, theirs in pairs
    )


def _write(file: Path, text: str) -> None:
    with FileIO(file, "w") as raw:  # the kernel takes one value, at once
        raw.write(text.encode())


def _read(file: Path) -> str:
    try:
        with FileIO(file) as raw:
            return raw.readall().decode().strip()
    except OSError:
        return ""


def _count(file: Path, key: str) -> int:
    for line in _read(file).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0


def _members(place: Path) -> set[int]:
    return {int(line) for line in _read(place / "cgroup.procs").split()}


def _kill(place: Path) -> None:
    if (place / "cgroup.kill").exists():
        with suppress(OSError):
            _write(place / "cgroup.kill", "1")
        return
    for pid in _members(place) - {0}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _remove(place: Path) -> bool:
    try:
        place.rmdir()
    except FileNotFoundError:
        pass  # nothing to do: it was never made, or is removed already
    except OSError:
        return False
    return True
