"""Landlock, tried in processes of their own."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sandbox.kernel_lab import play
from support.sandbox.machine_facts import LANDLOCK_ONLY, ROOT_ONLY

from quarterdeck_sandbox.inside import landlock

ABI = landlock.abi()

pytestmark = LANDLOCK_ONLY

needs_root = ROOT_ONLY
SOMEBODY = 12_345


@pytest.fixture
def folder() -> Iterator[Path]:
    """With `open/`, `closed/` and `fixed/`, anybody's, where anybody can get to: pytest's own is private."""
    with tempfile.TemporaryDirectory(prefix="quarterdeck-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("open", "closed", "fixed"):
            (folder / part).mkdir()
            (folder / part / "file").write_text("text")
            (folder / part).chmod(0o777)
            (folder / part / "file").chmod(0o666)
        yield folder


@pytest.mark.parametrize("user", [None, pytest.param(SOMEBODY, marks=needs_root)], ids=["we", "somebody"])
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


def test_tcp_is_left_alone_unless_it_is_to_be_denied(folder: Path) -> None:
    """A server whose policy gives it the network would have none."""
    found = play("landlocked", folder=str(folder), deny_tcp=False, capabilities=False, true="/bin/true")
    assert found["connect"] == 0


def test_the_numbers_of_rights_never_shrink() -> None:
    """A newer kernel would be asked for less than an older one."""
    assert list(landlock.RIGHTS_BY_ABI) == sorted(landlock.RIGHTS_BY_ABI)
    assert 1 << landlock.RIGHTS_BY_ABI[-1] > landlock.WRITE
