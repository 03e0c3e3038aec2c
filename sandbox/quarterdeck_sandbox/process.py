"""Start a plan, own its pipes and its `wait()`, end its whole tree, and write the dossier of its death.

One `ConfinedProcess` is one process group in a session of its own.  It must be started from a process that reaps
(`adopt_orphans`), so that what double-forks away comes back here and is killed too.  The stop sequence:

    close stdin · wait · TERM to the group · wait · KILL to the group and to every descendant · reap

each wait at most the grace; nothing in it can hang.
"""

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import psutil

from quarterdeck_sandbox.launch import LaunchError, LaunchPlan, exec_error

_SHIM: Final = str(Path(__file__).with_name("shim.py"))
_REAP_POLL_S: Final = 0.01
"""Between looks at descendants that were killed and are not gone yet."""

PR_SET_CHILD_SUBREAPER: Final = 36


class ConfinedProcess:
    """A started plan; see `start`."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._child = child
        self._stdin: int | None = _detach(child.stdin)
        self.stdout_fd = _detach(child.stdout)
        self.stderr_fd = _detach(child.stderr)
        self.pid = child.pid
        self._started_at = time.monotonic()
        self._ended_at: float | None = None
        self._cpu_s: float | None = None
        self._peak_rss_bytes: int | None = None
        # The kernel counts what a child shared with us before its exec as the child's own peak.
        self._inherited_rss_bytes = _peak_bytes(resource.getrusage(resource.RUSAGE_SELF))

    @property
    def stdin_fd(self) -> int:
        """Where the server listens; -1 once closed."""
        return -1 if self._stdin is None else self._stdin

    @property
    def returncode(self) -> int | None:
        """As `subprocess`: a status, or minus the signal; None while it runs."""
        return self._child.returncode

    @property
    def uptime_s(self) -> float:
        """From start to end, or to now."""
        return (self._ended_at or time.monotonic()) - self._started_at

    @property
    def peak_rss_bytes(self) -> int | None:
        """Largest resident memory of one process of its tree; while it runs, as far as `look` has seen it."""
        return self._peak_rss_bytes

    @property
    def cpu_s(self) -> float | None:
        """User and system time of its reaped tree, once it ended."""
        return self._cpu_s

    def look(self) -> None:
        """See how much memory it has used so far (Linux); a smaller peak than ours cannot be told at its end."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_bytes()
        except OSError:
            return
        if (peak := _HIGH_WATER.search(status)) is not None:
            self._peak_rss_bytes = max(self._peak_rss_bytes or 0, int(peak[1]) * 1024)

    async def wait(self) -> int:
        """Its return code, as soon as it has ended."""
        while self._child.returncode is None and not self._reap():
            await self._exit_signal()
        assert self._child.returncode is not None
        return self._child.returncode

    def close_stdin(self) -> None:
        """The polite request to stop."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    async def stop(self, grace_s: float) -> None:
        """End it and everything it started; at most four graces long, cancellation does not interrupt it."""
        with anyio.CancelScope(shield=True):
            self.close_stdin()
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    self._signal_group(number)
                with anyio.move_on_after(grace_s):
                    await self.wait()
                    break
            self._signal_group(signal.SIGKILL)
            await kill_descendants(grace_s)

    def close_fds(self) -> None:
        """Release the pipes; their readers must be gone."""
        self.close_stdin()
        for fd in (self.stdout_fd, self.stderr_fd):
            if fd >= 0:
                os.close(fd)
        self.stdout_fd = self.stderr_fd = -1

    def _reap(self) -> bool:
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            pid, status, usage = self.pid, 0, None
        if pid == 0:
            return False
        # Popen must not wait for it a second time.
        self._child.returncode = os.waitstatus_to_exitcode(status)
        self._ended_at = time.monotonic()
        if usage is not None:
            self._cpu_s = usage.ru_utime + usage.ru_stime
            if (peak := _peak_bytes(usage)) > self._inherited_rss_bytes:
                self._peak_rss_bytes = peak
        return True

    async def _exit_signal(self) -> None:
        if hasattr(os, "pidfd_open"):
            fd = os.pidfd_open(self.pid)
            try:
                await anyio.wait_readable(fd)
            finally:
                os.close(fd)
        else:
            await anyio.to_thread.run_sync(
                lambda: os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT), abandon_on_cancel=True
            )

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # gone already, or left to a group of its own: the descendants' sweep finds it


_HIGH_WATER: Final = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)


def _peak_bytes(usage: resource.struct_rusage) -> int:
    # Bytes on macOS, kibibytes elsewhere (getrusage(2)).
    return usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024


async def start(plan: LaunchPlan) -> ConfinedProcess:
    """Start `plan` behind the shim.

    Raises:
        LaunchError: it could not be executed; nothing is left behind.
    """
    status_r, status_w = os.pipe()
    try:
        child = subprocess.Popen(  # noqa: ASYNC220 - vfork and exec: it does not block
            [sys.executable, "-I", "-S", _SHIM, str(status_w), str(os.getpid()), plan.program, *plan.argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=plan.cwd,
            env=dict(plan.env),
            pass_fds=[status_w],
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(status_r)
        raise LaunchError("spawn_failed", f"{plan.program}: {error}") from error
    finally:
        os.close(status_w)
    process = ConfinedProcess(child)
    try:
        await anyio.wait_readable(status_r)
        report = os.read(status_r, 32)
    except BaseException:
        await process.stop(0.1)
        process.close_fds()
        raise
    finally:
        os.close(status_r)
    if report:
        await process.stop(0.1)
        process.close_fds()
        raise exec_error(int(report), plan)
    return process


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind (Linux; elsewhere nothing)."""
    set_trait(PR_SET_CHILD_SUBREAPER, 1)


def set_trait(option: int, value: int | bytes) -> None:
    """`prctl(option, value)` on Linux; elsewhere nothing."""
    if sys.platform == "linux":
        _libc().prctl(option, value, 0, 0, 0)


@cache
def _libc() -> ctypes.CDLL:
    # Loaded once, before the zygote's first fork: each load costs a worker's start a tenth of a millisecond or two.
    return ctypes.CDLL(None)


async def kill_descendants(grace_s: float, spare: Callable[[int], bool] = lambda _: False) -> None:
    """KILL and reap every descendant of this process but the spared ones, for at most `grace_s` seconds."""
    with anyio.move_on_after(grace_s):
        while True:
            alive = [child for child in psutil.Process().children(recursive=True) if not spare(child.pid)]
            if not alive:
                return
            for child in alive:
                try:
                    child.kill()
                    os.waitpid(child.pid, os.WNOHANG)  # noqa: ASYNC222 - does not block
                except (psutil.NoSuchProcess, ChildProcessError):
                    continue  # gone, or a grandchild: its own parent reaps it, or leaves it to us next round
            await anyio.sleep(_REAP_POLL_S)


def _detach(stream: object) -> int:
    """Own a pipe's descriptor, so that no file object closes it at collection."""
    fd = os.dup(stream.fileno())  # type: ignore[attr-defined]
    stream.close()  # type: ignore[attr-defined]
    os.set_blocking(fd, False)
    return fd
