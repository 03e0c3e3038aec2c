"""What a process asks of the kernel for itself."""

import sys

import pytest
from support.sandbox.kernel_lab import play
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck_sandbox.inside import prctl

linux = LINUX_ONLY


@linux
def test_privileges_that_were_given_up_are_gone() -> None:
    """A server could take back what it was started without."""
    assert play("privileges") == {
        "CapPrm": "0" * 16,
        "CapEff": "0" * 16,
        "CapAmb": "0" * 16,
        "NoNewPrivs": "1",
    }


@linux
def test_orphans_are_adopted_and_children_die_with_their_parent() -> None:
    """A daemon would outlive its server."""
    assert play("orphans") == {"adopted": True, "killed": True}


@linux
def test_a_filter_that_is_none_is_refused_by_the_kernel() -> None:
    """A server would run without a filter, and nobody would know."""
    with pytest.raises(OSError, match="prctl"):
        prctl.load_seccomp(b"")


def test_another_system_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakest tier would not start on a Mac."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(prctl, "_library", lambda: pytest.fail("asked"))
    prctl.forbid_new_privileges()
    prctl.adopt_orphans()
    prctl.die_with_parent()
    prctl.clear_ambient()
    prctl.lock_securebits()
    prctl.clear_capabilities()
    prctl.load_seccomp(b"")
