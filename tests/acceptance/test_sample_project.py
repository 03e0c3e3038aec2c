"""A project that has us installed from our wheel, in an environment of its own, beside the plugins that people have."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from support.config.places import row, short_folder, write_config
from support.processes.leftovers import assert_gone, no_leftovers
from support.processes.running import DEADLINE_S, output

pytestmark = pytest.mark.nightly

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLE: Final = Path(__file__).with_name("sample_project")

SERVERS: Final = ("north", "east", "south", "west")

FOREIGN: Final = ("pytest_asyncio", "pytest_cov", "pytest_randomly", "pytest_timeout", "anyio")

RUN_S: Final = 20 * DEADLINE_S
"""For a run of two hundred tests, on the busiest machine."""

pytest.importorskip("hatchling")
for name in FOREIGN:
    pytest.importorskip(name)


@pytest.fixture(scope="module")
def python() -> Iterator[Path]:
    """The interpreter of an environment with our wheel in it, which finds all else in that of this suite."""
    with short_folder(0o755) as folder:
        output(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
        has_pip = find_spec("pip") is not None
        output(sys.executable, "-m", "venv", *(() if not has_pip else ("--without-pip",)), folder / "venv")
        python = folder / "venv" / "bin" / "python"
        installer = [sys.executable, "-m", "pip", "--python", python] if has_pip else [python, "-m", "pip"]
        output(*installer, "install", "-q", "--no-deps", "--no-index", "--no-compile", *folder.glob("*.whl"))
        [packages] = (folder / "venv").glob("lib/python*/site-packages")
        others = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        (packages / "dependencies.pth").write_text("\n".join(others))
        yield python


@pytest.fixture
def project(python: Path) -> Iterator[Path]:
    """A copy of the sample project, with a configuration of four servers that say when they start."""
    with short_folder(0o755) as folder:
        root = shutil.copytree(SAMPLE, folder / "calculators", ignore=shutil.ignore_patterns("__pycache__"))
        rows = {name: row("echo", "--stderr", f"{name} has started") for name in SERVERS}
        write_config(root / "mcp.json", **{name: {**each, "command": str(python)} for name, each in rows.items()})
        yield root


def run_sample(python: Path, project: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest there; no process of it is left."""
    temporary = project.parent / "tmp"
    temporary.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "TMPDIR": str(temporary)}
    with no_leftovers(DEADLINE_S):
        return subprocess.run(
            [python, "-m", "pytest", "-p", "no:cacheprovider", *options],
            cwd=project,
            env=environ,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )


def assert_left(project: Path, *names: str) -> None:
    """Beside pytest's own folder for temporary ones, only these are left of a run.

    Raises:
        AssertionError: others are, or one of these is not.
    """
    left = (path.name for path in (project.parent / "tmp").iterdir())
    assert {name for name in left if not name.startswith("pytest-of-")} == {*names}


def test_two_hundred_tests_of_four_servers_start_each_once_though_a_worker_is_killed(
    python: Path, project: Path
) -> None:
    """Each worker would start servers of its own, or those of a killed one would stay."""
    options = ("-n", "4", "--asyncio-mode=strict", "--mcp-keep", "test_many.py")
    ended = run_sample(python, project, *options)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "2 failed, 201 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "crashed while running" in ended.stdout
    assert re.search(r"Failed: Timeout .*2", ended.stdout)
    noted: dict[str, set[int]] = {}
    for word, number in (line.split() for line in (project / "notes").read_text().splitlines()):
        noted.setdefault(word, set()).add(int(number))
    assert {word: len(pids) for word, pids in noted.items()} == {**dict.fromkeys(SERVERS, 1), "private": 2}
    assert_gone(frozenset().union(*noted.values()), DEADLINE_S)

    # What a server writes at its start is in the logs that were kept: once for the run, once for the killed test.
    [kept] = re.findall(r"the servers' state is kept in (\S+)", ended.stdout)
    starts = "".join(log.read_text() for log in Path(kept).rglob("*.log"))
    assert {name: starts.count(f"{name} has started") for name in SERVERS} == {**dict.fromkeys(SERVERS, 1), "south": 2}
    assert list(Path(kept, "run").iterdir()) == []
    assert_left(project, Path(kept).name)


def test_coverage_of_the_users_modules_is_right(python: Path, project: Path) -> None:
    """What pytest loads before coverage begins, or what runs in a thread of ours, would count as never run."""
    options = ("-n", "1", "--asyncio-mode=auto", "--cov", "--cov-report=json", "test_covered.py")
    ended = run_sample(python, project, *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    files = json.loads((project / "coverage.json").read_text())["files"]
    expected = {
        path.name: [at for at, line in enumerate(path.read_text().splitlines(), 1) if "never reached" in line]
        for path in map(project.joinpath, ("protocol.py", "supervisor.py", "worker.py"))
    }
    assert {name: found["missing_lines"] for name, found in files.items()} == expected
    assert_left(project)
