"""Starts that are refused, fail or are given up: the reason is told, and nothing is left."""

import os
import signal
from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from support.sandbox.confinements import BUBBLEWRAP_ONLY, GRACE_S, PATIENCE_S, TierHome, leaves_nothing, required, run

from quarterdeck_protocol.policy_values import LimitValues, NetworkMode, Property, Tier
from quarterdeck_sandbox.network.uplink import Uplink
from quarterdeck_sandbox.policy.confinement import Report
from quarterdeck_sandbox.policy.host_names import Route
from quarterdeck_sandbox.policy.machine import Cgroups, Machine
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, View
from quarterdeck_sandbox.policy.promises import PropertyFinding, Strength
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run import start as start_module
from quarterdeck_sandbox.run.spawn import GateChannel
from quarterdeck_sandbox.run.start import start

pytestmark = pytest.mark.process


async def test_without_a_required_property_the_program_never_runs(tier_home: TierHome) -> None:
    """A hostile program would have run before anybody knew that it is not confined."""
    readable = tier_home.home / "readable"
    readable.write_text("")
    tier_home.own(readable)
    made = required(tier_home, Property.FILESYSTEM, f"echo ran >{tier_home.home}/ran", secrets=(str(readable),))
    with leaves_nothing(), pytest.raises(LaunchError, match="requires filesystem") as caught:
        await start(made)
    assert caught.value.code == "sandbox_refused"
    assert not (tier_home.home / "ran").exists()


async def test_a_limit_that_the_machine_refuses_is_a_gap_unless_it_is_required(tier_home: TierHome) -> None:
    """A start would silently be weaker, or impossible."""
    made = tier_home.shell("exit 0")
    machine = replace(made.machine, cgroups=Cgroups(controllers={"memory": "/no/such/place"}))
    made = replace(
        made, machine=machine, promised={**made.promised, Property.MEMORY: PropertyFinding("group", Strength.FULL)}
    )
    with leaves_nothing():
        status, _, receipt = await run(made)
    assert status == 0
    assert receipt.findings[Property.MEMORY].strength is Strength.NONE
    assert [gap for gap in receipt.gaps if "/no/such/place" in gap]
    with leaves_nothing(), pytest.raises(LaunchError, match="requires memory"):
        await start(replace(made, required=(Property.MEMORY,)))


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def broken(tier_home: TierHome, path: Path, text: str) -> Any:
    """A confinement whose first program of ours is `text`."""
    made = tier_home.shell("exit 0")
    fake = script(path, text)
    if tier_home.tier is Tier.BUBBLEWRAP:
        return replace(made, machine=replace(made.machine, bubblewrap=replace(made.machine.bubblewrap, path=fake)))
    return replace(made, machine=replace(made.machine, gate=fake))


async def test_a_sandbox_that_is_never_ready_is_given_up(
    tier_home: TierHome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client would wait for ever."""
    made = broken(tier_home, tmp_path / "deaf", "exec /bin/sleep 1000")
    monkeypatch.setattr(start_module, "GATE_S", 0.2)
    with leaves_nothing(), anyio.fail_after(PATIENCE_S), pytest.raises(LaunchError) as caught:
        await start(made)
    assert caught.value.code == "spawn_failed"
    assert "not ready within 0.2 s" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said", "number"),
    [
        ("echo 'setting up uid map: denied' >&2; exit 1", "setting up uid map: denied", None),
        ("kill -KILL $$", "without output", signal.SIGKILL),
        ("exit 1", "without output", None),
    ],
    ids=["fails", "is killed", "fails in silence"],
)
async def test_a_sandbox_that_ends_before_its_program_begins_is_quoted(
    tier_home: TierHome, tmp_path: Path, text: str, said: str, number: int | None
) -> None:
    """A user would not learn that the kernel forbids namespaces; a server that was killed meanwhile would stay away."""
    made = broken(tier_home, tmp_path / "failing", text)
    with leaves_nothing(), anyio.fail_after(PATIENCE_S), pytest.raises(LaunchError, match=said) as caught:
        await start(made)
    assert (caught.value.code, caught.value.signal) == ("spawn_failed", number)


async def test_a_sandbox_that_is_not_there_is_an_error_in_words(tier_home: TierHome) -> None:
    """A package that was removed meanwhile would be a traceback."""
    made = tier_home.shell("exit 0")
    machine = replace(made.machine, bubblewrap=replace(made.machine.bubblewrap, path="/no/such/bwrap"))
    machine = replace(machine, gate="/no/such/gate")
    with leaves_nothing(), pytest.raises(LaunchError, match="/no/such") as caught:
        await start(replace(made, machine=machine))
    assert caught.value.code == "spawn_failed"


@BUBBLEWRAP_ONLY
@pytest.mark.parametrize("missing", ["source", "gate"])
async def test_what_bubblewrap_says_of_a_mount_is_quoted(tier_home: TierHome, missing: str) -> None:
    """A path that went away meanwhile would not be named."""
    made = tier_home.shell("exit 0")
    if missing == "source":
        made = replace(made, view=View((*made.view.mounts, Mount(MountKind.READ, "/x", "/no/such/source"))))
    else:
        made = replace(made, machine=replace(made.machine, gate="/no/such/gate"))
    with leaves_nothing(), anyio.fail_after(PATIENCE_S), pytest.raises(LaunchError, match=f"/no/such/{missing}"):
        await start(made)


@BUBBLEWRAP_ONLY
async def test_an_address_that_cannot_be_listened_on_is_named(tier_home: TierHome) -> None:
    """A start would hang until it is given up."""
    routes = (Route("a.example", 8080, "127.64.0.1"), Route("b.example", 8080, "127.64.0.1"))
    made = tier_home.shell("exit 0", network=("a.example:8080",), routes=routes)
    made = replace(made, seccomp=tier_home.filter(inet=True))
    with leaves_nothing(), anyio.fail_after(PATIENCE_S), pytest.raises(LaunchError, match=r"127\.64\.0\.1:8080"):
        await start(made)


@BUBBLEWRAP_ONLY
async def test_a_report_that_is_none_of_ours_is_refused(tier_home: TierHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that was killed would count as one that found nothing wrong."""

    async def nothing(keeper: GateChannel) -> None:
        return None

    monkeypatch.setattr(GateChannel, "receive_report", nothing)
    with leaves_nothing(), pytest.raises(LaunchError, match="before its program began"):
        await start(tier_home.shell("exit 0"))


# Giving up


class Group:
    """A control group that notes what is asked of it."""

    unmet: dict[Property, str] = {}  # noqa: RUF012 - nobody writes it
    enforced = frozenset({"memory_bytes"})
    peak_bytes = None

    def __init__(self) -> None:
        self.said: list[str] = []
        self.pids: list[int] = []

    def entrances(self) -> nullcontext[dict[Path, int]]:
        """None."""
        return nullcontext({})

    def join(self, pid: int, joined: Collection[Path]) -> None:
        assert not joined
        self.pids.append(pid)

    def kill(self) -> None:
        self.said.append("kill")

    def hit(self) -> str:
        return "memory_bytes"

    async def destroy(self) -> None:
        self.said.append("destroy")


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[Group]:
    made: list[Group] = []

    class Factory:
        """In the place of the real ones."""

        @staticmethod
        def create(cgroups: Cgroups, name: str, limits: LimitValues) -> Group:
            assert name.startswith(f"qd-{os.getpid()}-")
            made.append(Group())
            return made[-1]

    monkeypatch.setattr(start_module, "Cgroup", Factory)
    return made


def grouped(tier_home: TierHome, script: str) -> Any:
    made = tier_home.shell(script)
    return replace(made, machine=replace(made.machine, cgroups=Cgroups(controllers={"memory": "/x"})))


STAGES = ("send_order", "receive_listeners", "receive_report", "release")


@pytest.mark.parametrize("stage", STAGES)
async def test_a_start_that_is_given_up_leaves_nothing(
    tier_home: TierHome, stage: str, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is cancelled early would leave its server, a descriptor or a control group."""
    scope = anyio.CancelScope()

    async def give_up(*args: object) -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(GateChannel, stage, give_up)
    with leaves_nothing(), scope:
        await start(grouped(tier_home, f"echo ran >{tier_home.home}/ran"))
    assert scope.cancelled_caught
    assert not (tier_home.home / "ran").exists()
    assert all(group.said == ["kill", "destroy"] for group in groups)


@BUBBLEWRAP_ONLY
async def test_a_start_that_is_given_up_for_its_network_waits_until_that_is_cleared_up(
    tier_home: TierHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who stops a command at once would leave its network's helper, with nobody to reap it."""
    scope = anyio.CancelScope()
    reported, cleared = anyio.Event(), anyio.Event()
    receive_report = GateChannel.receive_report

    async def report(keeper: GateChannel) -> Report | None:
        reported.set()
        return await receive_report(keeper)

    async def connect(machine: Machine, child_pid: int, on_spawn: Callable[[], object]) -> Uplink:
        on_spawn()
        await reported.wait()
        try:
            await anyio.sleep(0.05)  # until nothing else is waited for
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError("for ever has ended")
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            cleared.set()

    monkeypatch.setattr(GateChannel, "receive_report", report)
    monkeypatch.setattr(start_module, "connect", connect)
    with leaves_nothing(), scope:
        await start(tier_home.shell("exit 0", network=NetworkMode.INTERNET))
    assert scope.cancelled_caught
    assert cleared.is_set()


async def test_a_control_group_holds_the_program_and_goes_with_it(tier_home: TierHome, groups: list[Group]) -> None:
    """Limits would be set on a group that nobody is in; groups would pile up; the limit that was hit had no name."""
    with anyio.fail_after(PATIENCE_S):
        process = await start(grouped(tier_home, "read line; kill -KILL $$"))
        [group] = groups
        tree = process.tree(())
        assert group.pids == [process.pid]
        assert "memory_bytes" in tree.enforced
        process.close_stdin()
        assert await process.wait() == -signal.SIGKILL
        assert process.limit == "memory_bytes"
        await process.stop(GRACE_S)
        process.close_fds()
    assert group.said == ["kill", "destroy"]


async def test_many_starts_at_once_do_not_meet(tier_home: TierHome) -> None:
    """Two servers would share a gate."""
    said: list[str] = []

    async def one(word: str) -> None:
        said.append((await run(tier_home.shell(f"echo {word}")))[1].strip())

    with leaves_nothing():
        async with anyio.create_task_group() as tasks:
            for word in ("a", "b", "c"):
                tasks.start_soon(one, word)
    assert sorted(said) == ["a", "b", "c"]
