"""The broker: a program under Landlock changes the metadata of its own files, in every spelling, and of no others."""

import errno
import json
import platform
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from msgspec.structs import replace
from support.processes.identities import plain_python
from support.processes.leftovers import assert_gone
from support.sandbox.confinements import TierHome, missing, run, this_machine, tier_home_of

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.mounts import Mount, MountKind
from quarterdeck_sandbox.policy.seccomp import Filter, Metadata, compile_filter
from quarterdeck_sandbox.program.launch import LaunchPlan
from quarterdeck_sandbox.run.start import start

WHY_NOT: Final = missing(Tier.LANDLOCK) or this_machine().why_no_broker

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-"), pytest.mark.process]

PREAMBLE: Final = """
import ctypes, json, os, platform, signal, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1]
folder, name = os.path.split(path)

def call(number, *arguments):
    longs = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    if libc.syscall(ctypes.c_long(number), *longs) < 0:
        raise OSError(ctypes.get_errno(), "")

def errno_of(way):
    try:
        way()
    except OSError as error:
        return error.errno
    return 0
"""

WAYS: Final = (
    PREAMBLE
    + """
x86 = platform.machine() == "x86_64"
handle, reading, start = os.open(path, os.O_PATH), os.open(path, os.O_RDONLY), os.open(folder, os.O_PATH)
link = sys.argv[2] + "/link"
os.symlink(path, link)
os.chdir(folder)
group = os.getgid()
ways = {
    "chmod": lambda: os.chmod(path, 0o640),
    "by a link": lambda: os.chmod(link, 0o641),
    "from a folder": lambda: os.chmod(name, 0o642, dir_fd=start),
    "from here": lambda: os.chmod("./" + name, 0o643),
    "fchmod": lambda: os.fchmod(reading, 0o644),
    "fchmodat2": lambda: call(452, -100, path.encode(), 0o645, 0),
    "fchmodat2 of nothing": lambda: call(452, handle, b"", 0o646, 0x1000),
    "self": lambda: os.chmod(f"/proc/self/fd/{handle}", 0o647),
    "thread-self": lambda: os.chmod(f"/proc/thread-self/fd/{handle}", 0o650),
    "number": lambda: os.chmod(f"/proc/{os.getpid()}/fd/{handle}", 0o651),
    "dev": lambda: os.chmod(f"/dev/fd/{handle}", 0o652),
    "chown": lambda: os.chown(path, -1, group),
    "lchown": lambda: os.lchown(path, -1, group),
    "fchown": lambda: os.fchown(reading, -1, group),
    "chown from a folder": lambda: os.chown(name, -1, group, dir_fd=start),
    "utimensat": lambda: os.utime(path, (1, 2)),
    "now": lambda: os.utime(path),
    "futimens": lambda: os.utime(reading, (3, 4)),
    "old spellings": lambda: x86 and [
        call(90, path.encode(), 0o653), call(92, path.encode(), -1, group), call(94, path.encode(), -1, group),
        call(132, path.encode(), struct.pack("2l", 5, 6)), call(235, path.encode(), struct.pack("4l", 5, 0, 6, 0)),
        call(261, -100, path.encode(), struct.pack("4l", 7, 0, 8, 500000)),
    ],
}
print(json.dumps({key: errno_of(way) for key, way in ways.items()}))
"""
)


@pytest.fixture
def landlock() -> Iterator[TierHome]:
    """A program's private home under Landlock."""
    with tier_home_of(Tier.LANDLOCK) as made:
        yield made


def python(home: TierHome, code: str, path: Path, **changes: Any) -> Confinement:
    """Confine a script that is told a path and its private home."""
    interpreter = plain_python()
    argv = (interpreter, "-I", "-S", "-c", code, str(path), str(home.home))
    return home.confine(LaunchPlan(interpreter, argv, {}, str(home.home)), **changes)


async def found(confinement: Confinement) -> Any:
    status, said, _ = await run(confinement)
    assert status == 0, said
    return json.loads(said)


def made(home: TierHome, path: Path) -> Path:
    """A file of the program's user, with old times."""
    path.write_text("x")
    home.own(path)
    return path


async def test_its_own_files_change_in_every_spelling(landlock: TierHome) -> None:
    """Installers make programs executable, git, tar and pip set modes and times: they would fail."""
    path = made(landlock, landlock.home / "own")
    answers = await found(python(landlock, WAYS, path))
    assert answers == dict.fromkeys(answers, 0)
    status = path.stat()
    if platform.machine() == "x86_64":
        assert (status.st_mode & 0o777, status.st_atime, status.st_mtime) == (0o653, 7.0, 8.5)
    else:
        assert (status.st_mode & 0o777, status.st_atime, status.st_mtime) == (0o652, 3.0, 4.0)


async def test_no_spelling_changes_another_file_of_its_user(landlock: TierHome) -> None:
    """A server could open the user's keys to everybody."""
    path = made(landlock, landlock.home.parent / "outside")
    before = path.stat()
    # Shown, so that it can be opened: what can be read must not be changed.
    confinement = python(landlock, WAYS, path)
    shown = confinement.view.with_mounts([Mount(MountKind.READ, str(path), str(path))])
    confinement = replace(confinement, view=shown)
    answers = await found(confinement)
    assert {key for key, number in answers.items() if number != errno.EPERM} == set()
    after = path.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


LINKS: Final = (
    PREAMBLE
    + """
os.symlink("nowhere", folder + "/dangling")
gone = os.open(folder + "/gone", os.O_CREAT | os.O_RDWR)
os.unlink(folder + "/gone")
unnamed = os.open(folder, os.O_TMPFILE | os.O_RDWR)
os.utime(folder + "/dangling", (5, 6), follow_symlinks=False)
assert os.lstat(folder + "/dangling").st_mtime == 6
print(json.dumps([
    errno_of(lambda: os.fchmod(gone, 0o600)), errno_of(lambda: os.fchmod(unnamed, 0o600)),
    errno_of(lambda: os.chmod(folder + "/dangling", 0o600)), errno_of(lambda: os.chmod("", 0)),
    errno_of(lambda: os.chmod(path + "/below", 0)), errno_of(lambda: os.fchmod(99, 0)),
    errno_of(lambda: call(452, -100, 8, 0, 0)), errno_of(lambda: call(452, -100, path.encode(), 0, 1)),
    errno_of(lambda: os.chmod("/" + 5000 * "x", 0)), errno_of(lambda: os.chmod("/dev/null", 0o666)),
]))
"""
)


async def test_it_answers_as_the_kernel_does(landlock: TierHome) -> None:
    """Programs ask whether a file is there by what they are told, and change files that have no name any more."""
    path = made(landlock, landlock.home / "own")
    answers = await found(python(landlock, LINKS, path))
    missing_, memory, not_a_folder = errno.ENOENT, errno.EFAULT, errno.ENOTDIR
    assert answers == [
        *(0, 0, missing_, missing_, not_a_folder, errno.EBADF),
        *(memory, errno.EINVAL, errno.ENAMETOOLONG, errno.EPERM),
    ]


BUSY: Final = (
    PREAMBLE
    + """
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
wrong = []

def work():
    for mode in range(200):
        wrong.extend(filter(None, [errno_of(lambda: os.chmod(path, mode | 0o600))]))

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
work()
for thread in threads:
    thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps(wrong))
"""
)


async def test_threads_that_are_signalled_all_the_time_are_answered(landlock: TierHome) -> None:
    """A runtime that interrupts its threads, as Go's does, would never have a mode changed."""
    path = made(landlock, landlock.home / "own")
    assert await found(python(landlock, BUSY, path)) == []


ORPHAN: Final = (
    PREAMBLE
    + """
hears, says = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.write(says, str(errno_of(lambda: os.chmod(path, 0o600))).encode())
    os._exit(0)
os.wait()
print(json.dumps(int(os.read(hears, 10))))
"""
)


async def test_an_orphan_may_change_what_its_program_may(landlock: TierHome) -> None:
    """Daemons of a server, whose memory only an ancestor may read where Yama is on."""
    path = made(landlock, landlock.home / "own")
    assert await found(python(landlock, ORPHAN, path)) == 0


CLOSED_MEMORY: Final = (
    PREAMBLE
    + """
libc.prctl(4, 0, 0, 0, 0)
print(json.dumps(errno_of(lambda: os.chmod(path, 0o600))))
"""
)


async def test_a_program_that_closes_its_memory_is_refused(landlock: TierHome) -> None:
    """It must neither wait for ever, nor have its call made unread."""
    path = made(landlock, landlock.home / "own")
    assert await found(python(landlock, CLOSED_MEMORY, path)) == errno.EPERM


async def test_without_a_broker_no_metadata_changes_at_all(landlock: TierHome) -> None:
    """Where no filter can ask, a server could still open the user's keys to everybody."""
    path = made(landlock, landlock.home / "own")
    closed = Filter(inet=False, unix=False, shared_memory=False, reaches_out=False, metadata=Metadata.CLOSED)
    machine = replace(this_machine().capped(Tier.LANDLOCK), asks=False)
    changes = {"machine": machine, "seccomp": compile_filter(closed, platform.machine())}
    answers = await found(python(landlock, WAYS, path, **changes))
    assert answers == dict.fromkeys(answers, errno.EPERM)


async def test_a_program_ends_with_its_broker(landlock: TierHome) -> None:
    """A broker that is gone leaves nobody who answers: the tree ends, and no call gets through."""
    process = await start(landlock.shell("while :; do /bin/sleep 1000; done"))
    try:
        below = psutil.Process(process.pid)
        pids = [below.pid, *(child.pid for child in below.children(recursive=True))]
        broker = below.parent()
        assert broker is not None
        broker.kill()
        assert await process.wait() == -signal.SIGKILL
        assert_gone(pids)
    finally:
        await process.stop(1.0)
        process.close_fds()
