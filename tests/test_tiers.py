"""Each test has a tier, and one without a mark that starts a process or connects fails, however it does so."""

import os
import re
import sys
from pathlib import Path

import pytest
from support.processes.running import run

CONFTEST = """
from support.suite import tiers

def pytest_addoption(parser):
    parser.addoption(tiers.OPTION)

def pytest_configure(config):
    for tier in ("core", "journeys", "nightly", "process"):
        config.addinivalue_line("markers", tier)
    config.pluginmanager.register(tiers.Tiers(config))
"""

TESTS = """
import os, socket, subprocess, threading
import pytest
from hypothesis import given, strategies

@pytest.fixture(scope="module")
def child():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        yield child

@pytest.mark.process
def test_marked(child): ...

def test_pure(): ...

def test_starts(): subprocess.run(["true"])

def test_swallows():
    try: os.fork()
    except OSError: ...

def test_connects(): socket.create_connection(("127.0.0.1", 9))

def test_in_a_thread():
    thread = threading.Thread(target=lambda: os.system and subprocess.Popen(["true"]))
    thread.start(); thread.join()

def test_uses_what_another_started(child): ...

@pytest.mark.nightly
def test_nightly(): subprocess.run(["true"])

@given(strategies.integers())
def test_generated(number): ...
"""


def passed(folder: Path, *options: str) -> set[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_sample.py").write_text(TESTS)
    alone = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ("-p", "no:cacheprovider", "-v", *options)
    told = run(sys.executable, "-m", "pytest", *words, cwd=folder, env=alone).stdout
    return set(re.findall(r"::test_(\w+) PASSED", told))


@pytest.mark.process
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"marked", "pure", "generated"}),
        (("--nightly", "all"), {"nightly", "generated"}),
    ],
    ids=["by day", "by night"],
)
def test_a_tier_has_its_tests_and_the_core_starts_nothing(
    tmp_path: Path, options: tuple[str, ...], expected: set[str]
) -> None:
    """The tier that is run most would grow slow, one careless test after another; or a nightly one run never."""
    assert passed(tmp_path, *options) == expected
