"""The facts of a machine: real ones where there are some, pretended where not."""

import ctypes
import errno
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from support.processes.running import python_child, run
from support.sandbox.gates import GATE
from support.sandbox.machine_facts import NO_MOUNT_NAMESPACE, ROOT_ONLY, USER_ONLY
from support.waiting import eventually

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.doctor import probe
from quarterdeck_sandbox.doctor.probe import (
    container_kind,
    covers_range,
    has_capabilities,
    known_machine,
    probe_machine,
    probe_more,
    try_gate,
    try_other_users,
)
from quarterdeck_sandbox.doctor.trials import TrialEnd
from quarterdeck_sandbox.gate import program as gate_program
from quarterdeck_sandbox.network import uplink
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine

CONNECTED = Machine(
    system="linux",
    euid=os.geteuid(),
    bubblewrap=Bubblewrap(path="/usr/bin/bwrap", works=True, makes_network=True),
    pasta="/usr/bin/pasta",
    slirp4netns="/usr/bin/slirp4netns",
)


@pytest.mark.process
def test_a_real_machine_tells_who_it_is() -> None:
    """Receipts would speak of another machine."""
    machine = probe_machine()
    assert (machine.system, machine.kernel, machine.euid) == ("linux", os.uname().release, os.geteuid())
    assert machine.tier in Tier
    assert not (machine.pasta or machine.slirp4netns) or not machine.uplink_why


@pytest.mark.process
def test_programs_of_the_system_come_before_those_of_our_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command could plant a bwrap in its workspace's virtual environment, and be run outside at the next start."""
    names = [name for name in ("bwrap", "pasta", "slirp4netns") if shutil.which(name, path="/usr/bin:/bin")]
    for name in names:
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/run\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine = probe_machine()
    found = {"bwrap": machine.bubblewrap.path, "pasta": machine.pasta, "slirp4netns": machine.slirp4netns}
    assert not [name for name in names if found[name] == str(tmp_path / name)]
    assert not (tmp_path / "run").exists()


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "why"),
    [
        (None, "this installation was built without a C compiler"),
        ("", "it does not run here: "),
        ("exit 1", "it does not run here: "),
        ("echo quarterdeck-gate other 0123", "it is of other sources than these"),
        (f"echo {gate_program.version(os.uname().machine)[:-1]}", "it is of other sources than these"),
        (f"echo {gate_program.version(os.uname().machine)}", ""),
    ],
    ids=["none", "not executable", "failing", "another machine's", "stale", "good"],
)
def test_a_gate_is_used_only_if_it_runs_and_is_of_these_sources(
    program: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every server would fail to start after an update of a checkout, or where a policy forbids unknown programs."""
    place = tmp_path / "gate"
    monkeypatch.setattr(probe, "PROGRAM", str(place))
    if program is not None:
        place.write_text(f"#!/bin/sh\n{program}\n")
        place.chmod(0o755 if program else 0o644)
    gate, reason = try_gate("x86_64" if os.uname().machine not in gate_program.ARCHITECTURES else os.uname().machine)
    assert gate == ("" if why else str(place))
    assert reason.startswith(why)
    assert bool(reason) is bool(why)


def test_where_a_wheel_has_no_sources_only_the_architecture_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No installed gate would ever be used."""
    monkeypatch.setattr(gate_program, "SOURCES", "/no/such/folder")
    assert gate_program.version("aarch64") == "quarterdeck-gate aarch64 "


def test_another_architecture_has_no_gate() -> None:
    """A user of one would be told to look for what does not exist."""
    assert try_gate("riscv64") == ("", "there is none for riscv64")


@pytest.mark.process
@pytest.mark.parametrize("trial", ["closing", "bubblewrap"])
def test_a_probe_that_is_killed_leaves_no_folder(trial: str, tmp_path: Path) -> None:
    """Each client that is killed while it starts would leave its folders in /tmp."""
    attempt = {"closing": "try_closing(uid, '/gate')", "bubblewrap": "_nests_safely('bwrap', (), uid)"}[trial]
    module = {"closing": "probe", "bubblewrap": "trials"}[trial]
    code = f"""import os, time
from quarterdeck_sandbox.doctor import {module} as trial
def run(*_, **__): print(*os.listdir({str(tmp_path)!r}), flush=True); time.sleep(600)
trial.run, uid = run, os.geteuid()
trial.{attempt}"""
    with python_child(code, env={**os.environ, "TMPDIR": str(tmp_path)}) as child:
        assert child.read_line().startswith(b"quarterdeck-trial-")
        child.kill()
    eventually(lambda: not os.listdir(tmp_path), what="the removal of its folder")


@pytest.mark.process
@ROOT_ONLY
def test_root_can_ask_what_an_ordinary_user_has() -> None:
    """The tests of the user's tier would try root's."""
    machine = probe_machine(uid=12_345)
    assert machine.euid == 12_345
    assert probe_more(machine) == machine


def test_another_system_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac would be asked for Linux's calls."""
    monkeypatch.setattr(sys, "platform", "darwin")
    machine = probe_machine()
    assert (machine.system, machine.tier, machine.gives_internet) == ("darwin", Tier.LIMITS, False)
    assert machine.lacks_gate is not None
    assert "and this is darwin on" in machine.lacks_gate[0]


@pytest.mark.parametrize(
    ("broken", "left"),
    [
        ((), {"pasta": ""}),
        (("/usr/bin/slirp4netns",), {"slirp4netns": ""}),
        (("/usr/bin/slirp4netns", "/usr/bin/pasta"), {"pasta": "", "slirp4netns": "", "uplink_why": "broken; broken"}),
    ],
    ids=["the first works", "the other works", "none works"],
)
def test_the_first_helper_that_works_is_kept(
    broken: tuple[str, ...], left: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt would name one helper while the other is used; a broken one would cost, or promise, the internet."""

    def why_not(machine: Machine) -> str:
        return "broken" if (machine.slirp4netns or machine.pasta) in broken else ""

    monkeypatch.setattr(uplink, "why_not", why_not)
    assert probe_more(CONNECTED) == replace(CONNECTED, **left)


def test_a_machine_without_helpers_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start would pay for a trial that cannot succeed."""
    monkeypatch.setattr(uplink, "why_not", lambda machine: pytest.fail("tried"))
    machine = replace(CONNECTED, pasta="", slirp4netns="")
    assert probe_more(machine) == machine


def test_a_machine_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start would cost tens of milliseconds more."""
    known_machine.cache_clear()
    machines = iter([Machine(system="linux")])
    monkeypatch.setattr(probe, "probe_machine", lambda: next(machines))
    assert known_machine() is known_machine()
    known_machine.cache_clear()


@pytest.mark.parametrize(
    ("environ", "kernel", "markers", "kind"),
    [
        ({}, "6.12.0", [], ""),
        ({}, "6.12.0", ["/.dockerenv"], "docker"),
        ({}, "6.12.0", ["/run/.containerenv"], "podman"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "6.12.0", [], "kubernetes"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "6.12.0", ["/.dockerenv"], "kubernetes (docker)"),
        ({"container": "lxc"}, "6.12.0", [], "lxc"),
        ({}, "6.12.0", [f"0::/system.slice/docker-{'ab' * 32}.scope"], "docker"),
        ({}, "6.12.0", [f"4:memory:/machine.slice/libpod-{'ab' * 32}.scope/container"], "podman"),
        ({}, "6.12.0", [f"2:cpu:/kubepods/burstable/pod{'ab' * 16}/{'cd' * 32}"], "kubernetes"),
        ({}, "6.12.0", ["0::/system.slice/docker.service", "0::/user.slice/user-1000.slice/session-2.scope"], ""),
        ({}, "5.15.167-Microsoft-standard-WSL2", [], "wsl"),
    ],
)
def test_a_container_is_known_by_its_traces(
    environ: dict[str, str], kernel: str, markers: list[str], kind: str
) -> None:
    """The remedy for a container would be told to somebody who has none."""
    groups = "\n".join(each for each in markers if ":" in each)
    assert container_kind(environ, kernel, [each for each in markers if ":" not in each], groups) == kind


def test_a_device_that_is_closed_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """`standard` would be promised a network that no helper can give."""
    monkeypatch.setattr(probe, "TUN_DEVICE", "/no/such/device")
    assert "cannot be opened" in probe._tun_reason(os.geteuid())
    assert "closed to ordinary users" in probe._tun_reason(os.geteuid() + 1)
    monkeypatch.setattr(probe, "TUN_DEVICE", "/dev/null")
    assert probe._tun_reason(os.geteuid()) == probe._tun_reason(os.geteuid() + 1) == ""


MOUNT_SETATTR: Final = 442  # its number, alike on every architecture


@pytest.mark.process
def test_it_holds_wherever_the_systems_own_programs_do_the_same(tmp_path: Path) -> None:
    """Were what closes broken, every test of it would be skipped, as on a machine that cannot do it."""
    (tmp_path / "file").touch()
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0/file"'
    become_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    words = ("unshare", *become_root, "--mount", "sh", "-c", script, str(tmp_path))
    if shutil.which("unshare") is None or run(*words).returncode:
        pytest.skip(NO_MOUNT_NAMESPACE)
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall(MOUNT_SETATTR, -1, b"", 0, None, 0)
    if ctypes.get_errno() == errno.ENOSYS:
        pytest.skip("this kernel has no mount_setattr")
    assert probe.try_closing(os.geteuid(), GATE)


def leave_all_open(folder: str) -> None:
    os.makedirs(f"{folder}/inner", exist_ok=True)
    for name in ("open", "inner/closed"):
        Path(folder, name).write_text("x")


def move_away(folder: str) -> None:
    Path(folder, "open").write_text("x")
    os.rename(f"{folder}/inner", f"{folder}/moved")


@pytest.mark.process
@pytest.mark.parametrize(
    ("act", "said"),
    [(leave_all_open, ""), (move_away, ""), (lambda _: None, "Operation not permitted")],
    ids=["nothing is closed", "its folder can be moved away", "no mount namespace"],
)
def test_a_machine_that_cannot_close_is_seen(
    act: Callable[[str], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configuration in a workspace would be believed to be closed; or every command fail without a word."""

    def play(argv: list[str], *, uid: int, pass_fds: tuple[int, ...]) -> TrialEnd:
        act(_order(pass_fds[0]))
        return TrialEnd(said)

    monkeypatch.setattr(probe, "run", play)
    assert not probe.try_closing(os.geteuid(), GATE)


def _order(fd: int) -> str:
    """The folder of an order to close: the longest path that all of it is below."""
    return min(re.findall(rb"/[^\0]*quarterdeck-trial-[^\0/]*", os.pread(fd, 65536, 0)), key=len).decode()


@pytest.mark.parametrize(
    ("capabilities", "held"),
    [("000001ffffffffff", True), ("00000000a80425fb", True), ("00000000a804255b", False), ("0" * 16, False)],
)
def test_each_capability_that_it_takes_must_be_there(capabilities: str, held: bool) -> None:
    """Every start would fail where a container was given fewer."""
    assert has_capabilities(f"Name:\tx\nCapPrm:\tff\nCapEff:\t{capabilities}\n") is held


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("         0          0 4294967295\n", True),
        ("0 1000 1\n1 100000 65536\n", True),
        ("0 1000 1\n", False),
        ("0 1000 1\n1 100000 1000\n", False),
        ("", False),
    ],
)
def test_the_users_that_are_taken_must_be_mapped(text: str, covered: bool) -> None:
    """A rootless container with one user would refuse every start."""
    assert covers_range(text) is covered


@USER_ONLY
def test_an_ordinary_user_cannot() -> None:
    """Nobody would be asked."""
    assert try_other_users() is False
