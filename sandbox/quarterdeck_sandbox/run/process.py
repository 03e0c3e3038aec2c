"""A confined process that runs: its pipes, its `wait()`, the end of its whole tree, what is known of its death.

The stop sequence, each wait at most the grace; nothing in it can hang:

    close stdin · wait · TERM to the program's group · wait · KILL to the whole tree · reap
"""

import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.policy_values import Property, Tier
from quarterdeck_sandbox.network.recorder import HostRecorder
from quarterdeck_sandbox.network.relay import Relay
from quarterdeck_sandbox.network.uplink import Uplink
from quarterdeck_sandbox.policy import tiers
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.limits import ProcessTree
from quarterdeck_sandbox.policy.promises import Receipt, Strength

from .cgroup import Cgroup
from .processes import read_proc, wait_for_end

_SAME_END_S: Final = 0.2  # a program that ends so soon after its network's helper ended together with it
_SHELL: Final = 128
_LAST_SIGNAL: Final = 31  # statuses above would name real-time signals, and are a program's own more often

_LIMITS: Final = {
    -signal.SIGXCPU: (resource.RLIMIT_CPU, "cpu_s"),
    -signal.SIGXFSZ: (resource.RLIMIT_FSIZE, "file_size_bytes"),
}
"""Signals that the kernel sends for one limit only, where that is set."""

MAX_FAILED: Final = 3  # of the failed connections, in its last words

_TICKS: Final = os.sysconf("SC_CLK_TCK")  # in which the kernel counts processor time, a second
_HIGH_WATER: Final = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)


class SandboxResources(msgspec.Struct):
    """What one sandbox holds besides its process.  Owns both descriptors."""

    init_fd: int = -1  # a pidfd of the first process of its PID namespace: killed, the kernel kills all the others
    # The reaper's leash: dropped, it kills all that it has adopted; or the leash of the guard of bwrap, while there is
    # one
    leash_fd: int = -1
    init_pid: int = 0  # the process of `init_fd`, or the reaper
    cgroup: Cgroup | None = None
    relay: Relay | None = None
    recorder: HostRecorder | None = None  # of what it asks for, which its relay then answers itself
    uplink: Uplink | None = None

    def kill(self) -> None:
        """End the whole tree; idempotent."""
        if self.cgroup is not None:
            self.cgroup.kill()
        if self.init_fd >= 0:
            try:
                signal.pidfd_send_signal(self.init_fd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended, and all of its namespace with it
        if self.leash_fd >= 0:
            os.close(self.leash_fd)
            self.leash_fd = -1

    def dismiss_guard(self) -> None:
        """Have bwrap's guard end without killing anything: from here on the sandbox dies with bwrap."""
        with suppress(BrokenPipeError):  # somebody has killed it
            os.write(self.leash_fd, b"g")
        os.close(self.leash_fd)
        self.leash_fd = -1

    async def network_lost(self) -> str:
        """Wait until the carrier of its network fails, and return what happened.  Without one, wait for ever."""
        carrier = self.uplink or self.relay
        if carrier is None:
            await anyio.sleep_forever()
        assert carrier is not None
        return await carrier.lost()

    async def gone(self) -> None:
        """Wait until its PID namespace is empty, and reap what that leaves to us; after `kill`.

        bwrap itself ends with the program, before the first process of the namespace has ended the others.
        """
        if self.init_fd >= 0:
            await anyio.wait_readable(self.init_fd)
            try:
                os.waitid(os.P_PIDFD, self.init_fd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - does not block
            except ChildProcessError:
                pass  # somebody else adopts orphans here

    async def release(self) -> None:
        """Give back all resources; the tree is gone."""
        if self.init_fd >= 0:
            os.close(self.init_fd)
            self.init_fd = -1
        if self.relay is not None:
            await self.relay.stop()
        if self.uplink is not None:
            await self.uplink.close()
        if self.cgroup is not None:
            await self.cgroup.destroy()


class ConfinedProcess:
    """A process that `start` has started.  `cpu_s`: the time of it and of what it reaped, as `look` has seen it."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        resources: SandboxResources,
        pid: int,
        confinement: Confinement,
        receipt: Receipt,
    ) -> None:
        self._child = child
        self._resources = resources
        self._stdin: int | None = _detach(child.stdin) if child.stdin else None
        self.stdout_fd = _detach(child.stdout) if child.stdout else -1
        self.stderr_fd = _detach(child.stderr) if child.stderr else -1
        self.pid = pid
        self.confinement = confinement
        self.receipt = receipt
        self._started_at = time.monotonic()
        self._ended_at: float | None = None
        self.cpu_s: float | None = None
        self._seen_rss_bytes: int | None = None
        self._told_rss_bytes: int | None = None
        self._limit: str | None = None

    def tree(self, scratch: tuple[str, ...]) -> ProcessTree:
        """Return the tree for a monitor to watch; `scratch` are the directories outside whose files count."""
        has_root = self.confinement.tier is Tier.BUBBLEWRAP
        return ProcessTree(
            pid=self.pid,
            top=self._child.pid,
            root_pid=self._resources.init_pid if has_root else 0,
            scratch=scratch,
            tmpfs=tiers.temporary(self.confinement) if has_root else (),
            enforced=self._enforced(),
        )

    def _enforced(self) -> tuple[str, ...]:
        names = set(self._resources.cgroup.enforced) if self._resources.cgroup else set()
        if self.receipt.findings[Property.PROCESS_COUNT].strength is Strength.FULL:
            names.add("processes")
        return tuple(sorted(names))

    @property
    def stdin_fd(self) -> int:
        """The descriptor of the program's stdin; -1 once closed."""
        return -1 if self._stdin is None else self._stdin

    @property
    def returncode(self) -> int | None:
        """The program's status, or minus the signal that ended it; None while it runs."""
        code = self._child.returncode
        # What stands between us and the program passes a signal on as a shell does.
        return code if code is None or not _SHELL < code <= _SHELL + _LAST_SIGNAL else _SHELL - code

    @property
    def limit(self) -> str | None:
        """The limit that ended it; None if no limit did."""
        number, name = _LIMITS.get(self.returncode or 0, (None, None))
        was_set = any(number == each for each, _ in self.confinement.rlimits)
        return self._limit or (name if was_set else None)

    def dossier(self, stderr_tail: str, hints: Iterable[str]) -> Dossier:
        """Return what is known of its run by now, with its last words and the hints.

        The peak is what the kernel told at its end, else what `look` saw of the program, which may have held more
        between two looks.
        """
        code = self.returncode
        return Dossier(
            exit_status=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            limit=self.limit,
            stderr_tail=stderr_tail,
            peak_rss_bytes=self._seen_rss_bytes if self._told_rss_bytes is None else self._told_rss_bytes,
            peak_is_sampled=self._seen_rss_bytes is not None and self._told_rss_bytes is None,
            cpu_s=self.cpu_s,
            uptime_s=(self._ended_at or time.monotonic()) - self._started_at,
            hints=(*hints, *dict.fromkeys(self.failed_connections[-MAX_FAILED:])),
        )

    @property
    def failed_connections(self) -> tuple[str, ...]:
        """The last failed connections to the hosts of its list, oldest first, in words."""
        relay = self._resources.relay
        return tuple(f"no connection to {each}" for each in relay.refusals) if relay is not None else ()

    def look(self) -> None:
        """See how much memory and time it has used so far; after its end this is unknown."""
        try:
            status, stat = read_proc(self.pid, "status"), read_proc(self.pid, "stat")
        except OSError:
            return
        if (peak := _HIGH_WATER.search(status)) is not None:
            self._seen_rss_bytes = max(self._seen_rss_bytes or 0, int(peak[1]) * 1024)
        # utime, stime, cutime, cstime (proc(5)): with what it has reaped; a name may hold blanks.
        times = stat.rpartition(b")")[2].split()[11:15]
        self.cpu_s = sum(map(int, times)) / _TICKS

    def kill(self) -> None:
        """Kill the whole tree at once."""
        if self._child.returncode is None:
            with suppress(Exception):  # what it has used is for its dossier; that it ends matters more
                self.look()
            self._resources.kill()

    def kill_for(self, limit: str) -> None:
        """Kill the whole tree because it passed `limit`, which its dossier will name."""
        if self._child.returncode is None:
            self._limit = self._limit or limit
        self.kill()

    async def wait(self) -> int:
        """Return its return code, as soon as it has ended."""
        while self._child.returncode is None and not self._reap():
            await wait_for_end(self._child.pid)
        assert self.returncode is not None
        return self.returncode

    async def network_lost(self) -> str:
        """Wait until its network is lost while it runs, and return what happened; for ever, if we carry none."""
        why = await self._resources.network_lost()
        with anyio.move_on_after(_SAME_END_S):
            await self.wait()
        if self._child.returncode is not None:
            await anyio.sleep_forever()
        return why

    def close_stdin(self) -> None:
        """Close the program's stdin: the polite request to stop."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    def signal(self, number: int) -> None:
        """Signal the program and those of its children that have stayed in its group."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # gone already

    async def stop(self, grace_s: float) -> None:
        """End the whole tree and release what it held; cancellation does not interrupt it."""
        with anyio.CancelScope(shield=True):
            await self.end(grace_s)
            await self.release()

    async def end(self, grace_s: float) -> None:
        """End the whole tree; at most five graces long, cancellation does not interrupt it."""
        with anyio.CancelScope(shield=True):
            self.close_stdin()
            for number in (None, signal.SIGTERM):
                if number is not None:
                    self.look()
                    self.signal(number)
                with anyio.move_on_after(grace_s):
                    await self.wait()
                    break
            self._resources.kill()
            with anyio.move_on_after(grace_s):
                await self.wait()
            if self._child.returncode is None:
                self._child.kill()
                with anyio.move_on_after(grace_s):
                    await self.wait()
            with anyio.move_on_after(grace_s):
                await self._resources.gone()

    async def release(self) -> None:
        """Give back its control group and its network, which takes some 20 ms; after `end`."""
        await self._resources.release()

    def close_fds(self) -> None:
        """Release the pipes; their readers must be gone."""
        self.close_stdin()
        for fd in (self.stdout_fd, self.stderr_fd):
            if fd >= 0:
                os.close(fd)
        self.stdout_fd = self.stderr_fd = -1

    def _reap(self) -> bool:
        largest = 0
        try:
            pid, status, used = os.wait4(self._child.pid, os.WNOHANG)
            largest = _largest_bytes(used)
        except ChildProcessError:
            pid, status = self._child.pid, 0
        if pid == 0:
            return False
        # Popen must not wait for it a second time.
        self._child.returncode = os.waitstatus_to_exitcode(status)
        self._ended_at = time.monotonic()
        self._told_rss_bytes = self._told_peak(largest)
        if self._limit is None and self.returncode != 0 and self._resources.cgroup is not None:
            self._limit = self._resources.cgroup.hit()
        return True

    def _told_peak(self, largest: int) -> int | None:
        """Return its memory as the kernel tells after its end; None if that may be less than it held."""
        if self._resources.cgroup is not None and (whole := self._resources.cgroup.peak_bytes) is not None:
            return max(whole, self._seen_rss_bytes or 0)
        # A child begins as a copy of its parent, and counts as large as that.
        copied = _largest_bytes(resource.getrusage(resource.RUSAGE_SELF))
        return max(largest, self._seen_rss_bytes or 0) if largest > copied else None


def _largest_bytes(used: resource.struct_rusage) -> int:
    return used.ru_maxrss * 1024


def _detach(stream: object) -> int:
    """Own a pipe's descriptor, so that no file object closes it at collection."""
    fd = os.dup(stream.fileno())  # type: ignore[attr-defined]
    stream.close()  # type: ignore[attr-defined]
    os.set_blocking(fd, False)
    return fd
