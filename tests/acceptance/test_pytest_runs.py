"""Whole runs of a sample project with the plugin: with xdist and without, with a killed worker, with what is left."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.config.places import row, short_folder
from support.processes.commands import DEADLINE_S
from support.processes.leftovers import assert_gone, no_leftovers

SECRET = "sk-not-to-be-shown-4711"

ALONE = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:randomly")
"""Without the plugins that `test_sample_project` is about, of which one warns, and one shuffles."""

CONFTEST = """
import sys
import pytest

@pytest.fixture(scope="session")
def mcp_config():
    return {config!r}

def pytest_collection_finish():
    loaded = [name for name in sys.modules if name.startswith("quarterdeck")]
    assert [name for name in loaded if not name.startswith("quarterdeck_pytest")] == []

def note(word, pid):
    with open({pids!r}, "a") as file:
        file.write(f"{{word}} {{pid}}\\n")
"""

TESTS = """
import os, signal, socket, tempfile
import pytest
from conftest import note

@pytest.mark.mcp("echo", scope="run")
@pytest.mark.parametrize("number", range(8))
def test_shared(mcp_server, number):
    server = mcp_server()
    note("shared", server.status.pid)
    assert server.client().call_tool("add", {"a": number, "b": 1}).structured_content == {"sum": number + 1}

@pytest.mark.mcp("echo", scope="module")
@pytest.mark.parametrize("number", range(4))
def test_own(mcp_server, number):
    note("own", mcp_server().status.pid)

@pytest.mark.mcp("echo")
def test_fails(mcp_client):
    mcp_client.call_tool("echo", {"text": "the key is SECRET"})
    mcp_client.call_tool("crash", {"code": 3})

@pytest.mark.mcp("echo")
def test_is_killed(mcp_server):
    note("killed", mcp_server().status.pid)
    os.kill(os.getpid(), signal.SIGKILL)
"""

LEAVES = """
import tempfile

def test_leaves(mcp_client):  # of the only server that there is
    assert mcp_client.call_tool("echo", {"text": "x"}).text == "x"
    tempfile.mkdtemp(prefix="left-by-a-test-")
"""


class Project:
    """A project that tests a server, with modules whose names other packages have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pids = root / "pids"
        self.temporary = root / "tmp"
        self.temporary.mkdir()
        config = {"mcpServers": {"echo": row("echo", "--stderr", "good morning", env={"API_KEY": SECRET})}}
        (root / "conftest.py").write_text(CONFTEST.format(config=config, pids=str(self.pids)))
        for name in ("supervisor", "worker", "protocol", "messages", "plugin"):
            (root / f"{name}.py").write_text("raise RuntimeError('a module of the user was imported')\n")

    def run(self, tests: str, *options: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        """A run of pytest over these tests; nothing of it is left when it ends."""
        (self.root / "test_sample.py").write_text(tests.replace("SECRET", SECRET))
        with no_leftovers(DEADLINE_S):
            return subprocess.run(
                [sys.executable, "-m", "pytest", *ALONE, "-W", "error", *options, "test_sample.py"],
                cwd=self.root,
                env={**_environment(), "TMPDIR": str(self.temporary), **environ},
                capture_output=True,
                text=True,
                timeout=10 * DEADLINE_S,
                check=False,
            )


def _environment() -> dict[str, str]:
    import os

    kept = ("PATH", "HOME", "LANG", "COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
    return {name: os.environ[name] for name in kept if name in os.environ}


@pytest.fixture
def project() -> Iterator[Project]:
    with short_folder() as folder:
        yield Project(folder)


def test_xdist_workers_share_a_server_which_outlives_one_that_is_killed(project: Project) -> None:
    """N workers times M servers would run, and each killed worker would leave its own behind."""
    ended = project.run(TESTS, "-n", "2", "--junit-xml", "report.xml")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert re.search(r"2 failed, 12 passed", ended.stdout), ended.stdout
    words = [line.split() for line in project.pids.read_text().splitlines()]
    pids = {word: {int(pid) for other, pid in words if other == word} for word, _ in words}
    assert len(pids["shared"]) == 1
    assert 1 <= len(pids["own"]) <= 3  # one for each worker that had such a test; a killed one is replaced
    assert_gone(frozenset().union(*pids.values()), DEADLINE_S)
    assert [*project.temporary.glob("qd-run-*")] == []

    cases = ElementTree.parse(project.root / "report.xml").iter("testcase")
    [failure] = [case.findtext("failure") or "" for case in cases if case.get("name") == "test_fails"]
    for text in (failure, ended.stdout):
        assert SECRET not in text.replace("the key is", "", 1).partition("MCP fault")[2]
        for part in ("MCP fault", "exited (unknown)", "remedy:", "exit status 3", "MCP server echo", "good morning"):
            assert part in text
        for part in (
            '-> tools/call crash {"code":3}',
            "<- no result: tool_error exited",
            "policy:",
            "the key is [redacted]",
        ):
            assert part in text


def test_what_a_test_leaves_fails_the_run_by_its_name(project: Project) -> None:
    """A machine would fill up with what tests leave, and nobody would know which ones."""
    ended = project.run(LEAVES, "-p", "no:xdist", "--mcp-keep", CI="true")
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert re.search(r"test_sample\.py::test_leaves left the temporary directory \S+left-by-a-test-", ended.stdout)
    assert "mcp: network none (CI is set" in ended.stdout
    [kept] = re.findall(r"the servers' state is kept in (\S+)", ended.stdout)
    assert (Path(kept) / "state" / "servers").is_dir()

    ended = project.run(LEAVES, "-n", "1", "--mcp-leaks=warn")
    assert (ended.returncode, "left behind" in ended.stdout) == (0, True), ended.stdout + ended.stderr
