"""The key `native` of a file, and the wish that it completes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from quarterdeck.common.tool_names import Profile
from quarterdeck.config.load.file import ConfigFileError, LoadedConfig, load_config_file
from quarterdeck.config.native_tools import NO_SETTINGS, NativeSettings, NativeWish, merge_native
from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode


def load(folder: Path, native: object, **others: object) -> LoadedConfig:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"native": native, **others}))
    return load_config_file(path, {"PORT": "8000", "EMPTY": ""})


def test_a_file_may_say_what_native_tools_reach_and_use(tmp_path: Path) -> None:
    """A user could not let an agent fetch from a server that it started."""
    sandbox = {"network": "none", "read": ["shared", "/opt/x"], "limits": {"processes": 100}}
    loaded = load(tmp_path, {"sandbox": sandbox, "webfetch": {"allow": ["127.0.0.1:${PORT}"], "proxy": None}})
    assert loaded.native is not None
    assert loaded.native_problem == ""
    assert loaded.warnings == ()
    policy = loaded.native.sandbox
    assert policy is not None
    assert (policy.network, policy.limits.processes) == (NetworkMode.NONE, 100)
    assert policy.read == (str(tmp_path / "shared"), "/opt/x")
    assert loaded.native.webfetch == FetchPolicy(allow=("127.0.0.1:8000",))


def test_native_tools_alone_are_a_configuration(tmp_path: Path) -> None:
    """A user without servers would have to invent one."""
    loaded = load(tmp_path, {})
    assert (loaded.servers, loaded.native) == ((), NO_SETTINGS)
    assert load(tmp_path, None).native is None


@pytest.mark.parametrize(
    ("native", "problem"),
    [
        (5, "native: expected an object, got 5"),
        ([], "native: expected an object, got an array"),
        ({"sandboks": {}}, "native: unknown key 'sandboks': did you mean 'sandbox'?"),
        ({"sandbox": {"netwrk": "none"}}, "native.sandbox: unknown key 'netwrk': did you mean 'network'?"),
        ({"sandbox": 5}, "native.sandbox: expected an object, got 5"),
        ({"sandbox": {"limits": {"processes": True}}}, "native.sandbox.limits.processes: expected a number, got true"),
        ({"webfetch": []}, "native.webfetch: expected an object, got an array"),
        ({"webfetch": {"alow": []}}, "native.webfetch: unknown key 'alow': did you mean 'allow'?"),
        ({"webfetch": {"allow": "x:1"}}, "native.webfetch.allow: expected an array, got a string"),
        ({"webfetch": {"allow": ["not an address"]}}, "native.webfetch.allow"),
        ({"webfetch": {"proxy": "ftp://x"}}, "native.webfetch.proxy"),
        ({"webfetch": {"allow": ["${NOT_SET}:1"]}}, "native.webfetch.allow[0]: the variable 'NOT_SET' is not set"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_the_servers_stay(
    tmp_path: Path, native: object, problem: str
) -> None:
    """A typing error would loosen a sandbox, or take all servers away."""
    loaded = load(tmp_path, native, mcpServers={"a": {"command": "true"}})
    assert loaded.native is None
    assert loaded.native_problem.startswith(problem)
    assert [server.id for server in loaded.servers] == ["a"]


def test_the_key_given_twice_is_an_error(tmp_path: Path) -> None:
    """Which of two sandboxes holds would be a matter of luck."""
    path = tmp_path / "mcp.json"
    path.write_text('{"native": {}, "native": {"sandbox": {}}}')
    with pytest.raises(ConfigFileError, match="'native' appears more than once"):
        load_config_file(path, {})
    path.write_text('{"native": {"webfetch": {"allow": [], "allow": ["x:1"]}}}')
    assert "'allow' appears more than once" in load_config_file(path, {}).native_problem


def test_of_several_files_the_earlier_one_says_each_member() -> None:
    """A second --config would silently loosen what the first one set."""
    strict, web = SandboxPolicy(network=NetworkMode.NONE), FetchPolicy(allow=("a.example",))
    first, second = NativeSettings(sandbox=strict), NativeSettings(sandbox=SandboxPolicy(), webfetch=web)
    merged, warnings = merge_native({Path("a.json"): first, Path("b.json"): second})
    assert merged == NativeSettings(sandbox=strict, webfetch=web)
    assert warnings == ("b.json: 'native.sandbox' is ignored: a.json defines it first",)
    assert merge_native({}) == (NO_SETTINGS, ())


def test_what_commands_may_write_beside_the_workspace_is_writable_too(tmp_path: Path) -> None:
    """A configuration that a `bash` could write there would count as the user's word."""
    said = NativeSettings.model_validate({"sandbox": {"write": [str(tmp_path / "said")]}})
    wish = NativeWish(profile=Profile.ALL, workspace=tmp_path / "w", allow_dirs=(tmp_path / "d",), settings=said)
    assert wish.writable == (tmp_path / "w", tmp_path / "d", tmp_path / "said")
    assert replace(wish, profile=Profile.AUTHORING).writable == ()


def test_wishes_for_the_same_have_the_same_fingerprint(tmp_path: Path) -> None:
    """A command would not find the serve that offers what it wants, or find one that offers more."""
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    (tmp_path / "link").symlink_to(work)
    wish = NativeWish(profile=Profile.ALL, workspace=work, allow_dirs=(other, tmp_path), tools=("read", "ls"))
    same = replace(wish, workspace=tmp_path / "link", allow_dirs=(tmp_path, other), tools=("ls", "read"))
    assert wish.fingerprint == same.fingerprint
    differences = ({"profile": Profile.SURVEY}, {"workspace": other}, {"allow_dirs": (other,)}, {"tools": ("read",)})
    others = [replace(wish, **each) for each in (*differences, {"tools": None})]
    assert len({wish.fingerprint, *(each.fingerprint for each in others)}) == len(others) + 1
