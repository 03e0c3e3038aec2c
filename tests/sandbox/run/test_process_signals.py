"""Asking a tree to end: everybody in it, nobody else, and a shell last."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.processes.leftovers import running_with
from support.waiting import eventually, eventually_async

from quarterdeck_sandbox.policy.limits import Process, ProcessTree, members
from quarterdeck_sandbox.run import process_signals as module
from quarterdeck_sandbox.run.process_signals import ask_to_end, descendants, signal_tree

pytestmark = pytest.mark.process

TREE = ProcessTree(pid=12, top=10)


def processes(**parents: int) -> dict[int, Process]:
    """A machine with these processes, `p<pid>=<parent>`."""
    return {
        int(name[1:]): Process(int(name[1:]), parent, 0.0, rss_bytes=0, threads=1, cpu_s=0.0, reaped_cpu_s=0.0)
        for name, parent in parents.items()
    }


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (processes(p1=0, p10=1, p11=10, p12=11, p13=12, p14=13, p15=1), {12, 13, 14}),
        (processes(p1=0, p10=1, p11=10, p12=11, p16=11, p17=16), {12, 16, 17}),
        (processes(p1=0, p10=1, p12=1, p13=12), set()),
        (processes(p1=0, p10=1), set()),
        (processes(p1=0), set()),
    ],
    ids=["children", "orphans", "another tree", "program gone", "tree gone"],
)
def test_a_tree_is_the_program_and_what_it_started(found: dict[int, Process], expected: set[int]) -> None:
    """A signal would reach the sandbox's own processes, a stranger's, or miss an orphan."""
    assert set(members(found, TREE)) == expected


async def test_a_shell_that_waits_ends_last(tmp_path: Path) -> None:
    """What it waits for would be killed with it, before it had saved anything."""
    log = tmp_path / "log"
    script = f"""
        trap 'echo shell >>{log}; exit' TERM
        sh -c 'trap "sleep 0.2; echo child >>{log}; exit" TERM; echo up >>{log}; while :; do sleep 0.01; done' &
        wait; sleep 4301.5
    """
    with subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL) as child:  # noqa: ASYNC220
        await eventually_async(lambda: log.exists() and "up" in log.read_text())
        await ask_to_end(ProcessTree(child.pid, child.pid), 20.0)
        await eventually_async(lambda: child.poll() is not None)
    assert log.read_text().split() == ["up", "child", "shell"]
    assert not running_with("4301.5")


async def test_a_shell_does_not_stay_stopped_for_those_that_do_not_heed() -> None:
    """It could not even be asked itself."""
    with subprocess.Popen(  # noqa: ASYNC220
        ["sh", "-c", "(trap '' TERM; sleep 4302.5; sleep 4302.5) & wait"], stderr=subprocess.DEVNULL
    ) as child:
        await eventually_async(lambda: running_with("sleep 4302.5"))
        tree = ProcessTree(child.pid, child.pid)
        left = running_with("4302.5")
        await ask_to_end(tree, 0.1)
        await eventually_async(lambda: child.poll() is not None)
    for pid in left:
        signal_tree(ProcessTree(pid, pid), 9)
    await eventually_async(lambda: not running_with("4302.5"))


async def test_a_program_that_is_no_shell_is_asked_at_once() -> None:
    """It would not coordinate the end of its own workers."""
    with subprocess.Popen(["sleep", "4303.5"]) as child:  # noqa: ASYNC220
        await eventually_async(lambda: running_with("4303.5"))
        await ask_to_end(ProcessTree(child.pid, child.pid), 20.0)
        assert child.wait(20.0) == -15


def test_what_has_ended_is_no_error() -> None:
    """A stop that came late would fail."""
    signal_tree(ProcessTree(pid=2**22 - 1, top=2**22 - 1), 15)


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "looked for"])
def test_descendants_are_all_below_but_the_children_to_be_spared(
    monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """What a dead worker left behind would live on, or another worker be killed with it."""
    if not is_told:
        monkeypatch.setattr(module, "_told_children", lambda _: None)
    with subprocess.Popen(["sh", "-c", "sleep 4301.75 & wait"]) as child:
        try:
            assert eventually(lambda: len(running_with("4301.75")) == 2)
            grandchild = next(pid for pid in running_with("4301.75") if pid != child.pid)
            found = descendants()
            assert found.index(child.pid) < found.index(grandchild)
            assert not {child.pid, grandchild} & set(descendants(besides=[child.pid]))
        finally:
            signal_tree(ProcessTree(child.pid, child.pid), signal.SIGKILL)


def test_a_chain_that_forks_as_fast_as_it_is_followed_is_followed_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zygote would follow it for ever, and fork and report no more."""
    monkeypatch.setattr(module, "_told_children", lambda pid: [pid + 1])
    assert len(descendants()) == module._MOST_BELOW


def test_a_list_of_children_that_is_cut_off_names_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first digits of a pid are the pid of somebody else."""
    with subprocess.Popen(["sleep", "4301.25"]) as child:
        monkeypatch.setattr(module, "_CHILDREN_BYTES", 1)
        assert module._told_children(os.getpid()) == []
        child.kill()
