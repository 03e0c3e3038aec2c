"""Try public servers from their seals: `python tests/bench/sealed_servers.py [WORD …] [--at-once N]`.

Each package, or each whose line has one of the words, is sealed into a store of its own, started from the seal without
a network (and with the usual one if that fails), listed, and one tool that harms nothing is called.  The list is
compared with what the package runner starts in a sandbox (`"seal": false`).  Prints one JSON object a server: seconds
of each step of the seal, seconds until the tools were listed, whether the lists are equal, and what it needs.
`npx` and `uvx` are those of the PATH.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.clients.raw_client import JsonObject, PeerClosedError, RawStdioClient, RpcError
from support.config.places import short_folder, write_config
from support.processes.commands import command

from quarterdeck.seals.install import InstallSettings, Progress, seal
from quarterdeck.seals.manifest import SealError
from quarterdeck.seals.request import PackageRequest, request_of
from quarterdeck.seals.store import Seal, SealStore

START_S: Final = 150.0
"""A runner installs at its first start, and the machine may be busy."""

CALL_S: Final = 40.0

SAID_CHARS: Final = 1500
"""Of the end of what a failure left on stderr and in the log."""

ID: Final = "s"
"""Of the server in every configuration, so that the names of its tools are equal."""

UNWRITABLE: Final = re.compile(r"EROFS|EACCES|read-only file system|permission denied", re.IGNORECASE)
"""Words of a server that wants to write into its tree."""

SECRET: Final = "x" * 40
"""In place of a key that a server wants before it lists its tools; it opens nothing."""


@dataclass(frozen=True, slots=True)
class Server:
    """A public server.

    Attributes:
        line: its command line.
        call: a tool that harms nothing, and its arguments; without an account or a browser it may answer an error.
        env: what it wants before it starts.
        files: the folders that it may read.
    """

    line: str
    call: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    env: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


THOUGHT: Final = {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}

SERVERS: Final = (
    Server("uvx mcp-server-time", "get_current_time", {"timezone": "UTC"}),
    Server("npx -y @modelcontextprotocol/server-everything", "echo", {"message": "a"}),
    Server("uvx mcp-server-fetch", "fetch", {"url": "https://example.com"}),
    Server("npx -y @modelcontextprotocol/server-filesystem /usr/share", "list_allowed_directories", files=("/usr",)),
    Server("uvx mcp-server-git", "git_status", {"repo_path": "/nowhere"}),
    Server("npx -y @modelcontextprotocol/server-memory", "read_graph"),
    Server("uvx --with 'mcp<2' mcp-server-sqlite --db-path /tmp/sealed.db", "list_tables"),
    Server("npx -y @modelcontextprotocol/server-sequential-thinking", "sequentialthinking", THOUGHT),
    Server("uvx mcp-server-calculator", "calculate", {"expression": "2 + 3"}),
    Server("npx -y @modelcontextprotocol/server-puppeteer", "puppeteer_evaluate", {"script": "1"}),
    Server("uvx wikipedia-mcp", "search_wikipedia", {"query": "sandbox"}),
    Server(
        "npx -y @modelcontextprotocol/server-github",
        "search_repositories",
        {"query": "mcp"},
        env=("GITHUB_PERSONAL_ACCESS_TOKEN",),
    ),
    Server("uvx duckduckgo-mcp-server", "search", {"query": "sandbox"}),
    Server("npx -y @playwright/mcp@latest", "browser_tabs", {"action": "list"}),
    Server("uvx arxiv-mcp-server", "list_papers"),
    Server("npx -y @upstash/context7-mcp", "resolve-library-id", {"libraryName": "react", "query": "state"}),
    Server(
        "uvx mcp-atlassian --jira-url https://example.com --jira-username a",
        "jira_get_issue",
        {"issue_key": "AB-1"},
        env=("JIRA_API_TOKEN",),
    ),
    Server("npx -y firecrawl-mcp", "firecrawl_check_crawl_status", {"id": "none"}, env=("FIRECRAWL_API_KEY",)),
    Server("uvx markitdown-mcp", "convert_to_markdown", {"uri": "data:text/plain,hello"}),
    Server("npx -y tavily-mcp", "tavily_search", {"query": "sandbox"}, env=("TAVILY_API_KEY",)),
    Server("uvx awslabs.aws-documentation-mcp-server", "search_documentation", {"search_phrase": "s3"}),
    Server("npx -y exa-mcp-server", "web_search_exa", {"query": "sandbox"}, env=("EXA_API_KEY",)),
    Server("uvx --from office-word-mcp-server word_mcp_server", "list_available_documents"),
    Server("npx -y @notionhq/notion-mcp-server", "API-get-self", env=("NOTION_TOKEN",)),
    Server("uvx excel-mcp-server stdio", "describe_workbook", {"path": "/nowhere.xlsx"}),
    Server("npx -y @wonderwhy-er/desktop-commander", "get_config"),
    Server("uvx mcp-server-qdrant", "qdrant-find", {"query": "sandbox"}, env=("COLLECTION_NAME",)),
    Server("npx -y chrome-devtools-mcp", "list_pages"),
    Server("uvx blender-mcp", "get_scene_info"),
    Server(f"npx -y figma-developer-mcp --stdio --figma-api-key={SECRET}", "get_figma_data", {"fileKey": "none"}),
    Server("uvx mcp-shell-server", "shell_execute", {"command": ["true"]}, env=("ALLOW_COMMANDS",)),
    Server("npx -y @brave/brave-search-mcp-server", "brave_web_search", {"query": "sandbox"}, env=("BRAVE_API_KEY",)),
    Server("uvx postgres-mcp", "list_schemas"),
    Server("npx -y kubernetes-mcp-server@latest", "configuration_view"),
    Server("uvx mcp-server-docker", "list_containers"),
    Server("npx -y mongodb-mcp-server", "list-databases", {"connectionId": "none"}),
    Server("uvx mcp-simple-arxiv", "search_papers", {"query": "sandbox"}),
    Server("npx -y @eslint/mcp@latest", "lint-files", {"filePaths": ["/nowhere.js"]}),
)


def row_of(server: Server, **fields: Any) -> JsonObject:
    """Its row of a configuration file."""
    runner, *args = shlex.split(server.line)
    sandbox = {**({"read": list(server.files)} if server.files else {}), **fields.get("sandbox", {})}
    return {"command": runner, "args": args, **fields, "sandbox": sandbox, "env": dict.fromkeys(server.env, SECRET)}


async def tried(server: Server, root: Path) -> JsonObject:
    """Return all that one server's trial shows."""
    runner, *args = shlex.split(server.line)
    asked = request_of(runner, args)
    assert isinstance(asked, PackageRequest), f"{server.line}: {asked}"
    report: JsonObject = {"line": server.line}
    steps = _Steps()
    try:
        store = SealStore(root / "data" / "seals")
        sealed = await seal(asked, store, InstallSettings(os.environ, root), tell=steps.tell)
    except SealError as error:
        return report | {"not_sealed": f"{error.code}: {error.message} {error.remedy}", "seconds": steps.seconds()}
    report |= _described(sealed) | {"seconds": steps.seconds()}
    for needs, sandbox in (("no network", {"network": "none"}), ("network", {})):
        found = await asyncio.to_thread(_started, server, root, f"seal-{needs[:2]}", {"sandbox": sandbox})
        report |= {"needs": needs, "sealed": found.report()}
        if found.tools:
            break
    direct = await asyncio.to_thread(_started, server, root, "runner", {"seal": False})
    differing = sorted(name for name in found.tools | direct.tools if found.tools.get(name) != direct.tools.get(name))
    return report | {
        "runner": direct.report(),
        "tools": len(found.tools),
        "is_equal": bool(found.tools) and not differing,
        "differing": differing[:5],
    }


class _Steps:
    def __init__(self) -> None:
        self._began = [("sandbox", time.perf_counter())]

    def tell(self, progress: Progress) -> None:
        if progress.step != self._began[-1][0]:
            self._began.append((progress.step, time.perf_counter()))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each step that was told, and of all."""
        ended = [began for _, began in self._began[1:]] + [time.perf_counter()]
        found = {step: round(end - began, 1) for (step, began), end in zip(self._began, ended, strict=True)}
        return found | {"all": round(ended[-1] - self._began[0][1], 1)}


def _described(sealed: Seal) -> JsonObject:
    manifest = sealed.manifest
    scripts = [f"{package.name}: {package.script}" for package in manifest.packages if package.script]
    return {
        "version": manifest.version,
        "packages": len(manifest.packages),
        "files": manifest.files,
        "mib": round(manifest.size / 2**20, 1),
        "unrun_scripts": scripts,
    }


@dataclass(frozen=True, slots=True)
class Found:
    """What one start shows; `said` is the end of stderr where something failed, or could not be written."""

    listed_s: float
    tools: Mapping[str, JsonObject]
    called: str = ""
    said: str = ""

    def report(self) -> JsonObject:
        shown = {"listed_s": round(self.listed_s, 1), "called": self.called, "said": self.said}
        return {name: value for name, value in shown.items() if value}


def _started(server: Server, root: Path, name: str, fields: Mapping[str, Any]) -> Found:
    """Start a server in a state directory of its own, list its tools, and call one."""
    places = {each: root / name / each for each in ("home", "state", "run")}
    for place in places.values():
        place.mkdir(mode=0o700, parents=True)
    config = write_config(root / name / "servers.json", **{ID: row_of(server, **fields)})
    environ = {
        **{each: value for each, value in os.environ.items() if not each.startswith("QUARTERDECK_")},
        "HOME": str(places["home"]),
        "QUARTERDECK_STATE_DIR": str(places["state"]),
        "QUARTERDECK_RUNTIME_DIR": str(places["run"]),
        "QUARTERDECK_DATA_DIR": str(root / "data"),
    }
    words = command("serve", "--own", "--config", str(config), "--settle", f"{START_S:g}")
    began = time.perf_counter()
    with RawStdioClient(words, env=environ, cwd=places["home"], deadline_s=START_S + CALL_S) as client:
        try:
            client.initialize()
            listed = client.list_tools()
        except (RpcError, TimeoutError, PeerClosedError) as error:
            return Found(time.perf_counter() - began, {}, said=f"{error}: {client.stderr_text()[-SAID_CHARS:]}")
        listed_s = time.perf_counter() - began
        tools = {tool["name"].removeprefix(f"{ID}__"): tool for tool in listed if tool["name"].startswith(f"{ID}__")}
        if not tools:
            logs = subprocess.run(command("logs", ID), env=environ, capture_output=True, text=True, check=False)
            return Found(listed_s, {}, said=(client.stderr_text() + logs.stdout)[-SAID_CHARS:])
        called = _called(client, server) if server.call in tools else f"no such tool: {', '.join(tools)}"
        said = "".join(line for line in client.stderr_text().splitlines(keepends=True) if UNWRITABLE.search(line))
        return Found(listed_s, tools, called, said[-SAID_CHARS:])


def _called(client: RawStdioClient, server: Server) -> str:
    try:
        result = client.call(f"{ID}__{server.call}", CALL_S, **server.arguments)
    except (RpcError, TimeoutError, PeerClosedError) as error:
        return f"failed: {error}"[:300]
    texts = [part["text"] for part in result["content"] if part["type"] == "text"]
    return f"{'error' if result.get('isError') else 'answer'}: {' '.join(' '.join(texts).split())}"[:160]


async def try_all(servers: Sequence[Server], at_once: int) -> None:
    """Print what each shows, as it ends."""
    turns = asyncio.Semaphore(at_once)

    async def one(server: Server) -> None:
        async with turns:
            with short_folder() as root:
                print(json.dumps(await tried(server, root)), flush=True)

    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            tasks.create_task(one(server))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only servers whose line has one of them")
    parser.add_argument("--at-once", type=int, default=1, help="how many are tried beside one another")
    given = parser.parse_args()
    chosen = [each for each in SERVERS if not given.words or any(word in each.line for word in given.words)]
    asyncio.run(try_all(chosen, given.at_once))


if __name__ == "__main__":
    main()
