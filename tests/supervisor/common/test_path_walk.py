"""Following a path by descriptors."""

import errno
import os
import stat
from pathlib import Path

import pytest
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck.common import path_walk
from quarterdeck.common.path_walk import MAX_PATH_BYTES, FoundPath, join, open_file, walk
from quarterdeck_sandbox.hostile_files import MAX_LINKS, path_of_fd

ON_LINUX = LINUX_ONLY


def place_of(path: str | Path) -> str:
    with walk(str(path)) as spot:
        thing, _ = spot.held()
        return path_of_fd(thing)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


@pytest.mark.parametrize(
    ("path", "number", "reason"),
    [
        ("", errno.ENOENT, "empty"),
        ("~", errno.EINVAL, "`~` is not expanded"),
        ("~/notes", errno.EINVAL, "`~` is not expanded"),
        ("a\0b", errno.EINVAL, "NUL"),
        ("a\ud800b", errno.EILSEQ, "surrogate"),
        ("a/" * 3000, errno.ENAMETOOLONG, "too long"),
    ],
)
def test_what_can_name_nothing_is_refused_with_its_reason(path: str, number: int, reason: str) -> None:
    """A model would be told of a ValueError, or would look for its file in a directory called `~`."""
    with pytest.raises(OSError, match=reason) as caught:
        join(path, "/work")
    assert caught.value.errno == number


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("a", "/work/a"),
        ("/a", "/a"),
        ("./~", "/work/./~"),
        ("~user", "/work/~user"),
        ("a/../b/", "/work/a/../b/"),
        ("caf\udce9", "/work/caf\udce9"),
        ("x" * (MAX_PATH_BYTES - 6), "/work/" + "x" * (MAX_PATH_BYTES - 6)),
    ],
)
def test_a_path_is_taken_as_it_is_spelled(path: str, whole: str) -> None:
    """`a/../b` would lead elsewhere than for the commands of the same session, where `a` is a link."""
    assert join(path, "/work") == whole


@ON_LINUX
@pytest.mark.parametrize("link", ["/proc/self/root", "/proc/self/cwd", "/proc/thread-self/root"])
def test_links_of_the_kernel_are_texts(base: Path, link: str) -> None:
    """A link could lead into the files of another process, under names that look like ours."""
    (base / "f").write_text("f")
    (base / "jump").symlink_to(link)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        assert place_of(base / "jump") == os.readlink(link)


@ON_LINUX
def test_an_open_descriptor_is_no_way_in(base: Path) -> None:
    """A link to `/dev/fd/N` would open what this process holds: a pipe, or a file that was removed."""
    (base / "gone").write_text("secret")
    with open(base / "gone", "rb") as held:
        (base / "gone").unlink()
        (base / "jump").symlink_to(f"/proc/self/fd/{held.fileno()}")
        assert (base / "jump").read_text() == "secret"
        with walk(str(base / "jump")) as spot:
            assert spot.thing is None
    reading, writing = os.pipe()
    try:
        (base / "pipe").symlink_to(f"/dev/fd/{reading}")
        with walk(str(base / "pipe")) as spot:
            assert spot.thing is None
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(("links", "found"), [(MAX_LINKS, True), (MAX_LINKS + 1, False)])
def test_a_path_follows_as_many_links_as_the_kernel(base: Path, links: int, found: bool) -> None:
    """A loop of links would never end; or a long chain would open for commands but not for tools."""
    (base / "l0").write_text("end")
    for number in range(links):
        (base / f"l{number + 1}").symlink_to(f"l{number}")
    if found:
        assert place_of(base / f"l{links}") == str(base / "l0")
    else:
        with pytest.raises(OSError, match="links") as caught:
            walk(str(base / f"l{links}"))
        assert caught.value.errno == errno.ELOOP


def test_the_last_link_is_looked_at_itself_when_asked(base: Path) -> None:
    """To remove a link would remove what it leads to."""
    (base / "target").mkdir()
    (base / "link").symlink_to("target")
    with walk(str(base / "link"), follow_last=False) as spot:
        assert stat.S_ISLNK(spot.status.st_mode)
    with walk(str(base / "link") + "/", follow_last=False) as spot:
        assert spot.is_directory


def test_what_is_missing_at_the_end_is_a_spot_in_its_directory(base: Path) -> None:
    """Nothing new could be created; or a slash at the end of a file's name would be ignored."""
    (base / "link").symlink_to("new")
    for path, name, must_be_directory in (("new", "new", False), ("new/", "new", True), ("link", "new", False)):
        with walk(f"{base}/{path}") as spot:
            assert (spot.thing, spot.name, spot.must_be_directory) == (None, name, must_be_directory)
            assert spot.directory is not None
            assert path_of_fd(spot.directory) == str(base)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("missing/x", errno.ENOENT),
        ("missing/../f", errno.ENOENT),
        ("f/", errno.ENOTDIR),
        ("f/.", errno.ENOTDIR),
        ("f/..", errno.ENOTDIR),
        ("f/x", errno.ENOTDIR),
        ("x" * 256, errno.ENAMETOOLONG),
    ],
)
def test_what_leads_nowhere_fails_as_the_kernel_says(base: Path, path: str, number: int) -> None:
    """A tool would say that a file does not exist where a directory is none, or the other way round."""
    (base / "f").write_text("f")
    with pytest.raises(OSError) as caught:
        walk(f"{base}/{path}")
    assert caught.value.errno == number


@pytest.mark.parametrize("path", ["/", "//", "/..", "/../../."])
def test_the_top_has_no_name_and_nothing_at_a_spot_is_a_missing_file(path: str) -> None:
    """`/` would be replaced in a directory, or a tool fail with an error of ours."""
    with walk(path) as spot:
        assert (spot.directory, spot.name, spot.is_directory) == (None, "", True)
    with pytest.raises(FileNotFoundError):
        FoundPath(None).held()


def test_no_descriptor_is_kept(base: Path) -> None:
    """A long session would run out of descriptors."""
    (base / "d").mkdir()
    (base / "f").write_text("f")
    (base / "loop").symlink_to("loop")
    (base / "top").symlink_to("/")
    before = len(os.listdir("/dev/fd"))
    for path in ("d", "f", "d/../f", "missing", "missing/x", "f/x", "loop", "top", "top/missing/x", "d/../../.."):
        try:
            with walk(f"{base}/{path}") as spot:
                os.close(open_file(spot))
        except OSError:
            continue
    assert len(os.listdir("/dev/fd")) == before


def test_a_failure_says_where(base: Path) -> None:
    """A missing file outside of the roots could not be told from one inside."""
    (base / "d").mkdir()
    heard: list[tuple[str, str]] = []
    with pytest.raises(FileNotFoundError):
        walk(f"{base}/d/missing/x", stuck=lambda directory, name: heard.append((path_of_fd(directory), name)))
    assert heard == [(f"{base}/d", "missing")]


@ON_LINUX
def test_a_thing_is_where_it_was_when_it_is_removed_or_only_named_so(base: Path) -> None:
    """A file called `x (deleted)` could not be told from one that was removed."""
    odd = base / "x (deleted)"
    odd.write_text("x")
    assert place_of(odd) == str(odd)
    (base / "y").write_text("y")
    with walk(str(base / "y")) as spot:
        thing, _ = spot.held()
        (base / "y").unlink()
        assert path_of_fd(thing) == str(base / "y")
        (base / "y (deleted)").write_text("another")
        assert path_of_fd(thing) == str(base / "y")


@ON_LINUX
def test_without_proc_nothing_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file would seem not to exist, and be written anew."""

    def readlink(path: str) -> str:
        raise FileNotFoundError(errno.ENOENT, "gone", path)

    with walk("/") as spot:
        monkeypatch.setattr(path_walk.os, "readlink", readlink)
        with pytest.raises(OSError, match="/proc") as caught:
            path_of_fd(spot.held()[0])
    assert caught.value.errno == errno.ENOSYS
