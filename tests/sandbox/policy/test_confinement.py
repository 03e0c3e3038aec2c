"""From promises and observations to a receipt: what disagrees is worth nothing, what is required is there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.sandbox.bare_confinements import bare_confinement

from quarterdeck_protocol.policy_values import NetworkMode, Property, Tier
from quarterdeck_sandbox.policy.confinement import (
    Confinement,
    Report,
    UnixUser,
    describe_network,
    observe_receipt,
    refuse_unmet,
)
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine
from quarterdeck_sandbox.policy.mounts import View
from quarterdeck_sandbox.policy.promises import PropertyFinding, Strength
from quarterdeck_sandbox.program.launch import LaunchError

OURS = {"mnt": "mnt:[1]", "pid": "pid:[1]", "net": "net:[1]"}
MACHINE = Machine("linux", bubblewrap=Bubblewrap("/b", works=True, makes_network=True), landlock_abi=6, seccomp=True)

SEALED = {
    "ns.mnt": ("mnt:[2]",),
    "ns.pid": ("pid:[2]",),
    "ns.net": ("net:[2]",),
    "status.Seccomp": ("2",),
    "status.NoNewPrivs": ("1",),
    "status.CapPrm": ("0000000000000000",),
    "status.CapEff": ("0000000000000000",),
    "signals_owner": ("0",),
    "holds_first": ("0",),
    "changes_metadata": ("0",),
    "socket.inet": ("0",),
    "rlimit.6": ("64",),
}
"""What a gate finds behind which all is well."""


def confinement(**changes: Any) -> Confinement:
    made = bare_confinement(
        promised={name: PropertyFinding(f"the {name} way", Strength.FULL) for name in Property},
        gaps=("a gap of the choice",),
        view=View(shown=("/data (read)",)),
        rlimits=((6, 64),),
        seccomp=b"filter",
        machine=MACHINE,
    )
    return replace(made, **changes)


def report(**facts: str | None) -> Report:
    """A sealed sandbox but for `facts`; `__` stands for a dot."""
    found = {key.replace("__", "."): value for key, value in facts.items()}
    return Report(
        {
            key: (value,)
            for key, value in ({key: one for key, (one,) in SEALED.items()} | found).items()
            if value is not None
        },
        7,
    )


def test_what_was_closed_and_is_open_starts_nothing() -> None:
    """A server would write itself a configuration where a kernel does not do as it says."""
    made = confinement(view=View(closed=("/w/mcp.json",)))
    assert observe_receipt(made, report(), OURS, {}).findings == made.promised
    with pytest.raises(LaunchError, match=r"/w/mcp.json can be written from inside") as caught:
        observe_receipt(made, report(writable="/w/mcp.json"), OURS, {})
    assert caught.value.code == "sandbox_refused"


def test_a_promise_that_was_observed_is_in_the_receipt() -> None:
    """`inspect` would show nothing, or something else than what is in force."""
    made = confinement(identity=UnixUser(61200, 61200, dedicated=True))
    receipt = observe_receipt(made, report(), OURS, {})
    assert receipt.findings == made.promised
    assert (receipt.tier, receipt.uid, receipt.network) == (Tier.BUBBLEWRAP, 61200, "none")
    assert (receipt.shown, receipt.gaps) == (("/data (read)",), ("a gap of the choice",))


LANDLOCK = {"tier": Tier.LANDLOCK}


@pytest.mark.parametrize(
    ("changes", "facts", "name", "words"),
    [
        ({}, {"opened": "/home/u/.ssh/id"}, "filesystem", "/home/u/.ssh/id can be opened"),
        ({}, {"writable": "/usr"}, "filesystem", "/usr can be written"),
        ({}, {"ns__mnt": "mnt:[1]"}, "filesystem", "our mounts"),
        ({}, {"ns__mnt": ""}, "filesystem", "our mounts"),
        (LANDLOCK, {"opened": "/x"}, "filesystem", "/x can be opened"),
        (LANDLOCK, {"changes_metadata": "1"}, "filesystem", "metadata of files outside can be changed"),
        (LANDLOCK, {"changes_metadata": None}, "filesystem", "metadata of files outside can be changed"),
        ({}, {"ns__net": "net:[1]"}, "network", "shares our network"),
        ({}, {"socket__inet": "1"}, "network", "internet sockets"),
        ({}, {"socket__inet": None}, "network", "internet sockets"),
        ({"network": ("a.example:1",)}, {"ns__net": "net:[1]"}, "network", "shares our network"),
        (LANDLOCK, {"socket__inet": "1"}, "network", "internet sockets"),
        ({}, {"ns__pid": "pid:[1]"}, "processes", "sees our processes"),
        (LANDLOCK, {"signals_owner": "1"}, "processes", "may signal"),
        (LANDLOCK, {"signals_owner": None}, "processes", "may signal"),
        ({}, {"status__Seccomp": "0"}, "syscalls", "no filter"),
        ({}, {"status__Seccomp": None}, "syscalls", "no filter"),
        ({}, {"status__NoNewPrivs": "0"}, "syscalls", "new privileges"),
        ({}, {"status__CapPrm": "0000000000000400"}, "syscalls", "capabilities are left"),
        ({}, {"status__CapEff": None}, "syscalls", "capabilities are left"),
        ({}, {"ns__pid": "pid:[1]"}, "tree_death", "no process namespace"),
        ({}, {"rlimit__6": "65"}, "process_count", "limit 6 is 65, not 64"),
        ({}, {"rlimit__6": "-1"}, "process_count", "limit 6 is -1"),
        ({}, {"rlimit__6": None}, "process_count", "limit 6 is unknown"),
    ],
)
def test_what_was_observed_otherwise_is_worth_nothing(
    changes: dict[str, Any], facts: dict[str, str | None], name: str, words: str
) -> None:
    """A receipt would claim what does not hold."""
    receipt = observe_receipt(confinement(**changes), report(**facts), OURS, {})
    finding = receipt.findings[Property(name)]
    assert finding.strength is Strength.NONE
    assert words in finding.mechanism
    assert any(gap.startswith(f"{name}: ") and words in gap for gap in receipt.gaps)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"network": NetworkMode.FULL}, {"ns__net": "net:[1]", "socket__inet": "1"}),
        ({"network": NetworkMode.LOOPBACK}, {"socket__inet": "1"}),
        ({"seccomp": b""}, {"socket__inet": "1", "status__Seccomp": "0"}),
        (LANDLOCK, {"ns__mnt": "mnt:[1]", "ns__pid": "pid:[1]", "ns__net": "net:[1]"}),
        ({**LANDLOCK, "machine": replace(MACHINE, landlock_abi=5)}, {"signals_owner": "1"}),
        ({}, {"rlimit__6": "10"}),
    ],
    ids=["open network", "loopback", "no filter to load", "no namespaces", "old Landlock", "a stricter limit"],
)
def test_what_was_never_promised_is_no_fault(changes: dict[str, Any], facts: dict[str, str]) -> None:
    """Starts would be called weaker than they were meant to be, or be refused."""
    made = confinement(**changes)
    receipt = observe_receipt(made, report(**facts), OURS, {})
    assert receipt.findings == made.promised
    assert receipt.gaps == made.gaps


def test_an_old_landlock_under_another_user_must_still_keep_signals_inside() -> None:
    """A server could kill its supervisor, although it runs as somebody else."""
    made = confinement(
        tier=Tier.LANDLOCK, identity=UnixUser(61200, 61200, dedicated=True), machine=replace(MACHINE, landlock_abi=5)
    )
    assert (
        observe_receipt(made, report(signals_owner="1"), OURS, {}).findings[Property.PROCESSES].strength
        is Strength.NONE
    )


def test_a_limit_that_could_not_be_set_is_a_gap() -> None:
    """A receipt would promise a memory limit that the machine refused."""
    receipt = observe_receipt(confinement(), report(), OURS, {Property.MEMORY: "memory.max says 1, not 2"})
    assert receipt.findings[Property.MEMORY].strength is Strength.NONE
    assert "memory: memory.max says 1, not 2" in receipt.gaps


def test_a_limit_that_nobody_asked_for_cannot_be_missed() -> None:
    """Every start without one would be called weaker on a machine whose control groups fail."""
    promised = confinement().promised | {Property.MEMORY: PropertyFinding("no limit is set", Strength.NONE)}
    made = confinement(promised=promised)
    receipt = observe_receipt(made, report(), OURS, {Property.MEMORY: "it cannot be made"})
    assert (receipt.findings[Property.MEMORY], receipt.gaps) == (promised[Property.MEMORY], made.gaps)


@pytest.mark.parametrize(
    ("facts", "unmet"), [({"opened": "/x"}, {}), ({}, {Property.FILESYSTEM: "why"})], ids=["observed", "unmet"]
)
def test_a_required_property_that_does_not_hold_is_refused(facts: dict[str, str], unmet: dict[Property, str]) -> None:
    """A server would start without what its policy insists on."""
    with pytest.raises(LaunchError, match=r"requires filesystem.*not working.*doctor") as caught:
        observe_receipt(confinement(required=(Property.FILESYSTEM,)), report(**facts), OURS, unmet)
    assert caught.value.code == "sandbox_refused"


@pytest.mark.parametrize("strength", [Strength.PARTIAL, Strength.NONE, None])
def test_only_in_full_is_required_enough(strength: Strength | None) -> None:
    """`require` would be satisfied by half of it."""
    findings = {} if strength is None else {Property.MEMORY: PropertyFinding("now and then", strength)}
    with pytest.raises(LaunchError, match="now and then" if findings else "nothing"):
        refuse_unmet((Property.MEMORY,), findings)
    refuse_unmet((Property.MEMORY,), {Property.MEMORY: PropertyFinding("kernel", Strength.FULL)})
    refuse_unmet((), findings)


def test_a_gate_that_failed_says_why_and_for_what() -> None:
    """A user would read a number."""
    with pytest.raises(LaunchError, match=r"^/bin/tool: .* cannot listen on 127\.64\.0\.1:80") as caught:
        observe_receipt(confinement(), report(failed="13 cannot listen on 127.64.0.1:80"), OURS, {})
    assert caught.value.code == "spawn_failed"


def test_a_network_is_described_for_people() -> None:
    """`ps` would show a Python value."""
    assert describe_network(confinement()) == "none"
    assert describe_network(confinement(network=("a.example:1", "b.example:2"))) == "a.example:1, b.example:2"


@given(st.dictionaries(st.sampled_from(sorted(SEALED)), st.sampled_from(["", "0", "1", "2", "-1", "99", "mnt:[1]"])))
def test_no_observation_makes_a_promise_stronger(facts: dict[str, str]) -> None:
    """A hostile or broken report could buy a property that was never promised."""
    promised = {name: PropertyFinding("some", Strength.PARTIAL) for name in Property}
    found = observe_receipt(
        confinement(promised=promised), Report({key: (value,) for key, value in facts.items()}, 7), OURS, {}
    ).findings
    assert set(found) == set(Property)
    assert all(finding.strength in (Strength.PARTIAL, Strength.NONE) for finding in found.values())
