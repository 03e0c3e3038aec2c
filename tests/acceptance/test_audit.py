"""What is called is written where a user wants it audited, and nothing is served without that."""

import json
import os
from pathlib import Path

import pytest
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked
from support.serves.daemons import door, shown_status
from support.waiting import eventually

from quarterdeck.config.load.origin import mcp_config_paths

pytestmark = pytest.mark.usefixtures("by_the_daemon")


def test_calls_are_audited_or_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team would have no trace of an agent's calls, and learn that when it looks for one."""
    config, records = write_config(tmp_path / "mcp.json", s=row("echo")), tmp_path / "audit.jsonl"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    own = mcp_config_paths(tmp_path, os.environ)[1]
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"mcpServers": {}, "audit": {"to": [{"file": "audit.jsonl"}]}}))
    refused = quarterdeck_forked("up")
    assert refused.returncode == 6
    assert "the daemon cannot serve: " in refused.stderr
    assert "audit.to[0].file: must be an absolute path" in refused.stderr
    eventually(lambda: shown_status() is None, DEADLINE_S)
    own.write_text(json.dumps({"mcpServers": {}, "audit": {"to": [{"file": str(records)}]}}))
    with door(config) as client:
        client.initialize()
        client.list_tools()
        client.call("s__echo", text="hi")
        eventually(lambda: records.exists() and '"type":"call"' in records.read_text())
    told = [json.loads(line) for line in records.read_text().splitlines()]
    [call] = [each for each in told if each["type"] == "call"]
    assert (call["server"], call["tool"], call["outcome"]) == ("s", "echo", "ok")
    assert "approve" in {each["event"]["kind"] for each in told if each["type"] == "event"}
