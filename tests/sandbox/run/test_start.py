"""Starting a confinement: what was promised holds inside, and the receipt says so."""

import os
import signal
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from support.processes.identities import plain_python
from support.processes.leftovers import is_running
from support.sandbox.confinements import (
    BUBBLEWRAP_ONLY,
    GRACE_S,
    PATH,
    PATIENCE_S,
    TIERS,
    TierHome,
    leaves_nothing,
    required,
    run,
)
from support.sandbox.gates import GATE
from support.sandbox.machine_facts import ROOT_ONLY
from support.waiting import eventually_async

from quarterdeck_protocol.policy_values import LimitValues, Property, Tier
from quarterdeck_sandbox.doctor.trials import try_cgroups
from quarterdeck_sandbox.policy.host_names import Route
from quarterdeck_sandbox.policy.machine import Cgroups
from quarterdeck_sandbox.policy.mounts import Mount, MountKind
from quarterdeck_sandbox.program.launch import LaunchError, LaunchPlan
from quarterdeck_sandbox.run.cgroup import Cgroup
from quarterdeck_sandbox.run.process import ConfinedProcess
from quarterdeck_sandbox.run.spawn import Stdio
from quarterdeck_sandbox.run.start import run_foreground, start

pytestmark = pytest.mark.process


async def test_what_was_promised_is_found_inside(tier_home: TierHome) -> None:
    """Every start would be called weaker than it is, or a receipt would not be what holds."""
    made = tier_home.shell("exit 0")
    with leaves_nothing():
        status, out, receipt = await run(made)
    assert (status, out) == (0, "")
    assert receipt.findings == made.promised
    assert (receipt.tier, receipt.gaps, receipt.shown) == (tier_home.tier, made.gaps, made.view.shown)
    assert receipt.uid == (made.identity.uid if made.identity else None)


async def test_a_program_reads_what_it_is_shown_and_writes_its_home(tier_home: TierHome) -> None:
    """A server could not work at all."""
    plan = LaunchPlan("/bin/sh", ("sh", "-c", "read x; echo $x >file; cat file"), {"PATH": PATH}, str(tier_home.home))
    assert (await run(tier_home.confine(plan), b"hello\n"))[:2] == (0, "hello\n")
    assert (tier_home.home / "file").read_text() == "hello\n"


@pytest.mark.parametrize("tier_home", TIERS[:2], indirect=True)
async def test_what_is_not_shown_cannot_be_read(tier_home: TierHome) -> None:
    """The whole purpose."""
    secret = tier_home.home.parent / "secret"
    secret.write_text("secret")
    made = required(tier_home, Property.FILESYSTEM, f"LC_ALL=C cat {secret} 2>&1", secrets=(str(secret),))
    # Programs go on without a file that does not exist; Landlock can only forbid it.
    why = "No such file or directory" if tier_home.tier is Tier.BUBBLEWRAP else "Permission denied"
    assert (await run(made))[:2] == (1, f"cat: {secret}: {why}\n")


@BUBBLEWRAP_ONLY
async def test_only_what_is_meant_to_be_is_writable(tier_home: TierHome) -> None:
    """The root, /dev and folders on the way are writable file systems of half the memory unless they are closed."""
    places = f"/ /dev /dev/shm /tmp /usr /etc /proc {tier_home.home.parent} {tier_home.home}"
    script = f"for place in {places}; do (echo >$place/new) 2>/dev/null && echo $place; done; true"
    writable = (await run(tier_home.shell(script)))[1].split()
    # What lies in /tmp is made in it, and no more room than that.
    expected = {"/dev/shm", "/tmp", str(tier_home.home)}
    assert set(writable) - {str(tier_home.home.parent)} == expected


@BUBBLEWRAP_ONLY
async def test_file_systems_in_memory_have_the_size_of_the_limit(tier_home: TierHome) -> None:
    """A server could fill the memory with files."""
    limits = LimitValues(scratch_bytes=8 << 20)
    made = tier_home.shell("df -k --output=size /tmp /dev/shm", limits=limits)
    assert (await run(made))[1].split()[1:] == ["8192", "8192"]


@BUBBLEWRAP_ONLY
@ROOT_ONLY
async def test_root_can_show_a_home_that_is_closed_to_others(tier_home: TierHome) -> None:
    """A server below /root would not start."""
    tier_home.home.parent.chmod(0o700)
    plan = LaunchPlan("/bin/sh", ("sh", "-c", "echo hello >file; id -u"), {"PATH": PATH}, str(tier_home.home))
    made = tier_home.confine(plan)
    assert made.identity is not None
    assert (await run(made))[:2] == (0, f"{made.identity.uid}\n")


@BUBBLEWRAP_ONLY
async def test_texts_links_and_hidden_places_are_what_is_seen(tier_home: TierHome) -> None:
    """A name would not be found, or a hidden file would be seen."""
    (tier_home.home / "file").write_text("secret")
    (tier_home.home / "folder").mkdir()
    (tier_home.home / "folder" / "inner").write_text("secret")
    tier_home.own(*tier_home.home.rglob("*"))
    made = tier_home.shell(
        f"cat /made/text; readlink /made/link; cd {tier_home.home}; cat file folder/inner 2>/dev/null; ls"
    )
    mounts = [
        Mount(MountKind.DATA, "/made/text", "a text\n"),
        Mount(MountKind.LINK, "/made/link", "text"),
        Mount(MountKind.HIDE, f"{tier_home.home}/file", "file"),
        Mount(MountKind.HIDE, f"{tier_home.home}/folder", "directory"),
    ]
    made = replace(made, view=made.view.with_mounts(mounts))
    assert (await run(made))[1] == "a text\ntext\nfile\nfolder\n"


async def test_with_our_own_streams_only_the_words_on_stderr_are_taken(tier_home: TierHome) -> None:
    """A command that is tried out would not be heard."""
    with anyio.fail_after(PATIENCE_S):
        process = await start(tier_home.shell("echo oops >&2; exit 4"), Stdio.FOREGROUND)
        assert (process.stdin_fd, process.stdout_fd) == (-1, -1)
        assert await process.wait() == 4
        await anyio.wait_readable(process.stderr_fd)
        assert os.read(process.stderr_fd, 100) == b"oops\n"
        await process.stop(GRACE_S)
        process.close_fds()


DIALLER = """
import socket, sys
for port in sys.argv[2:]:
    try:
        with socket.create_connection((sys.argv[1], int(port)), timeout=20) as one:
            print(one.recv(100).decode())
    except OSError as error:
        print(type(error).__name__)
"""


@BUBBLEWRAP_ONLY
async def test_listed_hosts_are_reached_through_listeners_also_on_low_ports(tier_home: TierHome) -> None:
    """A server with a list of hosts could reach none; or it would keep the right that listening took."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        low, python = 1, plain_python()
        routes = (Route("127.0.0.1", port, "127.64.0.1"), Route("127.0.0.1", low, "127.64.0.1"))
        argv = (python, "-I", "-S", "-c", DIALLER, "127.64.0.1", str(port), str(low), "2")
        made = tier_home.confine(LaunchPlan(python, argv, {}, "/"), network=tuple(map(str, routes)), routes=routes)
        made = replace(made, seccomp=tier_home.filter(inet=True))

        async def serve() -> None:
            await anyio.wait_readable(there)
            accepted, _ = there.accept()
            accepted.sendall(b"hello")
            accepted.close()

        with leaves_nothing():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                status, out, receipt = await run(made)
                tasks.cancel_scope.cancel()
    assert (status, out.split()) == (0, ["hello", "ConnectionResetError", "ConnectionRefusedError"])
    assert receipt.findings == made.promised


@BUBBLEWRAP_ONLY
async def test_why_a_listed_host_is_not_reached_is_among_the_last_words(tier_home: TierHome) -> None:
    """A user would read of a connection that was reset, and look for the fault at the host."""
    python, route = plain_python(), Route("nowhere.invalid", 8443, "127.64.0.1")
    argv = (python, "-I", "-S", "-c", DIALLER, route.address, str(route.port))
    made = tier_home.confine(LaunchPlan(python, argv, {}, "/"), network=(str(route),), routes=(route,))
    _, dossier = await foreground(replace(made, seccomp=tier_home.filter(inet=True)))
    assert dossier.hints[-1].startswith("no connection to nowhere.invalid:8443: the name is not known")


@BUBBLEWRAP_ONLY
async def test_a_network_that_cannot_be_made_is_not_taken_for_a_broken_bubblewrap(
    tier_home: TierHome, tmp_path: Path
) -> None:
    """The user would be told to mend bubblewrap, and `network_failed` would never be seen."""
    gate = tmp_path / "gate"
    gate.write_text(f'#!/bin/sh\n[ "$1" != network ] && exec {GATE} "$@"\n')
    gate.chmod(0o755)
    made = tier_home.shell("true", routes=(Route("127.0.0.1", 1, "127.64.0.1"),), identity=None)
    with leaves_nothing(), pytest.raises(LaunchError, match="the sandbox's network could not be made") as caught:
        await start(replace(made, machine=replace(made.machine, gate=str(gate))))
    assert caught.value.code == "network_failed"


@pytest.fixture
def groups() -> Cgroups:
    """This machine's control groups; skips where there are none of ours."""
    found = try_cgroups(os.geteuid())
    if not found.controllers:
        pytest.skip("no control groups that we may write to")
    return found


def controllers_of(text: str) -> set[str]:
    """In whose groups of ours a process is, by its /proc/PID/cgroup; of version 2 by an empty name."""
    lines = (line.split(":", 2) for line in text.splitlines())
    return {name for _, names, path in lines if f"/qd-{os.getpid()}-" in path for name in names.split(",")}


@pytest.mark.parametrize("is_closed", [False, True], ids=["by itself", "moved"])
async def test_a_program_begins_in_its_control_group(
    tier_home: TierHome, groups: Cgroups, monkeypatch: pytest.MonkeyPatch, *, is_closed: bool
) -> None:
    """What it takes with its first instructions would be nobody's; also where it cannot join by itself."""
    entrances, join, moved = Cgroup.entrances, Cgroup.join, []

    @contextmanager
    def closed(group: Cgroup) -> Iterator[dict[Path, int]]:
        with entrances(group) as found, open(os.devnull, "rb") as nothing:
            yield dict.fromkeys(found, nothing.fileno())

    def noted(group: Cgroup, pid: int, joined: Collection[Path]) -> None:
        moved.extend(set(group._places()) - set(joined))
        join(group, pid, joined)

    if is_closed:
        monkeypatch.setattr(Cgroup, "entrances", closed)
    monkeypatch.setattr(Cgroup, "join", noted)
    made = tier_home.shell("cat /proc/self/cgroup")
    made = replace(made, machine=replace(made.machine, cgroups=groups))
    with leaves_nothing():
        status, out, _ = await run(made)
    assert status == 0
    expected = {name if name in groups.legacy else "" for name in groups.controllers}
    # A group without limits is of use for its end alone, which a process namespace sees to.
    ends = {""} if groups.unified and tier_home.tier is not Tier.BUBBLEWRAP else set()
    assert controllers_of(out) == expected | ends
    assert bool(moved) is is_closed


async def foreground(confinement: Any) -> tuple[int, Any]:
    with anyio.fail_after(PATIENCE_S):
        return await run_foreground(confinement, (), lambda process: None)


async def test_a_command_speaks_through_us_and_its_end_is_told(
    tier_home: TierHome, capfd: pytest.CaptureFixture[str]
) -> None:
    """Who tries a policy would see nothing of what the command says."""
    code, dossier = await foreground(tier_home.shell("echo out; echo oops >&2; exit 3"))
    assert capfd.readouterr() == ("out\n", "oops\n")
    assert (code, dossier.exit_status, dossier.signal, dossier.limit) == (3, 3, None, None)
    assert dossier.stderr_tail == "oops\n"
    assert (dossier.uptime_s or 0) > 0


async def test_a_death_by_signal_is_told_as_one(tier_home: TierHome) -> None:
    """A crash would look like an exit status."""
    code, dossier = await foreground(tier_home.shell("kill -SEGV $$"))
    assert (code, dossier.exit_status, dossier.signal) == (-signal.SIGSEGV, None, signal.SIGSEGV)


async def test_a_limit_that_we_watch_ends_it_and_is_named(tier_home: TierHome) -> None:
    """A limit on time would hold for servers only."""
    made = tier_home.shell("trap '' TERM; while :; do /bin/sleep 1; done")
    code, dossier = await foreground(replace(made, limits=LimitValues(wall_s=0.2)))
    assert (code, dossier.limit) == (-signal.SIGKILL, "wall_s")
    assert dossier.hints


async def test_the_loss_of_its_network_is_told(tier_home: TierHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tries a policy would take it for the policy's doing."""

    async def lost(_: ConfinedProcess) -> str:
        return "slirp4netns was killed by SIGKILL"

    monkeypatch.setattr(ConfinedProcess, "network_lost", lost)
    _, dossier = await foreground(tier_home.shell("exit 3"))
    assert "its network failed before it ended (slirp4netns was killed by SIGKILL)" in dossier.hints


async def test_giving_up_ends_the_whole_tree(tier_home: TierHome) -> None:
    """A command that is interrupted would run on."""
    started: list[int] = []
    with anyio.fail_after(PATIENCE_S), anyio.CancelScope() as scope:

        def on_start(process: ConfinedProcess) -> None:
            started.append(process.pid)
            scope.cancel()

        await run_foreground(tier_home.shell("while :; do /bin/sleep 1000; done"), (), on_start)
    assert scope.cancelled_caught
    await eventually_async(lambda: not is_running(started[0]))
