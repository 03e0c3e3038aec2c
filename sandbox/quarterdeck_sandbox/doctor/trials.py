"""Try bubblewrap with all that we ask of it, then its flaw; try control groups: make one, set each limit, remove it."""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.policy_values import LimitValues
from quarterdeck_sandbox.hostile_files import temporary_folder
from quarterdeck_sandbox.policy.machine import CONTROLLERS, Bubblewrap, Cgroups
from quarterdeck_sandbox.policy.mounts import is_within
from quarterdeck_sandbox.policy.seccomp import ARCHITECTURES, Filter, compile_filter
from quarterdeck_sandbox.policy.tiers import HOSTNAME
from quarterdeck_sandbox.program.launch import DEFAULT_PATH
from quarterdeck_sandbox.run.cgroup import Cgroup
from quarterdeck_sandbox.run.packaged_bwrap import NOT_PACKAGED, WHEEL, PackagedBwrap
from quarterdeck_sandbox.run.spawn import kill_group, put_in_descriptor

DEADLINE_S: Final = 5.0
"""A hundred times what a trial takes; one that hangs is as good as one that fails."""

TOLD_CHARS: Final = 300  # of a program's complaint
_LIMITS: Final = LimitValues(memory_bytes=64 << 20, processes=64, cpu_share=0.5)  # harmless: no process ever joins
_NAMESPACES: Final = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", HOSTNAME),  # which podman's default filter refuses, beside namespaces that it allows
)
_MANNERS: Final = ("--clearenv", "--cap-drop", "ALL")

_KNOWS_MANNERS: Final = ("--die-with-parent", "--version")
"""For a bwrap in the sandbox. Its maker ends soon by itself; killed with us at the wrong moment, it would leave a
process that waits for ever, and a trial has no guard.
"""

_OF_ROOT: Final = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
"""Root gets no user namespace, and becomes another user inside."""

_VIEW: Final = (
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
    *("--perms", "1777", "--size", "65536", "--tmpfs", "/dev/shm"),  # noqa: S108 - the sandbox's own
    *("--remount-ro", "/dev"),
    *("--remount-ro", "/proc"),
)


class TrialEnd(msgspec.Struct, frozen=True):
    """A trial's end: `why` is empty after status 0 in time, else the program's complaint, on one line."""

    why: str
    stdout: str = ""


class Hierarchy(msgspec.Struct, frozen=True):
    """A mounted hierarchy: our directory in it, and which of `CONTROLLERS` version 1 has here; None for version 2."""

    place: str
    controllers: frozenset[str] | None


def run(argv: Sequence[str], *, uid: int, pass_fds: Sequence[int] = ()) -> TrialEnd:
    """Run `argv` to its end, as `uid`: ourselves, or any user if we are root."""
    identity = uid if uid != os.geteuid() else None
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            pass_fds=pass_fds,
            user=identity,
            group=identity,
            extra_groups=None if identity is None else (),
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return TrialEnd(f"{argv[0]} could not be run: {error}")
    with child:
        try:
            stdout, stderr = (said.decode(errors="replace") for said in child.communicate(timeout=DEADLINE_S))
        except subprocess.TimeoutExpired:
            return TrialEnd(f"{argv[0]} did not end within {DEADLINE_S:.0f} s")
        finally:
            kill_group(child)
    if child.returncode == 0:
        return TrialEnd("", stdout)
    said = " ".join(stderr.split())[-TOLD_CHARS:]
    return TrialEnd(said or f"{argv[0]} ended with status {child.returncode}", stdout)


def try_bubblewrap(uid: int, architecture: str, path: str, packaged: PackagedBwrap = NOT_PACKAGED) -> Bubblewrap:
    """Try the `bwrap` on `path` (as PATH), else the `packaged` one, as `uid`: a few runs of about 5 ms each."""
    program = shutil.which("bwrap", path=path or DEFAULT_PATH)
    if program is not None:
        return _try(Bubblewrap(path=program), uid, architecture)
    if packaged.why or not packaged.path:
        return Bubblewrap(path=packaged.path, wheel=packaged.path and WHEEL, why=packaged.why)
    return _try(Bubblewrap(path=packaged.path, wheel=WHEEL), uid, architecture)


def _try(candidate: Bubblewrap, uid: int, architecture: str) -> Bubblewrap:
    program, first = candidate.path, ""
    # The best first: a network namespace, and no user namespaces inside, which root has none of.
    for makes_network, hides_users in product((True, False), (False,) if uid == 0 else (True, False)):
        flags = [*_flags(uid, hides_users=hides_users), *(["--unshare-net"] if makes_network else [])]
        outcome = _start(program, flags, uid, architecture)
        if not outcome.why:
            found = replace(
                candidate,
                version=_version(outcome),
                works=True,
                makes_network=makes_network,
                hides_users=hides_users,
                why="" if makes_network else first,
            )
            return replace(found, nests_safely=_nests_safely(program, flags, uid))
        first = first or outcome.why
    return replace(candidate, version=_version(run([program, "--version"], uid=uid)), why=first)


def _flags(uid: int, *, hides_users: bool) -> list[str]:
    users = _OF_ROOT if uid == 0 else ("--unshare-user", *(["--disable-userns"] if hides_users else []))
    return [*_NAMESPACES, *_MANNERS, *users]


def _start(program: str, flags: Sequence[str], uid: int, architecture: str) -> TrialEnd:
    """Run bwrap in bwrap, to print its version: a program that is certainly there."""
    with ExitStack() as cleanup:
        fds: list[int] = []
        put = partial(put_in_descriptor, cleanup, fds)
        info = put(b"")
        control = ["--info-fd", str(info), "--block-fd", str(put(b"go"))]
        if architecture in ARCHITECTURES:
            everything = Filter(inet=False, unix=False, shared_memory=False, reaches_out=False)
            control += ["--seccomp", str(put(compile_filter(everything, architecture)))]
        words = b"".join(os.fsencode(word) + b"\0" for word in (*flags, *_VIEW, "--remount-ro", "/"))
        argv = [program, "--args", str(put(words)), *control, "--", program, *_KNOWS_MANNERS]
        outcome = run(argv, uid=uid, pass_fds=fds)
        if not outcome.why and b"child-pid" not in os.pread(info, 4096, 0):
            return TrialEnd("bwrap did not tell its child's process id")
        return outcome


def _nests_safely(program: str, flags: Sequence[str], uid: int) -> bool:
    """Return whether bwrap stays inside when it makes a mount point below a writable bind (CVE-2026-87766).

    In the bind lies a link to where the old root is while bwrap works: a flawed one follows it and makes its directory
    outside.  A directory made first, without any link, shows that it came as far as that.
    """
    with temporary_folder("quarterdeck-trial-") as name:
        folder = Path(name)
        bind, outside = folder / "bind", folder / "outside"
        for made in (bind, outside):
            made.mkdir()
            os.chown(made, uid, -1)
        os.chown(folder, uid, -1)
        (bind / "link").symlink_to(f"/oldroot{outside}")
        view = ["--ro-bind", "/", "/", "--bind", str(bind), str(bind)]
        view += ["--tmpfs", f"{bind}/plain", "--tmpfs", f"{bind}/link/below"]
        run([program, *flags, *view, "--", program, "--version"], uid=uid)
        return (bind / "plain").is_dir() and not any(outside.iterdir())


def _version(outcome: TrialEnd) -> str:
    return outcome.stdout.strip().removeprefix("bubblewrap ")


def try_cgroups(uid: int) -> Cgroups:
    """Return the limits that `uid` can set on a tree of its own; a few milliseconds."""
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
    """Yield where this process is, by the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`; version 2 first."""
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
    """Return the directory of group `path` on a mount that shows `root`; None if it is out of sight."""
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
    """Return the groups of both; where they meet, those of `first`."""
    return replace(
        first,
        unified=first.unified or second.unified,
        controllers=second.controllers | first.controllers,
        legacy=first.legacy | (second.legacy - first.controllers.keys()),
    )
