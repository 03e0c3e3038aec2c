"""Whether a part of a writable folder can be closed here, found by trying."""

import ctypes
import errno
import os
import shutil
from pathlib import Path
from typing import Final

import pytest
from support.processes.running import run
from support.sandbox.machine_facts import LINUX_ONLY, NO_MOUNT_NAMESPACE

from quarterdeck_sandbox.doctor import probe
from quarterdeck_sandbox.doctor.trials import TrialEnd

pytestmark = LINUX_ONLY

MOUNT_SETATTR: Final = 442
"""Its number, alike on every architecture."""


def test_it_holds_wherever_the_systems_own_programs_do_the_same(tmp_path: Path) -> None:
    """Were what closes broken, every test of it would be skipped, as on a machine that cannot do it."""
    (tmp_path / "file").touch()
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0/file"'
    become_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    words = ("unshare", *become_root, "--mount", "sh", "-c", script, str(tmp_path))
    if shutil.which("unshare") is None or run(*words).returncode:
        pytest.skip(NO_MOUNT_NAMESPACE)
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall(MOUNT_SETATTR, -1, b"", 0, None, 0)
    if ctypes.get_errno() == errno.ENOSYS:
        pytest.skip("this kernel has no mount_setattr")
    assert probe.try_closing(os.geteuid())


def test_a_machine_where_nothing_is_closed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration in a workspace would be believed to be closed, and be open."""

    def without(argv: list[str], *, uid: int, pass_fds: tuple[int, ...]) -> TrialEnd:
        folder = _order(pass_fds[0])
        os.makedirs(f"{folder}/inner", exist_ok=True)
        for name in ("open", "inner/closed"):
            with open(f"{folder}/{name}", "w") as file:
                file.write("x")
        return TrialEnd("")

    monkeypatch.setattr(probe, "run", without)
    assert not probe.try_closing(os.geteuid())


def test_a_machine_without_mount_namespaces_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command would fail there, with words that nobody understands."""
    monkeypatch.setattr(probe, "run", lambda *_, **__: TrialEnd("Operation not permitted"))
    assert not probe.try_closing(os.geteuid())


def test_a_folder_that_could_be_moved_away_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed file would be replaced together with its folder."""

    def moved(argv: list[str], *, uid: int, pass_fds: tuple[int, ...]) -> TrialEnd:
        folder = _order(pass_fds[0])
        with open(f"{folder}/open", "w") as file:
            file.write("x")
        os.rename(f"{folder}/inner", f"{folder}/moved")
        return TrialEnd("")

    monkeypatch.setattr(probe, "run", moved)
    assert not probe.try_closing(os.geteuid())


def _order(fd: int) -> str:
    import marshal

    order = marshal.loads(os.pread(fd, 65536, 0))
    return str(order["argv"][-1])
