"""Find out what this machine can enforce, by trying it: the edge that fills `Machine`.

`probe_machine` is what is needed to start a server: some 60 ms, most of it two or three runs of bubblewrap.
`probe_more` adds the one try that takes longer, of the network helper.  Neither raises for a broken machine: the facts
say what is missing, and why.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from quarterdeck_sandbox.launch import DEFAULT_PATH
from quarterdeck_sandbox.machine import Machine
from quarterdeck_sandbox.trials.bubblewrap import try_bubblewrap
from quarterdeck_sandbox.trials.cgroups import try_cgroups
from quarterdeck_sandbox.trials.closing import try_closing
from quarterdeck_sandbox.trials.kernel import try_kernel
from quarterdeck_sandbox.trials.running import run
from quarterdeck_sandbox.trials.users import try_other_users

SYSCTLS: Final = (
    "dev/tty/legacy_tiocsti",
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/io_uring_disabled",
    "kernel/perf_event_paranoid",
    "kernel/unprivileged_bpf_disabled",
    "kernel/unprivileged_userns_clone",
    "kernel/yama/ptrace_scope",
    "user/max_user_namespaces",
    "vm/unprivileged_userfaultfd",
)
"""Settings of the kernel that decide what works, or what a flaw would cost."""

TUN_DEVICE: Final = "/dev/net/tun"
"""What network helpers open, in the sandbox's network, as the user who runs them."""

_ADMIN_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where `ip` is, off an ordinary user's PATH."""

_MARKERS: Final = (("/.dockerenv", "docker"), ("/run/.containerenv", "podman"))


def probe_machine(*, uid: int | None = None) -> Machine:
    """The facts for `uid` (ourselves when None; another user needs root)."""
    user = os.geteuid() if uid is None else uid
    names = os.uname()
    machine = Machine(system=sys.platform, architecture=names.machine, kernel=names.release, euid=user)
    if sys.platform != "linux":
        return machine
    # The system's own first: a PATH can begin with a folder that a sandboxed program may write to, such as that of a
    # virtual environment in the workspace, and what is found here runs outside of any sandbox.
    path = os.pathsep.join(filter(None, (DEFAULT_PATH, os.environ.get("PATH"))))
    pasta, slirp4netns = _find("pasta", path), _find("slirp4netns", path)
    reason = _tun_reason(user) if pasta or slirp4netns else ""
    kernel = try_kernel(names.machine)
    return replace(
        machine,
        other_users=user != 0 or os.geteuid() != 0 or try_other_users(),
        bubblewrap=try_bubblewrap(user, names.machine, path),
        landlock_abi=kernel.landlock_abi,
        seccomp=kernel.seccomp,
        closes=try_closing(user),
        cgroups=try_cgroups(user),
        pasta="" if reason else pasta,
        slirp4netns="" if reason else slirp4netns,
        nsenter=_find("nsenter", path),
        ip=_find("ip", path),
        setpriv=_setpriv(path) if pasta or slirp4netns else "",
        uplink_why=reason,
        sysctls=_sysctls(SYSCTLS),
        container=container_kind(os.environ, names.release, [path for path, _ in _MARKERS if os.path.exists(path)]),
    )


def probe_more(machine: Machine) -> Machine:
    """`machine`, with the network helpers tried on an empty sandbox, some 30 ms each: only one that works is left."""
    if not machine.gives_internet or machine.euid != os.geteuid():
        return machine
    from quarterdeck_sandbox.uplink import why_not

    reasons = []
    for candidate in (replace(machine, pasta=""), replace(machine, slirp4netns="")):
        if candidate.gives_internet:
            # It runs an event loop of its own, and the caller may be in one.
            with ThreadPoolExecutor(1) as pool:
                reason = pool.submit(why_not, candidate).result()
            if not reason:
                return candidate
            reasons.append(reason)
    return replace(machine, pasta="", slirp4netns="", uplink_why="; ".join(reasons))


@cache
def known_machine() -> Machine:
    """All the facts, found once in this process."""
    return probe_more(probe_machine())


def container_kind(environ: Mapping[str, str], kernel: str, markers: Iterable[str]) -> str:
    """What kind of container we are in by its traces, empty for none; a guess for people, nothing depends on it.

    Args:
        environ: our own.
        kernel: its release.
        markers: those of the engines' marker files that exist.
    """
    found = dict(_MARKERS)
    if kind := next((found[marker] for marker in markers), ""):
        return f"kubernetes ({kind})" if "KUBERNETES_SERVICE_HOST" in environ else kind
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if "container" in environ:
        return environ["container"]
    return "wsl" if "microsoft" in kernel.lower() else ""


def _find(name: str, path: str) -> str:
    return shutil.which(name, path=os.pathsep.join((*_ADMIN_FOLDERS, path))) or ""


def _setpriv(path: str) -> str:
    """The one of util-linux; busybox has one that knows no death signals."""
    found = _find("setpriv", path)
    return (
        found
        if found and run([found, "--pdeathsig", "KILL", "--", found, "--version"], uid=os.geteuid()).succeeded
        else ""
    )


def _tun_reason(uid: int) -> str:
    """Why `uid` cannot open the device; empty when it can."""
    if uid != os.geteuid():
        return "" if _anybody_may(TUN_DEVICE) else f"{TUN_DEVICE} is closed to ordinary users"
    try:
        os.close(os.open(TUN_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{TUN_DEVICE} cannot be opened: {error.strerror}"
    return ""


def _anybody_may(path: str) -> bool:
    try:
        return os.stat(path).st_mode & 0o006 == 0o006
    except OSError:
        return False


def _sysctls(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name.replace("/", ".")] = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue  # another kernel's, or hidden in a container
    return found
