"""Lay out what a confined process sees of the filesystem: the system, its program, what its policy names, no more.

Whatever must not be shown is refused (`secret_paths`) before anything starts.  It looks and changes nothing.  Of the
system everybody sees the same: programs, libraries and an allow-list of settings, none of which authenticates anybody.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from quarterdeck_protocol.policy_values import PolicyValues
from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.hostile_files import Followed
from quarterdeck_sandbox.policy.mounts import (
    Mount,
    MountKind,
    Places,
    View,
    covering,
    in_order,
    is_within,
    is_within_any,
    shows,
)
from quarterdeck_sandbox.program.installations import SYSTEM_FOLDERS, Prefix, is_installation
from quarterdeck_sandbox.program.launch import LaunchPlan, refusal
from quarterdeck_sandbox.program.needed_paths import NamedPath, named_in
from quarterdeck_sandbox.program.resolve import Program

from .grants import give
from .secret_paths import PathRules, hidden_message, locate

USER: Final = "sandbox"  # what the user inside is called
_OF_ETC: Final = """
    alternatives bash.bashrc ca-certificates/extracted crypto-policies debian_version fonts gai.conf gitconfig
    host.conf hosts ld.so.cache ld-musl-x86_64.path ld-musl-aarch64.path locale.alias locale.conf localtime
    lsb-release mime.types npmrc nsswitch.conf os-release pip.conf pki/ca-trust pki/java pki/tls/cert.pem pki/tls/certs
    pki/tls/openssl.cnf protocols redhat-release resolv.conf services shells ssh/ssh_known_hosts ssl/ca-bundle.pem
    ssl/cert.pem ssl/certs ssl/openssl.cnf static system-release timezone uv/uv.toml
"""
"""Settings that programs fail or misbehave without; each that is a folder costs a mount at every start."""

_OF_ETC_BEGINNING: Final = ("java-", "ImageMagick")

MAX_COPIED_BYTES: Final = 128 * 1024
"""A text up to this long is shown as a copy, which starts faster than a mount does."""

_CHANGING: Final = frozenset({"/etc/hosts", "/etc/resolv.conf"})  # files that change while servers run, so no copies
CERTIFICATES: Final = """
    AWS_CA_BUNDLE CARGO_HTTP_CAINFO CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE CURL_CA_BUNDLE DENO_CERT GIT_SSL_CAINFO
    GRPC_DEFAULT_SSL_ROOTS_FILE_PATH HTTPLIB2_CA_CERTS NIX_SSL_CERT_FILE NODE_EXTRA_CA_CERTS NPM_CONFIG_CAFILE
    PIP_CERT REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE npm_config_cafile
"""
"""Variables that name certificates."""

MAX_CERTIFICATES_BYTES: Final = 8 * 1024 * 1024
"""A file of certificates is looked at whole; the usual one has 220 KiB."""


def build_view(
    policy: PolicyValues,
    plan: LaunchPlan,
    program: Program,
    places: Places,
    environ: Mapping[str, str],
    *,
    nests_safely: bool = False,
    can_close: bool = False,
) -> View:
    """Lay out what the process of `plan` sees; `require_visible` checks what its command line names.

    The caller adds the users (`identity_mounts`) and, for a network of its own, its names: they depend on more than the
    policy.  `environ` is ours, for grants; `nests_safely` says whether a mount point below a writable mount is safe
    here (CVE-2026-87766), `can_close` whether a part of what it may write can be made read-only by other means.  Raise
    LaunchError `sandbox_refused`, with the remedy.
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
    """Collects the mounts of a view; later ones yield to earlier ones that show the same."""

    def __init__(self, policy: PolicyValues, places: Places, *, nests_safely: bool, can_close: bool) -> None:
        self._rules = PathRules.of(policy, places)
        self.user_home = self._rules.user_home
        self._policy = policy
        self._nests_safely = nests_safely
        self._can_close = can_close
        self._mounts: dict[str, Mount] = {}
        self._env: dict[str, str] = {}
        self._shown: list[str] = []

    def add(self, mounts: Iterable[Mount]) -> None:
        for mount in mounts:
            self._mounts.setdefault(mount.target, mount)

    def add_own(self, home: str, tmp: str) -> None:
        for place in (home, tmp):
            self._put(Mount(MountKind.WRITE, place, observed.realpath(place)))
        self._env |= {"HOME": home, "TMPDIR": tmp}

    def add_named(self) -> None:
        for kind, key, paths in (
            (MountKind.WRITE, "write", self._policy.write),
            (MountKind.READ, "read", self._policy.read),
        ):
            admitted = [(path, self._rules.admit(path, key)) for path in paths]
            for path, followed in sorted(admitted, key=lambda pair: pair[1].real):
                self._show(followed, kind)
                self._shown.append(f"{key}: {path}" + (f" ({followed.real})" if path != followed.real else ""))

    def add_grants(self, environ: Mapping[str, str]) -> None:
        for grant in self._policy.grants:
            granted = give(grant, self.user_home, environ)
            for path in granted.paths:
                followed = observed.follow(path)
                self._rules.protect(followed.real, f'"grants": ["{grant}"] shows {path}')
                if not self._has(followed.real):
                    self._show(followed, MountKind.READ)
            self._env |= granted.env
            self._shown.append(granted.shown)

    def add_program(self, program: Program) -> None:
        for prefix in program.prefixes:
            if self._has(prefix.path):
                continue
            self._rules.protect(prefix.path, f"{program.path} needs {prefix.path}")
            self._distrust(prefix)
            self._put(Mount(MountKind.READ, prefix.path, prefix.path))
            self._shown.append(f"read: {prefix.path} ({prefix.reason})")
        self._link(Followed(program.path, program.links))

    def add_certificates(self, env: Mapping[str, str]) -> None:
        for path in certificates(env, self.user_home, self._has):
            self._show(observed.follow(path), MountKind.READ)
            self._shown.append(f"read: {path} (certificates)")

    def hide(self) -> None:
        for path in self._policy.hidden:
            real = locate(path, "hidden").real
            inner = [mount.target for mount in self._mounts.values() if is_within(mount.target, real)]
            if inner:
                raise refusal(f'"hidden" names {path}, which hides {inner[0]}, which is to be seen: drop one')
            if self._has(real):
                kind = "folder" if observed.isdir(real) else "file"
                self._put(Mount(MountKind.HIDE, real, kind))
                self._shown.append(f"hidden: {path}")

    def link_to(self, path: str) -> None:
        """Let a path through links lead to what is shown."""
        followed = observed.follow(path)
        if self._has(followed.real):
            self._link(followed)

    def view(self, env: Mapping[str, str]) -> View:
        """Return the view; its own variables win over `env`.  Raise LaunchError for an unsafe nested mount."""
        kept: dict[str, Mount] = {}
        closed: list[str] = []
        for mount in in_order(self._mounts.values()):
            above = covering(kept, mount.target)
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
            kept[mount.target] = mount
        return View(tuple(kept.values()), {**env, **self._env}, tuple(dict.fromkeys(self._shown)), tuple(closed))

    def _has(self, path: str) -> bool:
        return shows(self._mounts, path)

    def _show(self, followed: Followed, kind: MountKind) -> None:
        self._put(Mount(kind, followed.real, followed.real))
        self._link(followed)

    def _put(self, mount: Mount) -> None:
        above = covering(self._mounts, mount.target)
        if above is not None and above.kind is mount.kind and mount.kind is not MountKind.HIDE:
            return  # shown already, in the same way
        self._mounts[mount.target] = mount

    def _link(self, followed: Followed) -> None:
        for link, target in followed.links:
            if not self._has(link):
                self._mounts.setdefault(link, Mount(MountKind.LINK, link, target))

    def _distrust(self, prefix: Prefix) -> None:
        """Refuse what only a file says that the process itself can change, for its next start."""
        if said_by := next(filter(self._rules.can_change, prefix.said_by), None):
            raise refusal(
                f"{said_by}, which the process itself can change, leads to {prefix.path}: "
                f'if that is to be seen, add "read": ["{prefix.path}"] to its sandbox'
            )


def require_visible(view: View, plan: LaunchPlan, rules: PathRules) -> None:
    """Raise LaunchError `sandbox_refused` for a directory or argument that exists outside, and not inside.

    Not for what an argument names in the private home: its links are the server's, or lead where it may not see.
    """
    if not view.mounts:
        return
    if not is_visible(view, plan.cwd):
        folder = NamedPath(observed.realpath(plan.cwd))
        raise refusal(hidden_message(f"the working directory {plan.cwd}", folder, rules))
    for named in named_in(plan.argv, {}, plan.cwd, rules.user_home):
        is_own = is_within(named.path, view.env["HOME"])
        if not is_own and observed.lexists(named.path) and not is_visible(view, named.path):
            raise refusal(hidden_message(named.path, named, rules))


def is_visible(view: View, path: str) -> bool:
    """Return whether a path outside is there inside, itself and what it leads to."""
    return view.shows(path) and view.shows(observed.realpath(path))


def system_mounts() -> Iterator[Mount]:
    """Yield programs, libraries, harmless settings, and empty places for temporary files."""
    for folder in (*SYSTEM_FOLDERS, "/nix/store"):
        if observed.islink(folder):
            yield Mount(MountKind.LINK, folder, observed.readlink(folder))
        elif observed.isdir(folder):
            yield Mount(MountKind.READ, folder, folder)
    try:
        present = observed.listdir("/etc")
    except OSError:
        present = ()
    names = (*_OF_ETC.split(), *(name for name in present if name.startswith(_OF_ETC_BEGINNING)))
    for name in names:
        yield from _as_it_is(f"/etc/{name}")
    for link in ("/run/current-system", "/etc/mtab"):
        if observed.islink(link):
            yield Mount(MountKind.LINK, link, observed.readlink(link))
    yield Mount(MountKind.SCRATCH, "/tmp")  # noqa: S108 - its own, empty


def identity_mounts(uid: int, gid: int, home: str) -> tuple[Mount, ...]:
    """Return the /etc/passwd and /etc/group of a sandbox: of `uid`, `gid`, root and nobody."""
    users = f"root:x:0:0::/root:/usr/sbin/nologin\n{USER}:x:{uid}:{gid}::{home}:/bin/sh\n"
    groups = f"root:x:0:\n{USER}:x:{gid}:\n"
    if uid != 65534:
        users += "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
        groups += "nogroup:x:65534:\n"
    return Mount(MountKind.DATA, "/etc/group", groups), Mount(MountKind.DATA, "/etc/passwd", users)


def certificates(env: Mapping[str, str], user_home: str, shown: Callable[[str], bool]) -> Iterator[str]:
    """Yield paths that variables name and that hold certificates and nothing else, unless shown already."""
    for path in sorted({os.path.normpath(env[name]) for name in CERTIFICATES.split() if name in env}):
        if not path.startswith("/") or shown(path):
            continue
        if _holds_certificates(path) or (observed.isdir(path) and is_installation(path, user_home)):
            yield path


def _as_it_is(path: str) -> Iterator[Mount]:
    """Yield the mount of an existing path.  A link into the system stays one: its text names a time zone."""
    if observed.islink(path):
        text = observed.readlink(path)
        if is_within_any(os.path.normpath(os.path.join(os.path.dirname(path), text)), SYSTEM_FOLDERS):
            yield Mount(MountKind.LINK, path, text)
            return
    if not observed.exists(path):
        return
    if path not in _CHANGING and _is_text(path):
        yield Mount(MountKind.COPY, path, observed.realpath(path))
    else:
        yield Mount(MountKind.READ, path, observed.follow(path).real)


def _is_text(path: str) -> bool:
    try:
        return (content := _content(path, MAX_COPIED_BYTES)) is not None and bool(content.decode() or True)
    except UnicodeDecodeError:
        return False


def _holds_certificates(path: str) -> bool:
    text = _content(path, MAX_CERTIFICATES_BYTES) or b""
    return b"-----BEGIN CERTIFICATE-----" in text and b"PRIVATE KEY" not in text


def _content(path: str, most_bytes: int) -> bytes | None:
    try:
        content = observed.read(path, most_bytes + 1)
    except OSError:
        return None
    return content if len(content) <= most_bytes else None
