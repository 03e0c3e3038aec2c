"""Find out what this machine can enforce, by trying it: this fills `Machine`.

`probe_machine` is what a start needs: some 60 ms, most of it two or three runs of bubblewrap.  `probe_more` adds the
slower try of the network helper.  Neither raises for a broken machine: the facts say what is missing, and why.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from quarterdeck_sandbox.gate.order import encode_closing
from quarterdeck_sandbox.gate.program import ARCHITECTURES, PROGRAM, command, version
from quarterdeck_sandbox.hostile_files import temporary_folder
from quarterdeck_sandbox.policy.confinement import FIRST_UID, LAST_UID
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import DEFAULT_PATH
from quarterdeck_sandbox.run.packaged_bwrap import find_packaged
from quarterdeck_sandbox.run.spawn import unnamed_file

from .kernel import try_kernel
from .trials import run, try_bubblewrap, try_cgroups

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
"""Kernel settings that decide what works, or what a flaw would cost."""

TUN_DEVICE: Final = "/dev/net/tun"  # network helpers open it, in the sandbox's network, as their user
_MARKERS: Final = (("/.dockerenv", "docker"), ("/run/.containerenv", "podman"))
_GROUPS: Final = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("containerd", "containerd"))
_SCRIPT: Final = 'cd "$0" && echo x >open && echo x >inner/closed; mv inner moved'
NEEDED: Final = {"CAP_CHOWN": 0, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}


@cache
def known_machine() -> Machine:
    """Return all facts of this machine, found once in this process."""
    return probe_more(probe_machine())


def probe_machine(*, uid: int | None = None) -> Machine:
    """Return the facts for `uid` (ourselves when None; another user needs root)."""
    user = os.geteuid() if uid is None else uid
    names = os.uname()
    machine = Machine(system=sys.platform, architecture=names.machine, kernel=names.release, euid=user)
    if sys.platform != "linux":
        return machine
    # The system's own first: a PATH can begin with a folder that a sandboxed program may write to, such as that of a
    # virtual environment in the workspace, and what is found here runs outside of any sandbox.
    path = os.pathsep.join(filter(None, (DEFAULT_PATH, os.environ.get("PATH"))))
    pasta, slirp4netns = (shutil.which(name, path=path) or "" for name in ("pasta", "slirp4netns"))
    reason = _tun_reason(user) if pasta or slirp4netns else ""
    landlock_abi, seccomp, asks = try_kernel(names.machine)
    gate, gate_why = try_gate(names.machine)
    return replace(
        machine,
        other_users=user != 0 or os.geteuid() != 0 or try_other_users(),
        bubblewrap=try_bubblewrap(user, names.machine, path, find_packaged(names.machine)),
        landlock_abi=landlock_abi,
        seccomp=seccomp,
        asks=asks,
        gate=gate,
        gate_why=gate_why,
        closes=try_closing(user, gate),
        cgroups=try_cgroups(user),
        pasta="" if reason else pasta,
        slirp4netns="" if reason else slirp4netns,
        uplink_why=reason,
        sysctls=_sysctls(SYSCTLS),
        container=container_kind(
            os.environ, names.release, [path for path, _ in _MARKERS if os.path.exists(path)], _own_groups()
        ),
    )


def probe_more(machine: Machine) -> Machine:
    """Return `machine` with each network helper tried on an empty sandbox (30 ms): only one that works is left."""
    if not machine.gives_internet or machine.euid != os.geteuid():
        return machine
    from quarterdeck_sandbox.network.uplink import why_not

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


def container_kind(environ: Mapping[str, str], release: str, markers: Iterable[str], groups: str = "") -> str:
    """Guess the container's kind for people, also by the existing marker files, and the text of `/proc/self/cgroup`;
    empty for none.
    """
    found = dict(_MARKERS)
    if kind := next((found[marker] for marker in markers), ""):
        return f"kubernetes ({kind})" if "KUBERNETES_SERVICE_HOST" in environ else kind
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if "container" in environ:
        return environ["container"]
    for name, kind in _GROUPS:
        # Before the container's id; docker.service may have started us on the host.
        if re.search(rf"{name}.*[0-9a-f]{{32}}", groups):
            return kind
    return "wsl" if "microsoft" in release.lower() else ""


def _own_groups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""


def _tun_reason(uid: int) -> str:
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


def try_closing(uid: int, gate: str) -> bool:
    """Return whether a working `gate` can close a part of a folder that `uid` may write: two milliseconds."""
    if not gate:
        return False
    with temporary_folder("quarterdeck-trial-") as name:
        folder = Path(name)
        closed = folder / "inner" / "closed"
        closed.parent.mkdir()
        for path in (folder / "open", closed):
            path.write_bytes(b"")
        for path in (folder, closed.parent, folder / "open", closed):
            os.chown(path, uid, -1)
        steps = [(str(closed.parent), False), (str(closed), True)]
        argv = ["/bin/sh", "-c", _SCRIPT, str(folder)]
        # As root does it where it stays root: see `Confinement.writes_by_mounts`.
        opened = [str(folder)] if uid == 0 else None
        order = unnamed_file(encode_closing(argv, steps, opened=opened))
        try:
            run(command(gate, "readonly", order), uid=uid, pass_fds=(order,))
        finally:
            os.close(order)
        try:
            return bool((folder / "open").read_bytes()) and not closed.read_bytes()
        except FileNotFoundError:
            return False  # it could be moved


def try_gate(architecture: str) -> tuple[str, str]:
    """Return the gate's path, or why nothing can be started; a run of less than a millisecond."""
    if architecture not in ARCHITECTURES:
        return "", f"there is none for {architecture}"
    if not os.path.exists(PROGRAM):
        return "", "this installation was built without a C compiler"
    tried = run(command(PROGRAM, "version"), uid=os.geteuid())
    if tried.why:
        return "", f"it does not run here: {tried.why}"
    if not tried.stdout.startswith(version(architecture)):
        return "", "it is of other sources than these"
    return PROGRAM, ""


def try_other_users() -> bool:
    """Return whether root may become other users here, give them files and end them: a container may forbid it."""
    try:
        status, setgroups = Path("/proc/self/status").read_text(), Path("/proc/self/setgroups").read_text()
        maps = [Path(f"/proc/self/{name}_map").read_text() for name in ("uid", "gid")]
    except OSError:
        return True  # an old kernel, without namespaces of users
    return "allow" in setgroups and has_capabilities(status) and all(covers_range(text) for text in maps)


def has_capabilities(status: str) -> bool:
    """Return whether all of `NEEDED` are in force, by the text of `/proc/self/status`."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    found = int(line.split()[1], 16)
    return all(found >> number & 1 for number in NEEDED.values())


def covers_range(text: str) -> bool:
    """Return whether a map of ids has the users that we take, and those of ordinary people."""
    ranges = [(int(first), int(count)) for first, _, count in (line.split() for line in text.splitlines())]
    return any(first <= FIRST_UID and first + count > LAST_UID for first, count in ranges)
