"""A worker that was taken over fills its socket: it is killed for it, and our memory grows by one message at most."""

import json
from pathlib import Path

import pytest
from support.processes.programs import SERVERS
from support.processes.running import python_output
from support.sandbox.machine_facts import LINUX_ONLY

SUPERVISOR = """
import asyncio, json, os, resource, subprocess, sys
from quarterdeck.fleet.workers import placement
from quarterdeck.interop import CLIENT_VERSION, ProtocolFault, StdioServerConfig, create_server_endpoint

def hijacked(module, *args, pass_fds=None, stdin=subprocess.DEVNULL):
    argv = [sys.executable, sys.argv[1], CLIENT_VERSION]
    return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.DEVNULL, start_new_session=True)

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

placement.isolated = hijacked

async def main():
    before = peak_kib()
    for flood in sys.argv[2:]:
        os.environ["FLOODING_WORKER"] = flood
        endpoint = create_server_endpoint(StdioServerConfig(id="taken", command="true", connect_timeout_s=120))
        try:
            await endpoint.open()
        except ProtocolFault as fault:
            print(json.dumps([flood, fault.kind, fault.code, fault.message, peak_kib() - before]), flush=True)
        await endpoint.close()

asyncio.run(main())
"""

VIOLATION = ("spawn_failed", "protocol_violation")
UNRESPONSIVE = ("timeout", "worker_unresponsive")

SMALL_KIB = 16 * 1024
LARGE_KIB = (64 + 64 // 8 + 16) * 1024
"""The largest body that is allowed, what a growing buffer reserves beside it, and what little else."""

FLOODS = {
    "small parts": (VIOLATION, SMALL_KIB),
    "large parts": (VIOLATION, SMALL_KIB),
    "empty parts": (VIOLATION, SMALL_KIB),
    "a body too large": (VIOLATION, SMALL_KIB),
    "commands": (VIOLATION, SMALL_KIB),
    "beats": (VIOLATION, SMALL_KIB),
    "a body that never ends": (UNRESPONSIVE, LARGE_KIB),
}
"""How each ends, and by how much all of them up to it may have let our peak grow: the largest comes last."""


@pytest.mark.nightly
@LINUX_ONLY
def test_a_worker_that_floods_its_socket_is_killed(own_directories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One broken worker would fill the memory of the supervisor, and take all servers with it."""
    monkeypatch.setenv("QUARTERDECK_SPAWN", "fresh")
    told = python_output(SUPERVISOR, SERVERS / "flooding_worker.py", *FLOODS, within_s=110)
    ends = {flood: end for flood, *end in map(json.loads, told.splitlines())}
    assert ends.keys() == FLOODS.keys()
    wrong = {
        flood: end
        for flood, end in ends.items()
        if (tuple(end[:2]), end[3] < FLOODS[flood][1]) != (FLOODS[flood][0], True)
    }
    assert wrong == {}
