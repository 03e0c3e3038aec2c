"""What of Landlock and filters holds here: tried on a thread, and on kernels that lack some of it."""

import ast
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.processes import lacking
from support.processes.running import output

from quarterdeck_sandbox.doctor import kernel
from quarterdeck_sandbox.doctor.kernel import landlock_abi, load_seccomp, try_kernel
from quarterdeck_sandbox.policy.seccomp import ARCHITECTURES

ARCHITECTURE = os.uname().machine

pytestmark = pytest.mark.skipif(ARCHITECTURE not in ARCHITECTURES, reason="no filter for this machine")

TRY = "import os; from quarterdeck_sandbox.doctor.kernel import try_kernel; print(try_kernel(os.uname().machine))"


def test_what_the_kernel_has_is_found() -> None:
    """A tier would be used that is not there, or the other way round."""
    abi, filters, asks = try_kernel(ARCHITECTURE)
    assert abi == landlock_abi()
    assert filters or not asks


def test_the_trial_confines_its_own_thread_only() -> None:
    """The supervisor itself would lose its files and sockets."""
    ready, go = threading.Event(), threading.Event()

    def other() -> int:
        ready.set()
        go.wait(10)
        with socket.socket(socket.AF_UNIX):
            return len(os.listdir("/"))

    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(other)
        ready.wait(10)
        try_kernel(ARCHITECTURE)
        go.set()
        assert before.result(10) > 0
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(other).result(10) > 0


def test_an_architecture_without_a_filter_has_none() -> None:
    """The wrong filter would kill every server."""
    assert not try_kernel("riscv64")[1]


def test_a_32_bit_interpreter_is_never_put_under_a_64_bit_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial would kill the supervisor."""
    monkeypatch.setattr(kernel, "_POINTER_BITS", 32)
    assert not any(try_kernel(ARCHITECTURE)[1:])


@pytest.mark.process
@pytest.mark.parametrize(
    ("lacks", "lost"), [("landlock", {0}), ("seccomp", {1, 2}), ("listener", {2}), ("memory", {2})]
)
def test_what_a_kernel_or_a_container_refuses_is_not_counted_on(lacks: str, lost: set[int]) -> None:
    """Each start would fail, or each change of a mode; an exception would stop even `doctor`."""
    found = ast.literal_eval(output(*lacking.COMMAND, lacks, sys.executable, "-c", TRY))
    assert not any(found[one] for one in lost)
    others = {0, 1, 2} - lost
    assert [found[one] for one in others] == [try_kernel(ARCHITECTURE)[one] for one in others]


def test_a_filter_that_is_none_is_refused_by_the_kernel() -> None:
    """A trial would find that a filter holds which was never loaded."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(OSError, match="prctl"):
        pool.submit(load_seccomp, b"").result()
