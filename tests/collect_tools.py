"""Collect the tools of public MCP servers, and report how far providers take their schemas.

    python tests/collect_tools.py                     # every server of tests/support/servers/public_servers.py
    python tests/collect_tools.py git npm:some-mcp    # these: their entries are renewed, the others stay
    python tests/collect_tools.py --report            # nothing is collected: what providers make of the tools

Each package is installed into a scratch folder of its own without running its scripts (`npm install --ignore-scripts`,
`pip install --only-binary :all:`), started once by `quarterdeck tools --own`, thus in the sandbox, and asked for its
tools.  No tool is called.  What the tests use of a definition goes to tests/protocol/data/real_tools.json.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.schemas.providers.report import summary_lines, tool_lines, verdicts
from support.servers.public_servers import PUBLIC_SERVERS, PublicServer, Registry, server_named
from support.servers.real_tools import REAL_TOOLS, RealServer, read_servers, write_servers

INSTALL_S: Final = 420.0
"""One package with all that it needs, on a slow line."""

LIST_S: Final = 90.0
"""One server from its start to its tools; some load a model's worth of libraries first."""

MOST_TOOLS: Final = 40
"""Of one server: a few have more than a hundred, all of a kind."""

KEPT: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""What the tests use of a tool's definition."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A server that gave no tools, and why in a line."""

    server: PublicServer
    why: str


def collect(server: PublicServer, folder: Path) -> RealServer | Failed:
    place = folder / server.name
    place.mkdir(parents=True)
    try:
        install = _install_npm if server.registry is Registry.NPM else _install_pypi
        version, program = install(server, place)
        return RealServer(server.name, f"{server.registry}:{server.package}", version, _list(server, program, place))
    except (OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
        return Failed(server, _reason(error))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _install_npm(server: PublicServer, place: Path) -> tuple[str, Path]:
    _run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place), server.package])
    manifest = json.loads((place / "node_modules" / server.package / "package.json").read_text("utf-8"))
    programs = manifest.get("bin") or {}
    names = [server.package.rpartition("/")[2]] if isinstance(programs, str) else [*programs]
    return manifest["version"], place / "node_modules" / ".bin" / _fitting(server, names)


def _install_pypi(server: PublicServer, place: Path) -> tuple[str, Path]:
    python = str(place / "bin" / "python")
    _run([sys.executable, "-m", "venv", str(place)])
    _run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", server.package])
    asked = (
        "import json, sys; from importlib.metadata import distribution as d; found = d(sys.argv[1]);"
        "print(json.dumps([found.version, [p.name for p in found.entry_points if p.group == 'console_scripts']]))"
    )
    version, names = json.loads(_run([python, "-c", asked, server.package]))
    return version, place / "bin" / _fitting(server, names)


def _fitting(server: PublicServer, names: list[str]) -> str:
    """The program of a package that is most likely its server."""
    plain = server.package.rpartition("/")[2]
    ranked = sorted(names, key=lambda name: (name != server.command, name != plain, "mcp" not in name, len(name)))
    if not ranked:
        raise LookupError("it installs no program")
    return ranked[0]


def _list(server: PublicServer, program: Path, place: Path) -> list[dict[str, Any]]:
    row = {"command": str(program), "args": server.args, "env": server.env}
    config = place / "one.json"
    config.write_text(json.dumps({"mcpServers": {server.name: row}}), "utf-8")
    command = [shutil.which("quarterdeck", path=Path(sys.executable).parent) or "quarterdeck"]
    answer = json.loads(_run([*command, "tools", "--json", "--own", "-c", str(config)], LIST_S))
    if not answer["tools"]:
        raise LookupError(json.dumps(answer["absent"]))
    return [{key: view["definition"][key] for key in KEPT if key in view["definition"]} for view in answer["tools"]][
        :MOST_TOOLS
    ]


def _run(command: list[str], timeout_s: float = INSTALL_S) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUARTERDECK_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False)
    if done.returncode:
        raise LookupError((done.stderr or done.stdout).strip())
    return done.stdout


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[-300:]


def _collect_all(servers: list[PublicServer], at_once: int) -> int:
    """Collect from each server and write down what was found; the number of those that gave nothing."""
    known = {server.name: server for server in read_servers()} if REAL_TOOLS.exists() else {}
    failures = 0
    with tempfile.TemporaryDirectory(prefix="collected-") as folder, ThreadPoolExecutor(at_once) as pool:
        for outcome in pool.map(lambda server: collect(server, Path(folder)), servers):
            if isinstance(outcome, Failed):
                failures += 1
                print(f"{outcome.server.name}: no tools: {outcome.why}", file=sys.stderr)
                continue
            known[outcome.name] = outcome
            write_servers(known.values())
            print(f"{outcome.name} {outcome.version}: {len(outcome.tools)} tools")
    return failures


def _report() -> None:
    found = list(verdicts(read_servers()))
    print("server\ttool\tprovider\tbroken as written\tbroken in the portable form")
    for line in (*tool_lines(found), "", *summary_lines(found)):
        print(line)


def main() -> int:
    parser = argparse.ArgumentParser(description="Collect the tools of public MCP servers.")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help="a known name, npm:PACKAGE or pypi:PACKAGE")
    parser.add_argument("--report", action="store_true", help="only print what providers make of the known tools")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="servers installed at a time (2)")
    arguments = parser.parse_args()
    if arguments.report:
        _report()
        return 0
    try:
        servers = [server_named(spec) for spec in arguments.servers] or [*PUBLIC_SERVERS]
    except ValueError as error:
        parser.error(str(error))
    return 1 if _collect_all(servers, arguments.at_once) else 0


if __name__ == "__main__":
    sys.exit(main())
