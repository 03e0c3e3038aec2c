"""Try control groups: make one of ours where we are, set each limit and read it back, remove it."""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from quarterdeck_protocol.policy import Limits, Property
from quarterdeck_sandbox.backends.cgroup import Cgroup
from quarterdeck_sandbox.machine import Cgroups
from quarterdeck_sandbox.paths import is_within

CONTROLLERS: Final[Mapping[str, Property]] = {
    "memory": Property.MEMORY,
    "pids": Property.PROCESS_COUNT,
    "cpu": Property.CPU_SHARE,
}

_LIMITS: Final = Limits.model_validate({"memory_bytes": 64 << 20, "processes": 64, "cpu_share": 0.5})
"""Harmless: nothing ever joins."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy, and where we are in it.

    Attributes:
        place: our own directory.
        controllers: those of `CONTROLLERS` that version 1 has here; None for version 2, which says so itself.
    """

    place: str
    controllers: frozenset[str] | None


def try_cgroups(uid: int) -> Cgroups:
    """The limits that `uid` can set on a tree of its own; a few milliseconds."""
    try:
        mounts, own = Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
    except OSError:
        return Cgroups()
    found = Cgroups()
    for hierarchy in hierarchies(mounts, own):
        places = [hierarchy.place]
        if hierarchy.controllers is None:
            # A group that holds processes, as our own does, may have no limited children; the one above it may.
            places.append(os.path.dirname(hierarchy.place))
        tried = [_attempt(_candidate(hierarchy, place)) for place in places if _is_ours(place, uid)]
        # A process is in one group of a hierarchy: all its limits must be in the same place.
        found = _merge(found, max(tried, key=lambda cgroups: len(cgroups.controllers), default=Cgroups()))
    return found


def hierarchies(mountinfo: str, own: str) -> Iterator[Hierarchy]:
    """Where this process is, by the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`; version 2 first.  Pure."""
    groups = {
        name: path
        for _, names, path in (line.split(":", 2) for line in own.splitlines() if line.count(":") >= 2)
        for name in names.split(",")
    }
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        root, mount = _plain(fields[3]), _plain(fields[4])
        names = None if kind[0] == "cgroup2" else frozenset(kind[2].split(",")) & CONTROLLERS.keys()
        if names is not None and not names:
            continue
        path = groups.get(min(names) if names else "")
        place = _below(mount, root, path) if path is not None else None
        if place is not None:
            found.append(Hierarchy(place, names))
    return iter(sorted(found, key=lambda hierarchy: hierarchy.controllers is not None))


def _below(mount: str, root: str, path: str) -> str | None:
    """The directory of group `path` on a mount that shows `root`; None if it is out of its sight."""
    if not is_within(path, root) or ".." in path.split("/"):
        return None
    return os.path.normpath(os.path.join(mount, os.path.relpath(path, root)))


def _plain(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def _is_ours(place: str, uid: int) -> bool:
    if uid == os.geteuid():
        # Moving a process takes the right to write there, where both its groups meet.
        return os.access(place, os.W_OK | os.X_OK) and os.access(f"{place}/cgroup.procs", os.W_OK)
    try:
        return os.stat(place).st_uid == uid
    except OSError:
        return False


def _candidate(hierarchy: Hierarchy, place: str) -> Cgroups:
    if hierarchy.controllers is not None:
        return Cgroups("", dict.fromkeys(hierarchy.controllers, place), hierarchy.controllers)
    try:
        available = set(Path(place, "cgroup.controllers").read_text().split()) & CONTROLLERS.keys()
        enabled = set(Path(place, "cgroup.subtree_control").read_text().split())
    except OSError:
        return Cgroups()
    # A slice is its manager's, who may count on what is enabled there.
    for name in () if place.endswith(".slice") else sorted(available - enabled):
        with suppress(OSError):  # not where processes are, nor where it is not delegated to us
            Path(place, "cgroup.subtree_control").write_text(f"+{name}")
    return Cgroups(place, dict.fromkeys(sorted(available), place))


def _attempt(candidate: Cgroups) -> Cgroups:
    """What of `candidate` holds when it is done."""
    places = {place for place in (candidate.unified, *candidate.controllers.values()) if place}
    name = f"qd-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        unmet = Cgroup.create(candidate, name, _LIMITS).unmet
        unified = candidate.unified if os.path.isdir(os.path.join(candidate.unified, name)) else ""
    finally:
        for place in places:
            with suppress(OSError):
                os.rmdir(os.path.join(place, name))
    kept = {name: place for name, place in candidate.controllers.items() if CONTROLLERS[name] not in unmet}
    return Cgroups(unified, kept, candidate.legacy & kept.keys())


def _merge(first: Cgroups, second: Cgroups) -> Cgroups:
    """Both; where they meet, `first`."""
    return replace(
        first,
        unified=first.unified or second.unified,
        controllers=second.controllers | first.controllers,
        legacy=first.legacy | (second.legacy - first.controllers.keys()),
    )
