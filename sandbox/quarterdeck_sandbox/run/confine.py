"""From a policy to a confinement: resolve the program, choose the tier, lay out the view, compile filter and limits.

Everything that can be refused is refused here, before anything starts.  It looks at the filesystem and changes only
the owner of private directories.

Started by root, a process runs as the owner of what it may write, or as a user of its own: with one user for all of
them, `kill(-1)` in one would end its neighbours, and a limit on processes would be shared.  A user of its own is taken
from the range that systemd sets aside for exactly this (systemd.exec, "DynamicUser").  Where no other user can do the
work, because the program lies in a home that is closed to others, or because what is to be written is root's, it stays
root without any capability (`ROOT`): then Landlock holds what ownership would let it do.
"""

import hashlib
import os
import pwd
import resource
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from quarterdeck_protocol.policy_values import NetworkMode, PolicyValues, Tier
from quarterdeck_sandbox.network.uplink import RESOLV_CONF
from quarterdeck_sandbox.policy.choice import Choice, choose, get_closing
from quarterdeck_sandbox.policy.confinement import FIRST_UID, LAST_UID, ROOT, Confinement, UnixUser
from quarterdeck_sandbox.policy.host_names import NO_RESOLVER, Route, hosts_text, routes_of
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, Places, View, is_within, is_within_any
from quarterdeck_sandbox.policy.promises import TRUNCATE_ABI
from quarterdeck_sandbox.policy.seccomp import Filter, compile_filter
from quarterdeck_sandbox.policy.tiers import HOSTNAME
from quarterdeck_sandbox.program.installations import SYSTEM_FOLDERS
from quarterdeck_sandbox.program.launch import LaunchError, LaunchPlan
from quarterdeck_sandbox.program.resolve import Program, resolve_program
from quarterdeck_sandbox.view.closed_paths import close_within, outermost
from quarterdeck_sandbox.view.layout import build_view, identity_mounts
from quarterdeck_sandbox.view.secret_paths import PathRules, credentials_touching

OWN_PREFIX: Final = sys.base_prefix
"""Where the gate's interpreter lives."""

_RLIMITS: Final = {
    "open_files": resource.RLIMIT_NOFILE,
    "file_size_bytes": resource.RLIMIT_FSIZE,
    "cpu_s": resource.RLIMIT_CPU,
    "memory_bytes": resource.RLIMIT_DATA,
}
"""Limits that the kernel keeps for each process.  Memory by its data, not by its address space: node, Go and Java
reserve far more of that than they ever use."""


_OF_ROOT: Final = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers")
"""What root may read by its mode, and no other user."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Who wants something confined, and where; `environ` is our own, for grants.  The last two are for `choose`."""

    places: Places
    environ: Mapping[str, str]
    machine: Machine
    allow_unsandboxed: bool = False
    open_port: int | None = None


def confine(plan: LaunchPlan, policy: PolicyValues, requester: Requester) -> Confinement:
    """Compile what will confine `plan`.

    Raises:
        LaunchError: `sandbox_refused`, with what to do about it; or what `resolve_program` says of the program.
    """
    machine, places = requester.machine, requester.places
    chosen = partial(
        choose, policy, machine, allow_unsandboxed=requester.allow_unsandboxed, open_port=requester.open_port
    )
    choice = chosen()
    program = resolve_program(plan, places.user_home, requester.environ)
    routes = routes_of(choice.network)
    # Landlock cannot take back below a directory what it gives above it, and limits alone give everything.
    nests_safely = choice.tier is Tier.BUBBLEWRAP and machine.bubblewrap.nests_safely
    can_close = choice.tier is not Tier.LIMITS and machine.closes
    view = build_view(policy, plan, program, places, requester.environ, nests_safely=nests_safely, can_close=can_close)
    open_parts: tuple[str, ...] = ()
    if choice.tier is not Tier.LIMITS:
        closing = close_within(view, policy.write, places.protected, can_close=can_close, remedy=get_closing(machine))
        view = replace(view, closed=outermost((*view.closed, *closing.paths)), shown=(*view.shown, *closing.shown))
        open_parts = closing.gaps
    identity, why_root = None, ""
    if machine.euid == 0 and policy.confines_files:
        identity, why_root = _identity(choice, plan, program, view, places)
        if identity.is_root:
            choice = chosen(stays_root=True)
        hand_over(identity, (places.home, places.tmp))
    if policy.confines_files:
        view = _complete(view, choice, routes, identity, places)
    else:
        view = replace(view, shown=(f"everything: it is trusted, not confined, and runs as uid {os.getuid()}",))
    return Confinement(
        plan=replace(plan, program=program.path, env={**plan.env, **view.env}),
        tier=choice.tier,
        network=choice.network,
        promised=choice.findings,
        required=policy.require,
        gaps=(*choice.gaps, *open_parts, *([f"user: {why_root}"] if why_root else [])),
        view=view,
        limits=policy.limits,
        rlimits=_rlimits(choice, identity),
        seccomp=_filter(choice) if choice.filtered else b"",
        identity=identity,
        routes=routes,
        secrets=tuple(_secrets(view, places, identity)) if policy.confines_files else (),
        user_home=str(places.user_home),
        machine=machine,
    )


def showable(paths: Iterable[str], policy: PolicyValues, requester: Requester) -> tuple[str, ...]:
    """Those of `paths` that a sandbox of this policy would not refuse to show, and that it does not show anyway."""
    places = requester.places
    rules = PathRules.of(policy, places)
    identity = None
    if requester.machine.euid == 0:
        with suppress(LaunchError):  # which every start will say
            identity = choose_user(places.home, policy.write)
    is_walked = requester.machine.tier is not Tier.BUBBLEWRAP  # which mounts what is shown
    found: list[str] = []
    for path in dict.fromkeys(paths):
        real = os.path.realpath(path)
        if is_within_any(real, (*rules.writable, *policy.read)) or is_within_any(path, policy.hidden):
            continue
        with suppress(LaunchError, OSError):
            rules.admit(path, "read")
            closed = identity is not None and (
                why_unreadable(identity, (real,)) or (is_walked and why_unreachable(identity, (real,)))
            )
            if not closed:
                found.append(path)
    return tuple(found)


def _identity(choice: Choice, plan: LaunchPlan, program: Program, view: View, places: Places) -> tuple[UnixUser, str]:
    """Whom it becomes when we are root, and, where it stays root, why and what would help.

    Raises:
        LaunchError: `sandbox_refused`: what it may write is of another user, who cannot reach or read the rest.
    """
    policy, machine = choice.policy, choice.machine
    if not machine.other_users:
        return ROOT, "root without capabilities, as no other user can be used here"
    identity = choose_user(places.home, policy.write)
    if identity.is_root:
        if choice.tier is Tier.BUBBLEWRAP and not machine.landlock_abi:
            raise LaunchError(
                "sandbox_refused",
                f"{policy.write[0]} belongs to root, and without Landlock nothing is run as root beside bubblewrap: "
                "give it to another user with chown, or start quarterdeck as an ordinary user",
            )
        return ROOT, f"root without capabilities, as {policy.write[0]} is root's; give it to another user with chown"
    closed = why_unreadable(identity, (*policy.read, *policy.write))
    remedy = "grant what others may read, or start quarterdeck as an ordinary user"
    if choice.tier is not Tier.BUBBLEWRAP:
        read = (mount.source for mount in view.mounts if mount.kind is MountKind.READ)
        shown = [path for path in read if not is_within_any(path, (*SYSTEM_FOLDERS, "/etc"))]
        if way := why_unreachable(identity, (program.path, *shown, plan.cwd, str(places.home), str(places.tmp))):
            closed, remedy = way, "install bubblewrap, which can show it all the same, or start as an ordinary user"
        closed = closed or why_unreadable(identity, shown)
    if not closed:
        return identity, ""
    if policy.write or choice.tier is Tier.BUBBLEWRAP:
        whom = f"uid {identity.uid}, who owns {policy.write[0]}" if policy.write else "a user of its own"
        raise LaunchError("sandbox_refused", f"it would run as {whom}, and {closed}: {remedy}")
    return ROOT, f"root without capabilities, as {closed}; {remedy}"


def _complete(view: View, choice: Choice, routes: tuple[Route, ...], identity: UnixUser | None, places: Places) -> View:
    """The view with what depends on more than the policy: users, names, and what the gate itself needs."""
    uid, gid = (identity.uid, identity.gid) if identity else (os.getuid(), os.getgid())
    mounts = [*identity_mounts(uid, gid, str(places.home))]
    match choice.network:
        case NetworkMode.FULL:
            pass
        case NetworkMode.INTERNET:
            mounts.append(Mount(MountKind.DATA, "/etc/resolv.conf", RESOLV_CONF))
        case _:
            mounts.append(Mount(MountKind.DATA, "/etc/hosts", hosts_text(routes, HOSTNAME)))
            mounts.append(Mount(MountKind.DATA, "/etc/resolv.conf", NO_RESOLVER))
    if not view.shows(OWN_PREFIX):
        mounts.append(Mount(MountKind.READ, OWN_PREFIX, os.path.realpath(OWN_PREFIX)))
    return view.with_mounts(mounts)


def _secrets(view: View, places: Places, identity: UnixUser | None) -> Iterator[str]:
    """Existing paths that must not be open to the process, for the probes to try."""
    if identity and identity.is_root:
        yield from (path for path in _OF_ROOT if os.path.exists(path))
    for path in places.private:
        if os.path.exists(path) and not any(is_within(mount.target, path) for mount in view.mounts):
            yield path
    for credential in credentials_touching(str(places.user_home), str(places.user_home)):
        if os.path.exists(credential.path) and not view.shows(credential.path):
            yield credential.path


def _rlimits(choice: Choice, identity: UnixUser | None) -> tuple[tuple[int, int], ...]:
    limits = choice.policy.limits
    found = [(resource.RLIMIT_CORE, 0)]
    for name, number in _RLIMITS.items():
        value = getattr(limits, name)
        if value is not None:
            found.append((number, max(1, int(value))))
    if limits.processes is not None and sys.platform == "linux":
        found.append((resource.RLIMIT_NPROC, limits.processes + _others(choice, identity)))
    if sys.platform == "linux":
        found.append((resource.RLIMIT_MSGQUEUE, 0))
    return tuple(found)


def _others(choice: Choice, identity: UnixUser | None) -> int:
    """Threads that count against the same limit and are not the process's: of its user, unless it has its own count."""
    if choice.counts_alone:
        return 0
    uid = identity.uid if identity else os.getuid()
    processes = psutil.process_iter(["uids", "num_threads"])
    return sum(
        process.info["num_threads"] or 1
        for process in processes
        if process.info["uids"] and process.info["uids"].real == uid
    )


def _filter(choice: Choice) -> bytes:
    machine = choice.machine
    return compile_filter(
        Filter(
            inet=choice.network is not NetworkMode.NONE,
            unix=choice.unix_sockets,
            shared_memory="memory" in machine.cgroups.controllers,
            reaches_out=choice.tier is Tier.BUBBLEWRAP,
            truncates=choice.tier is not Tier.LANDLOCK or machine.landlock_abi >= TRUNCATE_ABI,
            sets_ids=not choice.stays_root,
        ),
        machine.architecture,
    )


def choose_user(home: Path, writable: Iterable[str]) -> UnixUser:
    """The owner of what it may write when that is one user, else a user of its own, the same at each start.

    Args:
        home: its private home; whoever owns it already is kept.
        writable: the paths that the policy lets it write, private ones aside.

    Raises:
        LaunchError: two writable paths belong to two users, or one cannot be looked at.
    """
    owners: dict[int, tuple[str, int]] = {}
    for path in writable:
        try:
            status = os.stat(path)
        except OSError as error:
            why = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be looked at"
            raise LaunchError("sandbox_refused", f'"write" names {path}, which {why}: take it out') from error
        owners.setdefault(status.st_uid, (path, status.st_gid))
    if len(owners) > 1:
        named = ", ".join(f"{path} to uid {uid}" for uid, (path, _) in owners.items())
        raise LaunchError("sandbox_refused", f"it may write paths of several users ({named}): grant those of one")
    if owners:
        [(uid, (_, gid))] = owners.items()
        if uid == 0:
            return ROOT
        return UnixUser(uid, _group_of(uid, gid), dedicated=False)
    owner = os.stat(home).st_uid
    uid = owner if FIRST_UID <= owner <= LAST_UID else _unused_uid(home)
    return UnixUser(uid, uid, dedicated=True)


def hand_over(identity: UnixUser, folders: Iterable[Path]) -> None:
    """Give private directories, and all that is in them, to `identity`.

    Raises:
        OSError: one cannot be changed.
    """
    for folder in folders:
        if os.stat(folder).st_uid == identity.uid:
            continue
        # By descriptors: a path could be led elsewhere by whoever owns it still.
        for _, directories, files, fd in os.fwalk(folder):
            for name in (*directories, *files):
                os.chown(name, identity.uid, identity.gid, dir_fd=fd, follow_symlinks=False)
        # Last, as it is what tells that all of it was done.
        os.chown(folder, identity.uid, identity.gid)


def why_unreachable(identity: UnixUser, paths: Iterable[str]) -> str:
    """Why `identity` cannot walk to one of `paths`, which without mounts of its own it must; empty when it can."""
    for path in paths:
        for folder in reversed(Path(os.path.realpath(path)).parents):
            if not _allows(identity, folder, stat.S_IXOTH):
                return f"{path} is out of reach for {identity.name}, because {folder} is closed to others"
    return ""


def why_unreadable(identity: UnixUser, paths: Iterable[str]) -> str:
    """Why `identity` may not read one of `paths` itself, which no mount changes; empty when it may."""
    for path in paths:
        needed = stat.S_IROTH | (stat.S_IXOTH if os.path.isdir(path) else 0)
        if not _allows(identity, Path(path), needed):
            return f"{path} is closed to {identity.name}"
    return ""


def open_to_all(folder: str) -> tuple[str, ...]:
    """The largest parts of `folder` in which every user may read everything: what root may see without being root."""
    whole, parts = _open_parts(folder)
    return (folder,) if whole else tuple(parts)


def _open_parts(folder: str) -> tuple[bool, list[str]]:
    """Whether a whole folder is open to all, and if not, which parts of it are."""
    whole, parts = True, []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return False, []
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue  # gone meanwhile
        if stat.S_ISLNK(mode):
            continue  # what it leads to has rules of its own
        if stat.S_ISDIR(mode) and mode & 0o5 == 0o5:
            is_open, below = _open_parts(entry.path)
            parts += [entry.path] if is_open else below
            whole &= is_open
        elif not stat.S_ISDIR(mode) and mode & 0o4:
            parts.append(entry.path)
        else:
            whole = False
    return whole, parts


def _group_of(uid: int, found: int) -> int:
    """Its own group: that of a path can be one of the system's, which opens more than the path."""
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = found
    return gid or uid


def _allows(identity: UnixUser, path: Path, needed: int) -> bool:
    """Whether the mode of `path` gives `identity` what it `needed`, bits as for others."""
    status = path.stat()
    shift = 6 if status.st_uid == identity.uid else 3 if status.st_gid == identity.gid else 0
    return status.st_mode & needed << shift == needed << shift


def _unused_uid(home: Path) -> int:
    in_use = {process.info["uids"].real for process in psutil.process_iter(["uids"]) if process.info["uids"]}
    # A server that does not run now keeps its user all the same: its home is that user's.
    for other in home.parent.parent.glob(f"*/{home.name}"):
        with suppress(FileNotFoundError):  # one that was temporary
            in_use.add(other.lstat().st_uid)
    width = LAST_UID - FIRST_UID + 1
    start = int.from_bytes(hashlib.sha256(os.fsencode(home)).digest()[:4], "big")
    for step in range(width):
        uid = FIRST_UID + (start + step) % width
        if uid not in in_use:
            return uid
    raise LaunchError("sandbox_refused", f"every user from {FIRST_UID} to {LAST_UID} is running something: stop some")
