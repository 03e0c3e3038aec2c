"""Real servers that take more than they may: each is killed whole, and its dossier names the limit."""

import sys
from collections.abc import Callable

import psutil
import pytest
from support.servers.real_endpoints import SHOWS_SCRIPTS, fault_at_open, opened, pretend, python_config, say
from support.waiting import eventually_async

from quarterdeck_protocol.faults import FaultKind
from quarterdeck_protocol.policy import Limits
from quarterdeck_pytest import ProtocolFault

FILES = "import os, time\nfor n in range(300): open(f\"{os.environ['TMPDIR']}/{n}\", 'w').close()\ntime.sleep(600)"
CHILDREN = "import os, time\nfor n in range(3):\n    if os.fork() == 0: time.sleep(600)\nwhile True: pass"


@pytest.mark.parametrize(
    ("limit", "most", "program"),
    [("wall_s", 0.5, "import time; time.sleep(600)"), ("cpu_s", 0.5, CHILDREN), ("scratch_inodes", 100, FILES)],
)
def test_a_server_that_passes_a_limit_is_killed_and_the_limit_is_named(
    fault_at_start: Callable[..., ProtocolFault], limit: str, most: float, program: str
) -> None:
    """It would fill the machine; or be dead, and nobody would know why."""
    fault = fault_at_start([sys.executable, "-c", program], policy={"limits": {limit: most}})
    assert (fault.kind, fault.code) == (FaultKind.SPAWN_FAILED, "limit_hit"), fault.message
    assert fault.dossier is not None
    assert fault.dossier.limit == limit


@pytest.mark.usefixtures("neighbour")  # it keeps the zygote, which would be started for each
async def test_a_server_that_filled_its_scratch_space_can_be_started_again() -> None:
    """It would be condemned for its last life, before it can do anything about it, for ever."""
    policy = SHOWS_SCRIPTS.model_copy(update={"limits": Limits(scratch_inodes=100)})
    fault = await fault_at_open(python_config("full", FILES, sandbox=policy))
    assert fault.code == "limit_hit", fault.message
    async with opened(pretend("echo", server_id="full", sandbox=policy)) as endpoint:
        await say(endpoint)


@pytest.mark.usefixtures("neighbour")
async def test_an_open_server_is_watched_with_all_that_it_starts_and_its_receipt_is_kept() -> None:
    """`ps` and `inspect` would know less of a real server than of a pretended one."""
    policy = SHOWS_SCRIPTS.model_copy(update={"limits": Limits()})
    async with opened(pretend("echo", sandbox=policy)) as endpoint:
        await say(endpoint)
        confined, status = endpoint.confined, endpoint.status()
        assert confined is not None
        assert confined.watch is not None
        assert status.sandbox is not None
        assert confined.start.pid == status.pid
        assert confined.start.tree_pid in {parent.pid for parent in psutil.Process(status.pid).parents()}
        watch = confined.watch
        await eventually_async(lambda: watch.peak is not None and watch.peak.memory_bytes > 1 << 20)
        assert watch.peak is not None
        assert watch.peak.processes >= 1
    assert endpoint.status().sandbox == status.sandbox
