"""Lay out what a confined process sees of the filesystem: the system, its program, what its policy names, no more.

Whatever must not be shown is refused (`secret_paths`) before anything starts.  It looks and changes nothing.
"""

import os
from collections.abc import Iterable, Mapping

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox.hostile_files import Followed, follow
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, Places, View, in_order, is_within, is_within_any
from quarterdeck_sandbox.program.launch import LaunchPlan
from quarterdeck_sandbox.program.needed_paths import NamedPath, named_in
from quarterdeck_sandbox.program.prefixes import Prefix
from quarterdeck_sandbox.program.resolve import Program

from .grants import give
from .secret_paths import PathRules, hidden_message, locate, refusal
from .system import certificates, system_mounts

__all__ = ["Mount", "MountKind", "Places", "View", "build_view"]


def build_view(
    policy: SandboxPolicy,
    plan: LaunchPlan,
    program: Program,
    places: Places,
    environ: Mapping[str, str],
    *,
    nests_safely: bool = False,
    can_close: bool = False,
) -> View:
    """What the process of `plan` sees.

    The caller adds the users (`identity_mounts`) and, for a network of its own, its names (`name_mounts`): they depend
    on more than the policy.

    Args:
        policy: what it may see.
        plan: its arguments and directory must be visible.
        program: what it needs.
        places: its own directories.
        environ: our environment: what grants refer to.
        nests_safely: whether a mount point below a writable mount is safe here (CVE-2026-87766).
        can_close: whether a part of what it may write can be made read-only here, by other means.

    Raises:
        LaunchError: `sandbox_refused`, with what to do about it.
    """
    view = lay_out(policy, plan, program, places, environ, nests_safely=nests_safely, can_close=can_close)
    if policy.confines_files:
        _require_visible(view, plan, os.path.realpath(places.user_home))
    return view


def lay_out(
    policy: SandboxPolicy,
    plan: LaunchPlan,
    program: Program,
    places: Places,
    environ: Mapping[str, str],
    *,
    nests_safely: bool = False,
    can_close: bool = False,
) -> View:
    """The same, whatever of the plan's arguments is not in it.

    Raises:
        LaunchError: `sandbox_refused`: the policy names what may not be shown.
    """
    if not policy.confines_files:
        return View()
    builder = _Builder(policy, places, nests_safely=nests_safely, can_close=can_close)
    builder.add(system_mounts())
    builder.add_own(str(places.home), str(places.tmp))
    builder.add_named()
    builder.add_grants(environ)
    builder.add_program(program)
    builder.add_certificates(plan.env)
    builder.hide()
    builder.link_to(plan.cwd)
    return builder.view(program.env)


class _Builder:
    """A view being laid out; later mounts yield to earlier ones that show the same."""

    def __init__(self, policy: SandboxPolicy, places: Places, *, nests_safely: bool, can_close: bool) -> None:
        self.user_home = os.path.realpath(places.user_home)
        own = tuple(os.path.realpath(place) for place in (places.home, places.tmp))
        self._policy = policy
        self._nests_safely = nests_safely
        self._can_close = can_close
        self._rules = PathRules(
            policy,
            self.user_home,
            tuple(os.path.realpath(place) for place in places.private),
            (*own, *(os.path.realpath(path) for path in policy.write)),
        )
        self._mounts: dict[str, Mount] = {}
        self._env: dict[str, str] = {}
        self._shown: list[str] = []

    def add(self, mounts: Iterable[Mount]) -> None:
        """Lay out what nobody needs to be told of."""
        for mount in mounts:
            self._mounts.setdefault(mount.target, mount)

    def add_own(self, home: str, tmp: str) -> None:
        """Its private directories."""
        for place in (home, tmp):
            self._put(Mount(MountKind.WRITE, place, os.path.realpath(place)))
        self._env |= {"HOME": home, "TMPDIR": tmp}

    def add_named(self) -> None:
        """What the policy names."""
        for kind, key, paths in (
            (MountKind.WRITE, "write", self._policy.write),
            (MountKind.READ, "read", self._policy.read),
        ):
            admitted = [(path, self._rules.admit(path, key)) for path in paths]
            for path, followed in sorted(admitted, key=lambda pair: pair[1].real):
                self._show(followed, kind)
                self._shown.append(f"{key}: {path}" + (f" ({followed.real})" if path != followed.real else ""))

    def add_grants(self, environ: Mapping[str, str]) -> None:
        """What the policy grants by name."""
        for grant in self._policy.grants:
            granted = give(grant, self.user_home, environ)
            for path in granted.paths:
                followed = follow(path)
                self._rules.protect(followed.real, f'the grant "{grant}" shows {path}')
                if not self._has(followed.real):
                    self._show(followed, MountKind.READ)
            self._env |= granted.env
            self._shown.append(granted.shown)

    def add_program(self, program: Program) -> None:
        """What the program needs."""
        for prefix in program.prefixes:
            if self._has(prefix.path):
                continue
            self._rules.protect(prefix.path, f"{program.path} needs {prefix.path}")
            self._distrust(prefix)
            self._put(Mount(MountKind.READ, prefix.path, prefix.path))
            self._shown.append(f"read: {prefix.path} ({prefix.reason})")
        self._link(Followed(program.path, program.links))

    def add_certificates(self, env: Mapping[str, str]) -> None:
        """The certificates that its environment names."""
        for path in certificates(env, self.user_home, self._has):
            self._show(follow(path), MountKind.READ)
            self._shown.append(f"read: {path} (certificates)")

    def hide(self) -> None:
        """What the policy hides of all that."""
        for path in self._policy.hidden:
            real = locate(path, "hidden").real
            inner = [mount.target for mount in self._mounts.values() if is_within(mount.target, real)]
            if inner:
                raise refusal(f'"hidden" names {path}, which hides {inner[0]}, which is to be seen: drop one')
            if self._has(real):
                kind = "folder" if os.path.isdir(real) else "file"
                self._put(Mount(MountKind.HIDE, real, kind))
                self._shown.append(f"hidden: {path}")

    def link_to(self, path: str) -> None:
        """Let a path through links lead to what is shown."""
        followed = follow(path)
        if self._has(followed.real):
            self._link(followed)

    def view(self, env: Mapping[str, str]) -> View:
        """All of it, with `env` where nothing else sets a variable.

        Raises:
            LaunchError: `sandbox_refused`: a mount below a writable one would not be safe.
        """
        mounts: list[Mount] = []
        closed: list[str] = []
        for mount in in_order(self._mounts.values()):
            above = View(tuple(mounts)).covering(mount.target)
            if mount.kind is MountKind.LINK and above and above.kind in {MountKind.READ, MountKind.WRITE}:
                continue  # the very link lies in what is shown
            if above and above.kind is MountKind.WRITE and mount.kind is MountKind.READ and self._can_close:
                closed.append(mount.target)
                continue
            if above and above.kind is MountKind.WRITE and not self._nests_safely:
                raise refusal(
                    f"{mount.target} lies below {above.target}, which it may write, and the bubblewrap of this machine "
                    "cannot mount there safely (CVE-2026-87766): install bubblewrap 0.12, or write to narrower folders"
                )
            mounts.append(mount)
        return View(tuple(mounts), {**env, **self._env}, tuple(dict.fromkeys(self._shown)), tuple(closed))

    def _view(self) -> View:
        return View(in_order(self._mounts.values()))

    def _has(self, path: str) -> bool:
        """Whether what is at `path` outside is shown already."""
        return self._view().shows(path)

    def _show(self, followed: Followed, kind: MountKind) -> None:
        self._put(Mount(kind, followed.real, followed.real))
        self._link(followed)

    def _put(self, mount: Mount) -> None:
        covering = self._view().covering(mount.target)
        if covering is not None and covering.kind is mount.kind and mount.kind is not MountKind.HIDE:
            return  # shown already, in the same way
        self._mounts[mount.target] = mount

    def _link(self, followed: Followed) -> None:
        for link, target in followed.links:
            if not self._has(link):
                self._mounts.setdefault(link, Mount(MountKind.LINK, link, target))

    def _distrust(self, prefix: Prefix) -> None:
        """Refuse what nothing but a file says that the process itself can change, for its next start."""
        if said_by := next((path for path in prefix.said_by if is_within_any(path, self._rules.writable)), None):
            raise refusal(
                f"{said_by}, which the process itself can change, leads to {prefix.path}: "
                f'if that is to be seen, add "read": ["{prefix.path}"] to its sandbox'
            )


def _require_visible(view: View, plan: LaunchPlan, user_home: str) -> None:
    """Refuse a directory or an argument that exists outside, and not inside: nothing is shown silently."""
    if not is_visible(view, plan.cwd):
        folder = NamedPath(os.path.realpath(plan.cwd))
        raise refusal(hidden_message(f"the working directory {plan.cwd}", folder, user_home))
    for named in named_in(plan.argv, {}, plan.cwd, user_home):
        if os.path.lexists(named.path) and not is_visible(view, named.path):
            raise refusal(hidden_message(named.path, named, user_home))


def is_visible(view: View, path: str) -> bool:
    """Whether a path that exists outside is there inside, itself and what it leads to."""
    return view.shows(path) and view.shows(os.path.realpath(path))
