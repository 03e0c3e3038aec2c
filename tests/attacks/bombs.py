"""Wanting too much: processes, memory, time.  See `floods` for the rest.

Every one stops at a ceiling that no machine minds, far above the limits that the runner sets, and has then escaped.
What was taken is held for a while: a limit that is kept by looking now and then needs a moment.
"""

import ctypes
import mmap
import os
import resource
import tempfile
import threading
import time

from arena import Held, bomb, call, libc, require

MIB = 1 << 20
HELD_FOR_S = 6.0  # longer than between two looks
PROCESSES = 300  # ceiling; the runner allows 40
MEMORY = 512 * MIB  # ceiling; the runner allows 128 MiB


def hold(what: str, for_s: float = HELD_FOR_S) -> str:
    """Keep it until somebody takes notice."""
    time.sleep(for_s)
    return what


def _sleepers(count: int) -> int:
    """Fork so many children that sleep; how many came about."""
    for number in range(count):
        try:
            if os.fork() == 0:
                time.sleep(HELD_FOR_S * 2)
                os._exit(0)
        except OSError as error:
            if number > PROCESSES // 2:
                return number
            raise Held(f"{number} processes: {error}") from error
    return count


@bomb
def fork_bomb() -> str:
    """Many children."""
    return hold(f"{_sleepers(PROCESSES)} processes")


@bomb
def fork_bomb_recursive() -> str:
    """Children that have children, so that nobody sees how many."""
    counter = mmap.mmap(-1, 4096)
    lock = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the bomb

    def count() -> int:
        import fcntl

        fcntl.lockf(lock, fcntl.LOCK_EX)
        value = int.from_bytes(counter[:4], "little") + 1
        counter[:4] = value.to_bytes(4, "little")
        fcntl.lockf(lock, fcntl.LOCK_UN)
        return value

    first, refused = os.getpid(), False
    while not refused and int.from_bytes(counter[:4], "little") < PROCESSES:
        try:
            if os.fork() == 0:
                count()
        except OSError:
            refused = True
    if os.getpid() != first:
        time.sleep(HELD_FOR_S)
        os._exit(0)
    time.sleep(0.5)
    reached = int.from_bytes(counter[:4], "little")
    require(reached >= PROCESSES // 2, f"{reached} processes")
    return hold(f"{reached} processes")


@bomb
def thread_bomb() -> str:
    """Threads count as well."""
    threading.stack_size(64 * 1024)
    for number in range(PROCESSES):
        try:
            threading.Thread(target=time.sleep, args=(HELD_FOR_S * 2,), daemon=True).start()
        except RuntimeError as error:
            raise Held(f"{number} threads: {error}") from error
    return hold(f"{PROCESSES} threads")


@bomb
def zombie_flood() -> str:
    """Children that nobody buries hold a number each."""
    for number in range(PROCESSES):
        try:
            if os.fork() == 0:
                os._exit(0)
        except OSError as error:
            raise Held(f"{number} zombies: {error}") from error
    return hold(f"{PROCESSES} zombies")


def _fill(size: int) -> mmap.mmap:
    """Private memory that is really there."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, size, 4096):
        memory[offset] = 1
    return memory


@bomb
def memory_bomb() -> str:
    """One process that wants all memory."""
    kept = [_fill(16 * MIB) for _ in range(MEMORY // (16 * MIB))]
    return hold(f"{len(kept) * 16} MiB")


@bomb
def memory_bomb_of_a_tree() -> str:
    """Ten processes that want a tenth each."""
    children, first = [], os.getpid()
    for _ in range(9):
        children.append(os.fork())
        if children[-1] == 0:
            kept = _fill(MEMORY // 10)
            until = time.monotonic() + 2 * HELD_FOR_S
            while os.getppid() == first and time.monotonic() < until:
                time.sleep(0.05)
            os._exit(len(kept) == 0)
    kept = _fill(MEMORY // 10)
    until = time.monotonic() + HELD_FOR_S
    while time.monotonic() < until:
        require(os.waitpid(-1, os.WNOHANG) == (0, 0), "some of them were killed")
        time.sleep(0.05)
    return f"{len(kept) * 10 // MIB} MiB"


@bomb
def shared_memory_bomb() -> str:
    """Memory that is shared counts as nobody's data."""
    kept = []
    for _ in range(MEMORY // (16 * MIB)):
        memory = mmap.mmap(-1, 16 * MIB)
        for offset in range(0, 16 * MIB, 4096):
            memory[offset] = 1
        kept.append(memory)
    return hold(f"{len(kept) * 16} MiB")


@bomb
def anonymous_file_bomb() -> str:
    """Memory in a file without a name is no process's memory."""
    block = bytes(MIB)
    fd = os.memfd_create("bomb", 0)
    for _ in range(MEMORY // MIB):
        os.write(fd, block)
    return hold(f"{MEMORY // MIB} MiB")


@bomb
def segment_bomb() -> str:
    """Segments stay when everybody is gone."""
    size, made = 16 * MIB, []
    libc.shmat.restype = ctypes.c_void_p
    try:
        for _ in range(MEMORY // size):
            made.append(call("shmget", 0, size, 0o1600))
            address = libc.shmat(made[-1], None, 0)
            require(address != ctypes.c_void_p(-1).value, "a segment that cannot be attached")
            ctypes.memset(address, 1, size)
        return hold(f"{len(made)} segments")
    finally:
        for segment in made:
            libc.shmctl(segment, 0, None)


@bomb
def burn_processor() -> str:
    """Work for nothing."""
    return _burn(HELD_FOR_S)


@bomb
def burn_processor_in_turns() -> str:
    """The same by children that each stop before their own limit."""
    until = time.monotonic() + 2 * HELD_FOR_S
    while time.monotonic() < until:
        pid = os.fork()
        if pid == 0:
            _burn(0.4)
            os._exit(0)
        os.waitpid(pid, 0)
    return "burnt in turns"


def _burn(seconds: float) -> str:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return f"{seconds} s of processor time"


@bomb
def core_flood() -> str:
    """Memory images on disk for every crash."""
    folder = tempfile.mkdtemp()
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            try:
                resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            except (OSError, ValueError):
                pass
            os.abort()
        status = os.waitpid(pid, 0)[1]
        if os.WCOREDUMP(status):
            return f"a core of {os.listdir(folder) or 'somewhere'}"
    raise Held("no core")


@bomb
def kill_everything() -> str:
    """Every process that may be signalled, by one call: harmless where that is nobody else's."""
    os.kill(-1, 9)
    return "everybody else is dead"


@bomb
def stop_everything() -> str:
    """The same by stopping them: whoever waits for an end waits long."""
    os.kill(-1, 19)
    time.sleep(HELD_FOR_S)
    return "everybody else is stopped"
