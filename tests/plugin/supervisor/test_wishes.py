"""What a test's wish makes of a row or a command."""

import json
from pathlib import Path

import msgspec
import pytest
from support.config.places import write_config

from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_pytest.messages import Wish
from quarterdeck_pytest.supervisor.wishes import WishError, wished


def only(wish: Wish) -> StdioServerConfig:
    [config] = wished(wish, {}).servers
    assert isinstance(config, StdioServerConfig)
    return config


def policy(**keys: object) -> bytes:
    return msgspec.json.encode(keys)


@pytest.fixture
def file(tmp_path: Path) -> str:
    row = {"command": "echo", "sandbox": {"read": ["/opt"], "network": "full", "limits": {"processes": 7}}}
    free = {"command": "echo", "sandbox": {"preset": "trusted"}}
    return str(write_config(tmp_path / "mcp.json", a=row, free=free, broken={"command": "x", "sandbox": {"wrong": 1}}))


def test_a_command_may_read_its_project_and_is_named_after_its_script() -> None:
    """Its own source would be hidden from it, and every report would call it python."""
    found = only(Wish(words=("/usr/bin/python3", "-X", "-u", "servers/my_notes.py"), cwd="/work", timeout_s=5))
    assert (found.id, found.cwd, found.sandbox.read) == ("my_notes", "/work", ("/work",))
    assert (found.connect_timeout_s, found.call_timeout_s) == (5, 5)


def test_a_test_changes_keys_of_the_rows_policy_and_another_preset_keeps_its_paths(file: str) -> None:
    """A test under `strict` could not see its own program, or would run with the limits of another preset."""
    found = only(Wish(file=file, server="a", policy=policy(limits={"open_files": 64}))).sandbox
    assert (found.read, found.network, found.limits.processes, found.limits.open_files) == (("/opt",), "full", 7, 64)
    strict = only(Wish(file=file, server="a", policy=policy(preset="strict"))).sandbox
    assert (strict.read, strict.network, strict.limits.processes) == (("/opt",), "none", 64)
    assert only(Wish(file=file, server="a", policy=policy(read=["/srv"]))).sandbox.read == ("/opt", "/srv")


def test_the_runs_network_counts_unless_the_test_says_it_or_the_server_is_trusted(file: str) -> None:
    """CI's restriction would be lifted by any row, or would break what is not confined at all."""
    assert only(Wish(file=file, server="a", network="none")).sandbox.network == "none"
    said = policy(network="internet")
    assert only(Wish(file=file, server="a", network="none", policy=said)).sandbox.network == "internet"
    assert only(Wish(file=file, server="free", network="none")).sandbox.network == "full"


def test_an_era_is_forced(file: str) -> None:
    """Both of a test's eras would be the same."""
    assert only(Wish(file=file, server="a", era="2025-11-25")).protocol == "2025-11-25"


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"server": "b"}, "has no server 'b': the servers are a"),
        ({"server": "broken"}, "wrong"),
        ({"server": "a", "policy": policy(preset="trusted", network="none")}, "confines nothing"),
        ({"server": "a", "policy": policy(memory=1)}, "unknown key 'memory'"),
    ],
)
def test_what_cannot_be_is_one_sentence(file: str, wish: dict[str, object], said: str) -> None:
    """A mistyped id, or a policy that contradicts itself, would be a traceback of a library."""
    with pytest.raises(WishError, match=said) as raised:
        wished(msgspec.convert({"file": file, **wish}, Wish, strict=False), {})
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    """The first mistake of everybody would be a traceback."""
    (tmp_path / "mcp.json").write_text(json.dumps([]))
    for name in ("mcp.json", "missing.json"):
        with pytest.raises(WishError, match=name):
            wished(Wish(file=str(tmp_path / name)), {})
