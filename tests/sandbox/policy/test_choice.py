"""Any policy on any machine: refused with a remedy, or enforced as far as is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.sandbox.policies import MACHINES, POLICIES
from support.sandbox.preset_table import to_markdown

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode, PolicyValues, Property, Tier
from quarterdeck_sandbox.policy.choice import INTENDED, WEAKEST_FIRST, Choice, choose
from quarterdeck_sandbox.policy.machine import Bubblewrap, Cgroups, Machine
from quarterdeck_sandbox.policy.promises import Strength
from quarterdeck_sandbox.program.launch import LaunchError

BUBBLEWRAP = Bubblewrap(path="/usr/bin/bwrap", works=True, makes_network=True)
NOTHING = Machine(system="linux", architecture="x86_64", kernel="6.12.0", gate="/gate")
LANDLOCK = replace(NOTHING, landlock_abi=6, seccomp=True)
WHOLE = replace(LANDLOCK, bubblewrap=BUBBLEWRAP, pasta="/usr/bin/pasta")
UBUNTU = replace(WHOLE, bubblewrap=replace(BUBBLEWRAP, makes_network=False))
INSTALL = "install bubblewrap (apt install bubblewrap)"
INSTALL_BOTH = "install bubblewrap and slirp4netns (apt install bubblewrap slirp4netns)"


VALUES = POLICIES.map(lambda policy: policy.values)


def policy(**fields: object) -> PolicyValues:
    return SandboxPolicy.model_validate(fields).values


def refusal(wanted: PolicyValues, machine: Machine, *, allow_unsandboxed: bool = False) -> str:
    with pytest.raises(LaunchError) as caught:
        choose(wanted, machine, allow_unsandboxed=allow_unsandboxed)
    assert caught.value.code == "sandbox_refused"
    return str(caught.value)


@pytest.mark.parametrize(
    ("fields", "machine", "tier", "network"),
    [
        ({}, WHOLE, "bubblewrap", "internet"),
        ({}, replace(WHOLE, pasta="", slirp4netns="/s"), "bubblewrap", "internet"),
        ({}, replace(WHOLE, pasta=""), "bubblewrap", "full"),
        ({}, UBUNTU, "bubblewrap", "full"),
        ({}, LANDLOCK, "landlock", "full"),
        ({"minimum": "limits"}, NOTHING, "limits", "full"),
        ({"minimum": "limits"}, WHOLE, "bubblewrap", "internet"),
        ({"preset": "strict"}, WHOLE, "bubblewrap", "none"),
        ({"preset": "strict"}, UBUNTU, "bubblewrap", "none"),
        ({"preset": "trusted"}, WHOLE, "limits", "full"),
        ({"preset": "trusted"}, NOTHING, "limits", "full"),
        ({"network": "none"}, LANDLOCK, "landlock", "none"),
        ({"network": "none", "minimum": "limits"}, replace(NOTHING, seccomp=True), "limits", "none"),
        ({"network": "loopback"}, WHOLE, "bubblewrap", "loopback"),
        ({"network": ["a.example:1"]}, replace(WHOLE, pasta=""), "bubblewrap", ("a.example:1",)),
        ({"network": ["10.0.0.5:443"]}, WHOLE, "bubblewrap", ("10.0.0.5:443",)),
        ({"network": "full"}, WHOLE, "bubblewrap", "full"),
        ({"hidden": ["/a"]}, UBUNTU, "bubblewrap", "full"),
    ],
)
def test_the_strongest_that_is_there_is_chosen(
    fields: dict[str, object], machine: Machine, tier: str, network: object
) -> None:
    """A process would run weaker than this machine allows, or reach what it must not."""
    choice = choose(policy(**fields), machine)
    assert (choice.tier, choice.network) == (tier, network)


@pytest.mark.parametrize(
    ("fields", "machine", "words"),
    [
        ({"preset": "strict"}, LANDLOCK, ("needs bubblewrap", "gives landlock", INSTALL, '"preset": "standard"')),
        ({}, replace(WHOLE, gate="", gate_why="built without a C compiler"), ("built without", "apt install gcc")),
        ({"preset": "trusted"}, replace(WHOLE, gate=""), ("the gate, which starts every sandbox, is missing",)),
        ({"preset": "trusted"}, Machine("darwin", "arm64"), ("need Linux on x86-64 or aarch64", "darwin on arm64")),
        ({}, Machine("linux", "riscv64"), ("need Linux on x86-64 or aarch64", "linux on riscv64")),
        ({}, NOTHING, ("needs landlock", "gives limits", INSTALL, '"minimum": "limits"', "--allow-unsandboxed")),
        ({"minimum": "bubblewrap"}, LANDLOCK, ("needs bubblewrap", INSTALL, '"minimum": "landlock"')),
        (
            {"minimum": "bubblewrap"},
            replace(LANDLOCK, bubblewrap=Bubblewrap(path="/b", why="setting up uid map: Permission denied")),
            ("make bubblewrap work (setting up uid map: Permission denied; see `quarterdeck doctor`)",),
        ),
        ({"network": "loopback"}, LANDLOCK, ("network 'loopback' cannot be had", INSTALL, '"network": "full"')),
        ({"network": ["a:1"]}, LANDLOCK, ("network of listed hosts cannot be had", INSTALL)),
        ({"network": ["a:1"]}, UBUNTU, ("let bubblewrap make network namespaces", "quarterdeck doctor")),
        ({"network": "internet"}, LANDLOCK, ("network 'internet' cannot be had", INSTALL_BOTH)),
        ({"network": "internet"}, UBUNTU, ("let bubblewrap make network namespaces",)),
        ({"network": "internet"}, replace(WHOLE, pasta=""), ("apt install passt",)),
        ({"network": "none", "minimum": "limits"}, NOTHING, ("network 'none' cannot be had", INSTALL)),
        ({"hidden": ["/a"]}, LANDLOCK, ('"hidden" needs bubblewrap', INSTALL)),
        ({"require": ["filesystem"]}, LANDLOCK, ("'filesystem'", "partial", "metadata", INSTALL, '"require"')),
        ({"require": ["network"]}, LANDLOCK, ("'network'", "none", "can reach your local network", INSTALL_BOTH)),
        ({"require": ["network"]}, replace(WHOLE, pasta=""), ("can reach your local network", "apt install passt")),
        ({"require": ["memory"]}, WHOLE, ("'memory'", "partial", "looked at now and then", "control groups")),
        ({"require": ["scratch"]}, WHOLE, ("'scratch'", "partial", "nothing keeps it in full")),
        ({"require": ["syscalls"]}, replace(WHOLE, seccomp=False), ("'syscalls'", "x86-64 or aarch64")),
        ({"grants": ["git-config", "ssh-agent"]}, LANDLOCK, ('"grants": ["ssh-agent"] would open every Unix', INSTALL)),
        ({"grants": ["ssh-agent", "display"]}, LANDLOCK, ('"grants": ["ssh-agent", "display"]', "before Linux 7.1")),
        ({"preset": "strict", "grants": ["ssh-agent"]}, UBUNTU, ("'network'", "Unix sockets", "quarterdeck doctor")),
        ({"preset": "trusted", "require": ["tree_death"]}, WHOLE, ("'tree_death'", 'use "preset": "standard"')),
    ],
)
def test_what_cannot_be_given_is_refused_with_its_remedy(
    fields: dict[str, object], machine: Machine, words: tuple[str, ...]
) -> None:
    """A person would have to find out what to install, or a process run with less than its owner said."""
    message = refusal(policy(**fields), machine)
    assert [word for word in words if word not in message] == []


def test_unsandboxed_starts_are_allowed_by_hand_only_where_nothing_says_otherwise() -> None:
    """A flag for one server without a home would open all the others."""
    assert choose(policy(), NOTHING, allow_unsandboxed=True).tier is Tier.LIMITS
    assert "needs bubblewrap" in refusal(policy(minimum="bubblewrap"), NOTHING, allow_unsandboxed=True)
    assert "needs bubblewrap" in refusal(policy(preset="strict"), LANDLOCK, allow_unsandboxed=True)
    assert "'none'" in refusal(policy(network="none"), NOTHING, allow_unsandboxed=True)


@pytest.mark.parametrize(
    ("fields", "machine", "gaps"),
    [
        ({}, WHOLE, []),
        ({"preset": "strict"}, UBUNTU, []),
        ({"network": "full"}, replace(WHOLE, pasta=""), []),
        ({"preset": "trusted"}, NOTHING, []),
        ({}, replace(WHOLE, pasta=""), ["network"]),
        ({}, LANDLOCK, ["filesystem", "network", "processes"]),
        ({"network": "none"}, LANDLOCK, ["filesystem", "processes"]),
        ({"network": "none", "grants": ["display"]}, replace(LANDLOCK, landlock_abi=9), ["filesystem", "processes"]),
        ({"network": "none"}, replace(WHOLE, seccomp=False), ["network", "syscalls"]),
        ({"minimum": "limits"}, NOTHING, ["filesystem", "network", "processes", "syscalls", "tree_death"]),
        ({"limits": {"cpu_share": 1}}, WHOLE, ["cpu_share"]),
        ({"limits": {"cpu_share": 1}}, replace(WHOLE, cgroups=Cgroups(controllers={"cpu": "/c"})), []),
    ],
)
def test_each_way_in_which_a_start_is_weaker_is_one_line(
    fields: dict[str, object], machine: Machine, gaps: list[str]
) -> None:
    """A silent downgrade; or a warning about what the user wished for, which teaches to ignore warnings."""
    found = choose(policy(**fields), machine).gaps
    assert [line.partition(":")[0] for line in found] == gaps
    assert not any("\n" in line for line in found)


def test_a_weaker_tier_that_was_asked_for_is_no_fault_of_bubblewrap() -> None:
    """Whoever tries a policy without bubblewrap would be told to repair it."""
    choice = choose(policy(), WHOLE.capped(Tier.LANDLOCK))
    assert choice.gaps
    assert all("ask for no weaker tier" in gap and "bubblewrap" not in gap for gap in choice.gaps)


def test_an_open_network_says_what_it_means() -> None:
    """`full` sounds like the internet; it is the host's own services and the cloud's credentials too."""
    reachable = "can reach your local network, this machine's own services and cloud metadata"
    fallen = choose(policy(), replace(WHOLE, pasta=""))
    assert fallen.findings[Property.NETWORK].mechanism == reachable
    assert fallen.gaps == (f"network: {reachable}; install pasta or slirp4netns (apt install passt)",)
    assert choose(policy(network="full"), WHOLE).findings[Property.NETWORK].mechanism == reachable


def attempt(wanted: PolicyValues, machine: Machine, *, allow_unsandboxed: bool) -> Choice | None:
    try:
        return choose(wanted, machine, allow_unsandboxed=allow_unsandboxed)
    except LaunchError:
        message = refusal(wanted, machine, allow_unsandboxed=allow_unsandboxed)
    assert "\n" not in message
    return None


@given(wanted=VALUES, machine=MACHINES, allowed=st.booleans())
def test_any_policy_is_enforced_as_said_or_refused(wanted: PolicyValues, machine: Machine, allowed: bool) -> None:
    """A combination that nobody thought of would start with less than was asked for."""
    choice = attempt(wanted, machine, allow_unsandboxed=allowed)
    if choice is None:
        return
    assert list(choice.findings) == list(Property)
    assert all(choice.findings[name].strength is Strength.FULL for name in wanted.require)
    if wanted.network is None:
        assert choice.network in (NetworkMode.INTERNET, NetworkMode.FULL)
    else:
        assert choice.network == wanted.network
    assert (choice.network is NetworkMode.FULL) == (choice.findings[Property.NETWORK].strength is Strength.NONE)
    assert wanted.confines_files or choice.tier is Tier.LIMITS
    assert not wanted.hidden or choice.tier is Tier.BUBBLEWRAP
    assert choice.filtered == (wanted.confines_files and machine.seccomp)
    if not allowed:
        assert WEAKEST_FIRST.index(choice.tier) >= WEAKEST_FIRST.index(wanted.minimum)
    for name, finding in choice.findings.items():
        assert wanted.limits_set(name) or finding.strength is Strength.NONE
        weak = finding.strength is not Strength.FULL
        wished = name is Property.NETWORK and wanted.network is NetworkMode.FULL
        if name in INTENDED and weak and wanted.confines_files and not wished:
            assert any(line.startswith(f"{name}:") for line in choice.gaps)


@given(wanted=VALUES, machine=MACHINES)
def test_permission_only_ever_adds(wanted: PolicyValues, machine: Machine) -> None:
    """The flag that lets a server start without a sandbox would take one away from another."""
    without = attempt(wanted, machine, allow_unsandboxed=False)
    if without is not None:
        assert attempt(wanted, machine, allow_unsandboxed=True) == without


RANK = (Strength.NONE, Strength.PARTIAL, Strength.FULL)


@given(wanted=VALUES, machine=MACHINES, tier=st.sampled_from([Tier.LANDLOCK, Tier.LIMITS]))
def test_a_stronger_tier_gives_no_property_less(wanted: PolicyValues, machine: Machine, tier: Tier) -> None:
    """Installing bubblewrap would stop a server that ran, or take a guarantee away."""
    weaker = attempt(wanted, machine.capped(tier), allow_unsandboxed=True)
    stronger = attempt(wanted, machine, allow_unsandboxed=True)
    if weaker is None:
        return
    if stronger is None:  # one wish is only refused where it would open a wall: limits alone have none
        assert "would open every Unix socket" in refusal(wanted, machine, allow_unsandboxed=True)
        return
    for name, finding in weaker.findings.items():
        assert RANK.index(stronger.findings[name].strength) >= RANK.index(finding.strength), name


OPEN = "leads to this deck, which asks for no token"


@pytest.mark.parametrize(
    ("fields", "machine", "words"),
    [
        ({"network": "full"}, WHOLE, (OPEN, "without --no-token", 'use "network": "internet"')),
        ({"preset": "trusted"}, WHOLE, (OPEN, 'use "preset": "standard"')),
        ({}, LANDLOCK, (OPEN, 'use "network": "none"', INSTALL_BOTH)),
        ({"network": ["a:1", "localhost:8808"]}, WHOLE, (OPEN, 'take it out of "network"')),
        ({"network": ["127.0.0.1:8808"]}, WHOLE, (OPEN,)),
        ({"network": ["[::1]:8808"]}, WHOLE, (OPEN,)),
        ({"network": ["deck.localhost:8808"]}, WHOLE, (OPEN,)),
    ],
)
def test_what_could_call_a_deck_without_a_token_is_not_started(
    fields: dict[str, object], machine: Machine, words: tuple[str, ...]
) -> None:
    """A confined program would call every tool of every other server, unseen by its own sandbox."""
    choose(policy(**fields), machine)
    with pytest.raises(LaunchError) as caught:
        choose(policy(**fields), machine, open_port=8808)
    assert caught.value.code == "sandbox_refused"
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("fields", "machine"),
    [
        ({}, WHOLE),
        ({"network": "none"}, LANDLOCK),
        ({"network": "loopback"}, WHOLE),
        ({"network": ["localhost:8809", "a:8808"]}, WHOLE),
    ],
)
@pytest.mark.parametrize("open_port", [0, 8808])
def test_what_cannot_reach_this_machine_is_started_beside_a_deck_without_a_token(
    fields: dict[str, object], machine: Machine, open_port: int
) -> None:
    """`--no-token` would be of no use at all."""
    assert choose(policy(**fields), machine, open_port=open_port) == choose(policy(**fields), machine)


def test_each_preset_starts_where_it_was_decided() -> None:
    """A changed preset or rule would move all users of it, and the documentation along with it: it has to be meant."""
    rows = [row.strip("| ").split(" | ") for row in to_markdown().splitlines()[2:]]
    assert rows == [
        ["`strict`", "starts", "starts", "refused", "refused"],
        [
            "`standard`",
            "starts",
            "starts weaker, and reports it",
            "starts weaker, and reports it",
            "refused; with `--allow-unsandboxed` starts weaker",
        ],
        ["`trusted`", "starts", "starts", "starts", "starts"],
    ]
