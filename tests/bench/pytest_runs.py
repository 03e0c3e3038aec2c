"""What a suite of a server's tests takes with the plugin, against one that starts the server for each test by the SDK.

The same tests, by the same number of xdist workers: 4 servers, written with the SDK as people write them.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

from support.config.places import short_folder

from .finding import Finding, NotMeasuredError, Target
from .rounds import Effort

RATIO: Final = Target(required=0.4, goal=0.25)

TESTS: Final = 200
SERVERS: Final = 4
WORKERS: Final = 4

FEW_REPEATS: Final = 2
"""What `--quick` asks for."""

ALONE: Final = [
    word for name in ("cacheprovider", "asyncio", "pytest_cov", "randomly") for word in ("-p", f"no:{name}")
]
"""Without what happens to be installed beside us."""

SERVER: Final = """
from mcp.server import MCPServer

app = MCPServer("calculator")


@app.tool()
def add(a: int, b: int) -> int:
    return a + b


app.run("stdio")
"""

WITH_PLUGIN: Final = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_add(mcp_server, number):
    client = mcp_server(["python", f"server{{number % {servers}}}.py"], scope="run").client()
    assert client.call_tool("add", {{"a": number, "b": 1}}).structured_content == {{"result": number + 1}}
"""

WITH_SDK: Final = """
import sys
import anyio
import pytest
from mcp import Client, StdioServerParameters

@pytest.mark.parametrize("number", range({tests}))
def test_add(number):
    async def main():
        server = StdioServerParameters(command=sys.executable, args=[f"server{{number % {servers}}}.py"])
        async with Client(server) as client:
            result = await client.call_tool("add", {{"a": number, "b": 1}})
            assert result.structured_content == {{"result": number + 1}}
    anyio.run(main)
"""


async def measure(effort: Effort) -> list[Finding]:
    """The ratio of wall times, without a round to warm up; a fifth of the tests where little effort is wanted."""
    tests = TESTS if effort.repeats > FEW_REPEATS else TESTS // 5
    with short_folder(0o755) as folder:  # as root, servers are another user
        for number in range(SERVERS):
            (folder / f"server{number}.py").write_text(SERVER)
        suites = {"plugin": WITH_PLUGIN, "sdk": WITH_SDK}
        for name, text in suites.items():
            (folder / f"test_{name}.py").write_text(text.format(tests=tests, servers=SERVERS))
        ours = await _run(folder, "plugin", tests)
        reference = await _run(folder, "sdk", tests)
    note = f"{tests} tests, {SERVERS} servers, -n {WORKERS}; reference: the SDK starts a server for each test"
    return [Finding("a suite of tests", "s", RATIO, ours, reference, ours / reference, note)]


async def _run(folder: Path, name: str, tests: int) -> float:
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", *ALONE, "-n", str(WORKERS), f"test_{name}.py"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ""},
    )
    said, _ = await process.communicate()
    if process.returncode != 0 or f"{tests} passed".encode() not in said:
        raise NotMeasuredError(f"the suite with the {name} did not pass: {said.decode()[-500:]}")
    return time.perf_counter() - started
