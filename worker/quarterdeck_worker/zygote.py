"""The process that forks workers in milliseconds: everything is imported once, here, and shared.

Single-threaded, no event loop, no socket but its own, the collector off (`boot`), all objects frozen before the first
fork.  It runs no untrusted input: its one control socket carries orders (`SpawnOrder` as a JSON line) in and
reports (`Forked`, `Died`) out.  When that socket closes, its owner is gone: every worker, and all that they left
behind, is killed.

It imports HTTP before the first fork that needs it: most have servers that are processes alone.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn

import msgspec

from quarterdeck_protocol.spawn_orders import Died, Forked, SpawnOrder
from quarterdeck_sandbox import (
    OomScore,
    adopt_orphans,
    descendants,
    die_with_parent,
    give_back_large_blocks,
    known_machine,
    own_code,
    raise_oom_score,
    set_process_name,
)

from .main import EXIT_FAILED, be_quiet, work
from .pages import move_heap
from .stdio.rehearsal import rehearse

HTTP: Final = "quarterdeck_worker.http.run"  # the carrier of remote servers, with all that it imports
STDIO: Final = "quarterdeck_worker.stdio.run"  # what starts a process, the whole sandbox with it
TRIALS_S: Final = 1.0  # what is being tried takes a tenth of it
SWEEP_S: Final = 2.0  # how long the last sweep may take before we leave the rest to init


def serve(control: socket.socket) -> None:
    """Fork on request until the control socket closes.  Raise ConnectionError if it closed while a report was due."""
    be_quiet()
    raise_oom_score(OomScore.ZYGOTE)
    give_back_large_blocks()
    with ThreadPoolExecutor(1) as pool:
        # It mostly waits for what it tries; the thread is gone before the first fork, each worker inherits the answer.
        trials = pool.submit(lambda: msgspec.json.encode(known_machine()).decode())
        signal.signal(signal.SIGTERM, lambda *_: _leave(trials))
        import_module(STDIO)
        rehearse()
        own_code()
        facts = trials.result()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(OSError):  # kernels that imitate Linux may refuse; what a worker leaves behind goes to init then
        adopt_orphans()
    workers: dict[int, int] = {}
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_r, False)
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_r, select.POLLIN)
    ballast = _fill_holes()
    gc.freeze()  # a collection before it takes a tenth of a start, and finds little
    move_heap()
    control.sendall(_line(Forked(0, os.getpid(), facts)))
    pending = b""
    while True:
        poll.poll()
        try:
            os.read(wake_r, 4096)
        except BlockingIOError:
            pass
        for death in _bury(workers):
            control.sendall(_line(death))
        try:
            data = control.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            order = msgspec.json.decode(line, type=SpawnOrder)
            if order.is_remote and HTTP not in sys.modules:
                import_module(HTTP)
                gc.collect()
                gc.freeze()
            pid = os.fork()
            if pid == 0:
                os.close(wake_r)
                os.close(wake_w)
                control.close()
                _become_worker(order)
            workers[pid] = order.generation
            control.sendall(_line(Forked(order.generation, pid)))
    ballast.clear()


def _leave(trials: "Future[str]") -> NoReturn:
    """End before anything was forked; what is being tried has temporary files, and comes to its end."""
    wait([trials], TRIALS_S)
    os._exit(0)


def _fill_holes() -> list[bytes]:
    """Small objects for the gaps that imports left in the allocator's pages.

    A worker's own objects then lie together on fresh pages, instead of each dirtying a shared one: about 0.7 MiB less
    private memory a worker (tests/bench) for a megabyte in the zygote.
    """
    return [bytes(size) for size in range(1, 480, 16) for _ in range(300)]


def _become_worker(order: SpawnOrder) -> NoReturn:
    status = EXIT_FAILED
    try:
        parent = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        with suppress(OSError):  # the zygote ends its workers in any case
            die_with_parent()
            set_process_name(b"qd-worker")
        raise_oom_score(OomScore.WORKER)
        if os.getppid() == parent:
            gc.enable()
            status = work(order)
    except BaseException as error:
        sys.stderr.write(f"quarterdeck worker: {type(error).__name__}: {error}\n")
    finally:
        os._exit(status)


def _bury(workers: dict[int, int]) -> list[Died]:
    """Reap all that has ended, kill what it left behind; the workers among the dead, which `workers` loses."""
    reaped = _reap()
    dead = [Died(workers.pop(pid), pid, returncode) for pid, returncode in reaped if pid in workers]
    if reaped:
        # It became our child, and is no worker of ours.  What is killed here may leave something behind itself, that it
        # had started when we looked already: that comes here when it is reaped.
        _kill(descendants(besides=workers))
    return dead


def _reap() -> list[tuple[int, int]]:
    dead = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        dead.append((pid, os.waitstatus_to_exitcode(status)))
    return dead


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _sweep() -> None:
    deadline = time.monotonic() + SWEEP_S
    while time.monotonic() < deadline and (left := descendants()):
        _kill(left)
        time.sleep(0.005)
        _reap()


def _line(report: Forked | Died) -> bytes:
    return msgspec.json.encode(report) + b"\n"


def main() -> None:
    """The program: `zygote CONTROL_FD`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        try:
            serve(control)
        except ConnectionError:
            pass  # the owner is gone: the same end, heard in another way
        finally:
            _sweep()


if __name__ == "__main__":
    main()
