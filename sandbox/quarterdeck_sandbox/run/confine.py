"""From a policy to a confinement: resolve the program, choose the tier, lay out the view, compile filter and limits.

Everything that can be refused is refused here, before anything starts.  It looks at the filesystem and changes only
private directories: their owner, and the links in a home (`home_links`).

What concerns all servers of one program under one policy is laid out once and used again (`run/prepare`); what is
each one's own is added to it.

Started by root, a process runs as another user (`unix_user`).  Where no other user can do the work, because the program
lies in a home that is closed to others, or because what is to be written is root's, it stays root without any
capability (`ROOT`): then Landlock holds what ownership would let it do.
"""

import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.policy_values import LimitValues, NetworkMode, PolicyValues, Tier
from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.network.uplink import RESOLV_CONF
from quarterdeck_sandbox.observed_files import observing
from quarterdeck_sandbox.policy.choice import Choice, choose, get_closing
from quarterdeck_sandbox.policy.confinement import ROOT, Confinement, UnixUser
from quarterdeck_sandbox.policy.host_names import NO_RESOLVER, Route, hosts_text, routes_of
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, Places, View, is_within, is_within_any
from quarterdeck_sandbox.policy.promises import TRUNCATE_ABI
from quarterdeck_sandbox.policy.seccomp import Filter, Metadata, compile_filter
from quarterdeck_sandbox.policy.tiers import HOSTNAME
from quarterdeck_sandbox.program.installations import SYSTEM_FOLDERS
from quarterdeck_sandbox.program.launch import LaunchError, LaunchPlan, refusal
from quarterdeck_sandbox.program.resolve import SETS_PROGRAM, Program, resolve_program
from quarterdeck_sandbox.view.closed_paths import close_within, outermost
from quarterdeck_sandbox.view.layout import CERTIFICATES, build_view, identity_mounts, require_visible
from quarterdeck_sandbox.view.secret_paths import PathRules, configuration_folders, credentials_touching

from .home_links import link_home
from .processes import threads_of
from .unix_user import (
    GIT_SETTINGS,
    SOMEBODY,
    choose_user,
    hand_over,
    own_user,
    owner_of,
    trust_repositories,
    why_unreachable,
    why_unreadable,
)

_RLIMITS: Final = {
    "open_files": resource.RLIMIT_NOFILE,
    "file_size_bytes": resource.RLIMIT_FSIZE,
    "cpu_s": resource.RLIMIT_CPU,
    "memory_bytes": resource.RLIMIT_DATA,
}
"""Limits that the kernel keeps for each process.  Memory by its data, not by its address space: node, Go and Java
reserve far more of that than they ever use."""


_CERTIFICATES: Final = frozenset(CERTIFICATES.split())
_OF_ROOT: Final = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers")  # what root may read by its mode, and no other user


class Requester(msgspec.Struct, frozen=True):
    """The caller's directories, its environment for grants, its machine; the last two are for `choose`."""

    places: Places
    environ: Mapping[str, str]
    machine: Machine
    allow_unsandboxed: bool = False
    open_port: int | None = None


def confine(plan: LaunchPlan, policy: PolicyValues, requester: Requester) -> Confinement:
    """Compile what will confine `plan`.  Raise LaunchError `sandbox_refused`, or as `resolve_program`."""
    with observing():
        confinement = lay_out(plan, policy, requester)
        require_visible(confinement.view, plan, PathRules.of(policy, requester.places))
    return settle(own(confinement, plan, requester.places, requester.places), requester.places)


def lay_out(plan: LaunchPlan, policy: PolicyValues, requester: Requester) -> Confinement:
    """Compile all that does not depend on who else runs and on whose private directories these are; only look.

    Of the plan it reads what `sharable` leaves; `own` makes it the confinement of one process.  Raise as `confine`.
    """
    machine, places = requester.machine, requester.places
    plan = sharable(plan)
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
        view = replace(
            view,
            closed=outermost((*view.closed, *closing.paths)),
            shown=(*view.shown, *closing.shown),
            absent=closing.absent,
            repositories=closing.repositories,
        )
        open_parts = closing.gaps
    identity, why_root = None, ""
    if machine.euid == 0 and policy.confines_files:
        identity, why_root = _identity(choice, plan, program, view, places)
        if identity.is_root:
            choice = chosen(stays_root=True)
    if policy.confines_files:
        view = _complete(view, choice, routes)
    else:
        view = replace(view, shown=(f"everything: it is trusted, not confined, and runs as uid {os.getuid()}",))
    return Confinement(
        plan=LaunchPlan(program.path, plan.argv, view.env, plan.cwd),
        tier=choice.tier,
        network=choice.network,
        promised=choice.findings,
        required=policy.require,
        gaps=(*choice.gaps, *open_parts, *([f"user: {why_root}"] if why_root else [])),
        view=view,
        limits=policy.limits,
        rlimits=_rlimits(policy.limits),
        counts_alone=choice.counts_alone,
        seccomp=_filter(choice) if choice.filtered else b"",
        identity=identity,
        routes=routes,
        secrets=tuple(_secrets(view, places, identity)) if policy.confines_files else (),
        user_home=str(places.user_home),
        policy=policy,
        private=places.private,
        configuration=configuration_folders(places),
        machine=machine,
    )


def sharable(plan: LaunchPlan) -> LaunchPlan:
    """Return the part of a plan that decides how it is confined, except the visibility of its arguments."""
    env = {name: value for name, value in plan.env.items() if name in _CERTIFICATES or SETS_PROGRAM.fullmatch(name)}
    is_env = os.path.basename(plan.program) == "env"
    return LaunchPlan(plan.program, plan.argv if is_env else plan.argv[:1], env, plan.cwd)


def own(shared: Confinement, plan: LaunchPlan, laid_out: Places, places: Places) -> Confinement:
    """Return the confinement of one process, from one that was laid out with other private directories.

    Raise LaunchError `sandbox_refused` if no user is left that would be its alone.
    """
    was = {str(laid_out.home): str(places.home), str(laid_out.tmp): str(places.tmp)}
    identity, view = shared.identity, shared.view
    if identity is not None and identity.dedicated:
        identity = own_user(places.home)
    if view.mounts:
        uid, gid = (identity.uid, identity.gid) if identity else (os.getuid(), os.getgid())
        mounts = [mount for mount in view.mounts if mount.target not in was]
        shown = [was[mount.target] for mount in view.mounts if mount.target in was]
        mounts += [Mount(MountKind.WRITE, place, observed.realpath(place)) for place in shown]
        mounts += identity_mounts(uid, gid, str(places.home))
        env = {**view.env, "HOME": str(places.home), "TMPDIR": str(places.tmp)}
        if identity is not None and shared.policy is not None and GIT_SETTINGS not in plan.env:
            env |= trust_repositories(identity, (*shared.policy.write, *shared.policy.read))
        view = replace(view, mounts=(), env=env).with_mounts(mounts)
    cwd = was.get(plan.cwd, plan.cwd) if laid_out is not places else plan.cwd
    plan = LaunchPlan(shared.plan.program, plan.argv, {**plan.env, **view.env}, cwd)
    return replace(shared, plan=plan, view=view, identity=identity)


def settle(confinement: Confinement, places: Places) -> Confinement:
    """Hand over private directories, link the home, and count who shares a limit, at the start itself.

    Raises OSError.
    """
    identity, policy, view = confinement.identity, confinement.policy or PolicyValues(), confinement.view
    if identity is not None:
        hand_over(identity, (places.home, places.tmp))
    if notes := link_home(places, (*policy.write, *policy.read), identity):
        confinement = replace(confinement, view=replace(view, shown=(*view.shown, *notes)))
    if confinement.counts_alone or confinement.limits.processes is None:
        return confinement
    others = threads_of(identity.uid if identity else os.getuid())
    limits = dict(confinement.rlimits)
    limits[resource.RLIMIT_NPROC] += others
    return replace(confinement, rlimits=tuple(limits.items()))


def showable(paths: Iterable[str], policy: PolicyValues, requester: Requester) -> tuple[str, ...]:
    """Return those of `paths` that a sandbox of this policy may show, and does not show anyway."""
    places = requester.places
    rules = PathRules.of(policy, places)
    identity = None
    if requester.machine.euid == 0:
        with suppress(LaunchError):  # which every start will say
            identity = choose_user(places.home, policy.write)
    is_walked = requester.machine.tier is not Tier.BUBBLEWRAP  # which mounts what is shown
    found: list[str] = []
    for path in dict.fromkeys(paths):
        real = observed.realpath(path)
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
    """Return whom it becomes when we are root, and, if it stays root, why and what would help.

    Raise LaunchError `sandbox_refused`: what it may write is of another user, who cannot reach or read the rest.
    """
    policy, machine = choice.policy, choice.machine
    if not machine.other_users:
        return ROOT, "root without capabilities, as no other user can be used here"
    identity = owner_of(policy.write) or SOMEBODY
    if identity.is_root:
        if choice.tier is Tier.BUBBLEWRAP and not machine.landlock_abi:
            raise refusal(
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
        raise refusal(f"it would run as {whom}, and {closed}: {remedy}")
    return ROOT, f"root without capabilities, as {closed}; {remedy}"


def _complete(view: View, choice: Choice, routes: tuple[Route, ...]) -> View:
    mounts: list[Mount] = []
    match choice.network:
        case NetworkMode.FULL:
            pass
        case NetworkMode.INTERNET:
            mounts.append(Mount(MountKind.DATA, "/etc/resolv.conf", RESOLV_CONF))
        case _:
            mounts.append(Mount(MountKind.DATA, "/etc/hosts", hosts_text(routes, HOSTNAME)))
            mounts.append(Mount(MountKind.DATA, "/etc/resolv.conf", NO_RESOLVER))
    return view.with_mounts(mounts)


def _secrets(view: View, places: Places, identity: UnixUser | None) -> Iterator[str]:
    """Yield existing paths that must not be open to the process, for the probes to try."""
    if identity and identity.is_root:
        yield from (path for path in _OF_ROOT if observed.exists(path))
    for path in places.private:
        if observed.exists(path) and not any(is_within(mount.target, path) for mount in view.mounts):
            yield path
    for credential in credentials_touching(str(places.user_home), str(places.user_home)):
        if observed.exists(credential.path) and not view.shows(credential.path):
            yield credential.path


def _rlimits(limits: LimitValues) -> tuple[tuple[int, int], ...]:
    found = [(resource.RLIMIT_CORE, 0)]
    for name, number in _RLIMITS.items():
        value = getattr(limits, name)
        if value is not None:
            found.append((number, max(1, int(value))))
    if limits.processes is not None:
        found.append((resource.RLIMIT_NPROC, limits.processes))
    return (*found, (resource.RLIMIT_MSGQUEUE, 0))


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
            metadata=_metadata(choice),
        ),
        machine.architecture,
    )


def _metadata(choice: Choice) -> Metadata:
    if choice.tier is not Tier.LANDLOCK:
        return Metadata.ALLOWED
    return Metadata.CLOSED if choice.machine.why_no_broker else Metadata.ASKED
