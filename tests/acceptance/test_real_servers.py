"""Real servers of both protocol eras: what comes through us is what a direct connection gives."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.clients.direct_client import DEADLINE_S, open_direct, without_envelope
from support.processes.running import output
from support.servers.real_servers import install, shared_folder

from quarterdeck_pytest import McpServer

pytestmark = pytest.mark.nightly

LEGACY, MODERN = "2025-11-25", "2026-07-28"

ANY_OWNER = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Where root runs the tests, servers are other users, and git looks at nobody else's repository."""


@dataclass(frozen=True)
class Real:
    """A real server, the era it speaks, and one call of it whose answer does not change.

    `arguments` and `extra` take the test's own folder.
    """

    name: str
    era: str
    tool: str
    arguments: Callable[[Path], dict[str, Any]]
    extra: Callable[[Path], list[str]] = lambda _: []


REAL = (
    Real("everything", LEGACY, "echo", lambda _: {"message": "hello"}),
    Real("filesystem", LEGACY, "read_text_file", lambda d: {"path": str(d / "note.txt")}, lambda d: [str(d)]),
    Real("memory", LEGACY, "read_graph", lambda _: {}),
    Real(
        "sequential-thinking",
        LEGACY,
        "sequentialthinking",
        lambda _: {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
    ),
    Real(
        "time", MODERN, "convert_time", lambda _: {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"}
    ),
    Real("git", MODERN, "git_log", lambda d: {"repo_path": str(d / "repo"), "max_count": 1}),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a note and a repository, for servers to look at, whoever they run as."""
    tmp_path.chmod(0o755)
    (tmp_path / "note.txt").write_text("a note\n")
    repo = tmp_path / "repo"
    repo.mkdir()
    git = ["git", "-C", str(repo), "-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    output(*git, "init", "-q")
    output(*git, "commit", "-q", "--allow-empty", "-m", "first")
    return tmp_path


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.name)
async def test_definitions_and_results_are_those_of_a_direct_connection(
    real: Real, place: Path, mcp_server: Callable[..., McpServer], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A tool that works directly, but not through us, or that looks different, is a tool that we broke."""
    basetemp = tmp_path_factory.getbasetemp()
    found = install(real.name, basetemp)
    if found.missing:
        pytest.skip(found.missing)
    argv = [*found.argv, *real.extra(place)]
    policy = {"read": [str(shared_folder(basetemp)), str(place)]}
    server = mcp_server(argv, policy=policy, env=ANY_OWNER, timeout=DEADLINE_S)
    arguments = real.arguments(place)
    ours = await server.async_client().list_tools()
    result = await server.async_client().call_tool(real.tool, arguments)
    async with open_direct(argv[0], argv[1:], {"HOME": str(place), **ANY_OWNER}) as direct:
        expected_tools = await direct.list_tools()
        expected = without_envelope(await direct.call(real.tool, arguments))
        assert direct.version == real.era
        assert server.status.era == LEGACY  # where all of them can ask their clients
    # A server may list more to a client that can be asked, as ours can; the direct one cannot.
    names = {tool["name"] for tool in expected_tools}
    assert [tool for tool in ours if tool["name"] in names] == expected_tools
    assert len(ours) == len(names) or real.name == "everything"
    assert json.loads(result.body) == expected
    assert not result.is_error
