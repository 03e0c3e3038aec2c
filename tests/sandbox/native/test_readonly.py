"""Parts of a writable folder that are closed before a sandbox exists; processes that try to open them again."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.processes import running
from support.sandbox.gates import GATE
from support.sandbox.machine_facts import MOUNT_NAMESPACE_ONLY, ROOT_ONLY, installed_only

from quarterdeck_sandbox.gate.order import encode_closing
from quarterdeck_sandbox.gate.program import command

pytestmark = [MOUNT_NAMESPACE_ONLY, pytest.mark.process]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What may be written, with something in it that may not."""
    folder = Path(os.path.realpath(tmp_path)) / "work"
    (folder / "deep/er").mkdir(parents=True)
    for name in ("deep/er/closed", "deep/er/beside", "plain"):
        (folder / name).write_text(name)
    return folder


def run(
    steps: Sequence[tuple[Path, bool]],
    script: str,
    folder: Path,
    *,
    opened: list[str] | None = None,
    below: Sequence[str] = (),
) -> "subprocess.CompletedProcess[str]":
    """A shell in `folder` after these steps; `below` is a command that starts all of it."""
    words = ["/bin/sh", "-c", 'cd "$0" && ' + script, str(folder)]
    order = encode_closing(words, [(str(path), closed) for path, closed in steps], opened=opened)
    fd = os.memfd_create("order", 0)
    try:
        os.write(fd, order)
        return running.run(*below, *command(GATE, "readonly", fd), pass_fds=(fd,))
    finally:
        os.close(fd)


def closing(folder: Path) -> list[tuple[Path, bool]]:
    return [(folder / "deep", False), (folder / "deep/er", False), (folder / "deep/er/closed", True)]


@pytest.mark.parametrize(
    "attack",
    [
        "echo x > deep/er/closed",
        "rm -f deep/er/closed",
        "rm -rf deep",
        "echo x > new; mv new deep/er/closed",
        "mv deep/er/closed moved",
        "mv deep moved; mkdir -p deep/er; echo x > deep/er/closed",
        "mv deep/er deep/moved; mkdir deep/er; echo x > deep/er/closed",
        "ln deep/er/closed other; echo x > other",
        "ln -s /proc/self/root link; echo x > link/$PWD/deep/er/closed",
        "chmod 777 deep/er/closed; touch -d 2000-01-01 deep/er/closed; echo x > deep/er/closed",
    ],
)
def test_what_is_closed_stays_what_it_was_where_it_was(folder: Path, attack: str) -> None:
    """A program would write itself a configuration, by any of the ways that lead to a file."""
    before = (folder / "deep/er/closed").stat()
    ended = run(closing(folder), f"({attack}); echo y > plain", folder)
    after = (folder / "deep/er/closed").stat()
    assert (folder / "deep/er/closed").read_text() == "deep/er/closed", ended.stderr
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (before.st_ino, before.st_mtime_ns, before.st_mode)
    assert (folder / "plain").read_text() == "y\n", ended.stderr


def test_what_lies_beside_is_as_writable_as_before(folder: Path) -> None:
    """Git could not commit where its hooks are closed."""
    ended = run(closing(folder), "echo x > deep/er/beside && mv deep/er/beside deep/beside2; cat deep/beside2", folder)
    assert ended.stdout == "x\n", ended.stderr
    ended = run([(folder / "deep", True)], "cat deep/er/closed && ! echo x > deep/er/new", folder)
    assert (ended.returncode, ended.stdout) == (0, "deep/er/closed")


def test_the_mounts_are_seen_by_nobody_else(folder: Path) -> None:
    """The user's own programs could not change their configuration any more, for as long as a command runs."""
    ended = run(closing(folder), f"grep -c {folder} /proc/self/mountinfo", folder)
    assert ended.stdout == "3\n"
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    (folder / "deep/er/closed").write_text("changed by its owner")


@installed_only("unshare")
def test_what_is_mounted_below_is_closed_with_it_and_for_nobody_else(folder: Path) -> None:
    """A part of a closed folder would stay open; or the user's own programs would find their files read-only."""
    (folder / "deep/below").mkdir()
    inside = f"cat {folder}/deep/below/there; echo x > {folder}/deep/below/new"
    outside = 'mount -t tmpfs none "$0/deep/below" && echo there > "$0/deep/below/there" && "$@"'
    outside += '; ls "$0/deep/below"; grep -c "$0" /proc/self/mountinfo'
    become_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    shared = ("unshare", *become_root, "--mount", "--propagation", "shared", "sh", "-c", outside, str(folder))
    done = run([(folder / "deep", True)], inside, folder, below=shared)
    assert done.stdout.split() == ["there", "there", "1"], done.stderr
    assert "ead-only" in done.stderr


@pytest.mark.parametrize("where", ["deep", "deep/er", "deep/er/closed"])
def test_a_link_in_the_place_of_any_part_starts_nothing(folder: Path, where: str) -> None:
    """Who swaps a folder for a link meanwhile would have another one closed, or mounted writable, in its place."""
    (folder / where).rename(folder.parent / "aside")
    (folder / where).symlink_to(folder.parent / "aside")
    ended = run(closing(folder), "echo started", folder)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert str(folder / "deep") in ended.stderr


def test_what_is_not_there_starts_nothing_and_is_named(folder: Path) -> None:
    """Something would run with a part open that was to be closed."""
    ended = run([(folder / "gone", True)], "echo started", folder)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"{folder}/gone: it vanished while it was being closed: try again\n"
    ended = run([(folder / "plain/below", True)], "echo started", folder)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"{folder}/plain/below: Not a directory\n"


def test_it_stays_the_user_that_it_was(folder: Path) -> None:
    """Files that it makes would be somebody else's."""
    ended = run(closing(folder), "id -u; id -g; touch mine", folder)
    assert ended.stdout.split() == [str(os.geteuid()), str(os.getegid())]
    assert (folder / "mine").stat().st_uid == os.geteuid()


@ROOT_ONLY
def test_where_only_some_paths_are_open_all_else_is_read_only(folder: Path) -> None:
    """A server that stays root owns the system's files: it could open the shadow file to all, or close a shell."""
    outside = folder.parent / "outside"
    outside.write_text("")
    outside.chmod(0o600)
    script = f"chmod 666 {outside}; touch -d 2001-01-01 {outside}; echo x > {outside}"
    script += "; echo x > deep/er/closed; echo y > plain"
    done = run(closing(folder), script, folder, opened=[str(folder)])
    assert done.stderr.count("ead-only") == 4, done.stderr
    assert (outside.stat().st_mode & 0o777, outside.read_text()) == (0o600, "")
    assert (folder / "plain").read_text() == "y\n"
    assert (folder / "deep/er/closed").read_text() == "deep/er/closed"
