"""Mistakes that sandboxes are known to make, each tried once against ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from support.processes.forks import Forks
from support.processes.identities import Identity, plain_python
from support.processes.leftovers import no_leftovers
from support.sandbox.hostile import END_S, Scene, scene
from support.sandbox.machine_facts import bubblewrap_missing
from support.servers.real_endpoints import assert_fault, fault_at_open, python_config

from quarterdeck_protocol.policy_values import Tier

BUBBLEWRAP: Final = pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP])
BOTH: Final = pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP, Tier.LANDLOCK])
ROOT: Final = pytest.mark.parametrize("identity", [Identity.ROOT])
EVERYBODY: Final = pytest.mark.parametrize("identity", Identity)


@pytest.fixture
def place(identity: Identity, tier: Tier, forks: Forks) -> Iterator[Scene]:
    """Directories of the identity's own."""
    if reason := identity.missing or (bubblewrap_missing() if tier is Tier.BUBBLEWRAP else ""):
        pytest.skip(reason)
    with scene(identity, forks) as made:
        yield made


def told(place: Scene, tier: Tier, code: str, *options: str) -> list[str]:
    """What a few lines of Python print when they are confined by `tier`."""
    run = place.run(tier, [plain_python(), "-c", code], "--network", "none", *options)
    assert run.status == 0, run.stderr
    return run.stdout.decode().splitlines()


@contextmanager
def confined(place: Scene, tier: Tier, code: str, *options: str) -> Iterator[None]:
    """The same for as long as the block, from its first line on; it ends with its stdin."""
    command = [plain_python(), "-c", code]
    with place.start(tier, command, "--network", "none", *options, gives_input=True) as fork:
        assert fork.stdout.readline() == b"ready\n"
        yield


WAIT: Final = "print('ready', flush=True); import sys; sys.stdin.read()"


@BOTH
@EVERYBODY
def test_nobody_counts_memory_in_anonymous_files(identity: Identity, tier: Tier, place: Scene) -> None:
    """It belongs to no process; where no control group counts it, there is none."""
    code = """
import os
try:
    print("made", os.memfd_create("file") > 0)
except OSError as error:
    print("refused")
"""
    run = place.run(tier, [plain_python(), "-c", code], "--network", "none")
    counted = "control group" in run.receipt["findings"]["memory"]["mechanism"]
    assert run.stdout.decode().split()[0] == ("made" if counted else "refused")


@BUBBLEWRAP
@EVERYBODY
def test_processes_are_counted_for_each_sandbox(identity: Identity, tier: Tier, place: Scene) -> None:
    """Counted for each user, a neighbour's bomb would leave nobody else of hers a process."""
    fork = "import os, time\nfor _ in range(30):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\n"
    limit = ("--limit", "processes=40")
    with confined(place, tier, fork + WAIT, *limit), confined(place, tier, fork + WAIT, *limit):
        pass


@BOTH
@ROOT
def test_every_sandbox_of_root_has_a_user_of_its_own(identity: Identity, tier: Tier, place: Scene) -> None:
    """With one for all, a call that kills everything of a user reaches the neighbours."""
    code = f"import os; print('ready', os.getuid(), flush=True); {WAIT.partition(';')[2]}"
    command, options = [plain_python(), "-c", code], ("--network", "none")
    with (
        place.start(tier, command, *options, gives_input=True) as one,
        place.start(tier, command, *options, gives_input=True) as other,
    ):
        users = [int(fork.stdout.readline().split()[1]) for fork in (one, other)]
        place.run(tier, [plain_python(), "-c", "import os; os.kill(-1, 9)"], *options)
        survivors = [fork.poll() is None for fork in (one, other)]
        for fork in (one, other):
            assert fork.stdin is not None
            fork.stdin.close()
        statuses = [fork.wait(END_S) for fork in (one, other)]
    assert len(set(users)) == 2
    assert 0 not in users
    assert survivors == [True, True]
    assert statuses == [0, 0]


@BOTH
@EVERYBODY
def test_input_that_nobody_reads_holds_nobody_up(identity: Identity, tier: Tier, place: Scene) -> None:
    """A write to a full pipe waits for ever."""
    with place.start(tier, ["sleep", "60"], "--network", "none", "--limit", "wall_s=0.5", gives_input=True) as fork:
        _, stderr = fork.communicate(b"x" * (1 << 20), END_S)
    assert fork.returncode == 128 + 9
    assert b"wall_s" in stderr


@pytest.mark.usefixtures("neighbour")  # it keeps the zygote
@pytest.mark.parametrize("holds", [False, True], ids=["alone", "with a daemon that holds its stderr"])
async def test_a_server_that_closes_its_stdout_is_over(holds: bool) -> None:
    """It lives, but nobody will ever hear from it again."""
    daemon = "os.fork() or os.setsid()" if holds else "None"
    with no_leftovers():
        fault = await fault_at_open(
            python_config("closing", f"import os, time; {daemon}; os.close(1); time.sleep(600)")
        )
        assert_fault(fault, "spawn_failed", "handshake_failed", "not_sent", "closed its stdout")


@pytest.mark.usefixtures("neighbour")  # it keeps the zygote
async def test_a_server_that_leaves_holders_of_its_pipes_is_over() -> None:
    """Whoever waits for the end of its output would wait for the holder's."""
    with no_leftovers():
        fault = await fault_at_open(
            python_config("leaving", "import os, time; os.fork() and os._exit(3); time.sleep(600)")
        )
        assert_fault(fault, "spawn_failed", "exited_at_handshake", "not_sent", "exited with status 3")
