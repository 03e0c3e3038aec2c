"""What a process asks of the kernel for itself; Landlock is tried in processes of their own."""

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.config.places import short_folder
from support.sandbox.kernel_lab import play
from support.sandbox.machine_facts import LANDLOCK_ONLY, LINUX_ONLY, ROOT_ONLY

from quarterdeck_sandbox.inside import kernel

linux = LINUX_ONLY
ABI = kernel.abi()
SOMEBODY = 12_345


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
        kernel.load_seccomp(b"")


def test_another_system_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakest tier would not start on a Mac."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(kernel, "library", lambda: pytest.fail("asked"))
    kernel.forbid_new_privileges()
    kernel.adopt_orphans()
    kernel.die_with_parent()
    kernel.clear_ambient()
    kernel.lock_securebits()
    kernel.clear_capabilities()
    kernel.load_seccomp(b"")


@pytest.fixture
def folder() -> Iterator[Path]:
    """With `open/`, `closed/` and `fixed/`, anybody's, where anybody can get to: pytest's own is private."""
    with short_folder(0o755) as folder:
        for part in ("open", "closed", "fixed"):
            (folder / part).mkdir()
            (folder / part / "file").write_text("text")
            (folder / part).chmod(0o777)
            (folder / part / "file").chmod(0o666)
        yield folder


@LANDLOCK_ONLY
@pytest.mark.parametrize("user", [None, pytest.param(SOMEBODY, marks=ROOT_ONLY)], ids=["we", "somebody"])
def test_only_what_is_named_can_be_reached(folder: Path, user: int | None) -> None:
    """A server would read a neighbour's files, or be kept from its own."""
    found = play(
        "landlocked",
        user=user,
        folder=str(folder),
        deny_tcp=True,
        capabilities=user is None,
        true=os.path.realpath(shutil.which("true") or ""),
    )
    refused = {name for name, number in found.items() if number in (errno.EACCES, errno.EPERM, errno.EXDEV)}
    expected = {"list outside", "read outside", "write outside", "link outside", "write the fixed", "make a device"}
    expected |= {"truncate outside"} if ABI >= 3 else set()
    expected |= {"move into it"} if ABI < 2 else set()
    expected |= {"connect"} if ABI >= 4 else set()
    expected |= {"signal the parent"} if ABI >= 6 else set()
    assert refused >= expected
    assert {name for name, number in found.items() if number != 0} <= expected | {"signal the parent"}
    assert (folder / "closed" / "file").read_text() == "text"
    assert (folder / "open" / "folder" / "new").exists() or ABI < 2


@LANDLOCK_ONLY
def test_tcp_is_left_alone_unless_it_is_to_be_denied(folder: Path) -> None:
    """A server whose policy gives it the network would have none."""
    found = play("landlocked", folder=str(folder), deny_tcp=False, capabilities=False, true="/bin/true")
    assert found["connect"] == 0


def test_the_numbers_of_rights_never_shrink() -> None:
    """A newer kernel would be asked for less than an older one."""
    assert list(kernel.RIGHTS_BY_ABI) == sorted(kernel.RIGHTS_BY_ABI)
    assert 1 << kernel.RIGHTS_BY_ABI[-1] > kernel.WRITE
