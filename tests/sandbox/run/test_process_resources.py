"""What one running sandbox holds: ended at once, given back once."""

import os
import subprocess

import anyio
import psutil
import pytest

from quarterdeck_sandbox.run.process import SandboxResources

PATIENCE_S = 20.0


class Part:
    """A cgroup, a relay and an uplink in one, which notes what is asked of it."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def kill(self) -> None:
        self._said.append("kill")

    async def destroy(self) -> None:
        self._said.append("destroy")

    async def stop(self) -> None:
        self._said.append("stop")

    async def close(self) -> None:
        self._said.append("close")

    async def lost(self) -> str:
        return "lost"


async def test_everything_is_ended_first_and_given_back_then() -> None:
    """A control group would be removed while it is in use, and stay."""
    said: list[str] = []
    part = Part(said)
    resources = SandboxResources(cgroup=part, relay=part, uplink=part)  # type: ignore[arg-type]
    resources.kill()
    await resources.release()
    assert said == ["kill", "stop", "close", "destroy"]


@pytest.mark.parametrize("what", ["relay", "uplink"])
async def test_the_loss_of_a_network_is_that_of_what_carries_it(what: str) -> None:
    """Nobody would notice that one is gone."""
    assert await SandboxResources(**{what: Part([])}).network_lost() == "lost"  # type: ignore[arg-type]
    with anyio.move_on_after(0) as scope:
        await SandboxResources().network_lost()
    assert scope.cancelled_caught


async def test_the_leash_is_dropped_once() -> None:
    """A second end would close a descriptor that is somebody else's by then."""
    read, write = os.pipe()
    resources = SandboxResources(leash_fd=write)
    resources.kill()
    assert os.read(read, 1) == b""
    os.dup2(read, write)
    resources.kill()
    os.fstat(write)
    os.close(read)
    os.close(write)


@pytest.mark.process
async def test_the_first_process_of_a_namespace_is_killed_and_reaped() -> None:
    """Each start would leave a process that is dead and not buried."""
    child = subprocess.Popen(["/bin/sleep", "1000"])  # noqa: ASYNC220 - does not block
    resources = SandboxResources(init_fd=os.pidfd_open(child.pid), init_pid=child.pid)
    resources.kill()
    with anyio.fail_after(PATIENCE_S):
        await resources.gone()
    assert not psutil.pid_exists(child.pid)
    resources.kill()
    await resources.gone()
    await resources.release()
    assert resources.init_fd == -1
    await resources.gone()
    child.wait()
