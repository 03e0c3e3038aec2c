"""Try `bwrap` with what we ask of it: its namespaces, its options, its descriptors, our filter; then its flaw."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from quarterdeck_sandbox.backends.seccomp import ARCHITECTURES, Filter, compile_filter
from quarterdeck_sandbox.launch import DEFAULT_PATH
from quarterdeck_sandbox.machine import Bubblewrap
from quarterdeck_sandbox.temporary import temporary_folder
from quarterdeck_sandbox.trials.running import Outcome, run
from quarterdeck_sandbox.unnamed import unnamed_file

_NAMESPACES: Final = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_MANNERS: Final = ("--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL")
_OF_ROOT: Final = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
"""Root gets no user namespace, and becomes another user inside."""

_VIEW: Final = (
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
    *("--perms", "1777", "--size", "65536", "--tmpfs", "/dev/shm"),  # noqa: S108 - the sandbox's own
    *("--remount-ro", "/dev"),
)


def try_bubblewrap(uid: int, architecture: str, path: str) -> Bubblewrap:
    """What the `bwrap` on `path` (directories, as PATH has them) does for `uid`; a few runs of about 5 ms each."""
    program = shutil.which("bwrap", path=path or DEFAULT_PATH)
    if program is None:
        return Bubblewrap()
    first = ""
    for makes_network, hides_users in _variants(uid):
        flags = [*_flags(uid, hides_users=hides_users), *(["--unshare-net"] if makes_network else [])]
        outcome = _start(program, flags, uid, architecture)
        if outcome.succeeded:
            found = Bubblewrap(
                path=program,
                version=_version(outcome),
                works=True,
                makes_network=makes_network,
                hides_users=hides_users,
                why="" if makes_network else first,
            )
            return replace(found, nests_safely=_nests_safely(program, flags, uid))
        first = first or outcome.why
    return Bubblewrap(path=program, version=_version(run([program, "--version"], uid=uid)), why=first)


def _variants(uid: int) -> Sequence[tuple[bool, bool]]:
    """What to try, the best first: (a network namespace, no user namespaces inside)."""
    return ((True, False), (False, False)) if uid == 0 else ((True, True), (True, False), (False, True), (False, False))


def _flags(uid: int, *, hides_users: bool) -> list[str]:
    users = _OF_ROOT if uid == 0 else ("--unshare-user", *(["--disable-userns"] if hides_users else []))
    return [*_NAMESPACES, *_MANNERS, *users]


def _start(program: str, flags: Sequence[str], uid: int, architecture: str) -> Outcome:
    """Run bwrap in bwrap, to say its version: a program that is there for sure."""
    with _descriptors() as put:
        info = put(b"")
        control = ["--info-fd", str(info), "--block-fd", str(put(b"go"))]
        if architecture in ARCHITECTURES:
            everything = Filter(inet=False, unix=False, shared_memory=False, reaches_out=False)
            control += ["--seccomp", str(put(compile_filter(everything, architecture)))]
        words = b"".join(os.fsencode(word) + b"\0" for word in (*flags, *_VIEW, "--remount-ro", "/"))
        argv = [program, "--args", str(put(words)), *control, "--", program, "--version"]
        outcome = run(argv, uid=uid, pass_fds=put.fds)
        if outcome.succeeded and b"child-pid" not in os.pread(info, 4096, 0):
            return Outcome("bwrap did not tell its child's process id")
        return outcome


def _nests_safely(program: str, flags: Sequence[str], uid: int) -> bool:
    """Whether it stays inside when it makes a mount point below a writable bind (CVE-2026-87766).

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


def _version(outcome: Outcome) -> str:
    return outcome.stdout.strip().removeprefix("bubblewrap ")


class _Put:
    """Keeps bytes in descriptors that a child inherits."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def __call__(self, data: bytes) -> int:
        fd = unnamed_file(data)
        self.fds.append(fd)
        return fd


@contextmanager
def _descriptors() -> Iterator[_Put]:
    put = _Put()
    try:
        yield put
    finally:
        for fd in put.fds:
            os.close(fd)
