"""The tiers as arguments of `bwrap`, each pitfall of mounts with its test; and as what the gate does to itself."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.sandbox.bare_confinements import bare_confinement

from quarterdeck_protocol.policy_values import LimitValues, NetworkMode, Tier
from quarterdeck_sandbox.policy import tiers
from quarterdeck_sandbox.policy.confinement import ROOT, Confinement, UnixUser
from quarterdeck_sandbox.policy.host_names import Route
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, View, in_order
from quarterdeck_sandbox.policy.tiers import Rules
from quarterdeck_sandbox.program.launch import LaunchError

MACHINE = Machine("linux", bubblewrap=Bubblewrap("/b", works=True, makes_network=True, hides_users=True))
SOMEBODY = UnixUser(61200, 61200, dedicated=True)
MIB = 1 << 20


def words(*mounts: Mount, **changes: Any) -> list[str]:
    """What bwrap is told; texts are put in descriptors from 50 on."""
    made = confinement(*mounts, **changes)
    put: list[str] = []

    def keep(mount: Mount) -> int:
        put.append(mount.source)
        return 49 + len(put)

    return tiers.arguments(made, "/gate", keep)


def confinement(*mounts: Mount, **changes: Any) -> Confinement:
    return bare_confinement(**{"view": View(mounts), "machine": MACHINE, **changes})


def operations(found: list[str]) -> list[tuple[str, ...]]:
    """Split at the options; `--perms` and `--size` belong to what follows."""
    split: list[list[str]] = []
    for word in found:
        if word.startswith("--") and not (split and split[-1][-2:-1] in (["--perms"], ["--size"])):
            split.append([])
        split[-1].append(word)
    return [tuple(one) for one in split]


def at(found: list[str], *wanted: str) -> int:
    places = [index for index in range(len(found)) if tuple(found[index : index + len(wanted)]) == wanted]
    assert len(places) == 1, (wanted, found)
    return places[0]


READ_DATA = Mount(MountKind.READ, "/data/set", "/data/set")
HOME = Mount(MountKind.WRITE, "/home/u/private", "/state/home")
TMP = Mount(MountKind.SCRATCH, "/tmp")


def test_the_root_is_closed_as_the_very_last_step() -> None:
    """The root is a writable file system of half the memory: a server could fill it, and plant files in it."""
    found = words(READ_DATA, TMP, HOME)
    assert found[-2:] == ["--remount-ro", "/"]
    assert at(found, "--remount-ro", "/") == len(found) - 2


def test_devices_are_closed_and_shared_memory_is_bounded() -> None:
    """/dev is the same trap."""
    found = words(limits=LimitValues(scratch_bytes=8 * MIB))
    shared = at(found, "--perms", "1777", "--size", str(8 * MIB), "--tmpfs", "/dev/shm")
    assert at(found, "--dev", "/dev") < shared < at(found, "--remount-ro", "/dev")


def test_no_score_can_be_written_inside() -> None:
    """A server could have the supervisor killed first when memory runs out."""
    found = words()
    assert at(found, "--proc", "/proc") < at(found, "--remount-ro", "/proc")
    assert at(words(limits=LimitValues(scratch_bytes=None)), "--size", str(64 * MIB)) > 0


def test_scratch_comes_before_what_lies_in_it() -> None:
    """A mount in /tmp would be hidden by /tmp, and its program not found."""
    inner = Mount(MountKind.READ, "/tmp/tool", "/tmp/tool")
    found = words(*in_order([inner, TMP]))
    scratch = at(found, "--tmpfs", "/tmp")
    assert scratch < at(found, "--ro-bind", "/tmp/tool", "/tmp/tool")


def test_the_folders_above_a_mount_are_open_to_everybody() -> None:
    """As root bwrap would make them its own alone, and the server could not reach its home."""
    found = words(HOME, Mount(MountKind.READ, "/home/u/tools/bin", "/x"))
    for folder in ("/home", "/home/u", "/home/u/tools"):
        assert at(found, "--perms", "0755", "--dir", folder) < at(found, "--ro-bind", "/x", "/home/u/tools/bin")
    assert at(found, "--dir", "/home") < at(found, "--dir", "/home/u") < at(found, "--bind", "/state/home", HOME.target)


def test_nothing_is_made_within_what_is_bound() -> None:
    """A folder would be made on the host, or the start would fail on a read-only one."""
    inner = Mount(MountKind.HIDE, "/data/set/deep/secret")
    found = words(READ_DATA, inner)
    assert "/data/set/deep" not in found
    assert ("--dir", "/data/set") not in pairwise(found)


@pytest.mark.parametrize(
    ("mount", "limits", "wanted"),
    [
        (READ_DATA, {}, ("--ro-bind", "/data/set", "/data/set")),
        (HOME, {}, ("--bind", "/state/home", "/home/u/private")),
        (TMP, {"scratch_bytes": 8 * MIB}, ("--perms", "1777", "--size", str(8 * MIB), "--tmpfs", "/tmp")),
        (TMP, {"scratch_bytes": None}, ("--perms", "1777", "--size", str(512 * MIB), "--tmpfs", "/tmp")),
        (Mount(MountKind.DATA, "/etc/hosts", "text"), {}, ("--perms", "0444", "--file", "50", "/etc/hosts")),
        (Mount(MountKind.COPY, "/etc/x", "/etc/y"), {}, ("--perms", "0444", "--file", "50", "/etc/x")),
        (Mount(MountKind.LINK, "/bin", "usr/bin"), {}, ("--symlink", "usr/bin", "/bin")),
        (Mount(MountKind.HIDE, "/d/f", "file"), {}, ("--ro-bind", "/dev/null", "/d/f")),
        (
            Mount(MountKind.HIDE, "/d/f", "directory"),
            {},
            ("--perms", "0555", "--size", "4096", "--tmpfs", "/d/f", "--remount-ro", "/d/f"),
        ),
    ],
    ids=["read", "write", "scratch", "scratch without a limit", "data", "copy", "link", "hidden file", "hidden folder"],
)
def test_each_kind_of_mount_has_its_operation(mount: Mount, limits: dict[str, Any], wanted: tuple[str, ...]) -> None:
    """Something would be writable, or unbounded, that must not be."""
    at(words(mount, limits=LimitValues(**limits)), *wanted)


def test_a_user_hides_behind_a_namespace_of_users() -> None:
    """As an ordinary user nothing could be mounted; and nested namespaces would open the kernel."""
    found = words()
    assert at(found, "--unshare-user") < at(found, "--disable-userns")
    assert "--cap-add" not in found


def test_namespaces_of_users_are_only_disabled_in_one() -> None:
    """Bwrap refuses the one option without the other."""
    old = replace(MACHINE, bubblewrap=replace(MACHINE.bubblewrap, hides_users=False))
    for made in (words(identity=SOMEBODY), words(machine=old)):
        assert "--disable-userns" not in made


def test_root_makes_the_mounts_and_keeps_only_what_it_takes_to_become_another() -> None:
    """A private home could not be shown; or the server would run with root's powers."""
    found = words(identity=SOMEBODY)
    assert "--unshare-user" not in found
    added = [found[index + 1] for index, word in enumerate(found) if word == "--cap-add"]
    assert added == ["CAP_SETUID", "CAP_SETGID"]
    assert at(found, "--cap-drop", "ALL") < found.index("--cap-add")


@pytest.mark.parametrize(
    ("port", "identity", "needed"),
    [(80, SOMEBODY, True), (1023, SOMEBODY, True), (1024, SOMEBODY, False), (80, None, False)],
)
def test_the_right_to_low_ports_is_given_only_for_low_ports(port: int, identity: UnixUser | None, needed: bool) -> None:
    """A listed host with a low port could not be listened for; or an ordinary user's program would keep the right."""
    routes = (Route("a.example", port, "127.64.0.1"),)
    found = words(network=(f"a.example:{port}",), routes=routes, identity=identity)
    assert ("CAP_NET_BIND_SERVICE" in found) is needed


@pytest.mark.parametrize(
    ("network", "makes", "own"),
    [
        (NetworkMode.NONE, True, True),
        (NetworkMode.INTERNET, True, True),
        (("a.example:1",), True, True),
        (NetworkMode.FULL, True, False),
        (NetworkMode.NONE, False, False),
    ],
)
def test_it_has_a_network_of_its_own_unless_it_is_to_have_ours(network: Any, makes: bool, own: bool) -> None:
    """A server without a network could dial; one with the whole network could not."""
    machine = replace(MACHINE, bubblewrap=replace(MACHINE.bubblewrap, makes_network=makes))
    made = confinement(network=network, machine=machine)
    assert made.has_own_network is own
    assert ("--unshare-net" in tiers.arguments(made, "/gate", lambda mount: 50)) is own
    assert not replace(made, tier=Tier.LANDLOCK).has_own_network


def test_it_always_dies_with_us_in_a_world_of_its_own() -> None:
    """Whatever the policy, these are what a sandbox is."""
    found = words(network=NetworkMode.FULL, identity=SOMEBODY)
    always = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--clearenv")
    assert set(always) <= set(found)
    at(found, "--ro-bind", "/gate", tiers.INSIDE)


def test_a_monitor_is_told_every_file_system_in_memory() -> None:
    """Memory would hide in files."""
    assert tiers.temporary(confinement(TMP, HOME)) == ("/dev/shm", "/tmp")


_PATHS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
_MOUNTS = st.lists(st.builds(Mount, st.sampled_from(MountKind), _PATHS, st.just("/source")), max_size=6)


@given(_MOUNTS)
def test_every_mount_stands_on_something(mounts: list[Mount]) -> None:
    """A start would fail for an order of paths that nobody thought of."""
    ordered = View().with_mounts(mounts).mounts
    there, bound = {"/"}, set[str]()
    for operation in operations(words(*ordered)):
        target = operation[-1]
        above = target.rpartition("/")[0] or "/"
        if "--dir" in operation:
            assert above in there
            assert target not in there
            there.add(target)
        elif any(target == mount.target for mount in ordered) and operation[0] != "--remount-ro":
            assert above in there or any(above == one or above.startswith(one + "/") for one in bound)
            there.add(target)
            if "--tmpfs" not in operation or "0555" in operation:
                bound.add(target)


LANDLOCKED = confinement(
    Mount(MountKind.READ, "/inside/data", "/outside/data"),
    Mount(MountKind.WRITE, "/inside/home", "/outside/home"),
    Mount(MountKind.SCRATCH, "/tmp"),
    Mount(MountKind.DATA, "/etc/hosts", "text"),
    Mount(MountKind.LINK, "/bin", "usr/bin"),
    tier=Tier.LANDLOCK,
    seccomp=b"filter",
)


def test_only_root_without_capabilities_is_confined_by_landlock_in_bubblewrap() -> None:
    """It owns the kernel's settings in /proc, which a mount namespace shows; anybody else needs no more than that."""
    inside = replace(LANDLOCKED, tier=Tier.BUBBLEWRAP)
    assert tiers.rules(inside, ()) is None
    assert tiers.rules(replace(inside, identity=SOMEBODY), ()) is None
    wanted = Rules(read=("/",), write=("/dev/shm", "/tmp", "/inside/home"), devices=("/dev",))
    assert tiers.rules(replace(inside, identity=ROOT), ()) == wanted


def test_landlock_opens_what_the_view_shows() -> None:
    """A server could not read its own program; or write where it may only read."""
    found = tiers.rules(LANDLOCKED, ("/etc",))
    assert found is not None
    assert found.uses_landlock
    assert found.read == ("/proc", "/etc", "/outside/data")
    assert found.write == ("/dev/pts", "/outside/home")
    assert "/dev/null" in found.devices
    assert found.seccomp == b"filter"


@pytest.mark.parametrize(("asks", "own"), [(True, ("/outside/home",)), (False, ())])
def test_a_broker_changes_metadata_of_what_may_be_written_and_not_of_terminals(*, asks: bool, own: object) -> None:
    """A server could open the user's terminal to everybody; or its start would ask for a broker that cannot work."""
    machine = replace(LANDLOCKED.machine, asks=asks, landlock_abi=7)
    found = tiers.rules(replace(LANDLOCKED, machine=machine), ())
    assert found is not None
    assert found.own == own


@pytest.mark.parametrize(("network", "denied"), [(NetworkMode.NONE, True), (NetworkMode.FULL, False)])
def test_landlock_closes_tcp_where_there_is_no_network(network: NetworkMode, denied: bool) -> None:
    """A server without a network could dial where no filter is loaded."""
    found = tiers.rules(replace(LANDLOCKED, network=network), ())
    assert found is not None
    assert found.deny_tcp is denied


def test_limits_alone_are_a_filter_or_nothing() -> None:
    """The weakest tier would ask the kernel for Landlock, and fail where there is none."""
    filtered = Rules(uses_landlock=False, seccomp=b"filter")
    assert tiers.rules(replace(LANDLOCKED, tier=Tier.LIMITS), ()) == filtered
    assert tiers.rules(replace(LANDLOCKED, tier=Tier.LIMITS, seccomp=b""), ()) is None


def test_more_mounts_than_bubblewrap_takes_are_refused_with_a_remedy() -> None:
    """A user would read `Exceeded maximum number of arguments 9000`, which says nothing of a row."""
    many = [Mount(MountKind.READ, f"/data/{number}", f"/data/{number}") for number in range(3_000)]
    assert len(words(*many[:2_500])) < tiers.MAX_WORDS
    with pytest.raises(LaunchError, match="3,000 paths are more than bubblewrap can show: name folders") as caught:
        words(*many)
    assert caught.value.code == "sandbox_refused"
