"""What one running sandbox holds beside its process: the handle that ends its whole tree, its cgroup, its network.

`kill` ends everything inside at once; `release` gives everything back, when nothing runs any more.
"""

import os
import signal
from dataclasses import dataclass

import anyio

from quarterdeck_sandbox.enforce.cgroup import Cgroup
from quarterdeck_sandbox.network.relay import Relay
from quarterdeck_sandbox.network.uplink import Uplink


@dataclass(slots=True)
class Holdings:
    """See the module.  Both descriptors are owned.

    Attributes:
        init_fd: a pidfd of the first process of its PID namespace: killed, the kernel kills all the others.
        leash_fd: the reaper's leash: dropped, it kills all that it has adopted.
        init_pid: the process that `init_fd` names, or the reaper.
    """

    init_fd: int = -1
    leash_fd: int = -1
    init_pid: int = 0
    cgroup: Cgroup | None = None
    relay: Relay | None = None
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

    async def network_lost(self) -> str:
        """Wait until what carries its network does so no more; what happened.  Without such a thing, for ever."""
        carrier = self.uplink or self.relay
        if carrier is None:
            await anyio.sleep_forever()
        assert carrier is not None
        return await carrier.lost()

    async def gone(self) -> None:
        """Wait until its PID namespace is empty, and reap what that leaves to us; after `kill`, which ends all of it.

        bwrap itself ends with the program, before the first process of the namespace has ended the others.
        """
        if self.init_fd >= 0:
            await anyio.wait_readable(self.init_fd)
            try:
                os.waitid(os.P_PIDFD, self.init_fd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - does not block
            except ChildProcessError:
                pass  # somebody else adopts orphans here

    async def release(self) -> None:
        """Give it all back; the tree is gone."""
        if self.init_fd >= 0:
            os.close(self.init_fd)
            self.init_fd = -1
        if self.relay is not None:
            await self.relay.stop()
        if self.uplink is not None:
            await self.uplink.close()
        if self.cgroup is not None:
            await self.cgroup.destroy()
