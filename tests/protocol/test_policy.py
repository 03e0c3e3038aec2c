"""Policies: presets that fill what is absent, contradictions refused, and the way through JSON."""

import msgspec
import pytest
from hypothesis import given
from pydantic import ValidationError
from support.sandbox.policies import POLICIES

from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.policy import Limits, SandboxPolicy
from quarterdeck_protocol.policy_values import LimitValues, NetworkMode, PolicyValues, Preset, Property, Tier

MIB = 1 << 20


def policy(**fields: object) -> SandboxPolicy:
    return SandboxPolicy.model_validate(fields)


def complaint(**fields: object) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        policy(**fields)
    first = caught.value.errors()[0]
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")


def test_no_policy_is_the_standard_one() -> None:
    """A server without a sandbox section would run with less than the documented default."""
    assert SandboxPolicy() == policy(preset="standard") == StdioServerConfig(id="s", command="c").sandbox
    assert (SandboxPolicy().network, SandboxPolicy().minimum, SandboxPolicy().require) == (None, Tier.LANDLOCK, ())
    assert SandboxPolicy().confines_files


def test_standard_leaves_room_for_real_servers() -> None:
    """npx, uvx, a compiler or a pool of processes would die of a limit that protects nobody."""
    limits = SandboxPolicy().limits
    assert (limits.memory_bytes, limits.processes, limits.open_files) == (2048 * MIB, 512, 4096)
    assert (limits.wall_s, limits.cpu_s, limits.cpu_share, limits.output_bytes) == (None, None, None, None)


def test_strict_reaches_nothing_and_does_not_start_weaker() -> None:
    """Someone who asked for the strictest preset would get what the machine happens to give."""
    strict = policy(preset="strict")
    assert (strict.network, strict.minimum) == (NetworkMode.NONE, Tier.BUBBLEWRAP)
    assert set(strict.require) >= {Property.FILESYSTEM, Property.NETWORK, Property.PROCESSES, Property.SYSCALLS}
    for name, ours in strict.limits.model_dump().items():
        standard = getattr(Limits(), name)
        assert standard is None or ours is None or ours <= standard, name


def test_trusted_confines_nothing_and_limits_nothing() -> None:
    """A server that is trusted would fail for want of what it was trusted with."""
    trusted = policy(preset="trusted")
    assert not trusted.confines_files
    assert (trusted.network, trusted.minimum) == (NetworkMode.FULL, Tier.LIMITS)
    assert set(trusted.limits.model_dump().values()) == {None}


@pytest.mark.parametrize("preset", Preset)
def test_a_preset_fills_what_is_absent_or_null(preset: Preset) -> None:
    """`"network": null` in a file would open the network of a strict server."""
    whole = policy(preset=preset)
    assert policy(preset=preset, **dict.fromkeys(set(SandboxPolicy.model_fields) - {"preset"})) == whole
    assert policy(preset=preset, limits={}) == policy(preset=preset, limits=Limits()) == whole


def test_limits_are_merged_key_by_key_and_null_lifts_one() -> None:
    """Naming one limit would lift all others of the preset."""
    strict = policy(preset="strict").limits.model_dump()
    given = {"processes": 9, "memory_bytes": None}
    assert policy(preset="strict", limits=given).limits.model_dump() == strict | given
    assert SandboxPolicy(preset=Preset.STRICT, limits=Limits(processes=9)).limits.model_dump() == strict | {
        "processes": 9
    }


def test_what_is_said_wins_over_the_preset() -> None:
    """A preset is where a policy starts from, not a ceiling."""
    mine = policy(preset="strict", network=["Example.com:443", "example.com.:443"], require=[], minimum="landlock")
    assert (mine.network, mine.require, mine.minimum) == (("example.com:443",), (), Tier.LANDLOCK)


def test_a_name_without_a_port_is_the_web_there() -> None:
    """Whoever lists `api.example.com` would get a refusal, or every port of that host."""
    assert policy(network=["API.example.com", "api.example.com:22"]).network == (
        "api.example.com:443",
        "api.example.com:80",
        "api.example.com:22",
    )


def test_sizes_are_numbers_or_texts_with_units() -> None:
    """Nobody counts the zeros of a gibibyte."""
    limits = Limits.model_validate({"memory_bytes": "512 MiB", "scratch_bytes": "2G", "output_bytes": 1 << 30})
    assert (limits.memory_bytes, limits.scratch_bytes, limits.output_bytes) == (512 * MIB, 2 * 10**9, 1 << 30)


def test_paths_are_normalised_as_text_and_kept_once() -> None:
    """Two spellings of one path would be mounted twice, or contradict each other unseen."""
    mine = policy(read=["/a/../b//c/", "//b/c/.", "/"], environment=["A", "A"], grants=["aws", "aws"])
    assert (mine.read, mine.environment, mine.grants) == (("/b/c", "/"), ("A",), ("aws",))


@pytest.mark.parametrize(
    ("fields", "place", "message"),
    [
        ({"raed": []}, "", "unknown key 'raed': did you mean 'read'?"),
        ({"limits": {"memory": 1}}, "limits", "unknown key 'memory': did you mean 'memory_bytes'?"),
        ({"preset": "loose"}, "preset", "Input should be 'strict', 'standard' or 'trusted'"),
        ({"preset": ["strict"]}, "preset", "Input should be 'strict', 'standard' or 'trusted'"),
        ({"limits": 5}, "limits", "Input should be a valid dictionary"),
        ({"limits": {"memory_bytes": 512}}, "limits.memory_bytes", "Input should be greater than or equal to 1048576"),
        ({"limits": {"memory_bytes": "much"}}, "limits.memory_bytes", "could not parse value and unit"),
        ({"limits": {"memory_bytes": 10**30}}, "limits.memory_bytes", "Input should be less than or equal to"),
        ({"limits": {"cpu_share": 0}}, "limits.cpu_share", "Input should be greater than or equal to 0.01"),
        ({"limits": {"wall_s": -1}}, "limits.wall_s", "Input should be greater than 0"),
        ({"limits": {"wall_s": float("inf")}}, "limits.wall_s", "Input should be a finite number"),
        ({"limits": {"processes": 0}}, "limits.processes", "Input should be greater than or equal to 1"),
        ({"read": ["a"]}, "read.0", "is not an absolute path: it must start with '/'"),
        ({"hidden": [""]}, "hidden.0", "is not an absolute path"),
        ({"write": ["/a\0b"]}, "write.0", "contains a NUL character, which a process cannot be given"),
        ({"read": "/a"}, "read", "Input should be a valid tuple"),
        ({"environment": ["A=B"]}, "environment.0", "a variable's name"),
        ({"network": "net"}, "network", "must be 'none', 'loopback', 'internet', 'full' or a list of host:port"),
        ({"network": 5}, "network", "must be 'none'"),
        ({"network": []}, "network", "an empty list reaches nothing: write 'none'"),
        (
            {"network": ["a:1", 5]},
            "network",
            "entry [1] is neither a mode (none, loopback, internet, full) nor HOST:PORT",
        ),
        (
            {"network": ["a:1", "b"]},
            "network",
            "entry [1] is neither a mode (none, loopback, internet, full) nor HOST:PORT",
        ),
        *(({"network": [host]}, "network", "entry [0] is neither a mode") for host in ("10.0.0.5", "[fd00::5]", "nas")),
        ({"network": ["*.example.com"]}, "network", "entry [0] has a wildcard"),
        ({"network": [f"h{n}.example" for n in range(33)]}, "network", "has more than 64 entries"),
        ({"network": ["127.1:80"]}, "network", "entry [0] is an incomplete address, or not in the usual spelling"),
        ({"network": [f"h{n}:1" for n in range(65)]}, "network", "has more than 64 entries"),
        ({"grants": ["aws", "azure"]}, "grants.1", "Input should be 'git-config',"),
        ({"require": ["memori"]}, "require.0", "Input should be 'filesystem',"),
        ({"minimum": "docker"}, "minimum", "Input should be 'bubblewrap', 'landlock' or 'limits'"),
    ],
)
def test_a_wrong_value_is_refused_at_its_place(fields: dict[str, object], place: str, message: str) -> None:
    """A typo would leave a server open that its owner believes closed."""
    where, what = complaint(**fields)
    assert where == place
    assert what.startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"read": ["/a"], "write": ["/b", "/x/../a"]}, "read[0] and write[1] are the same path: keep one"),
        ({"write": ["/a"], "hidden": ["/a"]}, "write[0] and hidden[0] are the same path: keep one"),
        ({"read": ["/a"], "hidden": ["/a"]}, "read[0] and hidden[0] are the same path: keep one"),
        ({"require": ["network"], "network": "full"}, "requires 'network' and leaves it open with network 'full'"),
        ({"preset": "strict", "network": "full"}, "requires 'network' and leaves it open with network 'full'"),
        ({"require": ["cpu_share"]}, "requires 'cpu_share' without a limit: set limits.cpu_share"),
        ({"require": ["memory"], "preset": "trusted"}, "requires 'memory' without a limit: set limits.memory_bytes"),
        ({"require": ["memory"], "limits": {"memory_bytes": None}}, "requires 'memory' without a limit"),
        ({"preset": "trusted", "hidden": ["/a"]}, "hidden: the preset 'trusted' confines nothing: use 'standard'"),
        ({"preset": "trusted", "network": ["a:1"]}, "network: the preset 'trusted' confines nothing"),
        ({"preset": "trusted", "network": "none"}, "network: the preset 'trusted' confines nothing"),
        ({"preset": "trusted", "minimum": "landlock"}, "minimum: the preset 'trusted' confines nothing"),
        ({"preset": "trusted", "require": ["syscalls"]}, "requires 'syscalls': the preset 'trusted' confines nothing"),
    ],
)
def test_a_contradiction_is_refused(fields: dict[str, object], message: str) -> None:
    """One of the two wishes would be dropped without a word."""
    where, what = complaint(**fields)
    assert where == ""
    assert what.startswith(message)


@pytest.mark.parametrize(
    "fields",
    [
        {"write": ["/a"], "read": ["/a/b"], "hidden": ["/a/c"]},
        {"hidden": ["/elsewhere"]},
        {"hidden": ["/a"], "write": ["/a/b"]},
        {"preset": "trusted", "limits": {"memory_bytes": "1 GiB"}, "require": ["memory", "tree_death"]},
        {"preset": "trusted", "network": "full", "read": ["/a"]},
        {"require": ["scratch"], "limits": {"scratch_inodes": None}},
    ],
    ids=str,
)
def test_what_only_looks_odd_is_allowed(fields: dict[str, object]) -> None:
    """A folder below another may well be treated otherwise."""
    assert policy(**fields)


def test_no_error_shows_a_path_or_a_host() -> None:
    """Variables are resolved before; a secret may stand in any text."""
    for fields in ({"read": ["hunter2"]}, {"network": ["hunter2"]}, {"read": ["/hunter2"], "write": ["/hunter2"]}):
        with pytest.raises(ValidationError) as caught:
            policy(**fields)
        assert "hunter2" not in str(caught.value)


@given(mine=POLICIES)
def test_a_policy_survives_json_whole(mine: SandboxPolicy) -> None:
    """A worker is told the policy as JSON text: a preset that fills in something else there would go unseen."""
    assert SandboxPolicy.model_validate_json(mine.model_dump_json()) == mine
    config = StdioServerConfig(id="s", command="c", sandbox=mine)
    assert StdioServerConfig.model_validate_json(config.model_dump_json()).sandbox == mine


@given(mine=POLICIES)
def test_an_accepted_policy_keeps_its_promises_to_itself(mine: SandboxPolicy) -> None:
    """Whoever compiles it relies on that."""
    paths = (*mine.read, *mine.write, *mine.hidden)
    assert len(paths) == len(set(paths))
    assert all(path.startswith("/") and ".." not in path.split("/") for path in paths)
    assert all(mine.limits_set(name) for name in mine.require)
    assert mine.confines_files or (mine.network is NetworkMode.FULL and not mine.hidden)


def test_the_values_have_every_key_of_the_models_with_its_default() -> None:
    """A key that a user sets would not reach the sandbox, or an absent one would mean something else there."""
    assert msgspec.structs.asdict(LimitValues()) == dict(Limits()) == msgspec.structs.asdict(PolicyValues().limits)
    wanted = {key: value for key, value in SandboxPolicy() if key != "limits"}
    assert msgspec.structs.asdict(PolicyValues()) == {**wanted, "limits": LimitValues()}


@given(mine=POLICIES)
def test_the_values_say_what_the_policy_says(mine: SandboxPolicy) -> None:
    """A server would be confined by another policy than its row's."""
    assert msgspec.json.encode(mine.values) == msgspec.json.encode(mine.model_dump(mode="json"))
