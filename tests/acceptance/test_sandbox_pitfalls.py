"""Mistakes that sandboxes are known to make, each tried once against ours."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from support.processes.forks import Forks
from support.processes.identities import USER_UID, Identity, plain_python
from support.processes.leftovers import no_leftovers
from support.sandbox.hostile import END_S, Scene, scene
from support.sandbox.machine_facts import bubblewrap_missing
from support.servers.real_endpoints import assert_fault, fault_at_open, python_config

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.doctor.probe import known_machine

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


def own(folder: Path) -> None:
    """Give it to the ordinary user: root refuses to run anything as root, and so to grant what is root's."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER_UID, USER_UID)


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


@BUBBLEWRAP
@EVERYBODY
def test_memory_filesystems_are_closed_or_sized(identity: Identity, tier: Tier, place: Scene) -> None:
    """The sandbox's own root and /dev are memory too, half of the machine's, and nobody watches them."""
    code = """
import os
for folder in ("/", "/dev", "/run", "/var", "/etc", "/usr"):
    try:
        os.mkdir(f"{folder}/made")
        print("made", folder)
    except OSError:
        pass
for folder in ("/tmp", "/dev/shm"):
    space = os.statvfs(folder)
    print(space.f_blocks * space.f_frsize <= 64 << 20)
"""
    assert told(place, tier, code, "--limit", "scratch_bytes=64M") == ["True", "True"]


@BOTH
@EVERYBODY
def test_what_is_shown_below_tmp_is_there(identity: Identity, tier: Tier, place: Scene) -> None:
    """Mounts are made in order: an empty /tmp made last hides what was shown in it."""
    shown, granted = place.root / "shown", place.root / "granted"
    for folder in (shown, granted):
        folder.mkdir()
        (folder / "note").write_text("text")
        (folder / "note").chmod(0o644)
    own(granted)
    code = f"""
print(open({str(shown / "note")!r}).read())
try:
    open({str(shown / "note")!r}, "w")
except OSError as error:
    print("closed")
open({str(granted / "note")!r}, "w").write("changed")
"""
    assert told(place, tier, code, "--read", str(shown), "--write", str(granted)) == ["text", "closed"]
    assert (granted / "note").read_text() == "changed"


@BUBBLEWRAP
@EVERYBODY
def test_no_mount_below_a_writable_path_where_bubblewrap_follows_links(
    identity: Identity, tier: Tier, place: Scene
) -> None:
    """CVE-2026-87766: whoever can write there leads the mount point out of the sandbox."""
    if known_machine().bubblewrap.nests_safely:
        pytest.skip("this bubblewrap does not follow links")
    granted = place.root / "granted"
    (granted / "inner").mkdir(parents=True)
    own(granted)
    run = place.run(tier, ["true"], "--write", str(granted), "--hide", str(granted / "inner"))
    assert run.status == 125
    assert str(granted / "inner") in run.stderr


@BOTH
@EVERYBODY
def test_what_is_hidden_is_missing_or_forbidden(identity: Identity, tier: Tier, place: Scene) -> None:
    """Programs go on without a file that does not exist; Landlock can only forbid it."""
    code = f"""
import errno
try:
    open({str(place.outside / "secret")!r})
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    expected = errno.ENOENT if tier is Tier.BUBBLEWRAP else errno.EACCES
    assert told(place, tier, code) == [errno.errorcode[expected]]


@BOTH
@EVERYBODY
def test_nobody_counts_memory_in_anonymous_files(identity: Identity, tier: Tier, place: Scene) -> None:
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


@BOTH
@EVERYBODY
def test_shared_pages_are_counted_once(identity: Identity, tier: Tier, place: Scene) -> None:
    code = """
import os, time
data = bytearray(b"x" * (60 << 20))
for _ in range(9):
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
time.sleep(2.5)
print("alive")
"""
    assert told(place, tier, code, "--limit", "memory_bytes=256M") == ["alive"]


@BOTH
@EVERYBODY
def test_address_space_is_not_limited(identity: Identity, tier: Tier, place: Scene) -> None:
    code = "import mmap; print(len(mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE, mmap.PROT_READ)) >> 30)"
    assert told(place, tier, code, "--limit", "memory_bytes=256M") == ["64"]


@BUBBLEWRAP
@EVERYBODY
def test_processes_are_counted_for_each_sandbox(identity: Identity, tier: Tier, place: Scene) -> None:
    fork = "import os, time\nfor _ in range(30):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\n"
    limit = ("--limit", "processes=40")
    with confined(place, tier, fork + WAIT, *limit), confined(place, tier, fork + WAIT, *limit):
        pass


@BOTH
@ROOT
def test_every_sandbox_of_root_has_a_user_of_its_own(identity: Identity, tier: Tier, place: Scene) -> None:
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
@ROOT
def test_a_program_in_a_closed_home_runs(identity: Identity, tier: Tier, place: Scene) -> None:
    """Root's own pyenv lies in /root, which no other user can enter: without mounts it must be root who runs it."""
    closed = place.root / "closed"
    closed.mkdir(mode=0o700)
    (closed / "tools").mkdir()
    program = closed / "tools" / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    run = place.run(tier, [str(program)], "--network", "none", "--read", str(program.parent))
    assert (run.status, run.stdout) == (0, b"ran\n"), run.stderr
    as_root = [gap for gap in run.receipt["gaps"] if gap.startswith("user: root without") and str(closed) in gap]
    assert (run.receipt["uid"] == 0, len(as_root)) == (tier is Tier.LANDLOCK, tier is Tier.LANDLOCK)


@BOTH
@EVERYBODY
def test_input_that_nobody_reads_holds_nobody_up(identity: Identity, tier: Tier, place: Scene) -> None:
    with place.start(tier, ["sleep", "60"], "--network", "none", "--limit", "wall_s=0.5", gives_input=True) as fork:
        _, stderr = fork.communicate(b"x" * (1 << 20), END_S)
    assert fork.returncode == 128 + 9
    assert b"wall_s" in stderr


@BOTH
@ROOT
def test_control_groups_are_removed(identity: Identity, tier: Tier, place: Scene) -> None:
    """The kernel keeps an empty one for ever."""
    with place.start(tier, ["true"], "--network", "none") as fork:
        assert fork.wait(END_S) == 0
    assert list(Path("/sys/fs/cgroup").glob(f"**/qd-{fork.pid}-*")) == []


@pytest.mark.anyio
@pytest.mark.usefixtures("neighbour")  # it keeps the zygote
@pytest.mark.parametrize("holds", [False, True], ids=["alone", "with a daemon that holds its stderr"])
async def test_a_server_that_closes_its_stdout_is_over(holds: bool) -> None:
    daemon = "os.fork() or os.setsid()" if holds else "None"
    with no_leftovers():
        fault = await fault_at_open(
            python_config("closing", f"import os, time; {daemon}; os.close(1); time.sleep(600)")
        )
        assert_fault(fault, "spawn_failed", "handshake_failed", "not_sent", "closed its stdout")


@pytest.mark.anyio
@pytest.mark.usefixtures("neighbour")  # it keeps the zygote
async def test_a_server_that_leaves_holders_of_its_pipes_is_over() -> None:
    with no_leftovers():
        fault = await fault_at_open(
            python_config("leaving", "import os, time; os.fork() and os._exit(3); time.sleep(600)")
        )
        assert_fault(fault, "spawn_failed", "exited_at_handshake", "not_sent", "exited with status 3")
