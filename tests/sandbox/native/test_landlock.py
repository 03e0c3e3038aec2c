"""Landlock as the gate uses it: a program reaches what its rules name, and nothing else."""

import errno
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.config.places import short_folder
from support.processes.identities import plain_python
from support.sandbox.kernel_lab import play
from support.sandbox.machine_facts import LANDLOCK_ONLY, ROOT_ONLY

from quarterdeck_sandbox.doctor.kernel import landlock_abi
from quarterdeck_sandbox.policy.tiers import Rules

SOMEBODY = 12_345


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


@pytest.mark.process
@LANDLOCK_ONLY
@pytest.mark.parametrize("user", [None, pytest.param(SOMEBODY, marks=ROOT_ONLY)], ids=["we", "somebody"])
def test_only_what_is_named_can_be_reached(folder: Path, user: int | None) -> None:
    """A server would read a neighbour's files, or be kept from its own."""
    found = landlocked(folder, user=user)
    refused = {name for name, number in found.items() if number in (errno.EACCES, errno.EPERM, errno.EXDEV)}
    expected = {"list outside", "read outside", "write outside", "link outside", "write the fixed", "make a device"}
    expected |= {"truncate outside"} if landlock_abi() >= 3 else set()
    expected |= {"move into it"} if landlock_abi() < 2 else set()
    expected |= {"connect"} if landlock_abi() >= 4 else set()
    expected |= {"signal the parent"} if landlock_abi() >= 6 else set()
    assert refused >= expected
    assert {name for name, number in found.items() if number != 0} <= expected | {"signal the parent"}
    assert (folder / "closed" / "file").read_text() == "text"
    assert (folder / "open" / "folder" / "new").exists() or landlock_abi() < 2


@pytest.mark.process
@LANDLOCK_ONLY
def test_tcp_is_left_alone_unless_it_is_to_be_denied(folder: Path) -> None:
    """A server whose policy gives it the network would have none."""
    assert landlocked(folder, deny_tcp=False)["connect"] == 0


def landlocked(folder: Path, *, user: int | None = None, deny_tcp: bool = True) -> dict[str, int]:
    """The errno of each thing that is tried in the folder, and at a port of ours."""
    prefix = str(Path(os.path.realpath(plain_python())).parents[1])
    rules = Rules(
        read=("/usr", prefix, f"{folder}/fixed", f"{folder}/missing"),
        write=(f"{folder}/open",),
        devices=("/dev/null",),
        deny_tcp=deny_tcp,
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, true = server.getsockname()[1], os.path.realpath(shutil.which("true") or "")
        found: dict[str, int] = play("landlocked", rules=rules, user=user, folder=str(folder), port=port, true=true)
    return found
