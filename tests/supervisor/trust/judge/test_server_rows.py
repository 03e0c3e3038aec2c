"""What asks for more than before is known, and what asks for less is not held up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.trust.judge.server_rows import loosens, loosens_native
from quarterdeck_protocol.configs import ServerConfig, SseServerConfig, StdioServerConfig
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Grant, NetworkMode, Tier


def row(sandbox: dict[str, Any] | None = None, **fields: Any) -> StdioServerConfig:
    return StdioServerConfig(id="s", command="c", sandbox=SandboxPolicy(**(sandbox or {})), **fields)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({}, {"preset": "trusted"}, "preset"),
        ({"network": "none"}, {}, "network"),
        ({"network": "none"}, {"network": "loopback"}, "network"),
        ({"network": "loopback"}, {"network": "internet"}, "network"),
        ({"network": "internet"}, {}, "network"),
        ({}, {"network": "full"}, "network"),
        ({"network": ["a:1"]}, {"network": ["a:1", "b:2"]}, "network"),
        ({}, {"read": ["/a"]}, "read"),
        ({"read": ["/a/b"]}, {"read": ["/a"]}, "read"),
        ({"read": ["/a"]}, {"write": ["/a"]}, "write"),
        ({"write": ["/a/b"]}, {"write": ["/a"]}, "write"),
        ({"read": ["/a"], "hidden": ["/a/b"]}, {"read": ["/a"]}, "hidden"),
        ({}, {"grants": ["aws"]}, "grants"),
        ({}, {"environment": ["TOKEN"]}, "environment"),
        ({"require": ["network"]}, {}, "require"),
        ({}, {"minimum": "limits"}, "minimum"),
        ({"preset": "strict"}, {"preset": "strict", "minimum": "landlock"}, "minimum"),
        ({}, {"limits": {"processes": 513}}, "limits.processes"),
        ({"limits": {"cpu_s": 5}}, {"limits": {"cpu_s": None}}, "limits.cpu_s"),
    ],
)
def test_each_way_to_ask_for_more_is_named_and_the_way_back_is_free(
    old: dict[str, Any], new: dict[str, Any], found: str
) -> None:
    """A row could get out of its sandbox by a key that nobody thought of; or no edit be taken while a serve runs."""
    assert found in loosens(row(old), row(new))
    assert found not in loosens(row(new), row(old))


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ({}, {"network": ["nas:445"]}, "network"),
        ({"network": "internet"}, {"network": ["nas:445"]}, "network"),
        ({"read": ["/a"]}, {"read": ["/ab"]}, "read"),
        ({"write": ["/a"]}, {"write": ["/b"]}, "write"),
    ],
)
def test_what_is_merely_something_else_is_more_both_ways(
    one: dict[str, Any], other: dict[str, Any], found: str
) -> None:
    """A row could move to another folder, or from the internet into the user's own network."""
    assert loosens(row(one), row(other)) == loosens(row(other), row(one)) == (found,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({}, {"network": "internet"}),
        ({"network": "full"}, {"network": ["nas:445"]}),
        ({"network": ["a:1", "b:2"]}, {"network": ["b:2"]}),
        ({"network": ["a:1"]}, {"network": "loopback"}),
        ({"read": ["/a"]}, {"read": ["/a/b"]}),
        ({"write": ["/a"]}, {"read": ["/a/b"], "write": ["/a/c"]}),
        ({"read": ["/a"], "hidden": ["/a/b/c"]}, {"read": ["/a"], "hidden": ["/a/b"]}),
        ({"preset": "trusted"}, {"network": "full", "read": ["/"], "minimum": "limits"}),
        ({}, {"limits": {"processes": 512, "cpu_s": 3}, "require": ["network"], "network": "none"}),
    ],
)
def test_what_is_no_more_is_no_loosening(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Each edit would wait for a person."""
    assert loosens(row(old), row(new)) == ()


def test_a_new_row_is_held_against_the_defaults() -> None:
    """A row that was never there could say anything."""
    assert loosens(None, row()) == ()
    assert loosens(None, row({"preset": "trusted"}, trust="open", inherit_env=["TOKEN"]))[:2] == ("trust", "preset")
    assert "inherit_env" in loosens(None, row(inherit_env=("TOKEN",)))
    assert loosens(None, row(max_seal_bytes=3 << 30)) == ("max_seal_bytes",)
    assert loosens(row(inherit_env=("A", "B")), row(inherit_env=("B",))) == ()


def test_asking_for_secrets_is_asking_for_more() -> None:
    """A row that an editor's extension rewrites could begin to ask for passwords."""
    deny, label, allow = (row(ask=mode) for mode in ("deny", "label", "allow"))
    assert loosens(label, allow) == loosens(None, allow) == loosens(deny, label) == ("ask",)
    assert loosens(allow, deny) == loosens(None, deny) == ()


def test_a_server_behind_a_url_that_becomes_a_process_is_held_against_the_defaults() -> None:
    """A remote row would be a way around the comparison."""
    remote: ServerConfig = SseServerConfig(id="s", url="https://x.example/")
    assert loosens(remote, row({"write": ["/a"]})) == ("write",)
    assert loosens(row({"write": ["/a"]}), remote) == ()


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({}, {"sandbox": {"network": "full"}}, ("sandbox.network",)),
        ({"sandbox": {"network": "none"}}, {}, ("sandbox.network",)),
        ({}, {"webfetch": {"allow": ["127.0.0.1"]}}, ("webfetch.allow",)),
        ({"webfetch": {"allow": ["a", "b"]}}, {"webfetch": {"allow": ["b"]}}, ()),
        ({}, {"webfetch": {"proxy": "http://p:1"}}, ("webfetch.proxy",)),
        ({"webfetch": {"proxy": "http://p:1"}}, {}, ("webfetch.proxy",)),
        ({"sandbox": {"write": ["/a"]}}, {"sandbox": {"network": "none"}}, ()),
    ],
)
def test_native_tools_are_compared_likewise(old: dict[str, Any], new: dict[str, Any], found: tuple[str, ...]) -> None:
    """`bash` could be given the network by an edit of its own."""
    assert loosens_native(NativeSettings.model_validate(old), NativeSettings.model_validate(new)) == found


PLACES = st.lists(st.sampled_from(["/a", "/a/b", "/a/b/c", "/d"]), max_size=2, unique=True)
POLICIES = st.builds(
    lambda read, write, **rest: SandboxPolicy(
        read=tuple(p for p in read if p not in write), write=tuple(write), **rest
    ),
    read=PLACES,
    write=PLACES,
    network=st.one_of(
        st.none(),
        st.sampled_from(NetworkMode),
        st.lists(st.sampled_from(["a:1", "b:2", "c:3"]), min_size=1, unique=True).map(tuple),
    ),
    grants=st.lists(st.sampled_from(Grant), max_size=2, unique=True).map(tuple),
    environment=st.lists(st.sampled_from(["A", "B"]), unique=True).map(tuple),
    minimum=st.sampled_from(Tier),
    limits=st.fixed_dictionaries({}, optional={"processes": st.none() | st.integers(1, 600)}),
)
ROWS = st.builds(lambda policy: StdioServerConfig(id="s", command="c", sandbox=policy), POLICIES)


@given(ROWS)
def test_a_row_asks_for_no_more_than_itself(one: StdioServerConfig) -> None:
    """An edit of another row would hold this one."""
    assert loosens(one, one) == ()


@given(ROWS, ROWS, ROWS)
def test_several_steps_that_loosen_nothing_loosen_nothing_together(
    one: StdioServerConfig, two: StdioServerConfig, three: StdioServerConfig
) -> None:
    """A confined program could get out by small edits, none of which is held."""
    if not loosens(one, two) and not loosens(two, three):
        assert loosens(one, three) == ()
