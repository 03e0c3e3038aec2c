"""Whole runs of a sample project with the plugin: with xdist and without, with a killed worker, with what is left."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.config.places import row, short_folder
from support.processes.commands import DEADLINE_S
from support.processes.lacking import COMMAND as KERNEL
from support.processes.leftovers import assert_gone, no_leftovers
from support.sandbox.machine_facts import LINUX_ONLY

SECRET = "sk-not-to-be-shown-4711"

LEFT_OUT = ("cacheprovider", "asyncio", "hypothesispytest", "pytest_cov", "randomly", "timeout")
ALONE = [word for name in LEFT_OUT for word in ("-p", f"no:{name}")]
"""Without the plugins that `test_sample_project` is about: one warns, one shuffles, and each takes time to load."""

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

STARTS_MORE = """
import pytest

@pytest.fixture(scope="session")
def mcp_config():
    return "mcp.json"

@pytest.mark.mcp("leaves")
def test_starts_more(mcp_client):
    assert mcp_client.call_tool("echo", {"text": "x"}).text == "x"
"""

MISTYPED = """
import pytest

@pytest.mark.mcp("echo", polcy="strict")
def test_mistyped(mcp_client): ...
"""

MISTAKES = """
import pytest

@pytest.mark.mcp("eco")
def test_unknown(mcp_client): ...

@pytest.mark.mcp(["python", "-c", "import sys; sys.exit('usage: server FILE')"])
def test_does_not_start(mcp_client): ...
"""

UNCONFINED = """
import pytest

@pytest.mark.mcp("echo", policy={"minimum": "landlock"})
def test_refused(mcp_client): ...

@pytest.mark.mcp("echo", policy="trusted")
def test_trusted(mcp_client):
    assert mcp_client.call_tool("echo", {"text": "x"}).text == "x"
"""


class Project:
    """A project that tests a server, with modules whose names other packages have."""

    def __init__(self, folder: Path) -> None:
        root = self.root = folder / "project"
        root.mkdir()
        self.pids = root / "pids"
        self.temporary = folder / "tmp"  # not in the project, which servers may read
        self.temporary.mkdir()
        config = {"mcpServers": {"echo": row("echo", "--stderr", "good morning", env={"API_KEY": SECRET})}}
        (root / "conftest.py").write_text(CONFTEST.format(config=config, pids=str(self.pids)))
        for name in ("supervisor", "worker", "protocol", "messages", "plugin"):
            (root / f"{name}.py").write_text("raise RuntimeError('a module of the user was imported')\n")

    def run(self, tests: str, *options: str, lacking: str = "", **environ: str) -> "subprocess.CompletedProcess[str]":
        """A run of pytest over these tests, on a kernel that lacks something; nothing of it is left when it ends."""
        (self.root / "test_sample.py").write_text(tests.replace("SECRET", SECRET))
        with no_leftovers(DEADLINE_S):
            return subprocess.run(
                [
                    *((*KERNEL, lacking) if lacking else ()),
                    sys.executable,
                    "-m",
                    "pytest",
                    *ALONE,
                    "-W",
                    "error",
                    *options,
                    "test_sample.py",
                ],
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
    with short_folder(0o755) as folder:  # as root, servers are another user
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


@pytest.mark.nightly
def test_what_a_test_leaves_is_only_told_where_that_was_asked_for(project: Project) -> None:
    """A project that has just begun with the plugin could not be tested before all its tests are clean."""
    ended = project.run(LEAVES, "-n", "1", "--mcp-leaks=warn")
    assert (ended.returncode, "left behind" in ended.stdout) == (0, True), ended.stdout + ended.stderr


@pytest.mark.nightly
@LINUX_ONLY
def test_a_process_that_a_server_leaves_is_named_though_its_sandbox_has_ended_it(project: Project) -> None:
    """An author would ship a server that fills up every machine on which nothing confines it."""
    config = {"mcpServers": {"leaves": row("hostile", "daemonise")}}
    (project.root / "mcp.json").write_text(json.dumps(config))
    ended = project.run(STARTS_MORE, "-p", "no:xdist", "--mcp-config", "mcp.json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    told = r"test_starts_more left process \d+ \(.*hostile\.py daemonise\) of server 'leaves', which outlived it"
    assert re.search(told, ended.stdout), ended.stdout
    ended = project.run(STARTS_MORE, "-p", "no:xdist", "--mcp-config", "mcp.json", "--mcp-leaks=off")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.nightly
def test_what_a_test_asks_for_that_there_is_not_is_one_sentence(project: Project) -> None:
    """Whoever mistyped something would have to read code of ours."""
    ended = project.run(MISTYPED, "-p", "no:xdist")
    assert "\ntest_sample.py::test_mistyped: mcp: there is no argument 'polcy': did you mean policy=?\n" in ended.stdout
    ended = project.run(MISTAKES, "-p", "no:xdist")
    for told in (
        "has no server 'eco': did you mean 'echo'?",
        "exited with status 1 before it answered",
        "policy: {",
        "confined by: ",
        "remedy: look at the end of its stderr",
    ):
        assert told in ended.stdout, ended.stdout + ended.stderr
    assert re.search(r"stderr, its end:\n  \S+\tusage: server FILE\n", ended.stdout)
    assert ended.stdout.count("exited with status 1") == 2  # in the traceback and in the section of the fault
    assert "During handling" not in ended.stdout


@pytest.mark.nightly
@LINUX_ONLY
def test_without_a_sandbox_no_server_starts_unless_it_is_trusted(project: Project) -> None:
    """It would run unconfined without anybody's word, or nobody would know what to do."""
    ended = project.run(UNCONFINED, lacking="landlock,seccomp")
    assert "1 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    assert "spawn_failed, sandbox_refused (not_sent): the policy needs landlock" in ended.stdout
    assert '"trusted" runs it unconfined' in ended.stdout
