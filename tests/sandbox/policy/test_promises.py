"""What each tier promises, property by property, and what it is worth."""

import pytest
from msgspec.structs import replace

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode, PolicyValues, Property, Tier
from quarterdeck_sandbox.policy.machine import YAMA, Bubblewrap, Cgroups, Machine
from quarterdeck_sandbox.policy.promises import REACHABLE, Situation, Strength, promise

USER = Machine(
    system="linux",
    architecture="x86_64",
    kernel="6.12.0-1-amd64",
    bubblewrap=Bubblewrap(path="/b", works=True, makes_network=True),
    landlock_abi=6,
    seccomp=True,
    pasta="/p",
)
ROOT = replace(USER, euid=0)
BROKERED = replace(USER, gate="/gate", asks=True, sysctls={YAMA: "1"})
OLD = replace(USER, kernel="4.18.0-553.el8", landlock_abi=5)
GROUPS = Cgroups(controllers={"memory": "/m", "pids": "/p", "cpu": "/c"}, legacy=frozenset({"memory"}))

B, LL, LIM = Tier.BUBBLEWRAP, Tier.LANDLOCK, Tier.LIMITS
LIMITED = {"limits": {"cpu_share": 1.0}}
TRUSTED = {"preset": "trusted", "limits": {"memory_bytes": 1 << 30}}


@pytest.mark.parametrize(
    ("name", "tier", "machine", "strength", "words"),
    [
        ("filesystem", B, replace(ROOT, closes=True), "full", "mount namespace, and Landlock"),
        ("filesystem", B, ROOT, "partial", "modes and times of /dev/null"),
        ("filesystem", LL, ROOT, "partial", "Landlock, as root without capabilities: existence and metadata"),
        ("filesystem", LL, replace(ROOT, closes=True), "partial", "read-only mounts, as root without capabilities"),
        ("filesystem", LIM, ROOT, "none", "what root can"),
        ("processes", LL, ROOT, "partial", "list can be seen"),
        ("processes", LL, replace(OLD, euid=0), "partial", "signalled"),
        ("tree_death", LL, ROOT, "full", "out of its reach"),
        ("tree_death", LL, replace(OLD, euid=0), "partial", "which it could kill"),
        ("process_count", LL, ROOT, "partial", "does not bind root"),
        ("process_count", LL, replace(ROOT, cgroups=GROUPS), "full", "pids control group"),
    ],
)
def test_a_root_without_capabilities_is_promised_what_a_user_is(
    name: str, tier: Tier, machine: Machine, strength: str, words: str
) -> None:
    """A receipt would claim a user of its own where there is none."""
    situation = Situation(PolicyValues(), machine, tier, NetworkMode.FULL, stays_root=True)
    finding = promise(situation)[Property(name)]
    assert finding.strength == Strength(strength)
    assert words in finding.mechanism


@pytest.mark.parametrize(
    ("name", "tier", "machine", "fields", "strength", "words"),
    [
        ("filesystem", B, USER, {}, "full", "mount namespace"),
        ("filesystem", LL, BROKERED, {}, "partial", "existence and metadata of other files can be seen"),
        ("filesystem", LL, USER, {}, "partial", "cannot be changed either, as no system call filter can ask here"),
        ("filesystem", LL, replace(BROKERED, asks=False), {}, "partial", "no system call filter can ask here"),
        ("filesystem", LL, replace(BROKERED, landlock_abi=1), {}, "partial", "older than Linux 5.19"),
        ("filesystem", LL, replace(BROKERED, sysctls={YAMA: "2"}), {}, "partial", f"{YAMA} is 2"),
        ("filesystem", LIM, USER, {}, "none", "what you can"),
        ("filesystem", LIM, ROOT, {}, "none", "a user of its own"),
        ("filesystem", LIM, ROOT, TRUSTED, "none", "what root can"),
        ("processes", B, USER, {}, "full", "process namespace"),
        ("processes", LL, USER, {}, "partial", "list can be seen"),
        ("processes", LL, OLD, {}, "partial", "signalled"),
        ("processes", LIM, USER, {}, "none", "your processes"),
        ("processes", LIM, ROOT, {}, "partial", "a user of its own"),
        ("processes", LIM, ROOT, TRUSTED, "none", "all processes"),
        ("syscalls", B, USER, {}, "full", "seccomp"),
        ("syscalls", LIM, USER, {}, "full", "seccomp"),
        ("syscalls", LIM, USER, TRUSTED, "none", "not filtered"),
        ("syscalls", B, replace(USER, seccomp=False, architecture="riscv64"), {}, "partial", "no filter for riscv64"),
        ("tree_death", B, OLD, {}, "full", "process namespace"),
        ("tree_death", LL, USER, {}, "full", "resident reaper, out of its reach"),
        ("tree_death", LL, OLD, {}, "partial", "which it could kill"),
        ("tree_death", LIM, ROOT, {}, "full", "out of its reach"),
        ("tree_death", LIM, ROOT, TRUSTED, "partial", "which it could kill"),
        ("memory", B, USER, {}, "partial", "looked at now and then; RLIMIT_DATA"),
        ("memory", B, replace(USER, cgroups=GROUPS), {}, "full", "memory control group, version 1"),
        ("memory", LIM, replace(USER, cgroups=GROUPS), {}, "partial", "which it could leave"),
        ("memory", LIM, replace(ROOT, cgroups=GROUPS), {}, "full", "memory control group"),
        ("memory", LIM, replace(ROOT, cgroups=GROUPS), TRUSTED, "partial", "which it could leave"),
        ("memory", LIM, USER, TRUSTED, "partial", "it could lower its score for the kernel's killer"),
        ("memory", B, USER, {"limits": {"memory_bytes": None}}, "none", "no limit is set"),
        ("process_count", B, USER, {}, "full", "user namespace"),
        ("process_count", B, OLD, {}, "partial", "looked at"),
        ("process_count", B, ROOT, {}, "full", "user of its own"),
        ("process_count", B, ROOT, {"write": ["/a"]}, "partial", "looked at"),
        ("process_count", LL, USER, {}, "partial", "looked at"),
        ("process_count", LL, ROOT, {}, "full", "user of its own"),
        ("process_count", LL, replace(USER, cgroups=GROUPS), {}, "full", "pids control group, version 2"),
        ("cpu_share", B, USER, {}, "none", "no limit is set"),
        ("cpu_share", B, USER, LIMITED, "none", "only a control group"),
        ("cpu_share", B, replace(USER, cgroups=GROUPS), LIMITED, "full", "cpu control group, version 2"),
        ("scratch", B, USER, {}, "partial", "sized temporary filesystems"),
        ("scratch", LL, USER, {}, "partial", "looked at now and then"),
    ],
)
def test_each_property_has_its_mechanism(
    name: str, tier: Tier, machine: Machine, fields: dict[str, object], strength: str, words: str
) -> None:
    """A receipt would claim what the tier cannot do on this machine."""
    situation = Situation(SandboxPolicy.model_validate(fields).values, machine, tier, NetworkMode.FULL)
    finding = promise(situation)[Property(name)]
    assert (finding.strength, words in finding.mechanism) == (strength, True), finding


NO_NETNS = replace(USER, bubblewrap=replace(USER.bubblewrap, makes_network=False))


@pytest.mark.parametrize(
    ("network", "tier", "machine", "grants", "strength", "words"),
    [
        (NetworkMode.NONE, B, USER, (), "full", "network namespace, and seccomp: no internet sockets"),
        (NetworkMode.NONE, B, USER, ("ssh-agent",), "full", "network namespace"),
        (NetworkMode.NONE, B, replace(USER, seccomp=False), (), "partial", "vsock is not filtered"),
        (NetworkMode.NONE, B, NO_NETNS, (), "full", "seccomp: no sockets"),
        (NetworkMode.NONE, B, NO_NETNS, ("ssh-agent",), "partial", "Unix sockets outside"),
        (NetworkMode.NONE, LL, USER, (), "full", "seccomp: no sockets"),
        (NetworkMode.NONE, LL, replace(USER, landlock_abi=9), ("display",), "full", "seccomp and Landlock"),
        (NetworkMode.NONE, LL, USER, ("git-config",), "full", "seccomp: no sockets"),
        (NetworkMode.LOOPBACK, B, USER, (), "full", "its own loopback only"),
        (NetworkMode.INTERNET, B, USER, (), "full", "pasta: private ranges are closed"),
        (NetworkMode.INTERNET, B, replace(USER, pasta=""), (), "full", "slirp4netns"),
        (("a.example:1",), B, USER, (), "full", "the listed hosts only"),
        (NetworkMode.FULL, B, USER, (), "none", REACHABLE),
        (NetworkMode.FULL, LL, USER, (), "none", REACHABLE),
    ],
)
def test_each_network_has_its_mechanism(
    network: NetworkMode | tuple[str, ...],
    tier: Tier,
    machine: Machine,
    grants: tuple[str, ...],
    strength: str,
    words: str,
) -> None:
    """The one property that tells whether stolen data can leave."""
    policy = SandboxPolicy.model_validate({"grants": grants}).values
    finding = promise(Situation(policy, machine, tier, network))[Property.NETWORK]
    assert (finding.strength, words in finding.mechanism) == (Strength(strength), True), finding


@pytest.mark.parametrize(
    ("network", "tier", "machine", "grants", "open_"),
    [
        (NetworkMode.NONE, B, USER, (), True),
        (NetworkMode.FULL, B, USER, (), True),
        (NetworkMode.NONE, B, NO_NETNS, (), False),
        (NetworkMode.FULL, B, NO_NETNS, (), True),
        (NetworkMode.NONE, B, NO_NETNS, ("ssh-agent",), True),
        (NetworkMode.FULL, LL, USER, (), False),
        (NetworkMode.FULL, LL, USER, ("ssh-agent",), True),
        (NetworkMode.FULL, LIM, USER, (), False),
    ],
)
def test_unix_sockets_are_open_where_they_stay_inside_or_a_grant_needs_them(
    network: NetworkMode, tier: Tier, machine: Machine, grants: tuple[str, ...], open_: bool
) -> None:
    """Beside Landlock, a session bus would start any program outside; or an agent that was granted not be reached."""
    policy = SandboxPolicy.model_validate({"grants": grants}).values
    assert Situation(policy, machine, tier, network).unix_sockets is open_
