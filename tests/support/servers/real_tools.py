"""The tools of public servers, as tests/collect_tools.py wrote them down."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REAL_TOOLS: Final = Path(__file__).parents[2] / "protocol" / "data" / "real_tools.json"


@dataclass(frozen=True, slots=True)
class RealServer:
    """One server and its tools.

    Attributes:
        package: its registry and its name there, as `npm:NAME` or `pypi:NAME`.
        tools: definitions as the server wrote them, less what no test uses.
    """

    name: str
    package: str
    version: str
    tools: list[dict[str, Any]]


def read_servers() -> list[RealServer]:
    return [RealServer(name, **entry) for name, entry in json.loads(REAL_TOOLS.read_text("utf-8")).items()]


def write_servers(servers: Iterable[RealServer]) -> None:
    """Replace what is written down: sorted by name, one tool a line, so that a change of one is one line's change."""
    blocks = []
    for server in sorted(servers, key=lambda server: server.name):
        head = f'{json.dumps(server.name)}: {{"package": {json.dumps(server.package)}, '
        tools = ",\n  ".join(json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in server.tools)
        blocks.append(f' {head}"version": {json.dumps(server.version)}, "tools": [\n  {tools}\n ]}}')
    REAL_TOOLS.write_text("{\n" + ",\n".join(blocks) + "\n}\n", "utf-8")
