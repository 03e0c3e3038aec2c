"""Calls through `quarterdeck serve` on stdio, by a raw client, against the plain SDK client's to the server itself."""

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from support.programs import SERVERS, server_argv
from support.raw_client import RawStdioClient

from .finding import Finding, NotMeasuredError, Target
from .peers import ECHO, ECHO_NAME, TEXT, plain_client, sdk_call
from .rounds import Effort, Table, alternate, p50_of, repeat

LATENCY: Final = Target(required=1.5, goal=1.0)


CALLS: Final = 60
"""In one sample."""

START_S: Final = 60.0
"""For serve and its servers to be there."""


async def measure(effort: Effort) -> list[Finding]:
    """One call at a time.  The raw client blocks the loop, on which nothing else has work meanwhile."""
    if importlib.util.find_spec("quarterdeck.cli") is None:
        raise NotMeasuredError("quarterdeck.cli is not there")

    async def compare() -> Table:
        with tempfile.TemporaryDirectory(prefix="qd-bench-") as folder, _serving(Path(folder)) as raw:
            raw.initialize()
            names = [tool["name"] for tool in raw.list_tools()]
            assert ECHO_NAME in names, (names, raw.stderr_text())

            async def call() -> None:
                raw.call(ECHO_NAME, text=TEXT)

            async with plain_client() as client:
                return await alternate(effort.rounds, p50_of(call, CALLS), p50_of(sdk_call(client), CALLS))

    ours, sdk = await repeat(effort.repeats, compare)
    return [Finding.of_rounds("call through serve on stdio, p50", "ms", LATENCY, ours, sdk)]


def _serving(folder: Path) -> RawStdioClient:
    command, *args = server_argv(ECHO)
    config = folder / "servers.json"
    config.write_text(
        json.dumps({"mcpServers": {ECHO: {"command": command, "args": args, "sandbox": {"read": [str(SERVERS)]}}}}),
        encoding="utf-8",
    )
    argv = [sys.executable, "-m", "quarterdeck.cli", "serve", "--config", str(config)]
    return RawStdioClient(argv, env=dict(os.environ), cwd=folder, deadline_s=START_S)
