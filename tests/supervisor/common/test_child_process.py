"""Processes of ours that do one thing: isolated, and gone with whoever started them."""

import os
import signal
from pathlib import Path

import pytest
from support.processes.leftovers import assert_gone
from support.processes.running import output, python_child
from support.sandbox.machine_facts import LINUX_ONLY
from support.waiting import eventually

from quarterdeck.common.child_process import Helper

pytestmark = pytest.mark.process

OWNER = """
import subprocess, sys
from quarterdeck.common.child_process import Helper
print(subprocess.Popen(Helper(sys.argv[1], ["quarterdeck"]).command).pid, flush=True)
sys.stdin.read()
"""


def test_code_finds_its_packages_and_nothing_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the user's directory could take the place of a module of ours, or ours not be found."""
    (tmp_path / "json.py").write_text("raise SystemExit('a foreign module was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import json, quarterdeck; print(quarterdeck.__name__)"
    assert output(*Helper(code, ["quarterdeck", "no_such_package"]).command, cwd=tmp_path) == "quarterdeck\n"


@LINUX_ONLY
def test_one_that_is_stopped_dies_with_its_owner(tmp_path: Path) -> None:
    """It would stay for ever, with a page or a secret in its memory."""
    ready = tmp_path / "ready"
    code = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(1000)"
    with python_child(OWNER, code) as owner:
        child = int(owner.read_line())
        eventually(ready.exists)
        os.kill(child, signal.SIGSTOP)
        owner.kill()
    assert_gone([child])


@LINUX_ONLY
def test_one_whose_owner_is_gone_already_does_nothing() -> None:
    """Between its start and its first instruction an owner can die, and nobody would tell it."""
    command = Helper("print('works')", ["quarterdeck"]).command
    command[4] = "1" if os.getpid() != 1 else "0"
    assert output(*command) == ""


@LINUX_ONLY
def test_one_is_killed_before_us_when_memory_runs_out() -> None:
    """A page that takes all the memory of the machine would end the whole deck."""
    score = Path("/proc/self/oom_score_adj")
    ours = output(*Helper(f"print(open({str(score)!r}).read())").command)
    assert int(ours) == min(1000, int(score.read_text()) + 600)
