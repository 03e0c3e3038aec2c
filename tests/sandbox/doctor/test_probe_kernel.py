"""Landlock and seccomp, tried on a thread."""

import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from quarterdeck_sandbox.doctor import probe
from quarterdeck_sandbox.doctor.probe import try_kernel
from quarterdeck_sandbox.inside import kernel
from quarterdeck_sandbox.policy.seccomp import ARCHITECTURES

ARCHITECTURE = os.uname().machine


@pytest.mark.skipif(sys.platform != "linux" or ARCHITECTURE not in ARCHITECTURES, reason="no filter for this machine")
def test_what_the_kernel_has_is_found() -> None:
    """A tier would be used that is not there, or the other way round."""
    assert try_kernel(ARCHITECTURE) in ((kernel.abi(), True), (kernel.abi(), False))


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
    monkeypatch.setattr(probe, "_POINTER_BITS", 32)
    monkeypatch.setattr(kernel, "load_seccomp", lambda program: pytest.fail("loaded"))
    assert not try_kernel(ARCHITECTURE)[1]


def test_a_kernel_that_refuses_has_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception would stop every start on an old kernel."""

    def refuse() -> None:
        raise PermissionError

    monkeypatch.setattr(kernel, "forbid_new_privileges", refuse)
    assert try_kernel(ARCHITECTURE) == (0, False)
