"""What is told of the servers that a run has."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.config.places import row, write_config

from quarterdeck.config.places.paths import server_paths
from quarterdeck_protocol.faults import Dossier, FaultKind, ProtocolFault
from quarterdeck_pytest.messages import Wish
from quarterdeck_pytest.supervisor import server_processes
from quarterdeck_pytest.supervisor.instances import Instance, policy_of
from quarterdeck_pytest.supervisor.wishes import wished

SECRET = "sk-4f9a8b7c6d5e4f3a2b1c0d9e"


def test_a_fault_crosses_without_secrets_and_without_orders_to_a_terminal(tmp_path: Path) -> None:
    """The log of a CI run, which many can read, would show a server's key."""
    file = write_config(tmp_path / "mcp.json", echo=row("echo", env={"API_KEY": SECRET}))
    instance = Instance("key", Wish(file=str(file)), "test_it", shared=False)
    dossier = Dossier(stderr_tail=f"key: {SECRET}\n", hints=(f"it may need {SECRET}",))
    told = f"{SECRET} is no key of ours\x1b]0;owned\x07"
    fault = ProtocolFault(FaultKind.TOOL_ERROR, told, code="reply_error", dossier=dossier)
    record = instance.record(fault)
    assert (record.code, record.message) == ("reply_error", "[redacted] is no key of ours\\x1b]0;owned\\x07")
    assert record.dossier == Dossier(stderr_tail="key: [redacted]\n", hints=("it may need [redacted]",))


@pytest.mark.process
def test_what_has_forked_away_from_a_server_is_left_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine would fill up with what nobody started by name; also where the server itself never started."""
    monkeypatch.setattr(server_processes, "GONE_S", 0.01)
    instance = Instance("forks", Wish(words=("none",), cwd=str(tmp_path)), "test_it", shared=False)
    env = {"HOME": str(server_paths(instance.digest, "none").home)}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env) as away:
        [left] = asyncio.run(instance.close())
        away.communicate()
    assert f"process {away.pid} (" in left
    assert "a server that was stopped" in left
    assert asyncio.run(Instance("other", Wish(words=("none",)), "test_it", shared=False).close()) == []


def test_of_a_policy_only_what_differs_from_its_preset_is_told() -> None:
    """What a test has changed would be lost among twenty limits that it has not."""
    given = {"limits": {"memory_bytes": 104_857_600}, "network": "none"}
    [config] = wished(Wish(words=("echo",), policy=msgspec.json.encode(given)), {}).servers
    assert msgspec.json.decode(policy_of(config)) == {"preset": "standard", **given}
