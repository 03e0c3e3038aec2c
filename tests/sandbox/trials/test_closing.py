"""Whether a part of a writable folder can be closed here, found by trying."""

import os

import pytest
from support.machine_facts import LINUX_ONLY

from quarterdeck_sandbox.trials import closing
from quarterdeck_sandbox.trials.running import Outcome

pytestmark = LINUX_ONLY


def test_a_machine_where_nothing_is_closed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration in a workspace would be believed to be closed, and be open."""

    def without(argv: list[str], *, uid: int, pass_fds: tuple[int, ...]) -> Outcome:
        folder = _order(pass_fds[0])
        os.makedirs(f"{folder}/inner", exist_ok=True)
        for name in ("open", "inner/closed"):
            with open(f"{folder}/{name}", "w") as file:
                file.write("x")
        return Outcome("")

    monkeypatch.setattr(closing, "run", without)
    assert not closing.try_closing(os.geteuid())


def test_a_machine_without_mount_namespaces_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command would fail there, with words that nobody understands."""
    monkeypatch.setattr(closing, "run", lambda *_, **__: Outcome("Operation not permitted"))
    assert not closing.try_closing(os.geteuid())


def test_a_folder_that_could_be_moved_away_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed file would be replaced together with its folder."""

    def moved(argv: list[str], *, uid: int, pass_fds: tuple[int, ...]) -> Outcome:
        folder = _order(pass_fds[0])
        with open(f"{folder}/open", "w") as file:
            file.write("x")
        os.rename(f"{folder}/inner", f"{folder}/moved")
        return Outcome("")

    monkeypatch.setattr(closing, "run", moved)
    assert not closing.try_closing(os.geteuid())


def _order(fd: int) -> str:
    import marshal

    order = marshal.loads(os.pread(fd, 65536, 0))
    return str(order["argv"][-1])
