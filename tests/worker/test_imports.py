"""What a worker loads: never the SDK, and HTTP only where its server is behind a URL."""

import subprocess
import sys

import pytest

from quarterdeck_worker import zygote

pytestmark = pytest.mark.process

CODE = """
import sys
from importlib import import_module
from socket import SHUT_WR, socketpair
from quarterdeck_worker import zygote
ours, theirs = socketpair()
ours.shutdown(SHUT_WR)
zygote.serve(theirs)
{}
print(*sys.modules)
"""
"""A zygote whose owner leaves at once, with all that its workers would share."""


@pytest.mark.parametrize(
    ("code", "has_http"),
    [("", False), ("import_module(zygote.HTTP)", True)],
    ids=["a process", "a URL"],
)
def test_no_worker_loads_the_sdk_and_one_of_a_process_no_http(code: str, has_http: bool) -> None:
    """Each worker would be several times as large and start later, for what it does not use."""
    ran = subprocess.run([sys.executable, "-c", CODE.format(code)], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert not loaded & {"mcp", "mcp_types", "pydantic", "quarterdeck", "starlette"}
    assert ("httpx2" in loaded) is has_http
    assert {zygote.STDIO, "quarterdeck_sandbox.run.start"} <= loaded, "each worker would import it anew"
