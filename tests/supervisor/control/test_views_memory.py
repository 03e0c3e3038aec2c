"""Memory of process trees."""

import os
import subprocess
import sys

from support.line_child import LineChild

from quarterdeck.control.views import tree_memory


def test_a_tree_weighs_more_than_its_root() -> None:
    """A server that hides its weight in children would look small."""
    program = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with LineChild([sys.executable, "-c", program]) as child:
        assert child.read_line() == b"1"
        root = child.process.pid
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(root)], capture_output=True, text=True, check=True)
        (below,) = map(int, children.stdout.split())
        weights = tree_memory([root, below])
        assert weights[root] > weights[below] > 1_000_000


def test_a_process_that_is_gone_weighs_nothing() -> None:
    """`ps` would fail because a server died at that moment."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    weights = tree_memory([gone.pid, os.getpid()])
    assert gone.pid not in weights
    assert weights[os.getpid()] > 0


def test_nothing_is_looked_at_for_nobody() -> None:
    """A deck of remote servers would cost a walk over all processes."""
    assert tree_memory([]) == {}
