"""Each tier as what enforces it is told: `bwrap` by its arguments, the gate by the rules that it gives itself.  Pure.

What is not obvious of bubblewrap, each with its regression test:

- mounts happen in the order of the arguments: what lies in a temporary filesystem comes after it;
- the root itself and /dev are writable temporary filesystems of half the memory unless they are remounted read-only,
  the root as the very last step;
- a directory that bwrap makes for a mount to stand on is its maker's alone, who for root is not the program;
- no `--new-session`: the gate begins one, and the first process of the sandbox stays in the group that the guard kills;
- /proc is read-only: otherwise a program could lower its own `oom_score_adj`, and the first process's score, both of
  which the guard has raised;
- root gets no user namespace: root makes the mounts, so that a private home can be shown, and the gate then becomes
  another user, whom pid 1 of the sandbox does not fear;
- `--disable-userns` needs the explicit `--unshare-user`.

Landlock alone is no sandbox: sockets other than TCP, knobs on other processes and changes of a file's metadata pass it
by.  The filter closes what it can, and asks a broker (`native/broker.h`) about changes of mode, owner and times; the
receipt names the remaining gaps.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from quarterdeck_protocol.policy_values import NetworkMode, Tier
from quarterdeck_sandbox.program.launch import refusal

from .confinement import Confinement
from .host_names import FIRST_FREE_PORT
from .mounts import Mount, MountKind, ancestors

INSIDE: Final = "/.quarterdeck"  # where the gate is shown

MAX_WORDS: Final = 8_900
"""Of the 9,000 that bwrap takes, so that some are left for its own descriptors and the gate."""

SCRATCH_BYTES: Final = 512 * 1024 * 1024
"""A temporary filesystem's size where the policy sets none: it is memory."""

SHARED_MEMORY_BYTES: Final = 64 * 1024 * 1024
"""What memory shared by name may take, as container engines have it."""

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the sandbox's own

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
"""What bwrap shows of the machine's devices: the machine's own, and root's."""

HOSTNAME: Final = "sandbox"

PROCESSES: Final = "/proc"
"""Always to be read, because that of a process to come cannot be named yet: what matters there is guarded by ptrace's
rules, which Landlock tightens."""

SETTINGS: Final = "/etc"
"""To be read, because a path that is refused, where a missing one was expected, stops OpenSSL and node."""

TERMINALS: Final = "/dev/pts"


def arguments(confinement: Confinement, gate: str, hold: Callable[[Mount], int]) -> list[str]:
    """Return what `bwrap` is told by `--args`; `hold` gives an inheritable descriptor with the content of a file.

    Raise LaunchError `sandbox_refused` if that is more than it takes.
    """
    shared_bytes = min(SHARED_MEMORY_BYTES, confinement.limits.scratch_bytes or SHARED_MEMORY_BYTES)
    words = [
        *_namespaces(confinement),
        *("--ro-bind", gate, INSIDE),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(shared_bytes), "--tmpfs", _SHARED_MEMORY),
        *("--remount-ro", "/dev"),
        *("--remount-ro", PROCESSES),
        *_mounts(confinement, hold),
        *("--remount-ro", "/"),
    ]
    if len(words) > MAX_WORDS:
        shown = len(confinement.view.mounts)
        raise refusal(f"{shown:,} paths are more than bubblewrap can show: name folders that hold several of them")
    return words


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How the gate confines itself, besides forbidding new privileges."""

    uses_landlock: bool = True  # whether it gives up all files except those of the next three
    # Files and directories, with all beneath, that may be read and executed; missing ones are skipped
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()  # likewise, that may be changed too
    devices: tuple[str, ...] = ()  # likewise, that may be opened both ways and controlled, but not replaced
    deny_tcp: bool = False  # neither bind nor connect TCP sockets, where Landlock can say so
    seccomp: bytes = b""  # the compiled filter, empty for none
    own: tuple[str, ...] = ()  # folders in which a broker changes mode, owner and times of files; empty for no broker


def rules(confinement: Confinement, settings: tuple[str, ...]) -> Rules | None:
    """Return how the gate confines itself, reading `settings` besides its view; None: not at all."""
    mounts = confinement.view.mounts
    writable = [mount for mount in mounts if mount.kind is MountKind.WRITE]
    match confinement.tier:
        case Tier.BUBBLEWRAP if confinement.stays_root:  # who owns the kernel's settings in /proc
            write = (*temporary(confinement), *(mount.target for mount in writable))
            return Rules(read=("/",), write=write, devices=("/dev",))
        case Tier.LANDLOCK:
            sources = tuple(mount.source for mount in writable)
            shown = (mount.source for mount in mounts if mount.kind is MountKind.READ)
            return Rules(
                read=(PROCESSES, *settings, *shown),
                write=(TERMINALS, *sources),
                devices=(*DEVICES, "/dev/ptmx"),
                deny_tcp=confinement.network is NetworkMode.NONE,
                seccomp=confinement.seccomp,
                own=() if confinement.machine.why_no_broker else sources,
            )
        case Tier.LIMITS if confinement.seccomp:
            return Rules(uses_landlock=False, seccomp=confinement.seccomp)
        case _:
            return None


def fixed_devices(confinement: Confinement) -> tuple[str, ...]:
    """Return the devices to mount read-only before bwrap shows them, as root could change their modes.

    bwrap keeps them so; its own `--remount-ro` is `nodev`, too: none of them could be opened.
    """
    return DEVICES if confinement.stays_root and confinement.machine.closes else ()


def temporary(confinement: Confinement) -> tuple[str, ...]:
    """Return where temporary filesystems are mounted: their files are memory."""
    scratch = (mount.target for mount in confinement.view.mounts if mount.kind is MountKind.SCRATCH)
    return (_SHARED_MEMORY, *scratch)


def _namespaces(confinement: Confinement) -> list[str]:
    words = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", HOSTNAME]
    words += ["--die-with-parent", "--clearenv", "--cap-drop", "ALL"]
    if confinement.has_own_network:
        words.append("--unshare-net")
    if confinement.identity is None:
        words.append("--unshare-user")
        if confinement.machine.bubblewrap.hides_users:
            words.append("--disable-userns")
    else:
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        if confinement.stays_root:
            words += ["--cap-add", "CAP_SETPCAP"]  # to give up all others for good
        if any(route.port < FIRST_FREE_PORT for route in confinement.routes):
            words += ["--cap-add", "CAP_NET_BIND_SERVICE"]
    return words


def _mounts(confinement: Confinement, hold: Callable[[Mount], int]) -> Iterator[str]:
    """Yield every mount, before each the directories for it to stand on that no earlier mount has brought."""
    made, bound = {"/"}, set[str]()
    for mount in confinement.view.mounts:
        above = list(ancestors(mount.target))[:0:-1]
        if bound.isdisjoint(above):
            for folder in above:
                if folder not in made:
                    yield from ("--perms", "0755", "--dir", folder)
            made.update(above)
        yield from _mount(mount, confinement, hold)
        made.add(mount.target)
        if mount.kind is not MountKind.SCRATCH:
            bound.add(mount.target)


def _mount(mount: Mount, confinement: Confinement, hold: Callable[[Mount], int]) -> Sequence[str]:
    target = mount.target
    match mount.kind:
        case MountKind.READ:
            return "--ro-bind", mount.source, target
        case MountKind.WRITE:
            return "--bind", mount.source, target
        case MountKind.SCRATCH:
            size = confinement.limits.scratch_bytes or SCRATCH_BYTES
            return "--perms", "1777", "--size", str(size), "--tmpfs", target
        case MountKind.DATA | MountKind.COPY:
            return "--perms", "0444", "--file", str(hold(mount)), target
        case MountKind.LINK:
            return "--symlink", mount.source, target
        case MountKind.HIDE if mount.source == "file":
            return "--ro-bind", "/dev/null", target
        case MountKind.HIDE:
            return "--perms", "0555", "--size", "4096", "--tmpfs", target, "--remount-ro", target
