"""A worker that was taken over sends a message without an end: no limit of libzmq's stops it, so we must."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import SERVERS

SUPERVISOR = """
import asyncio, json, os, resource, subprocess, sys
from quarterdeck.fleet import placement
from quarterdeck.interop import CLIENT_VERSION, ProtocolFault, StdioServerConfig, create_server_endpoint

def hijacked(module, *args, pass_fds=None, stdin=subprocess.DEVNULL):
    argv = [sys.executable, sys.argv[1], CLIENT_VERSION]
    return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.DEVNULL, start_new_session=True)

placement.isolated = hijacked

async def main():
    endpoint = create_server_endpoint(StdioServerConfig(id="taken", command="true", connect_timeout_s=120))
    try:
        await endpoint.open()
    except ProtocolFault as fault:
        print(json.dumps([fault.kind, fault.code, fault.message, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
    await endpoint.close()

asyncio.run(main())
"""

MOST_KIB = 3 * 1024 * 1024
"""What arrives in the six seconds until three beats are missed, and as much again."""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
@pytest.mark.parametrize("part_bytes", [65_536, 8_000_000])
def test_a_worker_that_sends_a_message_without_an_end_is_killed(
    part_bytes: int, own_directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broken worker would fill the memory of the supervisor, and take all servers with it."""
    monkeypatch.setenv("QUARTERDECK_SPAWN", "fresh")
    monkeypatch.setenv("FLOODING_WORKER_PART_BYTES", str(part_bytes))
    argv = [sys.executable, "-c", SUPERVISOR, str(SERVERS / "flooding_worker.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    kind, code, message, peak_kib = json.loads(done.stdout)
    # Whichever is first: the guard that sees our memory grow, or the beats that cannot pass such a message.
    assert (kind, code) in {("spawn_failed", "protocol_violation"), ("timeout", "worker_unresponsive")}, message
    assert peak_kib < MOST_KIB
