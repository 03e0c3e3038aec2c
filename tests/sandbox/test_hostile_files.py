"""Files that a hostile program may have made: trees that are read, folders that are removed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.config.places import make_deep
from support.processes.identities import Identity
from support.processes.running import output, python_child
from support.waiting import PATIENCE_S, eventually

from quarterdeck_sandbox.hostile_files import MAX_FILE_BYTES, HostileTree, remove_tree, temporary_folder

pytestmark = pytest.mark.process


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[HostileTree]:
    (tmp_path / "home" / "inner").mkdir(parents=True)
    (tmp_path / "home" / "inner" / "file").write_text("inside")
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "file").write_text("outside")
    with HostileTree(tmp_path / "home") as opened:
        yield opened


def test_what_is_there_is_read(tree: HostileTree) -> None:
    """Names, content, and when it was written."""
    assert tree.names("inner") == ["file"]
    assert tree.read("inner", "file") == b"inside"
    assert tree.changed_at("inner", "file") > 0


def test_what_is_not_there_is_nothing(tree: HostileTree) -> None:
    """A cache that was never made is no failure."""
    assert tree.names("none") == []
    assert tree.read("none", "file") is None
    assert tree.read("inner") is None
    assert tree.changed_at("none") == 0


def test_no_link_leads_out(tree: HostileTree, tmp_path: Path) -> None:
    """A link in the cache must not show us, or anybody, a file of the user's."""
    (tmp_path / "home" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "home" / "way").symlink_to(tmp_path / "away")
    assert tree.read("link") is None
    assert tree.read("way", "file") is None
    assert tree.names("way") == []
    assert tree.read("..", "outside") is None
    assert tree.read("../outside") is None


def test_a_pipe_does_not_hold_us(tree: HostileTree, tmp_path: Path) -> None:
    """Nobody ever writes to it."""
    os.mkfifo(tmp_path / "home" / "pipe")
    assert tree.read("pipe") is None


def test_a_file_that_is_too_large_is_as_good_as_none(tree: HostileTree, tmp_path: Path) -> None:
    """A server may have a gigabyte in its manifest."""
    (tmp_path / "home" / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert tree.read("large") is None


def test_a_name_that_no_file_can_have_is_nothing(tree: HostileTree) -> None:
    """Command lines hold what they like."""
    assert tree.read("a\x00b") is None
    assert tree.read("x" * 5_000) is None


def test_nothing_stays_open(tree: HostileTree) -> None:
    """A supervisor that looks at every start runs for months."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        tree.names("inner")
        tree.read("inner", "file")
        tree.read("inner", "none")
        tree.read("inner", "file", "below")
        tree.changed_at("inner")
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before


LEVELS: Final = 2500  # more than Python recurses


def test_a_folder_is_there_and_then_is_not() -> None:
    """Each command tried in a sandbox would leave its files behind."""
    with temporary_folder("quarterdeck-test-") as folder:
        Path(folder, "file").touch()
        assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert not os.path.lexists(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_process_that_a_signal_ends_leaves_no_folder(number: signal.Signals, tmp_path: Path) -> None:
    """Whoever stops a client while it starts would find one more folder in /tmp each time."""
    # Tests that a shell started in the background ignore SIGINT, and so would what they start.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from quarterdeck_sandbox.hostile_files import temporary_folder as made\n"
    code += "with made('quarterdeck-test-') as path:"
    code += "\n open(path + '/file', 'x').close(); print(path, flush=True); __import__('time').sleep(600)"
    with python_child(code, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True) as child:
        folder = child.read_line().decode()
        assert os.path.dirname(folder) == str(tmp_path)
        os.killpg(child.pid, number)
        child.process.wait(PATIENCE_S)
    eventually(lambda: not os.path.lexists(folder), what="the removal of its folder")


def test_a_folder_is_made_where_no_other_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without /bin/sh would start no server."""
    monkeypatch.setattr("quarterdeck_sandbox.hostile_files._SHELL", "/no/such/shell")
    with temporary_folder("quarterdeck-test-") as folder:
        assert os.path.isdir(folder)
    assert not os.path.lexists(folder)


def test_a_folder_deeper_than_we_recurse_is_removed() -> None:
    """A program could have the tool end with a traceback, and its files stay."""
    with temporary_folder("quarterdeck-test-") as folder:
        make_deep(folder, LEVELS)
    assert not os.path.lexists(folder)


def test_a_closed_folder_is_removed_and_what_its_links_lead_to_stays_as_it_is() -> None:
    """A program could change the mode of any file of the user's, with our hand (CVE-2023-6597)."""
    who = Identity.USER
    if who.missing:
        pytest.skip(who.missing)
    with temporary_folder("quarterdeck-test-") as base:
        victim, folder = Path(base, "victim"), Path(base, "folder")
        closed, unseen = folder / "closed", folder / "unseen"
        victim.touch()
        for path in (folder, closed, unseen):
            path.mkdir()
        (closed / "link").symlink_to(victim)
        Path(base).chmod(0o777)
        who.own(victim, folder, closed, unseen)
        victim.chmod(0o640)
        closed.chmod(0o500)
        unseen.chmod(0o000)
        code = f"from quarterdeck_sandbox.hostile_files import remove_tree; remove_tree({str(folder)!r})"
        tool = who.quarterdeck
        output(tool.argv[0], "-c", code, env={**os.environ, **tool.env}, **who.popen)
        assert not folder.exists()
        assert victim.stat().st_mode & 0o777 == 0o640


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    """A program that removes its own home would have us fail."""
    remove_tree(str(tmp_path / "no such folder"))


def test_programs_that_lie_on_our_path_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program could have a file of its own run outside of its sandbox, where a PATH begins with its workspace's."""
    planted = tmp_path / "bin"
    planted.mkdir()
    for name in ("rm", "chmod"):
        (planted / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/run\n")
        (planted / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted}:{os.environ['PATH']}")
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    (tmp_path / "folder").mkdir()
    remove_tree(str(tmp_path / "folder"))
    assert not (tmp_path / "folder").exists()
    assert not (tmp_path / "run").exists()
